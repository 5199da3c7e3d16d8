"""Sources: outside systems whose rows are appended to `inbox`, each exactly once.

A source is a stream of Spark's, SQL expressions over its columns, and offsets that say how far it was read. They are
noted in the commit that has the rows. The stages know nothing of it: they follow `inbox`, as they do for all producers.
"""

__all__ = ["loop", "running"]
