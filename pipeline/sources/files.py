"""A folder of files as a source, by Spark's own stream of files: each file that is put there is taken in once.

Spark keeps the names of the files of each batch in the checkpoint of the query. So this checkpoint lasts, and lies in
the warehouse; the commit of a batch says which one it was, as those of the stages do.

Spark adds an entry to that list for each batch with files. Each tenth entry has all before it, too, and the stream
holds all names in memory. It forgets a file by its time only, which says nothing of when it came. So once a day,
between two queries, the names go of those files that are gone themselves: both grow no longer than the folder does.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import parse_qsl, unquote

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from pipeline.config.errors import BadSetting, SourceAway
from pipeline.config.jvm import java_class, session_of
from pipeline.config.paths import local_path, one_spelling
from pipeline.config.sources import EARLIEST, MOST_ROWS, Source
from pipeline.delta.checkpoints import Checkpoint
from pipeline.sources.door import Place, SourceConnector, first_line
from pipeline.storage.files import Files

_LOG = logging.getLogger(__name__)
_FOLDER, _WHOLE = "sources/0", ".compact"


def files_between(checkpoint: Checkpoint, begin: int, end: int) -> list[str]:
    """The files behind an entry of the list up to another one, as Spark spells them."""
    found = dict[str, None]()
    for number in range(begin + 1, end + 1):
        for name in (f"{number}", f"{number}{_WHOLE}"):
            entries = _entries(checkpoint.text(f"{_FOLDER}/{name}") or "")
            found |= {path: None for _, path, batch in entries if begin < batch <= end}
    return list(found)


def forget_gone(files: Files, checkpoint: Checkpoint) -> int:
    """Take files out of the list that are not there any more; give how many. No query may run.

    When none of them is there, all stay: the folder may be what is away. So it is with those of a folder below it that
    is empty, or cannot be listed. A file may be put there again under its name once it is forgotten.
    """
    names = files.names(f"{checkpoint.path}/{_FOLDER}")
    whole = max((int(name.removesuffix(_WHOLE)) for name in names if name.endswith(_WHOLE)), default=None)
    if whole is None:
        return 0
    path = f"{checkpoint.path}/{_FOLDER}/{whole}{_WHOLE}"
    text = files.text(path)
    there = dict[str, set[str] | None]()
    kept, gone, any_there = text.splitlines()[:1], 0, False
    for line, file, batch in _entries(text):
        folder, _, name = unquote(file).rpartition("/")
        if folder not in there:
            there[folder] = _names(files, folder)
        found = there[folder]
        any_there = any_there or (found is not None and name in found)
        # Spark may take the last entry once more.
        if found is None or name in found or batch >= whole - 1:
            kept.append(line)
        else:
            gone += 1
    if not any_there or not gone:
        return 0
    files.write(path, "\n".join(kept))
    _LOG.info("%s: %d files are gone, and forgotten", checkpoint.path, gone)
    return gone


def _names(files: Files, folder: str) -> set[str] | None:
    """The names in a folder; None: it is empty, or the nearest one that is there is, as where no disk is mounted."""
    try:
        if found := files.names(folder):
            return set(found)
        while not files.exists(folder):
            folder = folder.rpartition("/")[0]
        return set() if files.names(folder) else None
    except OSError:
        return None


def _entries(text: str) -> Iterator[tuple[str, str, int]]:
    """The lines of an entry behind its version: each with its path and its number."""
    for line in text.splitlines()[1:]:
        entry = json.loads(line)
        yield line, entry["path"], entry["batchId"]


_EVERY = ("pathGlobFilter", "recursiveFileLookup")
_TEXT = ("encoding", "multiLine", "timestampFormat")
FORMATS: Mapping[str, tuple[str, ...]] = {
    "csv": (*_EVERY, *_TEXT, "escape", "header", "nullValue", "quote", "sep"),
    "json": (*_EVERY, *_TEXT),
    "parquet": _EVERY,
}
"""What a folder may hold, and which options of Spark's reader an address may name."""
_ANY_AGE = "4000000d"
"""Spark leaves out files that are older than the newest one by more than this, without a word; a week is its default. A
file that is moved or copied keeps its time. Times end in the year 9999."""
_PATTERN = "{}[]*?\\"
"""Spark looks for what matches a path with one of these: of a folder it finds others, or none, and of a file it reads
the whole folder once more."""
_END = "logOffset"
"""In a place: the last entry of the checkpoint's list of files that was taken."""
_BATCH_BYTES = 256 << 20
"""Of files that one batch takes; a file is never divided."""


