"""The course of a replay: which instants it visits, and what is refused."""

from __future__ import annotations

import pytest

from pipeline.errors import BadSetting
from pipeline.replay import Course
from pipeline.settings import LAST_INSTANT_MS


def test_a_course_has_its_ends_and_steps_between_them() -> None:
    """The last instant is reached, also when the step does not divide the way."""
    assert list(Course(1, 10, 4)) == [1, 5, 9, 10]
    assert list(Course(1, 9, 4)) == [1, 5, 9]
    assert list(Course(5, 5, 1)) == [5]
    assert [len(Course(1, last, 4)) for last in (1, 9, 10)] == [1, 3, 4]


@pytest.mark.parametrize(
    ("first_ms", "last_ms", "step", "field"),
    [(0, 1, 1, "first, last"), (2, 1, 1, "first, last"), (1, LAST_INSTANT_MS + 1, 1, "first, last"), (1, 2, 0, "step")],
)
def test_a_course_that_goes_nowhere_is_refused(first_ms: int, last_ms: int, step: int, field: str) -> None:
    """The error names the field."""
    with pytest.raises(BadSetting) as raised:
        Course(first_ms, last_ms, step)
    assert raised.value.field == field
