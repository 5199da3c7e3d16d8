"""An interrupt (Ctrl-C) of the command: before there is anything to end, it ends the process without a word."""

import os
import signal
from threading import Event
from types import FrameType

_CAME = Event()


def ends_at_once() -> None:
    """Let an interrupt end the process, unless it ignores interrupts: a shell lets what runs behind it do so."""
    # The script lets it do so already, without the exit code.
    if signal.getsignal(signal.SIGINT) in (signal.default_int_handler, signal.SIG_DFL):
        signal.signal(signal.SIGINT, end)


def is_raised() -> None:
    """Let an interrupt be an error from now on: there is a command that has something to end."""
    if signal.getsignal(signal.SIGINT) is end:
        signal.signal(signal.SIGINT, interrupt)


def came() -> bool:
    """Whether one came since: a package that is being imported may have made another error of it."""
    return _CAME.is_set()


def interrupt(number: int, frame: FrameType | None) -> None:
    """Raise KeyboardInterrupt, and remember it."""
    _CAME.set()
    signal.default_int_handler(number, frame)


def end(number: int, _: object) -> None:
    """End the process with the exit code of a signal."""
    os._exit(128 + number)
