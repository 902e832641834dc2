"""Scheduler steps per CPU-second in pure decode: what `vllm` and `sglang` cost beside the schedulers they reproduce."""

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from time import process_time

from arcsim.policies.base import EmulatedSample, EngineConfig, Policy, Sequence, Step
from arcsim.policies.sglang import Sglang
from arcsim.policies.vllm import Vllm

PROMPT = 100
WARM = 40
STEPS = 4_000


@dataclass(frozen=True, slots=True)
class Bench:
    """A policy, by the number of running requests.

    `real`: steps per CPU-second of the engine's own scheduler, on a core of an AMD EPYC. `build` makes the policy for
    so many requests, asynchronous (one step ahead of its output) or not; `modes`: what the engine calls the two.
    """

    engine: str
    policy: str
    modes: tuple[str, str]
    real: Mapping[int, int]
    build: Callable[[int, bool], Policy]


def vllm(running: int, asynchronous: bool) -> Policy:
    engine = EngineConfig(num_blocks=running * 600, max_num_seqs=running, max_num_batched_tokens=8192)
    return Vllm(engine, Vllm.Options.model_validate({"async_scheduling": asynchronous}))


def sglang(running: int, asynchronous: bool) -> Policy:
    engine = EngineConfig(block_size=1, num_blocks=running * 600 * 16, max_num_seqs=2 * running)
    return Sglang(engine, Sglang.Options.model_validate({"disable_overlap_schedule": not asynchronous}))


BENCHES = (
    Bench("vLLM 0.27.1", "`vllm`", ("asynchronous", "synchronous"), {8: 10_800, 64: 1_680, 256: 404}, vllm),
    Bench("SGLang 0.5.18", "`sglang`", ("overlap", "normal"), {8: 8_770, 64: 3_080, 256: 960}, sglang),
)
"""vLLM: schedule() and update_from_output(). SGLang: a turn of the normal loop without its forward, pages of 1."""


def main() -> None:
    for bench in BENCHES:
        names = " | ".join(f"{bench.policy}, {mode}" for mode in bench.modes)
        print(f"| running | {bench.engine} | {names} |\n|---|---|---|---|")
        for running, real in bench.real.items():
            rates = [measure(bench.build(running, asynchronous), running) for asynchronous in (True, False)]
            cells = [f"{rate:,.0f} ({rate / real:.0f} x)" for rate in rates]
            print(f"| {running} | {real:,} | {' | '.join(cells)} |", flush=True)
        print()


def measure(policy: Policy, running: int) -> float:
    """Steps per CPU-second of `schedule` and `commit`, step by step, with prefix caching on."""
    driver = decoding(policy, running)
    start = process_time()
    driver.run(STEPS)
    return STEPS / (process_time() - start)


def decoding(policy: Policy, running: int) -> "Driver":
    """That many sequences that decode, at lengths that spread over a block."""
    for number in range(running):
        prompt = range(number << 20, (number << 20) + PROMPT + number)
        policy.add(Sequence(f"r{number}", prompt, 2 * STEPS))
    driver = Driver(policy)
    driver.run(WARM)
    if driver.width != running:
        raise SystemExit(f"{driver.width} of {running} requests decode")
    return driver


class Driver:
    """Calls the policy as an engine does, one step after another. `width`: sequences in the last forward pass."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.width = 0
        self._flying: deque[Step] = deque()

    def run(self, steps: int) -> None:
        schedule, commit, flying, depth = self.policy.schedule, self.policy.commit, self._flying, self.policy.overlap
        for _ in range(steps):
            flying.append(schedule(0.0))
            if len(flying) > depth:
                step = flying.popleft()
                commit(step, EmulatedSample(step.sampling), ())
        self.width = sum(1 for _ in flying[-1].sampling()) if flying else sum(1 for _ in step.sampling())


if __name__ == "__main__":
    main()
