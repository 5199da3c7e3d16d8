"""Start, stop, recover, replay: the stages as queries, their clock, and what is done when one is broken."""

__all__ = [
    "clock",
    "clone",
    "lockstep",
    "outages",
    "process",
    "rebuild",
    "replay",
    "run",
    "signals",
    "startup",
    "stopfile",
    "warmup",
    "watch",
]
