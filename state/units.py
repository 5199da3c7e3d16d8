"""Units of time as types: the type checker sees when an instant of one unit is taken for one of the other.

Instants are types, and spans are plain numbers, whose names say the unit (`ttl_ms`). Sums and differences of instants
are plain numbers, too: who makes an instant of one says so, as `Ms(now + span_ms)`.
"""

from typing import NewType

Ms = NewType("Ms", int)
"""An instant in milliseconds since the epoch, UTC: what stages and consumers decide by."""
Us = NewType("Us", int)
"""An instant in microseconds since the epoch, UTC: what Arrow and Delta have in their columns."""
EPOCH = Ms(0)
"""What stands for no time at all, too: no message is due before 1970."""


def us(at: Ms) -> Us:
    """An instant in the unit of columns.

    >>> us(Ms(1_700_000_000_123))
    1700000000123000
    """
    return Us(at * 1_000)


def ms(at: Us) -> Ms:
    """An instant of a column, rounded down.

    >>> ms(Us(1_700_000_000_123_999))
    1700000000123
    """
    return Ms(at // 1_000)
