"""Clocks of engines, which show no year, no date, or only the time since the start, as seconds that never go back."""

import re
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta, timezone, tzinfo
from functools import lru_cache
from zoneinfo import ZoneInfo

from .errors import ImportFault

DAY = 86_400.0
EPOCH = date(1970, 1, 1).toordinal()
JITTER = 60.0
"""Seconds that a record may lie behind the one before it (several processes write one log); it then takes its time."""
MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
TIME = r"(\d\d):(\d\d):(\d\d)(?:[.,](\d{1,9}))?"
ZONE = r"(Z|[+-]\d\d:?\d\d)?"


class Clock:
    """Takes the stamps of one log in order.

    `year` is that of the first stamp without one; it goes on at New Year. A clock without a date begins at the first
    day of that year and goes on at midnight. Where the clocks of the zone change, what passes is what counts. A clock
    that jumps back further than `JITTER` goes on from where it was (`jumps` counts that).
    """

    def __init__(self, year: int, zone: str) -> None:
        self._year = year
        self._zone = zone_of(zone)
        self._last_text = ""
        self._last: float | None = None
        self._raw = self._shift = 0.0
        self._first_day: int | None = None
        self._repeated = False
        self.jumps = 0

    def seconds(self, text: str) -> float:
        """Since midnight of the first stamp's day (or the engine's start); at least those of the stamp before."""
        if text == self._last_text and self._last is not None:
            return self._last
        raw = self._read(text)
        if self._last is not None and raw + self._shift < self._last - JITTER:
            self.jumps += 1
            self._shift = self._last - raw
        self._last_text, self._raw = text, raw
        self._last = raw + self._shift if self._last is None else max(self._last, raw + self._shift)
        return self._last

    def moment(self, seconds: float) -> str | None:
        """Such seconds as a date, ISO 8601; None of a clock without a date."""
        if self._first_day is None:
            return None
        try:
            start = datetime.fromordinal(self._first_day).replace(tzinfo=self._zone)
            passed = start.astimezone(UTC) + timedelta(seconds=round(seconds, 6))
            return passed.astimezone(self._zone).isoformat()
        except (OverflowError, ValueError):  # a date that no calendar has
            return None

    def _read(self, text: str) -> float:
        for pattern, read in SHAPES:
            if match := pattern.fullmatch(text):
                return read(self, match)
        raise ValueError(f"no clock: {text!r}")

    def _full(self, match: re.Match[str]) -> float:
        year, month, day, *time, zone = match.groups()
        if zone and self._last is None:
            self._zone = UTC if zone == "Z" else _offset(zone)
        return self._dated(int(year), int(month), int(day), time)

    def _slashed(self, match: re.Match[str]) -> float:
        month, day, year, *time = match.groups()
        return self._dated(int(year), int(month), int(day), time)

    def _yearless(self, match: re.Match[str]) -> float:
        month, day, *time = match.groups()
        return self._in_year(int(month), int(day), time)

    def _named_month(self, match: re.Match[str]) -> float:
        month, day, *time = match.groups()
        return self._in_year(MONTHS.index(month) + 1, int(day), time)

    def _in_year(self, month: int, day: int, time: list[str]) -> float:
        found = self._dated(self._year, month, day, time)
        if self._last is not None and found < self._raw - 183 * DAY:
            self._year += 1
            found = self._dated(self._year, month, day, time)
        elif self._last is not None and found > self._raw + 360 * DAY:  # a late line of the year before
            found = self._dated(self._year - 1, month, day, time)
        return found

    def _dated(self, year: int, month: int, day: int, time: list[str]) -> float:
        wall = self._since_first(_ordinal(year, month) + day) * DAY + _of_day(time)
        return wall - self._put_forward(wall) if isinstance(self._zone, ZoneInfo) else wall

    def _put_forward(self, wall: float) -> float:
        """Seconds by which the zone's clocks have been put forward between the first midnight and then. An hour that
        comes twice is the second one where the log has been through the first."""
        start = datetime.fromordinal(self._first_day or 1).replace(tzinfo=self._zone)
        at = start + timedelta(seconds=wall)
        once, again = ((_beyond_utc(at.replace(fold=fold)) - _beyond_utc(start)).total_seconds() for fold in (0, 1))
        late = self._last is not None and wall - once + self._shift < self._last - JITTER
        self._repeated = once != again and (self._repeated or late)
        return again if self._repeated else once

    def _since_first(self, day: int) -> int:
        if self._first_day is None:
            self._first_day = day
        return day - self._first_day

    def _hours(self, match: re.Match[str]) -> float:
        found = _of_day(list(match.groups()))
        if self._last is None:
            return found
        days = round((self._raw - found) / DAY)  # the day on which it lies nearest to the one before
        return found + days * DAY

    def _elapsed(self, match: re.Match[str]) -> float:
        minutes, seconds, millis, micros = (int(part) for part in match.groups())
        return 60.0 * minutes + seconds + millis / 1e3 + micros / 1e6

    def _epoch(self, match: re.Match[str]) -> float:
        if self._last is None:
            self._zone = UTC
        whole, fraction = match.groups()
        days, seconds = divmod(int(whole), int(DAY))
        return self._since_first(EPOCH + days) * DAY + seconds + _fraction(fraction)


