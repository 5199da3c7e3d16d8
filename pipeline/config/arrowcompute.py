"""Arrow's functions of columns (`pyarrow.compute`), for modules that a program loads which only sends.

It uses none of them. Arrow makes them when their module is loaded, a tenth of all that such a program would wait for.
"""

from typing import Any


def __getattr__(name: str) -> Any:  # noqa: ANN401 - Arrow has no types
    """What Arrow has under a name."""
    import pyarrow.compute  # noqa: PLC0415 - the reason stands above

    return getattr(pyarrow.compute, name)
