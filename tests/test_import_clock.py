"""Clocks of logs where a zone's own clocks change.

Mutations tried: wall clocks subtracted as they stand (both), always the first of an hour that comes twice (autumn).
"""

import pytest

from arcsim.traces.importers.clock import Clock


def seconds(*stamps: str, zone: str = "Europe/Berlin") -> list[float]:
    """From the first stamp on."""
    clock = Clock(2026, zone)
    found = [clock.seconds(stamp) for stamp in stamps]
    assert clock.jumps == 0
    return [each - found[0] for each in found]


@pytest.mark.parametrize(("stamps", "passed"), [
    (("2026-03-29 01:59:50", "2026-03-29 03:00:00", "2026-03-30 03:00:00"), [0, 10, 86_410]),
    (("2026-10-25 01:59:50", "2026-10-25 02:59:50", "2026-10-25 02:00:00", "2026-10-25 02:59:50"),
     [0, 3600, 3610, 7200]),
    (("10-25 02:59:50", "10-25 02:00:00", "10-25 03:00:00"), [0, 10, 3610]),
])
def test_what_passes_counts_where_the_clocks_change(stamps: tuple[str, ...], passed: list[float]) -> None:
    assert seconds(*stamps) == passed


def test_a_zone_of_one_offset_takes_stamps_as_they_are() -> None:
    assert seconds("2026-03-29 01:59:50", "2026-03-29 03:00:00", zone="+01:00") == [0, 3610]


def test_a_moment_has_the_offset_that_held_then() -> None:
    clock = Clock(2026, "Europe/Berlin")
    after = [clock.seconds(stamp) for stamp in ("2026-03-29 01:59:50", "2026-03-29 03:00:00")]
    assert [clock.moment(each) for each in after] == ["2026-03-29T01:59:50+01:00", "2026-03-29T03:00:00+02:00"]
