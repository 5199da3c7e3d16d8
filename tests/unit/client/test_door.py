"""What a program loads that imports the client, and what it finds there."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("deltalake", reason="the client needs requirements/all.lock")
pytest.importorskip("pyspark", reason="the table contracts need requirements/all.lock")

from pipeline.client import everything, public
from tests.support.client import new_warehouse
from tests.support.modules import ROOT, loaded_after

HEAVY = {"pandas", "pyspark", "py4j", "delta", "typer", "rich", "pydantic", "prometheus_client", "jobs"}


def test_who_imports_the_client_has_no_spark_no_pandas_and_no_command_line() -> None:
    """A small service pays for what it uses."""
    assert loaded_after("from pipeline.client import public", {*HEAVY, "deltalake", "numpy"}) == set()
    assert loaded_after("from pipeline.client import public\npublic.Client", HEAVY) == set()


def test_who_sends_does_not_load_what_consumes_and_no_client_loads_an_event_loop() -> None:
    """A name brings what it needs, and no more."""
    others = {"asyncio", "pipeline.client.consuming.engine", "pipeline.client.insight.trace", "pipeline.client.aio"}
    assert loaded_after("from pipeline.client import public\npublic.send, public.OutgoingMessage", others) == set()
    assert (
        loaded_after("from pipeline.client import public\npublic.Client", {"asyncio", "pipeline.client.aio"}) == set()
    )


def test_who_sends_waits_for_no_functions_of_columns(tmp_path: Path) -> None:
    """Arrow makes them when they are loaded. A single cast would do that, and takes longer than to send."""
    root = new_warehouse(tmp_path)
    sends = f"with public.Client({root!r}) as client: client.create_producer('t').send(b'1', properties={{'a': 'b'}})"
    # Arrow asks pandas of each value, where it is installed, and pandas has functions of columns.
    probe = f"import sys\nsys.modules['pandas'] = None\nfrom pipeline.client import public\n{sends}"
    others = {"pyarrow.compute", "pyarrow.dataset", "pipeline.client.tables.topiclog"}
    assert loaded_after(probe, {*others, "pyarrow"}) == {"pyarrow"}


def test_the_import_takes_less_than_half_a_second() -> None:
    """CPU time of the interpreter that does it, with nothing else beside: loading it is a fraction of that."""
    probe = (
        "import time\nbegun = time.process_time()\nfrom pipeline.client import public\n"
        "print(time.process_time() - begun)"
    )
    done = subprocess.run([sys.executable, "-c", probe], cwd=ROOT, check=True, capture_output=True, text=True)  # noqa: S603
    assert float(done.stdout) < 0.5


def test_every_public_name_is_there() -> None:
    """The list that is read without loading anything is the list of what can be loaded."""
    # Where the package was built in the tree, pytest adds names of its own.
    assert set(public.__all__) == {name for name in vars(everything) if not name.startswith(("__", "@"))}
    assert [name for name in public.__all__ if getattr(public, name) is not getattr(everything, name)] == []
    assert dir(public) == sorted(public.__all__)


def test_a_class_prints_as_the_name_by_which_it_is_imported() -> None:
    """Two of them printed as `Message`, of which only one can be sent."""
    classes = {name: each for name in public.__all__ if isinstance(each := getattr(public, name), type)}
    # `except PulsarException` of a program that moved over means the root of all errors.
    assert {name for name, each in classes.items() if each.__name__ != name} == {"PulsarException"}
    assert repr(classes["OutgoingMessage"]("orders", b"pay")).startswith("OutgoingMessage(topic='orders'")
