"""Signals unwind the main thread; what was ignored or handled stays so."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator

import pytest

from rbptrack.base.process import stop_signals_raise


@pytest.fixture(autouse=True)
def _usual_signals() -> Iterator[None]:
    """SIGHUP is ignored where the tests were started with nohup."""
    before = {number: signal.signal(number, signal.SIG_DFL) for number in (signal.SIGTERM, signal.SIGHUP)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_is_an_exception(number: signal.Signals) -> None:
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


def test_an_error_of_a_library_that_cleans_up_does_not_hide_the_signal() -> None:
    def work() -> None:
        try:
            os.kill(os.getpid(), signal.SIGTERM)
            signal.pause()
        finally:
            raise AttributeError

    with pytest.raises(SystemExit) as caught, stop_signals_raise():
        work()
    assert caught.value.code == 143
    with pytest.raises(AttributeError), stop_signals_raise():
        raise AttributeError


def test_what_nohup_ignores_stays_ignored() -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    with stop_signals_raise():
        os.kill(os.getpid(), signal.SIGHUP)
    assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN


def test_another_thread_changes_nothing() -> None:
    seen = []

    def work() -> None:
        with stop_signals_raise():
            seen.append(signal.getsignal(signal.SIGTERM))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [signal.SIG_DFL]
