"""What a command says when it fails: one line, and the exit code."""

import errno
import os
import re
import tempfile
from pathlib import Path

FAILED, USAGE, INTERRUPTED = 1, 2, 130
_FULL = (os.strerror(errno.ENOSPC), os.strerror(errno.EDQUOT))
_READ_ONLY = os.strerror(errno.EROFS)
_REFUSED = {
    **dict.fromkeys((errno.ENOENT, errno.ENOTDIR), "{}: {}; name a folder that is there, or can be made"),
    **dict.fromkeys((errno.EACCES, errno.EPERM), "{}: {}; give this user the right, or name another folder"),
    errno.EROFS: "{} is read-only; make it writable, or name another folder",
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT), "the disk of {} is full; make room and try again"),
}
"""What is said when the system refuses a file or a folder, of its path and the words of the system."""
_COLOUR = re.compile("\x1b\\[[0-9;]*m")


def explain(error: Exception) -> tuple[int, str]:
    """Exit code and line for an error.

    A value that is out of range is a matter of usage, and so is a command that is not installed; all else is a failure.
    """
    from pipeline.config import s3  # noqa: PLC0415 - loads pyarrow, and only a failure needs it
    from pipeline.config.errors import BadSetting, BadValue  # noqa: PLC0415 - the same
    from pipeline.config.extras import ExtraMissing  # noqa: PLC0415 - as the next ones
    from state import DelaylineError, InvalidArgument, OutOfRange  # noqa: PLC0415 - the same

    # What fails on the way out of a failure is no news.
    earlier: BaseException = error
    while earlier.__context__ is not None and not isinstance(error, DelaylineError):
        earlier = earlier.__context__
        error = earlier if isinstance(earlier, DelaylineError) else error
    lines = [line.strip() for line in _COLOUR.sub("", str(error)).splitlines() if line.strip()]
    text = next(iter(lines), "")
    if isinstance(error, BadValue | BadSetting | ExtraMissing | InvalidArgument | OutOfRange):
        return USAGE, text
    if isinstance(error, DelaylineError):
        return FAILED, text
    if isinstance(error, OSError) and error.filename is not None and error.errno in _REFUSED:
        return FAILED, _REFUSED[error.errno].format(error.filename, error.strerror)
    full = next((line for line in lines if any(each in line for each in _FULL)), None)
    if full is not None:
        return FAILED, f"the disk is full, make room and try again ({type(error).__name__}: {full})"
    return FAILED, s3.trouble(str(error), os.environ) or f"{type(error).__name__}: {text}"


def one_line(reason: str) -> str:
    """A failed query's first line and the error that its stack traces, of two languages, name last: the cause.

    What stands between the languages (py4j) says only that something went wrong on the other side.
    """
    lines = [line.strip() for line in reason.splitlines() if line.strip()]
    named = [error for line in lines[1:] if (error := _named_error(line)) is not None]
    causes = [error for error in named if not error.startswith("py4j.")] or named
    return " ... ".join([*(line.partition(" Return Message: ")[0] for line in lines[:1]), *causes[-1:]])


def _named_error(line: str) -> str | None:
    """The error that a line of a stack trace names: `package.Type: text`, `SomeError: text`, `Caused by: ...`."""
    error = line.removeprefix("Caused by: ").removeprefix(": ")
    kind, colon, _ = error.partition(": ")
    name = kind.rpartition(".")[2]
    known = "." in kind or name.endswith(("Error", "Exception"))
    return error if colon and " " not in kind and name[:1].isupper() and known else None


def storage(reason: str, root: str) -> str | None:
    """What is wrong with a disk when a write failed for that, and what to do; None when it failed for something else.

    Args:
        reason: what the write said, with the stack traces there are.
        root: the folder of the tables. What Spark sorts and spills lies in its own folders, which are looked at, too.
    """
    if not any(text in reason for text in (*_FULL, _READ_ONLY)):
        return None
    given = [root, *os.environ.get("SPARK_LOCAL_DIRS", "").split(","), tempfile.gettempdir()]
    folders = [(folder, os.statvfs(folder)) for folder in given if folder and Path(folder).is_dir()]
    if any(text in reason for text in _FULL) and folders:
        folder, disk = min(folders, key=lambda each: min(each[1].f_bavail * each[1].f_frsize, each[1].f_favail << 12))
        free, size = (blocks * disk.f_frsize / 1e6 for blocks in (disk.f_bavail, disk.f_blocks))
        room = f"{free:,.1f} of {size:,.1f} MB free, {disk.f_favail:,} more files"
        return f"the disk of {folder} is full ({room}); make room and start again, nothing is lost"
    folder = next((folder for folder, disk in folders if disk.f_flag & os.ST_RDONLY), root)
    return f"{folder} is read-only; make it writable and start again, nothing is lost"
