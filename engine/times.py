"""The run's clock: whole nanoseconds, so that sums are exact and arrivals tie exactly."""

SECOND = 1_000_000_000


def to_ns(seconds: float) -> int:
    return round(seconds * SECOND)


def to_seconds(ns: int) -> float:
    return ns / SECOND
