"""What `deploy` says fits together."""

from __future__ import annotations

import re

from tests.support.modules import ROOT

UNIT = ROOT / "deploy" / "delayline.service"


def test_the_user_of_the_service_has_the_folder_that_the_service_may_write_as_home() -> None:
    """Java looks for it in /etc/passwd and not in HOME, and Spark puts its JARs there."""
    text = UNIT.read_text(encoding="utf-8")
    values = dict(line.split("=", 1) for line in text.splitlines() if re.match(r"[A-Z]\w+=", line))
    made = re.search(r"^# +useradd --system --home-dir (\S+) (\S+)$", text, re.MULTILINE)
    assert made is not None
    assert made.groups() == (f"/var/lib/{values['StateDirectory']}", values["User"])
    assert values["Environment"] == f"HOME={made[1]}"
