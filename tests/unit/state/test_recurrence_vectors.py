"""Times of public vectors: the examples of RFC 5545 (3.8.5.3), and the changes of clocks of the tests of cronsim."""

from __future__ import annotations

from datetime import datetime, timedelta
from itertools import islice
from zoneinfo import ZoneInfo

import pytest

from state.recurrence import Recurrence
from state.units import Ms

NEW_YORK, RIGA = ZoneInfo("America/New_York"), ZoneInfo("Europe/Riga")

RFC = [
    ("DAILY;COUNT=10", "19970902", "0902-0911", 1),
    ("DAILY;INTERVAL=2", "19970902", "0902 0904 0906 0908", 0),
    ("DAILY;INTERVAL=10;COUNT=5", "19970902", "0902 0912 0922 1002 1012", 1),
    ("WEEKLY;COUNT=10", "19970902", "0902 0909 0916 0923 0930 1007 1014 1021 1028 1104", 1),
    ("WEEKLY;INTERVAL=2;WKST=SU", "19970902",
     "0902 0916 0930 1014 1028 1111 1125 1209 1223 19980106 0120 0203 0217", 0),
    ("WEEKLY;UNTIL=19971007T000000Z;WKST=SU;BYDAY=TU,TH", "19970902",
     "0902 0904 0909 0911 0916 0918 0923 0925 0930 1002", 1),
    ("WEEKLY;COUNT=10;WKST=SU;BYDAY=TU,TH", "19970902", "0902 0904 0909 0911 0916 0918 0923 0925 0930 1002", 1),
    ("WEEKLY;INTERVAL=2;UNTIL=19971224T000000Z;WKST=SU;BYDAY=MO,WE,FR", "19970901",
     ("0901 0903 0905 0915 0917 0919 0929 1001 1003 1013 1015 1017 1027 1029 1031 1110 1112 "
      "1114 1124 1126 1128 1208 1210 1212 1222"), 1),
    ("WEEKLY;INTERVAL=2;COUNT=8;WKST=SU;BYDAY=TU,TH", "19970902", "0902 0904 0916 0918 0930 1002 1014 1016", 1),
    ("MONTHLY;COUNT=10;BYDAY=1FR", "19970905", "0905 1003 1107 1205 19980102 0206 0306 0403 0501 0605", 1),
    ("MONTHLY;UNTIL=19971224T000000Z;BYDAY=1FR", "19970905", "0905 1003 1107 1205", 1),
    ("MONTHLY;INTERVAL=2;COUNT=10;BYDAY=1SU,-1SU", "19970907",
     "0907 0928 1102 1130 19980104 0125 0301 0329 0503 0531", 1),
    ("MONTHLY;COUNT=6;BYDAY=-2MO", "19970922", "0922 1020 1117 1222 19980119 0216", 1),
    ("MONTHLY;BYMONTHDAY=-3", "19970928", "0928 1029 1128 1229 19980129 0226", 0),
    ("MONTHLY;COUNT=10;BYMONTHDAY=2,15", "19970902", "0902 0915 1002 1015 1102 1115 1202 1215 19980102 0115", 1),
    ("MONTHLY;COUNT=10;BYMONTHDAY=1,-1", "19970930", "0930 1001 1031 1101 1130 1201 1231 19980101 0131 0201", 1),
    ("MONTHLY;INTERVAL=18;COUNT=10;BYMONTHDAY=10,11,12,13,14,15", "19970910",
     "0910 0911 0912 0913 0914 0915 19990310 0311 0312 0313", 1),
    ("MONTHLY;INTERVAL=2;BYDAY=TU", "19970902",
     ("0902 0909 0916 0923 0930 1104 1111 1118 1125 19980106 0113 0120 0127 0303 0310 0317 0324 "
      "0331"), 0),
    ("YEARLY;COUNT=10;BYMONTH=6,7", "19970610",
     "0610 0710 19980610 0710 19990610 0710 20000610 0710 20010610 0710", 1),
    ("YEARLY;INTERVAL=2;COUNT=10;BYMONTH=1,2,3", "19970310",
     "0310 19990110 0210 0310 20010110 0210 0310 20030110 0210 0310", 1),
    ("YEARLY;INTERVAL=3;COUNT=10;BYYEARDAY=1,100,200", "19970101",
     "0101 0410 0719 20000101 0409 0718 20030101 0410 0719 20060101", 1),
    ("YEARLY;BYDAY=20MO", "19970519", "0519 19980518 19990517", 0),
    ("YEARLY;BYWEEKNO=20;BYDAY=MO", "19970512", "0512 19980511 19990517", 0),
    ("YEARLY;BYMONTH=3;BYDAY=TH", "19970313", "0313 0320 0327 19980305 0312 0319 0326 19990304 0311 0318 0325", 0),
    ("YEARLY;BYDAY=TH;BYMONTH=6,7,8", "19970605",
     "0605 0612 0619 0626 0703 0710 0717 0724 0731 0807 0814 0821 0828 19980604", 0),
    ("MONTHLY;BYDAY=FR;BYMONTHDAY=13", "19970902", "19980213 0313 1113 19990813 20001013", 0),
    ("MONTHLY;BYDAY=SA;BYMONTHDAY=7,8,9,10,11,12,13", "19970913",
     "0913 1011 1108 1213 19980110 0207 0307 0411 0509 0613", 0),
    ("YEARLY;INTERVAL=4;BYMONTH=11;BYDAY=TU;BYMONTHDAY=2,3,4,5,6,7,8", "19961105", "19961105 20001107 20041102", 0),
    ("MONTHLY;COUNT=3;BYDAY=TU,WE,TH;BYSETPOS=3", "19970904", "0904 1007 1106", 1),
    ("MONTHLY;BYDAY=MO,TU,WE,TH,FR;BYSETPOS=-2", "19970929", "0929 1030 1127 1230 19980129 0226 0330", 0),
    ("WEEKLY;INTERVAL=2;COUNT=4;BYDAY=TU,SU;WKST=MO", "19970805", "0805 0810 0819 0824", 1),
    ("WEEKLY;INTERVAL=2;COUNT=4;BYDAY=TU,SU;WKST=SU", "19970805", "0805 0817 0819 0831", 1),
    ("MONTHLY;BYMONTHDAY=15,30;COUNT=5", "20070115", "20070115 0130 0215 0315 0330", 1),
]  # fmt: skip
"""Rule, first day, the days of it (with a year where that changes), and whether that is all. At nine in New York."""


