"""What a person may say about the file that is imported."""

from dataclasses import dataclass

YEAR = 2026


@dataclass(frozen=True, slots=True)
class ImportOptions:
    """`year` of the first record where the log's clock shows none; `zone` of that clock where it shows none (UTC, an
    IANA name or +02:00); `rank` of the engine whose records are taken; `offset` in seconds is added to every time.
    `wrapped`: lines that mean nothing are also tried joined to those before them, for a log that was pasted.
    """

    year: int = YEAR
    zone: str = "UTC"
    rank: int = 0
    offset: float = 0.0
    wrapped: bool = False
