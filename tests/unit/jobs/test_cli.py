"""The command `delayline`: what it prints, what it refuses, and with which exit code. No Spark, no Java."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("typer", reason="the command needs requirements/all.lock")
pytest.importorskip("deltalake", reason="the client needs requirements/all.lock")
pytest.importorskip("pyspark", reason="the table contracts need requirements/all.lock")

import pyarrow as pa
import typer
from typer.testing import Result

from jobs import cli
from jobs.commands import java
from jobs.commands import send as sending
from jobs.commands.pending import report
from jobs.commands.receive import as_json as delivery_json
from jobs.commands.receive import line
from jobs.groups import PANELS
from pipeline.client.insight.pending import Backlog, Pending
from pipeline.client.subscribing.policysetting import set_policy
from pipeline.client.subscribing.subscriptions import Subscription, subscribe
from pipeline.client.tables.deliveries import Delivery
from pipeline.config.spelling import iso_text
from pipeline.delta.deltars import append, open_table, rows_of
from schemas import DELIVERIES, INBOX
from tests.support.client import new_warehouse
from tests.support.invoked import invoke
from tests.support.modules import ROOT

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


@pytest.fixture
def root(tmp_path: Path) -> str:
    """A new warehouse."""
    new_warehouse(str(tmp_path))
    return str(tmp_path)


def run(*words: str, stdin: bytes = b"", **environment: str) -> Result:
    """Run the command in this process."""
    return invoke(words, environment, stdin)


def inbox(root: str) -> list[dict[str, Any]]:
    """The rows of the inbox, by payload."""
    rows: list[dict[str, Any]] = pa.table(open_table(root, INBOX).to_pyarrow_table()).to_pylist()
    return sorted(rows, key=lambda row: row["payload"])


def delivered(root: str, payload: bytes, sequence: int = 1, topic: str = "t") -> None:
    """Commit one delivery, due at 1970-01-01T00:00:01Z."""
    second, start = datetime.fromtimestamp(1, UTC), datetime.fromtimestamp(0, UTC)
    row = {"topic": topic, "subscription": "s", "ledger_id": 0, "entry_id": 0, "cause": "due", "payload": payload}
    times = {"due_time": second, "deliver_at": second, "released_at": second, "publish_time": start}
    row |= {"life": 1, "redelivery_count": 0, "batch_id": 0, "sequence": sequence}
    append(root, DELIVERIES, rows_of(DELIVERIES, [row | times]))


def test_a_payload_goes_out_with_all_its_options(root: str) -> None:
    """What stands on the command line is what lies in the inbox."""
    options = ["-k", "k", "-p", "a=b", "--property", "c=d", "--deliver-at", "2026-03-01T12:00"]
    result = run("send", "-w", root, "-t", "t", "hello", *options)
    (row,) = inbox(root)
    named = f"{row['producer_name']}:{row['sequence_id']}"
    assert result.exit_code == 0
    # What was to come in the past is due when it is sent.
    due = iso_text(row["publish_time"])
    assert result.stdout == f"1 sent as {named}, to come at 2026-03-01T12:00:00.000Z, due {due}\n"
    assert (row["payload"], row["message_key"], row["properties"]) == (b"hello", "k", [("a", "b"), ("c", "d")])
    assert (row["deliver_at"], row["deliver_after_ms"]) == (NOON, None)
    assert row["publish_time"] is not None


def test_what_replaces_others_has_their_key(root: str) -> None:
    """And no other one."""
    assert run("send", "-w", root, "-t", "t", "hello", "-p", "a=b", "--replaces", "k").exit_code == 0
    (row,) = inbox(root)
    assert (row["message_key"], row["properties"]) == ("k", [("a", "b"), ("delayline.replaces", "k")])
    assert [
        run("send", "-w", root, "-t", "t", "x", *each, "--replaces", "").exit_code for each in ([], ["-k", "a"])
    ] == [2, 2]


def test_bytes_on_the_command_line_that_are_no_text_are_a_payload_and_no_name(root: str) -> None:
    """A payload is bytes, so it goes out as it came; a name is text, and the line of the refusal says which one."""
    odd = os.fsdecode(b"a\xff")
    assert run("send", "-w", root, "-t", "t", odd).stdout.startswith("1 sent as ")
    assert [row["payload"] for row in inbox(root)] == [b"a\xff"]
    for words in (["send", "-t", odd, "x"], ["send", "-t", "t", "-k", odd, "x"], ["subscribe", "-t", "t", "-s", odd]):
        refused = run(words[0], "-w", root, *words[1:])
        assert (refused.exit_code, len(refused.stderr.splitlines())) == (2, 1)
        assert "= 'a\\udcff', allowed: text that UTF-8 can hold" in refused.stderr


def test_each_line_of_stdin_is_a_message(root: str) -> None:
    """Lines as they are: bytes, empty ones too, without their ends."""
    result = run("send", "-w", root, "-t", "t", "--deliver-after", "5m", "--json", stdin=b" one \r\n\n\xff\nlast")
    found = json.loads(result.stdout)
    (name,) = {row["producer_name"] for row in inbox(root)}
    assert (result.exit_code, found) == (
        0,
        {"sent": 4, "message_ids": [f"{name}:0", f"{name}:3"], "subscription_names": []},
    )
    assert [(row["payload"], row["deliver_after_ms"]) for row in inbox(root)] == [
        (payload, 300_000) for payload in (b"", b" one ", b"last", b"\xff")
    ]


def test_who_sends_learns_when_it_comes_and_who_gets_it(root: str) -> None:
    """By the policies of the topic, too; several messages have several times."""
    for name in ("e", "d", "c", "b"):
        subscribe(root, Subscription("t", name))
    said = run("send", "-w", root, "-t", "t", "--deliver-after", "1d12h", "x").stdout
    (row,) = inbox(root)
    due = iso_text(row["publish_time"] + timedelta(hours=36))
    assert said.endswith(f", to come after 1d 12h, due {due}, for b, c, d, 1 more\n")
    assert "due" not in run("send", "-w", root, "-t", "t", "--deliver-after", "1h", stdin=b"1\n2\n").stdout
    set_policy(root, "t", min_delay_ms=5_000, max_delay_ms=60_000)
    assert " by the policies of the topic, for b" in run("send", "-w", root, "-t", "t", "x").stdout
    found = json.loads(run("send", "-w", root, "-t", "t", "--deliver-after", "10s", "x", "--json").stdout)
    assert (found["subscription_names"], "due_time" in found) == (["b", "c", "d", "e"], True)
    refused = run("send", "-w", root, "-t", "t", "--deliver-after", "2m", "x")
    assert (refused.exit_code, "60000 (1m) at most, by the policy max_delay_ms" in refused.stderr) == (1, True)
    set_policy(root, "t", min_delay_ms=None, max_delay_ms=None, fixed_delay_ms=50_000)
    assert run("send", "-w", root, "-t", "t", "--deliver-after", "2m", "x").exit_code == 0


def test_each_file_is_a_message(root: str, tmp_path: Path) -> None:
    """A file is sent whole, with its line ends."""
    (tmp_path / "a").write_bytes(b"1\n2\n")
    (tmp_path / "b").write_bytes(b"\x00")
    result = run("send", "-w", root, "-t", "t", "-f", str(tmp_path / "a"), "-f", str(tmp_path / "b"))
    assert result.stdout.startswith("2 sent as ")
    assert [row["payload"] for row in inbox(root)] == [b"\x00", b"1\n2\n"]


def test_long_input_is_sent_in_parts(root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pipe may be longer than memory; a part is bounded in messages and in bytes."""
    monkeypatch.setattr(sending, "_MESSAGES", 2)
    assert run("send", "-w", root, "-t", "t", stdin=b"1\n2\n3\n4\n5\n").stdout.startswith("5 sent as ")
    assert sorted(row["sequence_id"] for row in inbox(root)) == [0, 1, 2, 3, 4]
    assert open_table(root, INBOX).version() == 3
    monkeypatch.setattr(sending, "_BYTES", 3)
    assert run("send", "-w", root, "-t", "t", stdin=b"666\n7\n").stdout.startswith("2 sent as ")
    assert open_table(root, INBOX).version() == 5


