"""Scheduler steps per CPU-second in pure decode: what `vllm` costs beside the scheduler that it reproduces."""

from collections import deque
from time import process_time

from arcsim.policies.base import EmulatedSample, EngineConfig, Sequence, Step
from arcsim.policies.vllm import Vllm

REAL = {8: 10_800, 64: 1_680, 256: 404}
"""Steps per CPU-second of vLLM 0.27.1's own schedule() and update_from_output(), one core of an AMD EPYC."""

PROMPT = 100
WARM = 40
STEPS = 4_000


def main() -> None:
    print("| running | vLLM 0.27.1 | `vllm`, asynchronous | `vllm`, synchronous |")
    print("|---|---|---|---|")
    for running, real in REAL.items():
        rates = [measure(running, asynchronous=asynchronous) for asynchronous in (True, False)]
        cells = [f"{rate:,.0f} ({rate / real:.0f} x)" for rate in rates]
        print(f"| {running} | {real:,} | {' | '.join(cells)} |", flush=True)


def measure(running: int, *, asynchronous: bool) -> float:
    """Steps per CPU-second of `schedule` and `commit`, step by step, with prefix caching on."""
    driver = decoding(running, asynchronous=asynchronous)
    start = process_time()
    driver.run(STEPS)
    return STEPS / (process_time() - start)


def decoding(running: int, *, asynchronous: bool) -> "Driver":
    """That many sequences that decode, at lengths that spread over a block."""
    engine = EngineConfig(num_blocks=running * 600, max_num_seqs=running, max_num_batched_tokens=8192)
    policy = Vllm(engine, Vllm.Options.model_validate({"async_scheduling": asynchronous}))
    for number in range(running):
        prompt = range(number << 20, (number << 20) + PROMPT + number)
        policy.add(Sequence(f"r{number}", prompt, 2 * STEPS))
    driver = Driver(policy)
    driver.run(WARM)
    return driver


class Driver:
    """Calls the policy as an engine does, one step after another."""

    def __init__(self, policy: Vllm) -> None:
        self.policy = policy
        self._flying: deque[Step] = deque()

    def run(self, steps: int) -> None:
        schedule, commit, flying, depth = self.policy.schedule, self.policy.commit, self._flying, self.policy.overlap
        for _ in range(steps):
            flying.append(schedule(0.0))
            if len(flying) > depth:
                step = flying.popleft()
                commit(step, EmulatedSample(step.sampling), ())


if __name__ == "__main__":
    main()
