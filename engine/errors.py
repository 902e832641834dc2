"""What can go wrong in a run through no fault of the engine."""

import traceback
from pathlib import Path


class PolicyError(ValueError):
    """A policy raised, or decided the impossible."""

    @classmethod
    def raised(cls, policy: object, verb: str, error: Exception) -> "PolicyError":
        last = traceback.extract_tb(error.__traceback__)[-1]
        place = f"{Path(last.filename).name}:{last.lineno}"
        name = type(policy).__name__
        return cls(f"policy {name} raised {type(error).__name__} in {verb}() at {place}: {str(error) or 'no message'}")


class BackendFailed(RuntimeError):
    """What runs the steps cannot go on; the message says why and what to change."""


class LawBroken(ValueError):
    """The audit found a law of the trace broken."""
