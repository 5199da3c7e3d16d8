"""Whether a folder of this machine takes another file, asked before native code writes one.

delta-rs prints a panic beside the error when it cannot finish a file.
"""

import errno
import os
from pathlib import Path

_LEAST_BYTES = 64 << 10
"""A commit of a few rows takes less."""


def check_room(folder: Path) -> None:
    """Look at a folder that is there.

    Raises:
        OSError: its disk is full or read-only, or this user may not write there; `errno` says which.
    """
    disk = os.statvfs(folder)
    # Root has the blocks that are kept for it.
    blocks, files = (disk.f_bavail, disk.f_favail) if os.geteuid() else (disk.f_bfree, disk.f_ffree)
    if disk.f_flag & os.ST_RDONLY:
        _refuse(errno.EROFS, folder)
    if not os.access(folder, os.W_OK):
        _refuse(errno.EACCES, folder)
    # A file system that counts neither says 0 of 0.
    if (disk.f_blocks and blocks * disk.f_frsize < _LEAST_BYTES) or (disk.f_files and not files):
        _refuse(errno.ENOSPC, folder)


def _refuse(number: int, folder: Path) -> None:
    raise OSError(number, os.strerror(number), str(folder))
