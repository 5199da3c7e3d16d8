"""What a store that speaks S3 must have and do before stages start on it."""

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import IllegalArgumentException
from pyspark.sql import SparkSession

from pipeline.config.errors import PipelineError
from pipeline.config.jvm import java_class
from pipeline.config.paths import is_s3
from pipeline.config.sparkversion import hadoop_aws
from pipeline.storage.hadoop import HadoopFiles

_NO_CLASS = "ClassNotFoundException"
_UNKNOWN = ("Conditional Writes Unavailable", "mandatory key", "Status Code: 501")
"""Said by a connector that may not, by one that is too old, and by a store that cannot."""


class NoConnector(PipelineError):
    """The session has no way to S3. Start it with the package that is named, or put its JARs on the class path."""

    def __init__(self, root: str, hadoop: str) -> None:
        super().__init__(f"warehouse = {root!r}: a JAR is missing; start with --packages {hadoop_aws(hadoop)}")
        self.root = root


class NoConditionalPuts(PipelineError):
    """The store would replace a commit that another writer has just made: messages of producers would be lost.

    Use a store that knows `If-None-Match` on a put (Amazon's does, and recent versions of others), with Hadoop's
    connector 3.4.2 or newer; or a file system that renames, such as HDFS.
    """

    def __init__(self, root: str, found: str) -> None:
        super().__init__(f"warehouse = {root!r}: {found}, allowed: a store that puts an object only where none is")
        self.root, self.found = root, found


class StoreRefused(PipelineError):
    """The store did not take a small object. What it said is in the message; check keys, rights and address."""

    def __init__(self, root: str, said: str) -> None:
        super().__init__(f"warehouse = {root!r}: {said}")
        self.root, self.said = root, said


def check_store(spark: SparkSession, root: str) -> None:
    """Refuse a store in which a commit would replace another one. Nothing is asked of other file systems.

    Raises:
        NoConnector: the session has no way to S3.
        NoConditionalPuts: the store puts an object in the place of another one, though it was asked not to.
        StoreRefused: it takes none at all.
    """
    if not is_s3(root):
        return
    try:
        # Once it is there it has to be in the way of every further one.
        files, probe = HadoopFiles(spark.sparkContext), f"{root}/_control/put_once"
        replaced = files.create(probe, "") and files.create(probe, "")
    except (Py4JJavaError, IllegalArgumentException) as error:
        said = str(error.java_exception if isinstance(error, Py4JJavaError) else error).partition("\n")[0]
        raise _reason(root, said, _hadoop(spark)) from error
    if replaced:
        raise NoConditionalPuts(root, "one object replaced another")


def _reason(root: str, said: str, hadoop: str) -> PipelineError:
    if _NO_CLASS in said:
        return NoConnector(root, hadoop)
    if any(each in said for each in _UNKNOWN):
        return NoConditionalPuts(root, f"{said} (Hadoop {hadoop})")
    return StoreRefused(root, said)


def _hadoop(spark: SparkSession) -> str:
    """The version of the Hadoop that the session has; under spark-submit it may be the platform's own."""
    return str(java_class(spark, "org.apache.hadoop.util.VersionInfo").getVersion())
