"""`delayline doctor` on warehouses of real stages: what people do to them is found, and nothing else is."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from shutil import copytree

from pipeline.config.stages import STAGES
from pipeline.delta.deltars import open_table, path_of, rows_of
from pipeline.dispatch.prepared import PreparedStore
from pipeline.storage.files import Files
from schemas import DELIVERIES, INBOX
from tests.support.examined import wrong
from tests.support.stream import Step, World, advance, append, check, kill_after, message, restart, stop, subscribe
from tests.support.worlds import Play

T0 = 1_700_000_000_000


def finds(*expected: tuple[str, str]) -> Step:
    """Just this is wrong."""
    return check(lambda world: _same(wrong(world.warehouse.root), set(expected)))


def _same(found: set[tuple[str, str]], expected: set[tuple[str, str]]) -> None:
    assert found == expected


def copied(world: World) -> None:
    """Copy the checkpoints, as a backup does."""
    copytree(Path(world.warehouse.root, "_checkpoints"), f"{world.warehouse.root}.copy")


def each_put_back(look: Callable[[str], Step]) -> Step:
    """Put the copy of one checkpoint after the other in its place, look, and undo it."""

    def step(world: World) -> None:
        for stage in STAGES:
            checkpoint, aside = Path(world.warehouse.checkpoint(stage)), Path(f"{world.warehouse.root}.{stage}")
            checkpoint.rename(aside)
            copytree(Path(f"{world.warehouse.root}.copy", stage), checkpoint)
            look(stage)(world)
            checkpoint.rename(f"{aside}.old")
            aside.rename(checkpoint)

    return step


def vacuumed(world: World) -> None:
    """Take away the files of what is prepared, as a VACUUM does."""
    folder = path_of(world.warehouse.root, DELIVERIES)
    files = [file.path for each in PreparedStore(Files(), folder).all() for part in each.parts for file in part.files]
    assert files
    for file in files:
        Path(folder, file).unlink()


def merged(world: World) -> None:
    """Somebody changes a message of the inbox and adds one."""
    rows = rows_of(INBOX, [{"topic": "t", "message_key": key, "payload": b"x"} for key in ("a", "new")])
    inbox = open_table(world.warehouse.root, INBOX)
    merging = inbox.merge(rows, "s.message_key = t.message_key", source_alias="s", target_alias="t")
    merging.when_matched_update_all().when_not_matched_insert_all().execute()


def test_what_people_do_to_warehouses_is_found(play: Play) -> None:
    """Lines 1, 2 and 5: an old checkpoint put back, prepared files vacuumed, a MERGE on the inbox."""
    play(
        [
            subscribe("t", "s"),
            append({**message("a"), "message_key": "a"}, message("later", after=60_000)),
            advance(T0),
            stop(),
            finds(),
            copied,
            restart(),
            append(message("b")),
            kill_after("dispatch.noted"),
            advance(T0 + 1),
            stop(),
            finds(),
            each_put_back(lambda stage: finds(("checkpoint_behind", stage))),
            vacuumed,
            finds(("prepared_gone", "dispatch")),
            merged,
            finds(("prepared_gone", "dispatch"), ("not_an_append", "inbox")),
        ],
    )
