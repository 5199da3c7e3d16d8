"""Check of what is prepared: each part that is not visible yet has its files, and none is missing in between."""

from collections.abc import Iterator

import pyarrow.fs

from pipeline.doctor.finding import Finding, error
from pipeline.doctor.look import DISPATCH, Look
from pipeline.doctor.prepared import waiting
from schemas import DELIVERIES

CHECK = "prepared"


def prepared(look: Look) -> Iterator[Finding]:
    """Parts on the shelf can be made visible."""
    deliveries = look.table(DELIVERIES)
    torn = [each.name for each in look.shelf if not each.parts]
    if torn:
        text = f"the note {torn[0]} of prepared deliveries cannot be read"
        yield error(
            CHECK, "note_torn", DISPATCH, text, f"stop dispatch, delete the note, then {look.rebuild(DISPATCH)}"
        )
    shown = deliveries.log.last_note(DISPATCH)
    parts = list(waiting(look.shelf, shown))
    paths = [file.path for _, part in parts for file in part.files]
    found = deliveries.files.get_file_info(paths) if paths else []
    gone = [info.path for info in found if info.type != pyarrow.fs.FileType.File]
    if gone:
        text = f"{len(gone)} of {len(paths)} files of prepared deliveries are gone (a VACUUM?): {gone[0]}"
        yield error(CHECK, "prepared_gone", DISPATCH, text, "start dispatch again: it prepares them anew")
    noted = {part.number for _, part in parts}
    top, below = (0, []) if shown is None else (shown.note["top"], shown.note["below"])
    lost = ({*below} | set(range(top + 1, max(noted, default=top)))) - noted
    # What was prepared anew has numbers of its own, and nobody has those that it replaces.
    if lost and not any(each.replaces for each in look.shelf):
        text = f"parts {', '.join(map(str, sorted(lost)[:3]))} of prepared deliveries are neither visible nor noted"
        yield error(CHECK, "prepared_lost", DISPATCH, text, look.rebuild(DISPATCH))
