"""The command line, called in this process; and the small experiment that its tests change."""

import io
import json
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from arcsim.cli import main

SMALL = """\
name: small
workload: {kind: synthetic, count: 4, prompt: {fixed: 20}, output: 5}
engine: {block_size: 16, num_blocks: 100, max_num_seqs: 4, max_num_batched_tokens: 64}
latency: {kind: affine, decode_step: 1ms, prefill_step: 2ms, row: 0.1ms}
policy: continuous
"""
TWO = SMALL + "variants: {plain: {policy.batching: mixed}, first: {policy.batching: prefill_first}}\n"
POLICY = '''\
from arcsim.policies.base import Chunk, Forward, Gauges, Policy, Step


class Mine(Policy):
    def __init__(self, engine, options):
        super().__init__(engine, options)
        self.waiting, self.running = [], []

    def add(self, sequence):
        self.waiting.append(sequence)

    def schedule(self, now):
        admitted, self.waiting = self.waiting, []
        self.running += admitted
        chunks = [Chunk.rest(sequence) for sequence in self.running]
        return Step(Gauges(len(self.running), 0), [Forward(chunks)], admitted=admitted)

    def commit(self, step, sampled, stopped):
        step.settle(sampled)
        self.running = [sequence for sequence in self.running if sequence not in stopped]
        return Gauges(len(self.running), 0)

    def abort(self, sequence):
        pass
'''


@dataclass(frozen=True, slots=True)
class Left:
    """How a command left, and what it had printed."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """Of a standard output that is JSON and nothing else."""
        return json.loads(self.out)


def arcsim(*arguments: object) -> Left:
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err), pytest.raises(SystemExit) as left:
        main([str(argument) for argument in arguments])
    return Left(int(left.value.code or 0), out.getvalue(), err.getvalue())


def written(folder: Path, text: str, name: str = "small.yaml") -> Path:
    """A file of that text in the folder."""
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def refused(left: Left) -> str:
    """The one message of a command that could not be carried out."""
    assert left.code == 2 and left.out == "", left
    assert left.err.startswith("error: ") and "Traceback" not in left.err and "fault in arcsim" not in left.err, left
    return left.err.removeprefix("error: ").rstrip("\n")
