"""Stage 3: positions that became due are joined with their messages, prepared, and published when it is time."""

__all__ = ["backlog", "plan", "prepared", "publisher", "release", "release_spark", "restore", "stage", "withdrawnlog"]
