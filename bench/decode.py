"""Scheduler steps per CPU-second in pure decode: what `vllm` costs beside the scheduler that it reproduces."""

from time import process_time

from arcsim.policies.base import EmulatedSample, EngineConfig, Sequence
from arcsim.policies.vllm import Vllm, VllmOptions

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
    policy = decoding(running, asynchronous=asynchronous)
    start = process_time()
    run(policy, STEPS)
    return STEPS / (process_time() - start)


def decoding(running: int, *, asynchronous: bool) -> Vllm:
    """A policy in which that many sequences decode, at lengths that spread over a block."""
    engine = EngineConfig(num_blocks=running * 600, max_num_seqs=running, max_num_batched_tokens=8192)
    policy = Vllm(engine, VllmOptions(async_scheduling=asynchronous))
    for number in range(running):
        prompt = range(number << 20, (number << 20) + PROMPT + number)
        policy.add(Sequence(f"r{number}", prompt, 2 * STEPS))
    run(policy, WARM)
    return policy


def run(policy: Vllm, steps: int) -> None:
    """Step after step; an asynchronous one leaves a step in flight between two calls."""
    flying = policy.running.batch.flying
    schedule, commit = policy.schedule, policy.commit
    if not policy.overlap:
        for _ in range(steps):
            step = schedule(0.0)
            commit(step, EmulatedSample(step.sampling), ())
        return
    before = schedule(0.0) if not flying else policy.in_flight
    for _ in range(steps):
        step = schedule(0.0)
        commit(before, EmulatedSample(before.sampling), ())
        before = step
    policy.in_flight = before  # type: ignore[attr-defined]


if __name__ == "__main__":
    main()
