"""Tests that signals become exceptions in the main thread, and that signals which are ignored stay ignored."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator

import pytest

from rbptrack.base.process import stop_signals_raise


@pytest.fixture(autouse=True)
def _default_handlers() -> Iterator[None]:
    """Give SIGTERM and SIGHUP their default handlers during a test. SIGHUP is ignored if nohup started the tests."""
    before = {number: signal.signal(number, signal.SIG_DFL) for number in (signal.SIGTERM, signal.SIGHUP)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_stop_signals_raise_unwinds_the_code_that_a_signal_stops(number: signal.Signals) -> None:
    unwound = []

    def work() -> None:
        try:
            os.kill(os.getpid(), number)
            signal.pause()
        finally:
            unwound.append(True)

    with pytest.raises(SystemExit) as caught, stop_signals_raise():
        work()
    assert caught.value.code == 128 + number
    assert unwound
    assert signal.getsignal(number) is signal.SIG_DFL


def test_stop_signals_raise_reports_the_signal_if_cleaning_up_raises_another_error() -> None:
    def work() -> None:
        try:
            os.kill(os.getpid(), signal.SIGTERM)
            signal.pause()
        finally:
            raise AttributeError

    with pytest.raises(SystemExit) as caught, stop_signals_raise():
        work()
    assert caught.value.code == 143


def test_stop_signals_raise_forgets_a_signal_after_its_block() -> None:
    def stop() -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        signal.pause()

    with pytest.raises(SystemExit), stop_signals_raise():
        stop()
    with pytest.raises(AttributeError), stop_signals_raise():
        raise AttributeError


def test_stop_signals_raise_leaves_a_signal_that_nohup_ignores() -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    with stop_signals_raise():
        os.kill(os.getpid(), signal.SIGHUP)
    assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN


def test_stop_signals_raise_changes_no_handler_in_another_thread() -> None:
    handlers = []

    def work() -> None:
        with stop_signals_raise():
            handlers.append(signal.getsignal(signal.SIGTERM))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert handlers == [signal.SIG_DFL]
