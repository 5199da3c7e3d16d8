"""Small texts beside the tables, for processes without a Spark session: on this machine, or in a store that speaks S3.

The request to stop and the virtual clock are such texts. Readers see all of a text or what was there before.
"""

import pyarrow.fs

from pipeline.config import s3
from pipeline.config.paths import is_s3, local_path, one_spelling

_LOOK_S, _LOOK_REMOTE_S = 0.005, 0.05


def reachable(path: str) -> bool:
    """Whether texts can be kept there."""
    return local_path(path) is not None or is_s3(path)


def read(path: str) -> str | None:
    """A text; None when it is not there."""
    here = local_path(path)
    try:
        return _fetched(_key(path)) if here is None else here.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None


def write(path: str, text: str) -> None:
    """Write a text in the place of one that may be there; its folder is made."""
    here = local_path(path)
    if here is None:
        with s3.files().open_output_stream(_key(path)) as stream:
            stream.write(text.encode())
        return
    here.parent.mkdir(parents=True, exist_ok=True)
    fresh = here.with_name(f"{here.name}.new")
    fresh.write_text(text, encoding="utf-8")
    fresh.replace(here)


def delete(path: str) -> None:
    """Delete a text; nothing happens when it is not there."""
    here = local_path(path)
    if here is not None:
        here.unlink(missing_ok=True)
        return
    try:
        s3.files().delete_file(_key(path))
    except FileNotFoundError:
        return


def exists(path: str) -> bool:
    """Whether a file or a folder with something in it is there; False where nobody can tell."""
    if not is_s3(path):
        here = local_path(path)
        return here is not None and here.exists()
    return bool(s3.files().get_file_info(_key(path)).type != pyarrow.fs.FileType.NotFound)


def pause_s(path: str) -> float:
    """How long to wait between two looks at a text: a look at a store is a request, and costs."""
    return _LOOK_S if local_path(path) is not None else _LOOK_REMOTE_S


def _key(path: str) -> str:
    """Bucket and key, as pyarrow names a file."""
    return one_spelling(path).removeprefix("s3a://")


def _fetched(key: str, more: int = 2) -> str:
    """A text of the store, with so many attempts more when the first one fails."""
    try:
        with s3.files().open_input_stream(key) as stream:
            return str(stream.read().decode())
    except FileNotFoundError:
        raise
    except OSError:
        # pyarrow asks for the size and then for so many bytes: a text that went in between is gone, not broken.
        if not more:
            raise
        return _fetched(key, more - 1)
