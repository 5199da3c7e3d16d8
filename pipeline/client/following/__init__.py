"""The logs of tables as the consumers of a process follow them, and the rows that come of it."""
