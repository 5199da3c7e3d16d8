"""Looking at a warehouse without changing it: what is wrong, and the command that heals it. No Spark, no JVM.

A check is a function of a `Look` that gives `Finding`s; `examine` makes them all. Stages may run meanwhile.
"""

__all__ = ["examine", "look"]