SHAPES: tuple[tuple[re.Pattern[str], Callable[[Clock, re.Match[str]], float]], ...] = (
    (re.compile(rf"(\d\d)-(\d\d) {TIME}", re.ASCII), Clock._yearless),
    (re.compile(rf"(\d{{4}})-(\d\d)-(\d\d)[ T]{TIME}{ZONE}", re.ASCII), Clock._full),
    (re.compile(TIME, re.ASCII), Clock._hours),
    (re.compile(rf"(\d\d)/(\d\d)/(\d{{4}})-{TIME}", re.ASCII), Clock._slashed),
    (re.compile(rf"(\d\d)-(\d\d)-(\d{{4}}) {TIME}", re.ASCII), Clock._slashed),
    (re.compile(rf"(\d\d)(\d\d) {TIME}", re.ASCII), Clock._yearless),
    (re.compile(rf"({'|'.join(MONTHS)}) +(\d\d?) {TIME}", re.ASCII), Clock._named_month),
    (re.compile(r"(\d{1,9})\.(\d\d)\.(\d{3})\.(\d{3})", re.ASCII), Clock._elapsed),
    (re.compile(r"(\d{9,11})(?:\.(\d{1,9}))?", re.ASCII), Clock._epoch),
)
"""How clocks look, and what reads each."""


@lru_cache
def _ordinal(year: int, month: int) -> int:
    """Of the day before the first of a month, as far as there is such a month."""
    return date(max(year, 1), min(max(month, 1), 12), 1).toordinal() - 1


def _beyond_utc(moment: datetime) -> timedelta:
    return moment.utcoffset() or timedelta()


def _of_day(time: list[str]) -> float:
    hours, minutes, seconds, fraction = time
    return 3600.0 * int(hours) + 60.0 * int(minutes) + int(seconds) + _fraction(fraction)


def _fraction(digits: str | None) -> float:
    return float(f"0.{digits}") if digits else 0.0


def zone_of(name: str) -> tzinfo:
    """Raises ImportFault for a name that is none."""
    if name.upper() in ("UTC", "Z"):
        return UTC
    if re.fullmatch(r"[+-]\d\d:?\d\d", name, re.ASCII):
        return _offset(name)
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        raise ImportFault(f"no time zone {name!r}: write UTC, an offset (+02:00) or a name (Europe/Berlin)") from None


def _offset(text: str) -> tzinfo:
    minutes = 60 * int(text[1:3]) + int(text[-2:])
    if minutes >= 24 * 60:
        raise ImportFault(f"{text} is no offset of a time zone")
    return timezone(timedelta(minutes=-minutes if text[0] == "-" else minutes))
