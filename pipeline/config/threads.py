"""Work in threads of its own, and errors that end no thread in silence."""

import atexit
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from logging import Logger
from threading import Event, Thread
from weakref import WeakKeyDictionary

_EXIT_S = 3.0
_RUNNING = WeakKeyDictionary[Thread, tuple[Event, ...]]()


class Panic(RuntimeError):
    """Native code panicked, or something asked a thread to exit. Its cause says what. Report it with that."""

    def __init__(self, cause: BaseException) -> None:
        super().__init__(f"{type(cause).__name__}: {cause}")


@contextmanager
def panics_raised() -> Iterator[None]:
    """Whatever a block raises, it is an `Exception`; also as a decorator.

    A panic of delta-rs is none (`pyo3_runtime.PanicException`), nor is `SystemExit`. Who runs a thread for others, Py4J
    among them, looks for an `Exception`: such a thread would die, and whoever waits for it would wait for ever.

    Raises:
        Panic: in the place of what is no `Exception`.
    """
    try:
        yield
    except Exception:
        raise
    except BaseException as cause:
        raise Panic(cause) from cause


@contextmanager
def errors_logged(log: Logger, message: str, ended: Event, pause_s: float) -> Iterator[None]:
    """Whatever a block raises may be over next time: it is logged, and the thread pauses, unless it is to end."""
    try:
        with panics_raised():
            yield
    except Exception:
        log.exception(message)
        ended.wait(pause_s)


def end_at_exit(thread: Thread, *ended: Event) -> None:
    """Let a daemon thread end before the interpreter does.

    One that comes back from native code later takes the process down, whatever its exit code was to be.

    Args:
        thread: it is waited for, but not for long.
        *ended: are set then; the thread is to return.
    """
    _RUNNING[thread] = ended


@atexit.register
def _end_all() -> None:
    ends = time.monotonic() + _EXIT_S
    running = [(thread, ended) for thread, ended in list(_RUNNING.items()) if thread.is_alive()]
    for _, ended in running:
        for each in ended:
            each.set()
    for thread, _ in running:
        thread.join(max(0, ends - time.monotonic()))


@contextmanager
def beside(work: Callable[..., None], *arguments: object, patience_s: float | None = None) -> Iterator[None]:
    """Do something in a thread while a block runs.

    Args:
        work: a function that is given the arguments and an event. When the event is set, it is to return.
        *arguments: what it is given first.
        patience_s: the end of the block waits for it so long; None: until it has returned.
    """
    ended = Event()
    thread = Thread(target=work, args=(*arguments, ended), daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join(patience_s)
