"""Stand-ins for functions, in tests of writing that is interrupted."""

from __future__ import annotations

from collections.abc import Callable


def interrupt(*_: object, **__: object) -> None:
    """Raise KeyboardInterrupt, as Ctrl-C does."""
    raise KeyboardInterrupt


def interrupt_after(step: Callable[..., object]) -> Callable[..., object]:
    """Return a function that does what `step` does and then raises KeyboardInterrupt."""

    def interrupted_step(*args: object, **options: object) -> object:
        step(*args, **options)
        raise KeyboardInterrupt

    return interrupted_step