@pytest.mark.parametrize(
    "words",
    [
        ["send", "-t", "t", "x", "--deliver-after", "5"],
        ["send", "-t", "t", "x", "--deliver-at", "noon"],
        ["send", "-t", "t", "x", "--deliver-at", "2026-01-01", "--deliver-after", "5s"],
        ["send", "-t", "t", "x", "-f", __file__],
        ["send", "-t", "t", "x", "-p", "novalue"],
        ["send", "-t", " ", "x"],
        ["send", "x"],
        ["subscribe", "-t", "t", "-s", "s", "--tick", "0s"],
        ["subscribe", "-t", "t", "-s", "s", "--type", "fast"],
        ["subscribe", "-t", "t", "-s", " "],
        ["init", "--segment", "2d"],
        ["init", "--rate", "0"],
        ["init", "--rate", "10000001"],
        ["receive", "-n", "0"],
        ["nonsense"],
    ],
)
def test_wrong_usage_ends_with_2_and_writes_nothing(root: str, words: list[str]) -> None:
    """A script tells a wrong call from a failure; neither shows a stack trace."""
    result = run(*words, DELAYLINE_WAREHOUSE=root)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr.strip()
    assert "Traceback" not in result.stderr
    assert inbox(root) == []


def test_a_failure_ends_with_1_and_one_line(tmp_path: Path) -> None:
    """The line names what was wrong; the stack trace is for those who ask for it."""
    for words in (["send", "-t", "t", "x"], ["receive"], ["pending"], ["subscribe", "-t", "t", "-s", "s"]):
        result = run(*words, "-w", str(tmp_path / "missing"))
        assert result.exit_code == 1
        assert len(result.stderr.splitlines()) == 1
        assert str(tmp_path / "missing") in result.stderr
    shown = run("pending", "-w", str(tmp_path / "missing"), DELAYLINE_DEBUG="1")
    assert type(shown.exception).__name__ == "NoWarehouse"


