"""Recorded steps of the real engine, replayed against `mistralrs_dense`.

The first twelve are the public recordings; `*_seats*`, `*_late`, `*_mixed` and `*_catch_up_*` were added: seats that
bind, requests that come late, prompts and decodes of one length, and the bounds of the catch-up rule.

Fifteen mutations tried, and what catches each: the mean of the priorities instead of their sum, ln instead of log2
(v0.9.x_hand), no re-prefill (v0.9.0_hand), no zombies (v0.9.0_b8_spread64), seats where 0.9.0 has none, none where
0.9.5 has them, waiting not in order of arrival, urgency for those without a seat (the seats traces), a window of 7 or
9 tokens, 7 or 9 catch-ups in a row, a count of them that is never reset (v0.9.5_catch_up_*), catching up with a prompt
(v0.9.5_hand) or by one (v0.9.5_mixed).
"""

import gzip
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from arcsim.engine.stepper import Stepper
from arcsim.policies.base import EmulatedSample, EngineConfig, Sequence, Step
from arcsim.policies.length_buckets import Bucket, shortest
from arcsim.policies.mistralrs_dense import MistralrsDense, MistralrsDenseOptions

FOLDER = Path(__file__).parent / "golden" / "mistralrs_dense"
Lengths = dict[str, list[int]]


@dataclass
class DenseReplay:
    """A recorded trace, step by step: lengths after the step of what ran as prompt and as completion."""

    trace: dict[str, Any]

    def __post_init__(self) -> None:
        engine = EngineConfig(max_num_seqs=self.trace["config"]["max_seqs"])
        options = MistralrsDenseOptions.model_validate({"version": self.trace["version"]})
        self.policy = MistralrsDense(engine, options)
        self.policy.chooser.tie_break = self._recorded_choice
        self.stepper = Stepper(self.policy)
        self.step = 0

    def differences(self) -> Iterator[str]:
        """In order, one line each; the state after the first one is not the engine's any more."""
        for recorded in self.trace["steps"]:
            self.step += 1
            self._arrive()
            step = self.stepper.schedule(0.0).step
            found = self._lengths(step)
            for name, lengths in found.items():
                if lengths != sorted(recorded[name]):
                    yield f"step {self.step}: {name} is {lengths}, recorded {recorded[name]}"
            self.stepper.commit(step, EmulatedSample(step.sampling))
        yield from (f"{sequence!r} was never finished" for sequence in self.stepper.live)

    def _arrive(self) -> None:
        for request in self.trace["requests"]:
            if request["arrival_step"] == self.step:
                sequence = Sequence(request["id"], range(request["prompt_len"]), request["output_len"])
                self.stepper.arrive(sequence, request["output_len"])

    def _lengths(self, step: Step) -> Lengths:
        chunks = [chunk for forward in step.forwards for chunk in forward.chunks]
        return {
            f"{kind}_lens_after": sorted(chunk.end + 1 for chunk in chunks if chunk.decode == decode)
            for kind, decode in (("prompt", False), ("completion", True))
        }

    def _recorded_choice(self, tied: Any) -> Bucket:
        """The engine left exact ties to a hash map: follow what it did."""
        recorded = self.trace["steps"][self.step - 1]
        lengths = sorted(recorded["prompt_lens_after"] + recorded["completion_lens_after"])
        matching = [bucket for bucket in tied if [bucket.length + 1] * len(bucket.members) == lengths]
        return matching[0] if matching else shortest(tied)


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.json.gz")), ids=lambda path: path.name.split(".json")[0])
def test_every_step_is_the_recorded_one(path: Path) -> None:
    trace = json.loads(gzip.decompress(path.read_bytes()))
    assert trace["steps"]
    assert next(DenseReplay(trace).differences(), None) is None
