"""Stages stand still, and something of theirs is damaged: what the doctor says is done, and all messages come, once."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from shutil import move, rmtree
from tempfile import mkdtemp

import pytest
from pyspark.errors import StreamingQueryException

from pipeline.client.create import create_all
from pipeline.client.producing.inbox import OutgoingMessage, send
from pipeline.config.stages import DISPATCH, INGEST, SCHEDULE
from pipeline.delta.deltars import open_table, path_of
from schemas import DELIVERIES, INBOX, REDELIVERY, SEGMENTS, Table
from tests.support.examined import found
from tests.support.stream import (
    Step,
    World,
    advance,
    append,
    check,
    kill_after,
    message,
    payloads,
    restart,
    stop,
    subscribe,
)
from tests.support.worlds import Play, on_spark

T0 = 1_700_000_000_000
Plant = Callable[[World], None]


def repaired(*planted: tuple[str, str, str, Plant]) -> Step:
    """Plant faults, and give the commands by which the doctor says that they go: words, subjects, stages of these."""

    def step(world: World) -> None:
        world.lose()
        for *_, plant in planted:
            plant(world)
        remedies = {(each.what, each.subject): each.remedy for each in found(world.warehouse.root)}
        assert remedies.keys() >= {(word, subject) for word, subject, *_ in planted}
        for word, subject, stage, _ in planted:
            command = re.search(r"delayline rebuild --warehouse \S+ --stage (\S+)", remedies[word, subject])
            assert command is not None
            assert command[1] == stage
            if "delete the note" in remedies[word, subject]:
                (note,) = notes(world)
                note.unlink()
        world.rebuild(*dict.fromkeys(stage for _, _, stage, _ in planted))

    return step


def notes(world: World) -> list[Path]:
    """The notes of what is prepared."""
    return [*Path(path_of(world.warehouse.root, DELIVERIES), "_prepared").glob("*.json")]


def torn_offsets(world: World) -> None:
    """A power cut left the last file of the offsets of ingest empty."""
    folder = Path(world.warehouse.checkpoint(INGEST), "offsets")
    last = max(folder.glob("[0-9]*"), key=lambda each: int(each.name))
    last.write_text("")
    last.with_name(f".{last.name}.crc").unlink(missing_ok=True)


def cut(table: Table) -> Plant:
    """The log of a table begins behind the place where the stage stands that reads it."""

    def plant(world: World) -> None:
        open_table(world.warehouse.root, table).create_checkpoint()
        for entry in sorted(Path(path_of(world.warehouse.root, table), "_delta_log").glob("*.json"))[:-1]:
            entry.unlink()
            entry.with_suffix(".crc").unlink(missing_ok=True)

    return plant


def gone(payload: str, *, released: bool = True) -> Plant:
    """A delivery is nowhere; or its release is not there either."""

    def plant(world: World) -> None:
        (row,) = (row for row in world.rows(DELIVERIES) if bytes(row["payload"]).decode() == payload)
        place = f"ledger_id = {row['ledger_id']} AND {{}} = {row['entry_id']}"
        open_table(world.warehouse.root, DELIVERIES).delete(place.format("entry_id"))
        if not released:
            open_table(world.warehouse.root, REDELIVERY).delete(place.format("first_entry"))

    return plant


def torn_note(world: World) -> None:
    """A power cut left a note of what is prepared empty."""
    (note,) = notes(world)
    note.write_text("")


def replaced(world: World) -> None:
    """Somebody has made the inbox again, with more versions than were read of it."""
    world.lose()
    inbox = Path(world.warehouse.path(INBOX))
    last = open_table(world.warehouse.root, INBOX).version()
    inbox.rename(inbox.with_name("inbox.copy"))
    other = mkdtemp()
    create_all(other)
    move(path_of(other, INBOX), inbox)
    for _ in range(last + 1):
        send(world.warehouse.root, [OutgoingMessage("nobody", b"")])


def refuses(instant: int) -> Step:
    """The stages start, and ingest ends when it looks at the inbox."""

    def step(world: World) -> None:
        with pytest.raises(StreamingQueryException, match="SourceReplaced"):
            together(world)

    def together(world: World) -> None:
        restart()(world)
        advance(instant)(world)

    return step


def brought_back(world: World) -> None:
    """Bring the right table back; the checkpoint is of the same time."""
    world.lose()
    inbox = Path(world.warehouse.path(INBOX))
    rmtree(inbox)
    inbox.with_name("inbox.copy").rename(inbox)


def all_once(*expected: str) -> Step:
    """Exactly these were delivered, and nothing is wrong."""

    def step(world: World) -> None:
        assert sorted(payloads(world)) == list(expected)
        world.sound()

    return step


def test_what_is_damaged_is_made_again_by_the_commands_of_the_doctor(play: Play) -> None:
    """Several faults at a time, of several stages."""
    play(
        [
            subscribe("t", "s"),
            append(message("a")),
            advance(T0),
            append(message("b")),
            advance(T0 + 100_000),
            append(message("c")),
            advance(T0 + 200_000),
            check(lambda world: world.end_one(DISPATCH)),
            *(step for n in (1, 2) for step in (append(message(f"released {n}")), advance(T0 + 200_000 + n))),
            check(lambda world: world.end_one(SCHEDULE)),
            *(step for n in (3, 4) for step in (append(message(f"accepted {n}")), advance(T0 + 200_000 + n))),
            stop(),
            repaired(
                ("offsets_torn", INGEST, INGEST, torn_offsets),
                ("source_cut", SCHEDULE, SCHEDULE, cut(SEGMENTS)),
                ("source_cut", DISPATCH, DISPATCH, cut(REDELIVERY)),
            ),
            restart(),
            all_once("a", "accepted 3", "accepted 4", "b", "c", "released 1", "released 2"),
            append(message("f"), message("later", after=5)),
            advance(T0 + 300_000),
            kill_after("dispatch.noted"),
            advance(T0 + 300_005),
            stop(),
            repaired(
                ("note_torn", DISPATCH, DISPATCH, torn_note),
                ("not_delivered", "t/s", DISPATCH, gone("b")),
            ),
            restart(),
            append(message("g")),
            advance(T0 + 400_000),
            all_once("a", "accepted 3", "accepted 4", "b", "c", "f", "g", "later", "released 1", "released 2"),
            repaired(("not_released", "t/s", SCHEDULE, gone("c", released=False))),
            restart(),
            append(message("h")),
            advance(T0 + 400_002),
            all_once("a", "accepted 3", "accepted 4", "b", "c", "f", "g", "h", "later", "released 1", "released 2"),
        ],
    )


def test_an_inbox_that_was_made_anew_is_refused_until_the_right_one_is_back() -> None:
    """It holds more versions than were read of the one before, and none of them would be looked at."""
    on_spark(
        [
            subscribe("t", "s"),
            append(message("a")),
            advance(T0),
            check(replaced),
            refuses(T0 + 1),
            check(brought_back),
            restart(),
            append(message("b")),
            advance(T0 + 2),
            all_once("a", "b"),
        ]
    )