def test_an_error_nobody_foresaw_is_one_line_too(root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its type is named, because its text alone often says little."""

    def fail(*_: object) -> int:
        raise OSError("disk full\nand more")

    monkeypatch.setattr(sending, "send_whole", fail)
    result = run("send", "-w", root, "-t", "t", "x")
    assert (result.exit_code, result.stderr.splitlines()[-1]) == (1, "delayline: OSError: disk full")


def test_a_panic_of_a_library_is_one_line_too(root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is no `Exception`, and was a page of a stack trace."""

    class Panicked(BaseException):
        """As delta-rs raises it."""

    def panic(*_: object) -> None:
        raise Panicked("no such thing")

    monkeypatch.setattr(sending, "send_whole", panic)
    result = run("send", "-w", root, "-t", "t", "x")
    assert (result.exit_code, result.stderr.splitlines()[-1]) == (1, "delayline: Panic: Panicked: no such thing")


def test_init_and_subscribe_may_be_repeated(tmp_path: Path) -> None:
    """A set-up script runs again without harm; a contradiction is refused."""
    root = str(tmp_path / "new")
    assert [run("init", "-w", root).exit_code for _ in range(2)] == [0, 0]
    words = ["subscribe", "-w", root, "-t", "t", "-s", "s", "--tick", "60s", "--start", "earliest", "--type", "shared"]
    assert [run(*words).stdout for _ in range(2)] == ["t/s is registered\n", "t/s is registered already\n"]
    assert run("subscribe", "-w", root, "-t", "t", "-s", "s").exit_code == 0, "nobody said another tick"
    refused = run("subscribe", "-w", root, "-t", "t", "-s", "s", "--tick", "1s")
    assert (refused.exit_code, "tick_ms 60000, not 1000; to begin anew end it with: " in refused.stderr) == (1, True)


def test_init_says_what_the_segments_of_a_warehouse_hold(tmp_path: Path) -> None:
    """The rate is stated once; whoever states another one later is told that it does not count."""
    root = str(tmp_path / "new")
    first = ["Segments of 10s: 250,000 positions at 25,000 messages a second, about 0.8 MB of state"]
    assert run("init", "-w", root, "--rate", "25000").stdout.splitlines() == [f"Warehouse ready in {root}", *first]
    assert run("init", "-w", root, "--rate", "25000").stdout.splitlines()[1:] == first
    for other in (["--rate", "25001"], ["--rate", "25000", "--segment", "5s"], []):
        kept = run("init", "-w", root, *other).stdout.splitlines()[1:]
        assert kept == [*first, "It was there before, and keeps its rate and its segments"]
    plain = run("init", "-w", str(tmp_path / "plain")).stdout.splitlines()[1]
    assert plain == "Segments of 5m: 300,000 positions at 1,000 messages a second, about 0.9 MB of state"
    stated = run("init", "-w", str(tmp_path / "stated"), "--segment", "1h").stdout.splitlines()[1]
    assert stated == "Segments of 1h: 3.6 million positions at 1,000 messages a second, about 10.8 MB of state"


def test_receive_prints_deliveries_in_order(root: str) -> None:
    """A line each for people, or JSON for scripts."""
    delivered(root, b"one")
    delivered(root, b"two", topic="u")
    subscribe(root, Subscription("u", "s"))
    lines = run("receive", "-w", root, "--no-follow").stdout.splitlines()
    assert [("one" in text, "two" in text) for text in lines] == [(True, False), (False, True)]
    narrowed = run("receive", "-w", root, "--no-follow", "-t", "u", "-s", "s", "--json").stdout
    assert json.loads(narrowed)["payload"] == "two"
    assert run("receive", "-w", root, "--no-follow", "--start", "latest").stdout == ""


def test_receive_follows_until_it_has_what_was_asked_for(root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is committed while it waits is printed; the limit ends it."""
    delivered(root, b"one")
    monkeypatch.setattr("jobs.commands.receive.time", SimpleNamespace(sleep=lambda _: delivered(root, b"two")))
    result = run("receive", "-w", root, "-n", "2", "--json")
    assert [json.loads(text)["payload"] for text in result.stdout.splitlines()] == ["one", "two"]


def delivery(payload: bytes, key: str | None = None) -> Delivery:
    """A delivery that was due at noon, 250 ms late."""
    visible = NOON.replace(microsecond=250_000)
    return Delivery("t", "s", (1, 2), (3, 4), key, {"a": "b"}, NOON, NOON, visible, NOON, 0, payload)


def test_a_delivery_is_printed_with_its_lateness() -> None:
    """When, for whom, key, payload, how late."""
    assert line(delivery(b"hi", "k")) == "2026-03-01 12:00:00.250  t/s [k]  hi  (0.250 s late)"
    assert line(delivery(b"\xff")) == "2026-03-01 12:00:00.250  t/s  \\xff  (0.250 s late)"


def test_a_name_is_shown_on_one_line_whatever_it_is_made_of() -> None:
    """A line end or an escape sequence in a name would look like another delivery, or like none."""
    odd = replace(delivery(b"", "k\x1b[2J"), topic="a\nb", subscription="é\u202e\0")
    assert line(odd) == "2026-03-01 12:00:00.250  a\\nb/é\\u202e\\x00 [k\\x1b[2J]    (0.250 s late)"
    (shown, *_) = report(Pending((Backlog("a\nb", "c", 0, None, {}),), 0, {}), 0)
    assert shown == "a\\nb/c  nothing pending"


def test_a_property_without_a_value_is_printed_as_null() -> None:
    """A map of Spark or Arrow may hold NULL."""
    nothing = replace(delivery(b""), properties={"k": None})
    assert json.loads(delivery_json(nothing))["properties"] == {"k": None}


def test_a_delivery_from_before_the_log_is_printed_with_the_time_it_was_due() -> None:
    """How late it came is not told by its row, and is not made up."""
    old = replace(delivery(b"hi"), visible_at=None)
    assert line(old) == "2026-03-01 12:00:00.000  t/s  hi  (due then)"
    shown = json.loads(delivery_json(old))
    assert (shown["visible_at"], shown["late_ms"], shown["due_time"]) == (None, None, "2026-03-01T12:00:00.000Z")


def test_a_delivery_in_json_keeps_any_payload() -> None:
    """Text as text; bytes that are no text as base64, under another name."""
    text = json.loads(delivery_json(delivery("ü\n".encode())))
    assert (text["payload"], text["late_ms"], text["deliver_at"]) == ("ü\n", 250, "2026-03-01T12:00:00.000Z")
    assert (text["position"], text["version"], text["sequence"]) == ("1:2", 3, 4)
    raw = json.loads(delivery_json(delivery(b"\xff")))
    assert raw["payload_base64"] == "/w=="
    assert "payload" not in raw


def test_pending_runs_on_a_new_warehouse(root: str) -> None:
    """The first look comes before the first message."""
    assert run("pending", "-w", root).stdout == "No active subscription.\n"
    assert json.loads(run("pending", "-w", root, "--json").stdout)["subscriptions"] == []


@pytest.mark.parametrize("found", ["missing", "old", "odd"])
def test_a_missing_or_old_java_is_one_clear_line(tmp_path: Path, found: str) -> None:
    """Spark's own words for it are a page of stack trace."""
    (tmp_path / "bin").mkdir()
    if found != "missing":
        said = 'openjdk version \\"11.0.2\\"' if found == "old" else "hello"
        program = tmp_path / "bin" / "java"
        program.write_text(f'#!/bin/sh\necho "{said}" >&2\n')
        program.chmod(0o755)
    with pytest.raises(java.NoJava) as refused:
        java.need_java({"JAVA_HOME": str(tmp_path), "PATH": ""})
    assert refused.value.looked_at == f"{tmp_path}/bin/java"
    assert refused.value.found == (11 if found == "old" else None)
    assert len(str(refused.value).splitlines()) == 1
    program = tmp_path / "bin" / "java"
    program.write_text('#!/bin/sh\necho "openjdk version \\"17.0.2\\"" >&2\n')
    program.chmod(0o755)
    assert java.need_java({"JAVA_HOME": str(tmp_path), "PATH": ""}) == program


def test_java_on_the_path_is_found(tmp_path: Path) -> None:
    """JAVA_HOME is not needed."""
    program = tmp_path / "java"
    program.write_text('#!/bin/sh\necho "openjdk version \\"21.0.2\\"" >&2\n')
    program.chmod(0o755)
    assert java.need_java({"PATH": str(tmp_path)}) == program


@pytest.mark.parametrize(
    ("words", "spared"),
    [(["send", "-t", "t", "x"], []), (["receive", "--no-follow"], ["pandas"]), (["pending"], ["pandas"])],
)
def test_the_quick_commands_need_no_java_and_load_little(root: str, words: list[str], spared: list[str]) -> None:
    """They answer in about a second; pandas alone takes half of one. Of Spark they need the types only."""
    heavy = {"delta", "matplotlib", "pyspark.sql.connect", "pipeline.delta.tables", *spared}
    probe = (
        "import sys\nfrom jobs import cli\n"
        f"try: cli.app({[*words, '-w', root]!r})\nexcept SystemExit as end: print(end.code)\n"
        f"print(sorted(set(sys.modules) & {heavy!r}))"
    )
    command = [sys.executable, "-W", "error", "-c", probe]
    said = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True, env={"PATH": ""})  # noqa: S603
    assert said.stdout.splitlines()[-2:] == ["0", "[]"]


def test_the_settings_of_a_start_are_shown_with_where_they_stand(root: str) -> None:
    """Of this warehouse also what would be chosen; a name that is not known is refused with those that are."""
    shown = run("config", "show", "--set", "session.memory=4g", "--metrics-port", "9090").stdout
    assert 'memory = "4g"  # --set\n' in shown
    assert "metrics_port = 9_090  # --metrics-port\n" in shown
    assert "# driver_rows: chosen at the start" in shown
    of_warehouse = run("config", "show", "--warehouse", root, "--json").stdout.splitlines()
    found = {each["setting"]: each for each in map(json.loads, of_warehouse)}
    assert found["settings.driver_rows"]["origin"].startswith("chosen: ")
    assert found["run.trigger"]["value"] is None
    refused = run("config", "show", "--set", "session.memry=4g")
    assert (refused.exit_code, len(refused.stderr.splitlines())) == (2, 1)
    assert "session.memry = '4g', allowed: cores, java_options, memory, partitions" in refused.stderr
    nowhere = run("config", "show", "--warehouse", f"{root}/no")
    assert (nowhere.exit_code, len(nowhere.stderr.splitlines())) == (1, 1)


@pytest.mark.parametrize("width", ["80", "160"])
def test_the_help_has_each_command_in_a_panel_with_all_of_its_sentence(width: str) -> None:
    """As wide as the terminal; a sentence that is cut says nothing. Without a terminal there is no colour."""
    shown = invoke(["--help"], {"TERMINAL_WIDTH": width, "COLUMNS": width}).stdout
    command: Any = typer.main.get_command(cli.app)
    assert "..." not in shown.replace("[ARGS]...", "").replace("COMMAND [", "")
    assert "\x1b" not in shown
    places = [shown.index(f"─ {panel} ─") for panel in PANELS]
    assert places == sorted(places)
    for name in command.commands:
        assert re.search(rf"^│ {name} +[A-Z]", shown, re.MULTILINE), name
    for name in command.commands:
        assert "Usage: " in invoke([name, "--help"], {"TERMINAL_WIDTH": width}).stdout