class FileSource(SourceConnector):
    """A folder."""

    position = "concat('in ', input_file_name())"
    lasting = True
    pause = "2 seconds"

    def __init__(self, source: Source) -> None:
        """Read the address.

        Raises:
            BadSetting: it is a pattern, or has an option that is not known, or the profile does not say which columns
                there are.
        """
        self._source, self._field = source, source.field("address")
        self._format, _, rest = source.address.partition(":")
        path, _, query = rest.partition("?")
        self._path, self._options = one_spelling(path), dict(parse_qsl(query, keep_blank_values=True))
        if any(each in _PATTERN for each in path):
            raise BadSetting(
                self._field, path, f"a folder whose path has none of {_PATTERN}, which Spark takes for patterns"
            )
        known = FORMATS[self._format]
        if unknown := next((name for name in self._options if name not in known), None):
            raise BadSetting(self._field, f"option {unknown}", ", ".join(known))
        if source.columns is None:
            raise BadSetting(
                source.field("columns"), None, "the columns of the files, as in 'id STRING, due TIMESTAMP'"
            )
        if source.max_rows != MOST_ROWS:
            allowed = f"nothing: a batch takes {_BATCH_BYTES >> 20} MB of files"
            raise BadSetting(source.field("max_rows"), source.max_rows, allowed)

    def check(self, spark: SparkSession) -> None:
        """See `SourceConnector`."""
        settings = session_of(spark).sessionState().newHadoopConf()
        try:
            path = java_class(spark, "org.apache.hadoop.fs.Path")(self._path)
            there = path.getFileSystem(settings).exists(path)
        except Py4JJavaError as error:
            raise SourceAway(self._field, self._path, str(error.java_exception)) from error
        if not there:
            raise BadSetting(self._field, self._path, "a folder that is there")

    def latest(self, spark: SparkSession) -> Place:  # noqa: ARG002 - a door is asked with the session
        """See `SourceConnector`.

        Raises:
            BadSetting: always. Spark's stream begins with the files that are there.
        """
        raise BadSetting(
            self._source.field("start"), self._source.start, f"{EARLIEST}: all files of a folder are taken"
        )

    def stream(self, spark: SparkSession, after: Place | None) -> DataFrame:  # noqa: ARG002 - the checkpoint says it
        """See `SourceConnector`."""
        ours = {"maxBytesPerTrigger": str(_BATCH_BYTES), "maxFileAge": _ANY_AGE}
        try:
            found: DataFrame = self._reader(spark.readStream).options(**ours).load(self._path)
        except PySparkException as error:
            allowed = f"columns of Spark SQL; {first_line(error)}"
            raise BadSetting(self._source.field("columns"), self._source.columns, allowed) from error
        return found

    def taken(
        self, rows: DataFrame, begin: Place | None, end: Place, checkpoint: Checkpoint
    ) -> tuple[DataFrame, Sequence[str]]:
        """See `SourceConnector`. A link that leads out of the folder is not followed."""
        paths = files_between(checkpoint, -1 if begin is None else int(begin[_END]), int(end[_END]))
        problems = {path: problem for path in paths if (problem := self._problem(path)) is not None}
        if not problems:
            return rows, ()
        # The list has URLs, and a reader takes names.
        others, spark = [unquote(path) for path in paths if path not in problems], rows.sparkSession
        kept = spark.createDataFrame([], rows.schema)
        if others:
            kept = self._reader(spark.read).option("basePath", self._path).load(others)
        return kept.select(*rows.columns), [problems[path] for path in sorted(problems)]

    def _problem(self, path: str) -> str | None:
        """Why a file is not taken; None: it is."""
        here = local_path(self._path)
        name = unquote(path) if here is None else _local(path)
        if any(each in _PATTERN for each in name):
            return f"{name} is not taken: Spark takes its name for a pattern, so give it another one"
        # With a slash behind it.
        if here is not None and not os.path.realpath(name).startswith(os.path.join(os.path.realpath(here), "")):  # noqa: PTH118
            return f"{name} is not taken: a link leads out of the folder"
        return None

    def tidy(self, files: Files, checkpoint: Checkpoint) -> None:
        """See `SourceConnector`. Names of files that are gone go."""
        forget_gone(files, checkpoint)

    def _reader(self, reader: Any) -> Any:  # noqa: ANN401 - of rows, or of a stream
        return reader.format(self._format).options(**self._options).schema(str(self._source.columns))

    def behind(self, progress: Mapping[str, Any]) -> int | str:  # noqa: ARG002 - a progress tells no rows
        """See `SourceConnector`."""
        return "files that are not read yet are not opened to be counted"


def _local(path: str) -> str:
    return unquote("/" + path.removeprefix("file:").lstrip("/"))
