"""Of notes that several processes may write at once, the highest one counts."""

from __future__ import annotations

from pathlib import Path

from pipeline.storage.files import Files
from pipeline.storage.notes import HighestNote


def test_the_note_with_the_highest_number_counts_and_the_others_may_go(tmp_path: Path) -> None:
    """Ten comes behind nine, and what an earlier version has noted counts until there is a note."""
    notes = HighestNote(Files(), str(tmp_path / "notes"), ".lots", str(tmp_path / "alone"))
    assert notes.get() is None
    (tmp_path / "alone").write_text("earlier")
    assert notes.get() == "earlier"
    for number in ("10", "9"):
        notes.put(number, number)
    (tmp_path / "notes" / "11.other").write_text("of another kind")
    assert (notes.names(), notes.get()) == (["9", "10"], "10")
    notes.drop_lower()
    assert notes.names() == ["10"]


class Vanishing(Files):
    """A folder in which a higher note comes, and the one that was looked for goes, between two looks."""

    def text_if_there(self, path: str) -> str | None:
        """As in `Files`."""
        if path.endswith("1.lots"):
            Path(path).with_name("2.lots").write_text("two")
            Path(path).unlink()
        return super().text_if_there(path)


def test_a_note_that_goes_while_it_is_read_leaves_the_higher_one(tmp_path: Path) -> None:
    """Who reads holds nobody up, and is held up by nobody."""
    (tmp_path / "1.lots").write_text("one")
    assert HighestNote(Vanishing(), str(tmp_path), ".lots", str(tmp_path / "alone")).get() == "two"
