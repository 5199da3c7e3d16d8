"""Time that a test turns: a warehouse whose stages work in this process, by a clock that stands until it is moved.

`docs/testing.md` shows it. Installed, it is `delayline.testing`.
"""

__all__ = [
    "aio",
    "plugin",
    "public",
    "stages",
    "warehouse",
]
