"""How values stand in texts for people."""

_SHOWN = 300
"""Characters of a value."""


def shown(value: object) -> str:
    """A value for the text of an error.

    Of one that is long it is the beginning; of a number that is too long for Python to spell, its size.
    """
    try:
        text = repr(value)
    except ValueError:
        return f"a number of {value.bit_length()} bits" if isinstance(value, int) else type(value).__name__
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
