"""What is raised for a workload that cannot be read or built."""

from pathlib import Path


class WorkloadError(ValueError):
    """A clear message for the user: the file and line or the key, what was found, what is allowed."""

    @classmethod
    def at(cls, path: Path, line: int, reason: str) -> "WorkloadError":
        """`line` counts from 1, as editors do."""
        return cls(f"{path}:{line}: {reason}")
