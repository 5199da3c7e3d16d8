"""The table of all benchmarks: the lines of consuming."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.support.lines import MILLION, Line, Row

LEASE_S, FIRST_S, TAKEN_OVER_S = 10, 3, 4
"""The lease of a consumer; how long a new one may wait for its first message, others for those of a killed one; s."""


def lines(result: Row) -> Iterator[Line]:
    """What was measured, beside the aims."""
    rows = {row["kind"]: row for row in result["rows"]}
    if live := rows.get("live"):
        name, (p50, p99) = live["workload"], live["late until receive, s p50 p99"]
        rate = live["parameters"]["rate"]
        late = f"{p50} / {p99} s at {rate:,}/s, {live['missing']} missing, {live['early']} early"
        good = p50 <= 0.3 and p99 <= 1 and not live["missing"] and not live["early"]
        yield Line(name, "consuming, late until receive", "<= 0.3 / 1.0 s", late, good)
        back = live["back after the delay, s p50 p99"]
        yield Line(name, "consuming, back after a nack", "<= 3 s", f"{back[0]} / {back[1]} s", back[1] <= 3)
        settled = live["settled s after the last was due"]
        yield Line(name, "consuming, all settled after", "<= 10 s", f"{settled} s", settled <= 10)
        commits = ", ".join(f"{table} {rate}" for table, rate in live["commits a second"].items())
        cpu = f"{live['cpu_s_per_minute of the job']}, of these settle {live['cpu_s_per_minute of settle']}"
        yield Line(name, "consuming, CPU s a minute of the job", "", cpu, None)
        yield Line(name, "consuming, commits a second", "", commits, None)
    if drain := rows.get("drain"):
        one, arrow = drain["receive and acknowledge, 1/s"], drain["batch_receive_arrow, 1/s"]
        rates, met = f"{one:,} and {arrow:,} /s", one >= 25_000 and arrow >= 300_000
        yield Line(drain["workload"], "consuming, one by one and Arrow", ">= 25 000 and 300 000 /s", rates, met)
    if sent := rows.get("send"):
        rate, p50 = sent["send_async, 1/s"], sent["send, s p50 p99"][0]
        met = rate >= 50_000 and p50 <= 0.06
        yield Line(sent["workload"], "sending", ">= 50 000 /s, p50 <= 60 ms", f"{rate:,} /s, {p50 * 1_000:.0f} ms", met)
    for kind, form in (("holes", _holes), ("joining", _joining), ("killed", _killed)):
        if kind in rows:
            yield from form(rows[kind])


def _holes(row: Row) -> Iterator[Line]:
    first, stored = row["first message after, s"], row["bytes of the cursor"]
    other = f"{row['left']:,} left, {row['missing']} missing, {row['of the settled half']} of the settled half"
    name, good = row["workload"], not row["missing"] and not row["of the settled half"]
    yield Line(name, "exactly the half that was not acknowledged comes", "0 others", other, good)
    what = f"{row['parameters']['messages']:,} delivered: {first} s, {stored:,} bytes"
    enough = row["parameters"]["messages"] >= 10 * MILLION
    met = first <= FIRST_S and stored <= 2 * MILLION
    yield Line(
        name, "first message of a new consumer, cursor", "<= 3 s, 2 MB", what, met if enough or not met else None
    )


def _joining(row: Row) -> Iterator[Line]:
    name, parameters = row["workload"], row["parameters"]
    free, broken = row["slot without owner, s at most"], row["out of order in their key"]
    what = f"{parameters['consumers']} consumers, {row['consumers that joined']} joined"
    order = f"{broken} out of order, {row['missing']} missing; {row['commits of consumers a second']} commits a second"
    good = not broken and not row["missing"]
    yield Line(name, f"per-key order, {what}", "never broken, all settled", order, good)
    yield Line(name, "a slot without owner", f"<= {LEASE_S} s", f"{free} s", free <= LEASE_S)


def _killed(row: Row) -> Iterator[Line]:
    most, missing = row["with others after the kill, s at most"], row["missing"]
    aim, what, met = f"<= {TAKEN_OVER_S} s, 0 lost", f"{most} s, {missing} lost", most <= TAKEN_OVER_S and not missing
    yield Line(row["workload"], "messages of a killed consumer are with others", aim, what, met)
