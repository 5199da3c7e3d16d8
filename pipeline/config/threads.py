"""Work in threads of its own."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event, Thread


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
