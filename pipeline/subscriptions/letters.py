"""By what dead letters of settle, and those that are put back, are known in `inbox`.

Whoever appends there may note any number under any name.
"""

import secrets

APPLICATION = "delayline-dead-letters"
"""The name under which Delta keeps which batch appended dead letters last (`txn`)."""
BEFORE = "delayline-settle"
"""The same for a batch that was begun by a version of this project which drew no number for it."""
LETTERS, BEFORE_LETTERS = "dead_letters", "inbox"
"""In the note of a batch: how many it appended, and the version of `inbox` behind which they are."""
PUT_BACK = "delayline.put_back"
"""The property of a message that was a dead letter: the topic of the dead letters, and the position in it."""
_DRAWN_BITS = 30


def drawn() -> int:
    """A number for the dead letters of a batch, drawn when the batch is planned, and never 0."""
    return 1 + secrets.randbelow((1 << _DRAWN_BITS) - 1)


def transaction(batch: int, number: int) -> tuple[str, int]:
    """The name and the number under which the letters of a batch are noted beside them.

    Only this very number counts, and nobody can guess it before it is there. It is made of the batch, so that it grows,
    and of what was drawn for that.

    Args:
        batch: of settle.
        number: what was drawn; 0: nothing was.
    """
    return (APPLICATION, batch << _DRAWN_BITS | number) if number else (BEFORE, batch)


def batch_of(number: int) -> int:
    """The batch of a number that is noted beside letters, if it is one of ours."""
    return number >> _DRAWN_BITS