def days_of(text: str, year: str) -> list[str]:
    """The days of an entry, as YYYYMMDD."""
    if "-" in text:
        first, last = (datetime.strptime(year + each, "%Y%m%d") for each in text.split("-"))  # noqa: DTZ007 - days
        return [(first + timedelta(days=each)).strftime("%Y%m%d") for each in range((last - first).days + 1)]
    found = []
    for each in text.split():
        year = each[:4] if len(each) == 8 else year
        found.append(year + each[-4:])
    return found


def times(recurrence: Recurrence, after: Ms, count: int) -> list[datetime]:
    """The next times on clocks of the zone."""
    return [datetime.fromtimestamp(each.at / 1_000, recurrence.zone) for each in islice(recurrence.after(after), count)]


def ms(local: str, zone: ZoneInfo) -> Ms:
    """The instant of a local time."""
    return Ms(int(datetime.fromisoformat(local).replace(tzinfo=zone).timestamp() * 1_000))


@pytest.mark.parametrize(("rule", "first", "days", "whole"), RFC)
def test_an_example_of_the_rfc(rule: str, first: str, days: str, whole: int) -> None:
    """Its dates, at nine on clocks of New York; and all of them are found from each of them on."""
    expected = days_of(days, first[:4])
    start = ms(f"{first}T090000", NEW_YORK)
    recurrence = Recurrence(rrule=f"FREQ={rule}", zone=NEW_YORK, start=start)
    found = times(recurrence, Ms(0), len(expected) + whole)
    assert [each.strftime("%Y%m%d%H%M") for each in found] == [f"{each}0900" for each in expected]
    for number, each in enumerate(expected[:-1]):
        later = times(recurrence, ms(f"{each}T090000", NEW_YORK), 1)
        assert [each.strftime("%Y%m%d") for each in later] == [expected[number + 1]]


@pytest.mark.parametrize(
    ("rule", "first", "count", "last"),
    [
        ("DAILY;UNTIL=19971224T000000Z", "19970902", 113, "19971223"),
        ("WEEKLY;UNTIL=19971224T000000Z", "19970902", 17, "19971223"),
        ("DAILY;UNTIL=20000131T140000Z;BYMONTH=1", "19980101", 93, "20000131"),
        ("YEARLY;UNTIL=20000131T140000Z;BYMONTH=1;BYDAY=SU,MO,TU,WE,TH,FR,SA", "19980101", 93, "20000131"),
    ],
)
def test_a_long_example_of_the_rfc(rule: str, first: str, count: int, last: str) -> None:
    """How many it has, and the last of them."""
    recurrence = Recurrence(rrule=f"FREQ={rule}", zone=NEW_YORK, start=ms(f"{first}T090000", NEW_YORK))
    found = times(recurrence, Ms(0), 1_000)
    assert (len(found), found[-1].strftime("%Y%m%d")) == (count, last)


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        ("HOURLY;INTERVAL=3;UNTIL=19970902T170000Z", "0900 1200"),
        ("MINUTELY;INTERVAL=15;COUNT=6", "0900 0915 0930 0945 1000 1015"),
        ("MINUTELY;INTERVAL=90;COUNT=4", "0900 1030 1200 1330"),
        ("DAILY;BYHOUR=9,10;BYMINUTE=0,20,40;COUNT=6", "0900 0920 0940 1000 1020 1040"),
        ("MINUTELY;INTERVAL=20;BYHOUR=9,10;COUNT=6", "0900 0920 0940 1000 1020 1040"),
    ],
)
def test_an_example_of_the_rfc_within_a_day(rule: str, expected: str) -> None:
    """On 2 September 1997."""
    recurrence = Recurrence(rrule=f"FREQ={rule}", zone=NEW_YORK, start=ms("19970902T090000", NEW_YORK))
    assert [each.strftime("%H%M") for each in times(recurrence, Ms(0), 100)] == expected.split()


