"""Check of what is prepared: each part that is not visible yet has its files, and none is missing in between."""

from collections.abc import Iterator

from pipeline.config.stages import DISPATCH
from pipeline.dispatch.prepared import Part, Prepared, Visible
from pipeline.doctor.finding import Finding, error
from pipeline.doctor.look import Look
from schemas import DELIVERIES


def prepared(look: Look) -> Iterator[Finding]:
    """Parts on the shelf can be made visible."""
    deliveries, visible = look.table(DELIVERIES), visible_in(look)
    if look.torn:
        text = f"the note {look.torn[0]} of prepared deliveries cannot be read"
        remedy = f"stop dispatch, delete the note, then {look.rebuild(DISPATCH)}"
        yield error("note_torn", DISPATCH, text, remedy)
    parts = [part for _, part in waiting(look)]
    paths = [file.path for part in parts for file in part.files]
    gone = deliveries.gone(paths)
    if gone:
        text = f"{len(gone)} of {len(paths)} files of prepared deliveries are gone (a VACUUM?): {gone[0]}"
        yield error("prepared_gone", DISPATCH, text, "start dispatch again: it prepares them anew")
    lost = visible.lost([part.number for part in parts])
    # What was prepared anew has numbers of its own, and nobody has those that it replaces.
    if lost and not any(each.replaces for each in look.shelf):
        text = f"parts {', '.join(map(str, sorted(lost)[:3]))} of prepared deliveries are neither visible nor noted"
        yield error("prepared_lost", DISPATCH, text, look.rebuild(DISPATCH))


def visible_in(look: Look) -> Visible:
    """Which parts are visible, by the last note of dispatch in `deliveries`."""
    shown = look.table(DELIVERIES).log.last_note(DISPATCH)
    return Visible() if shown is None else Visible.of(shown.note)


def waiting(look: Look) -> list[tuple[Prepared, Part]]:
    """The parts that are not visible."""
    return visible_in(look).hidden(look.shelf)
