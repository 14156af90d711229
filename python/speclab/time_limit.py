"""Interrupts a call that takes too long."""

import contextlib
import signal
import threading
import time
from collections.abc import Iterator
from types import FrameType

from .errors import Error


class TooLate(Error):
    """A call that was interrupted. The traceback says where it was at that time."""


@contextlib.contextmanager
def time_limit(seconds: float, message: str) -> Iterator[None]:
    """Raises TooLate with the message in the body of the `with` statement if the body runs longer than `seconds`.

    Only the main thread of a process can be interrupted. In other threads there is no limit. A timer of the signal SIGALRM that
    was already running goes on afterwards.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    running = True

    def interrupt(number: int, frame: FrameType | None) -> None:
        if running:
            raise TooLate(message)

    start = time.monotonic()
    handler = signal.signal(signal.SIGALRM, interrupt)
    # The timer interrupts again each second, because the body may catch the first exception and go on.
    delay, interval = signal.setitimer(signal.ITIMER_REAL, seconds, 1)
    try:
        try:
            yield
        finally:
            running = False
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, signal.SIG_DFL if handler is None else handler)
        if delay > 0:
            signal.setitimer(signal.ITIMER_REAL, max(delay - (time.monotonic() - start), 1e-3), interval)