CRON = [
    # Riga, 2021: clocks go from 03:00 to 04:00 on 28 March, and from 04:00 to 03:00 on 31 October.
    ("0 * * * *", "2021-03-28T01:30", "28 02:00+0200, 28 04:00+0300"),
    ("0 * * * *", "2021-10-31T01:30", "31 02:00+0300, 31 03:00+0300, 31 03:00+0200, 31 04:00+0200"),
    ("0 */2 * * *", "2021-03-28T01:30", "28 02:00+0200, 28 04:00+0300, 28 06:00+0300"),
    ("0 */2 * * *", "2021-10-31T01:30", "31 02:00+0300, 31 04:00+0200, 31 06:00+0200"),
    ("30 */2 * * *", "2021-03-28T01:30", "28 02:30+0200, 28 04:30+0300"),
    ("30 */2 * * *", "2021-10-31T01:30", "31 02:30+0300, 31 04:30+0200"),
    ("0 */3 * * *", "2021-10-31T01:30", "31 03:00+0300, 31 03:00+0200, 31 06:00+0200"),
    ("0 1,2,3,4,5 * * *", "2021-03-28T01:30", "28 02:00+0200, 28 04:00+0300, 28 05:00+0300"),
    ("0 1,2,3,4,5 * * *", "2021-10-31T01:30", "31 02:00+0300, 31 03:00+0300, 31 04:00+0200"),
    ("30 1,2,3,4,5 * * *", "2021-03-28T01:30", "28 02:30+0200, 28 04:00+0300, 28 04:30+0300"),
    ("30 1,2,3,4,5 * * *", "2021-10-31T01:30", "31 02:30+0300, 31 03:30+0300, 31 04:30+0200"),
    ("0 2 * * *", "2021-03-28T01:30", "28 02:00+0200, 29 02:00+0300"),
    ("0 2 * * *", "2021-10-31T01:30", "31 02:00+0300, 01 02:00+0200"),
    ("0 3 * * *", "2021-03-27T01:30", "27 03:00+0200, 28 04:00+0300, 29 03:00+0300"),
    ("0 3 * * *", "2021-10-31T01:30", "31 03:00+0300, 01 03:00+0200"),
    ("0 4 * * *", "2021-03-27T01:30", "27 04:00+0200, 28 04:00+0300, 29 04:00+0300"),
    ("0 4 * * *", "2021-10-30T01:30", "30 04:00+0300, 31 04:00+0200, 01 04:00+0200"),
    ("0 1,3,5,7,9,11,13,15,17,19,21,23 * * *", "2021-03-28T00:30", "28 01:00+0200, 28 04:00+0300, 28 05:00+0300"),
    ("0 1,3,5,7,9,11,13,15,17,19,21,23 * * *", "2021-10-31T00:30", "31 01:00+0300, 31 03:00+0300, 31 05:00+0200"),
    ("0 1-5 * * *", "2021-03-28T01:30", "28 02:00+0200, 28 04:00+0300, 28 05:00+0300"),
    ("0 1-5 * * *", "2021-10-31T01:30", "31 02:00+0300, 31 03:00+0300, 31 04:00+0200"),
    ("15 3 * * *", "2021-03-27T00:00", "27 03:15+0200, 28 04:00+0300, 29 03:15+0300"),
    ("15 3 * * *", "2021-10-30T00:00", "30 03:15+0300, 31 03:15+0300, 01 03:15+0200"),
    ("* * * * *", "2021-03-28T02:58", "28 02:59+0200, 28 04:00+0300"),
    ("* * * * *", "2021-10-31T03:58", "31 03:59+0300, 31 03:00+0200, 31 03:01+0200"),
    ("* 1-6 * * *", "2021-03-28T02:58", "28 02:59+0200, 28 04:00+0300"),
    ("* 1-6 * * *", "2021-10-31T03:58", "31 03:59+0300, 31 03:00+0200, 31 03:01+0200"),
]


@pytest.mark.parametrize(("cron", "after", "expected"), CRON)
def test_a_change_of_clocks_that_cronsim_is_tested_with(cron: str, after: str, expected: str) -> None:
    """These are what Debian's cron does."""
    found = times(Recurrence(cron=cron, zone=RIGA), ms(after, RIGA), expected.count(",") + 1)
    assert ", ".join(each.strftime("%d %H:%M%z") for each in found) == expected
