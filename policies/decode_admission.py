"""Whether the paged scheduler may decode a ragged batch, and who refused it."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Admission = Literal["ragged", "bucketed"]
SWITCH = "ARC_SCHED_BUCKETED_DECODE"


@dataclass(frozen=True, slots=True)
class DecodeAdmission:
    """`ragged` is granted unless somebody refuses it; the refusal names who did."""

    admission: Admission
    reason: str | None

    @classmethod
    def decide(
        cls, option: Admission | None = None, environment: Mapping[str, str] = os.environ
    ) -> "DecodeAdmission":
        """An explicit option decides; left out, the environment's switch does, and only the value 1 counts."""
        if option is not None:
            return cls(option, "policy.decode" if option == "bucketed" else None)
        if environment.get(SWITCH) == "1":
            return cls("bucketed", f"{SWITCH}=1")
        return cls("ragged", None)

    def __str__(self) -> str:
        if self.reason is None:
            return "decode admission: ragged (every running sequence decodes at each step, whatever its length)"
        return (
            f"decode admission: bucketed, ragged refused by {self.reason} (only the sequences of the shortest length "
            "decode, the others are preempted and lose their KV)"
        )
