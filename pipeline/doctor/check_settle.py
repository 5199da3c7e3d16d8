"""Check of settle: it follows what consumers say and what is released, its policies can be followed, its bytes read."""

from collections.abc import Iterator
from typing import Any

import schemas
from pipeline.client.subscribing.subscriptions import registry_lines
from pipeline.config.stages import SETTLE
from pipeline.delta.deltars import query
from pipeline.delta.logs.entries import Commit, info_of
from pipeline.doctor.finding import Finding, error, warning
from pipeline.doctor.logs import rows_of
from pipeline.doctor.look import Look, Opened
from pipeline.settle.plan import FOLLOWED
from pipeline.subscriptions.cursors import NEWEST, CursorRows, by_name
from pipeline.subscriptions.incarnations import Name
from pipeline.subscriptions.letters import APPLICATION, BEFORE_LETTERS, LETTERS, transaction
from state import CorruptBytes, unpack_leases

_BATCHES = 500
"""So many of the last batches of settle are looked at."""
_PATIENCE_MS = 60_000
"""Settle may be so far behind, by the times of commits."""
_NEW_LIFE = "restore all tables from one copy; or unsubscribe and subscribe again: what is open then counts as settled"
_NEW_LIVES = (
    "restore all tables from one copy; or unsubscribe all that acknowledge, start the stages, and then subscribe them "
    "again: what is open then counts as settled"
)


def settled(look: Look) -> Iterator[Finding]:
    """What subscriptions need that acknowledge, or have messages with another due time: a settle that moves."""
    lines = registry_lines(look.table(schemas.SUBSCRIPTIONS).delta)
    for line in lines:
        if line.wrong is not None:
            remedy = (
                look.command(f"policy set --topic {line.topic} --subscription {line.name}") + " with what is allowed"
            )
            text = f"its policies cannot be followed: {line.wrong}"
            yield error("policy_refused", "/".join(line.named), text, remedy)
    names = {line.named for line in lines if line.acknowledges}
    last = look.table(schemas.CURSORS).log.last(SETTLE)
    if names or (last is not None and last[1].note.get("follows")):
        cursors = by_name(query(NEWEST.format(rows="t"), t=look.table(schemas.CURSORS).delta))
        for name in sorted(cursors):
            yield from _bytes(name, cursors[name])
        yield from _behind(look, last)
        yield from _letters(look)


def _letters(look: Look) -> Iterator[Finding]:
    """The dead letters that batches say they have appended are in `inbox`, as far as the logs of both reach."""
    inbox = look.table(schemas.INBOX)
    for version, noted in look.table(schemas.CURSORS).log.notes(SETTLE, _BATCHES):
        wanted, before = noted.note.get(LETTERS), noted.note.get(BEFORE_LETTERS)
        if wanted is None or before is None or (rest := inbox.log.after((before + 1, -1))) is None:
            continue
        ours = {place for (place, _), _ in rest if _says(inbox, place, noted)}
        counts = [rows_of(file) for (place, _), file in rest if place in ours]
        found = sum(each for each in counts if each is not None)
        if found < wanted and None not in counts:
            text = f"batch {noted.batch} of settle (version {version}) gave {wanted} dead letters, {found} are in inbox"
            number = f"the number {_number(noted)} noted under '{APPLICATION}-again' (docs/operations.md)"
            remedy = f"find them by the steps of {look.command('trace')}, and append them by one version, with {number}"
            yield error("dead_letters_gone", "inbox", text, remedy)


def _says(inbox: Opened, version: int, noted: Commit) -> bool:
    """Whether a version of `inbox` has dead letters of a batch."""
    names = (each.get("txn") or {} for each in inbox.log.actions(version) or [])
    return any(
        each.get("version") == _number(noted) and str(each.get("appId")).startswith(APPLICATION) for each in names
    )


def _number(noted: Commit) -> int:
    return transaction(noted.batch, int(noted.note.get("letters", 0)))[1]


def _bytes(name: Name, rows: CursorRows) -> Iterator[Finding]:
    try:
        rows.outstanding().check_invariants()
        if schemas.CURSOR_LEASES in rows.blocks:
            unpack_leases(rows.blocks[schemas.CURSOR_LEASES])
    except CorruptBytes as torn:
        text = f"its rows of `cursors` cannot be read: {torn}"
        yield error("cursor_torn", "/".join(name), text, _NEW_LIFE)


def _behind(look: Look, last: tuple[int, Commit] | None) -> Iterator[Finding]:
    """What is committed to the tables that settle follows is read within a minute, and is there until then."""
    if last is None:
        # It begins with the first subscription that it sees.
        return
    done, read = _ms(look.table(schemas.CURSORS), last[0]), last[1].note
    for field, table in FOLLOWED.items():
        if table is schemas.COMMANDS and field not in read:
            # An earlier version of this project wrote it.
            continue
        source, version = look.table(table), int(read.get(field, -1))
        rest = source.log.after((version + 1, -1))
        if rest is None:
            text = f"the log of {table.name} begins after version {version}, up to which settle has read it"
            yield error("source_cut", SETTLE, text, _NEW_LIVES)
            continue
        gone = source.gone(file["path"] for _, file in rest)
        if gone:
            text = f"{len(gone)} files of {table.name} that it has yet to read are gone: {gone[0]}"
            yield error("source_gone", SETTLE, text, "bring them back from a copy")
        late = max((_ms(source, place[0]) for place, _ in rest), default=0) - done
        if late > _PATIENCE_MS:
            count = len({place[0] for place, _ in rest})
            text = f"it has not read {count} versions of {table.name}, up to {late // 1_000} s after its last commit"
            yield warning("settle_behind", table.name, text, f"start the stages: {look.command('run')}")


def _ms(opened: Opened, version: int) -> int:
    """When a version was committed, ms UTC."""
    timestamp: Any = info_of(opened.log.actions(version) or []).get("timestamp")
    return int(timestamp) if isinstance(timestamp, int) else 0
