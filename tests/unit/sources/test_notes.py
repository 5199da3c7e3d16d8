"""A source goes on where it was, whatever others note under its name in the log of `inbox`, and the doctor says so."""

from __future__ import annotations

import json
from pathlib import Path
from shutil import rmtree
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="sources are streams of Spark's")
pytest.importorskip("deltalake", reason="the warehouse needs requirements/all.lock")

from pipeline.client.producing.inbox import OutgoingMessage, send
from pipeline.config.errors import SourcePlaceGone
from pipeline.config.options import StageListener, nobody
from pipeline.config.sources import Source
from pipeline.delta.checkpoints import Checkpoint
from pipeline.delta.deltars import path_of
from pipeline.delta.logs.entries import entry, newest
from pipeline.delta.warehouse import Warehouse
from pipeline.sources.door import Place
from pipeline.sources.loop import Batches
from pipeline.storage.files import Files
from pipeline.subscriptions.sourcenotes import SourceState, source_states
from schemas import INBOX
from tests.support.examined import found
from tests.support.forged import version
from tests.support.stages import Stages

FILES = Files()


@pytest.fixture
def root(tmp_path: Path) -> str:
    """A warehouse in which a source has come to the place 2."""
    made = Stages(str(tmp_path / "warehouse")).root
    reads(made, 1)
    reads(made, 2)
    return made


def source(root: str) -> Batches:
    """What a start of the source knows."""
    described: Any = Source("orders", "folder:/tmp/orders")
    nothing: Any = None
    return Batches(Warehouse(root), described, Lasting(), nothing, nobody, StageListener())  # type: ignore[arg-type]


class Lasting:
    """A door of which nothing is asked."""

    lasting = False


def reads(root: str, place: int) -> None:
    """A start that notes a place."""
    source(root).begin(Checkpoint(FILES, f"{root}/nowhere"), {"at": place}, None)


def note(root: str, at: int) -> str:
    """What a version of `inbox` notes."""
    (info,) = (each["commitInfo"] for each in entry(FILES, path_of(root, INBOX), at) or () if "commitInfo" in each)
    return str(info["userMetadata"])


def ours(root: str) -> list[int]:
    """The versions of `inbox` in which the source has noted something."""
    last = newest(FILES, path_of(root, INBOX))
    return [
        each for each in range(1, last + 1) if "source-orders" in json.dumps(entry(FILES, path_of(root, INBOX), each))
    ]


def forged(place: Place, **more: Any) -> str:  # noqa: ANN401 - parts of a note
    """What a stranger notes."""
    return json.dumps({"stage": "source-orders", "owner": "o", "batch": 7, "note": {"read": place, **more}})


def strange(root: str, text: str) -> None:
    """Somebody else's commit."""
    version(root, INBOX, {"commitInfo": {"operation": "WRITE", "userMetadata": text}})


def named(root: str) -> list[str]:
    """What the doctor says of who notes what."""
    return [each.subject for each in found(root) if each.what == "noted_by_others"]


@pytest.mark.parametrize("more", [{}, {"after": 1, "seal": "0" * 64}, {"after": "x", "seal": ["x"]}])
def test_a_note_of_somebody_else_does_not_move_a_source(root: str, more: dict[str, Any]) -> None:
    """It would leave out what it has not read."""
    assert not named(root)
    strange(root, forged({"at": 9}, **more))
    assert source(root).place == {"at": 2}
    assert named(root) == ["orders"]
    reads(root, 3)
    assert source(root).place == {"at": 3}


def test_a_note_of_its_own_that_is_repeated_does_not_move_a_source(root: str) -> None:
    """It would take again what it has taken. Its last one may be repeated: maintenance does that."""
    first, last = (note(root, each) for each in ours(root))
    send(root, [OutgoingMessage("t", b"x")])
    strange(root, last)
    assert source(root).place == {"at": 2}
    assert not named(root)
    send(root, [OutgoingMessage("t", b"x")])
    strange(root, first)
    send(root, [OutgoingMessage("t", b"x")])
    assert source(root).place == {"at": 2}
    assert named(root) == ["orders"]


def test_a_source_of_which_no_note_is_its_own_stands_still(root: str) -> None:
    """What somebody notes before it has read anything is no place of its; and a copy without its key has none."""
    places = Path(root, "_sources")
    places.rename(places.with_name("aside"))
    with pytest.raises(SourcePlaceGone, match="none of the places"):
        source(root)
    places.with_name("aside").rename(places)
    assert source(root).place == {"at": 2}


def test_a_source_that_has_read_before_there_were_seals_goes_on(root: str) -> None:
    """As its state says that it has."""
    rmtree(f"{root}/_sources")
    strange(root, forged({"at": 5}))
    source_states(FILES, root).put("orders", SourceState("orders", "folder:/tmp/orders", place={"at": 5}))
    assert source(root).place == {"at": 5}
    reads(root, 6)
    assert source(root).place == {"at": 6}
