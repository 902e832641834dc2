"""Output tokens per CPU-second of the executor beside other engines, on one model shape, in one run."""

import argparse
import json
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from shutil import copyfile
from tempfile import mkdtemp
from time import process_time
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM, GenerationConfig

from arcsim.engine.loop import Loop
from arcsim.executor.facts import machine_facts
from arcsim.executor.model import load
from arcsim.executor.prospect import DTYPES, prospect
from arcsim.executor.ready import ready
from arcsim.policies.base import EngineConfig
from arcsim.policies.continuous import Continuous
from arcsim.workloads.arrival import Arrival
from arcsim.workloads.requests import OpenSession

BLOCK = 16
BUDGET = 2048
"""Tokens of a step, the policy's own default: large passes fall out of the processor's caches."""


@dataclass(frozen=True, slots=True)
class Setting:
    """What every engine is given: `requests` of `prompt` tokens at once, `output` tokens for each, greedily."""

    model: str
    dtype: str
    prompt: int
    output: int

    @property
    def pages(self) -> int:
        """Blocks of one request."""
        return -(-(self.prompt + self.output) // BLOCK)


@dataclass(frozen=True, slots=True)
class Rate:
    """`tokens_per_cpu_second` None: not run, for the reason in `note`."""

    engine: str
    requests: int
    tokens_per_cpu_second: float | None
    note: str = ""


Serve = Callable[[int], int]
"""Serves that many requests and returns how many tokens came out."""


def at_once(count: int, setting: Setting) -> OpenSession:
    """Equal requests that are all there from the start."""
    return OpenSession(tuple(
        Arrival(f"r{number}", 0.0, ((f"prompt {number}", setting.prompt),), setting.output, setting.output)
        for number in range(count)
    ))


def executor(setting: Setting, most: int, *, fast: bool) -> Serve:
    """Scheduling included; `fast`: C++ kernels and packed linears."""
    model = load(prospect(setting.model, dtype=setting.dtype))
    engine = EngineConfig(
        block_size=BLOCK, num_blocks=most * setting.pages + 1, max_num_seqs=most, max_num_batched_tokens=BUDGET,
    )
    backend = ready(
        model, blocks=engine.num_blocks, block_size=BLOCK, attention="cpp" if fast else "reference",
        packed_linears=fast, fused=fast, max_num_seqs=most,
    )

    def serve(count: int) -> int:
        loop = Loop(Continuous(engine, Continuous.Options.model_validate({})), at_once(count, setting), backend)
        loop.run()
        run = loop.recorder.run({})
        return int(sum(run.requests.column("output_tokens").to_pylist()))

    return serve


def generate(setting: Setting, most: int) -> Serve:
    model = _plain(setting)

    @torch.inference_mode()
    def serve(count: int) -> int:
        ids = _prompts(model.config.vocab_size, count, setting)
        found = model.generate(
            ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=setting.output,
            min_new_tokens=setting.output, pad_token_id=0,
        )
        return int(found.shape[0] * (found.shape[1] - ids.shape[1]))

    return serve


def continuous_batching(setting: Setting, most: int) -> Serve:
    """Of transformers."""
    model = _plain(setting)

    @torch.inference_mode()
    def serve(count: int) -> int:
        prompts = _prompts(model.config.vocab_size, count, setting).tolist()
        config = GenerationConfig(max_new_tokens=setting.output, do_sample=False, eos_token_id=-1, pad_token_id=0)
        found = model.generate_batch(inputs=prompts, generation_config=config, progress_bar=False)
        return sum(len(each.generated_tokens) for each in found.values())

    return serve


def vllm(setting: Setting, most: int) -> Serve:
    """Eagerly, with weights drawn at random."""
    package: Any = import_module("vllm")
    folder = mkdtemp()
    copyfile(prospect(setting.model).source.config, Path(folder, "config.json"))
    engine = package.LLM(folder, load_format="dummy", dtype=setting.dtype, skip_tokenizer_init=True, enforce_eager=True)
    rules = package.SamplingParams(temperature=0.0, max_tokens=setting.output, ignore_eos=True, detokenize=False)

    def serve(count: int) -> int:
        prompts = [{"prompt_token_ids": row} for row in _prompts(32_000, count, setting).tolist()]
        return sum(len(each.outputs[0].token_ids) for each in engine.generate(prompts, rules, use_tqdm=False))

    return serve


def _plain(setting: Setting) -> Any:
    """The model in transformers' hands alone."""
    config = AutoConfig.from_pretrained(prospect(setting.model).source.config)
    torch.manual_seed(0)
    return AutoModelForCausalLM.from_config(config, dtype=DTYPES[setting.dtype]).eval()


def _prompts(vocabulary: int, count: int, setting: Setting) -> torch.Tensor:
    return torch.randint(2, vocabulary, (count, setting.prompt), generator=torch.Generator().manual_seed(0))


ENGINES: dict[str, Callable[[Setting, int], Serve]] = {
    "executor, plain": lambda setting, most: executor(setting, most, fast=False),
    "executor, fast": lambda setting, most: executor(setting, most, fast=True),
    "transformers generate": generate,
    "transformers continuous batching": continuous_batching,
    "vLLM (CPU)": vllm,
}
NEEDED = {"vLLM (CPU)": "vllm"}
LLAMA = "llama.cpp reads its own format of weights only: convert the shape to GGUF, run llama-batched-bench beside this"


def measure(setting: Setting, counts: list[int], names: list[str], rounds: int) -> Iterator[Rate]:
    """Rounds go over all engines in turn, so that a change of the machine meets all of them; the best round counts."""
    serving: dict[str, Serve] = {}
    for name in names:
        try:
            serving[name] = _ready(name, setting, max(counts))
        except Exception as error:  # an engine that is not there or does not start is no reason to leave out the others
            yield from (Rate(name, count, None, _reason(error)) for count in counts)
    for count in counts:
        best = dict.fromkeys(serving, 0.0)
        for _ in range(rounds):
            for name, serve in list(serving.items()):
                try:
                    best[name] = max(best[name], _rate(serve, count))
                except Exception as error:
                    del serving[name], best[name]
                    yield Rate(name, count, None, _reason(error))
        yield from (Rate(name, count, rate) for name, rate in best.items())


def _ready(name: str, setting: Setting, most: int) -> Serve:
    if name in NEEDED and find_spec(NEEDED[name]) is None:
        raise ModuleNotFoundError(f"{NEEDED[name]} is not installed")
    serve = ENGINES[name](setting, most)
    serve(1)
    return serve


def _rate(serve: Serve, count: int) -> float:
    start = process_time()
    tokens = serve(count)
    return tokens / (process_time() - start)


def _reason(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0][:160]


def table(rates: list[Rate], counts: list[int]) -> str:
    """Markdown, engines as rows; in brackets against `generate`."""
    found = {(rate.engine, rate.requests): rate for rate in rates}
    heads = " | ".join(f"{count} requests" for count in counts)
    lines = [f"| engine | {heads} |", "|---" * (len(counts) + 1) + "|"]
    for name in dict.fromkeys(rate.engine for rate in rates):
        cells = [_cell(found.get((name, count)), found.get(("transformers generate", count))) for count in counts]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _cell(rate: Rate | None, base: Rate | None) -> str:
    if rate is None or rate.tokens_per_cpu_second is None:
        return "-" if rate is None else f"not run: {rate.note}"
    against = base.tokens_per_cpu_second if base is not None else None
    return f"{rate.tokens_per_cpu_second:.1f}" + (f" ({rate.tokens_per_cpu_second / against:.2f} x)" if against else "")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="smollm-135m")
    parser.add_argument("--dtype", default="bfloat16", choices=sorted(DTYPES))
    parser.add_argument("--requests", type=int, nargs="+", default=[1, 8, 64])
    parser.add_argument("--prompt", type=int, default=128)
    parser.add_argument("--output", type=int, default=64)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--engines", nargs="+", default=list(ENGINES), choices=list(ENGINES))
    parser.add_argument("--json", type=Path, help="file for the figures")
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    setting = Setting(given.model, given.dtype, given.prompt, given.output)
    rates = list(measure(setting, given.requests, given.engines, given.rounds))
    facts = machine_facts(torch.device("cpu"))
    print(f"{setting}, {facts['device_name']}, torch {facts['torch']}, threads: {facts['threads']}", file=sys.stderr)
    print(table(rates, given.requests))
    print(f"\n{LLAMA}.")
    if given.json is not None:
        given.json.write_text(json.dumps(
            {"setting": asdict(setting), "machine": facts, "load": os.getloadavg(),
             "rates": [asdict(rate) for rate in rates]}, indent=2
        ) + "\n")


if __name__ == "__main__":
    main()
