"""The measured arm on one GPU: right answers, speed of each attention backend, the A/B, and what simulation says."""

import argparse
import io
import json
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import redirect_stdout
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch

from arcsim.cli import main as arcsim
from arcsim.executor.attention.choose import BACKENDS
from arcsim.executor.backend import MeasuredBackend
from arcsim.executor.errors import ExecutorError
from arcsim.executor.facts import machine_facts
from arcsim.executor.model import PagedModel, load
from arcsim.executor.prospect import prospect
from arcsim.executor.ready import ready
from arcsim.policies.base import Chunk, Forward, Gauges, Sequence, Step

TINY = {
    "model_type": "qwen2", "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "vocab_size": 512, "max_position_embeddings": 1024, "torch_dtype": "float32",
}
TOLERANCE = {torch.float32: 1e-3, torch.bfloat16: 5e-2, torch.float16: 1e-2}
"""Of the largest logit, against `reference` in the same number format."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What is checked. `decode`: rows and context; `prefill`: tokens; `sets`: changes of the A/B experiment."""

    model: str
    device: str
    decode: tuple[tuple[int, int], ...] = ((1, 512), (8, 512), (32, 512), (128, 512), (32, 4096))
    prefill: tuple[int, ...] = (128, 1024, 4096)
    repeats: int = 20
    sets: tuple[str, ...] = ()
    calibrate: tuple[str, ...] = ("--context", "1024", "--rows", "32", "--tokens", "8192")


DRY = Plan(
    "", "cpu", ((1, 32), (4, 32)), (32,), 2,
    ("workload.output=4", "sweep.workload.count=[1, 4]", "control=[]", "expect=[]", "note=[]",
     "sweep.workload.prompt=[{fixed: 24}, {spread: [8, 40], distinct: 4}]"),
    ("--context", "64", "--rows", "4", "--tokens", "64", "--repeats", "2"),
)


@dataclass(slots=True)
class Found:
    """The results so far; `problems`: what is wrong, in sentences."""

    machine: dict[str, Any]
    model: str
    correctness: list[dict[str, Any]] = field(default_factory=list)
    speed: list[dict[str, Any]] = field(default_factory=list)
    ab: list[dict[str, Any]] = field(default_factory=list)
    calibration: dict[str, Any] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)


class Backends:
    """One backend after the other, on one model, with a page size that it takes."""

    def __init__(self, model: PagedModel, rows: int, context: int) -> None:
        self._model, self._rows, self._context = model, rows, context

    def each(self, names: Iterable[str] = BACKENDS) -> Iterator[tuple[str, int, "MeasuredBackend | str"]]:
        """Name, page size, and the backend or why it is refused; use it before the next one is asked for."""
        for name in names:
            small = self._try(name, 16)
            yield self._try(name, 256) if isinstance(small[2], str) else small

    def _try(self, name: str, size: int) -> tuple[str, int, "MeasuredBackend | str"]:
        pages = -(-self._context // size) + 1
        try:
            backend = ready(
                self._model, blocks=self._rows * pages + 1, block_size=size, attention=name, packed_linears=False,
                max_num_seqs=self._rows, max_model_len=pages * size,
            )
        except ExecutorError as error:
            return name, size, str(error)
        return name, size, backend


def sequences(count: int, tokens: int, size: int) -> list[Sequence]:
    """With blocks of their own, in an order that no backend may rely on."""
    pages = -(-tokens // size)
    found = []
    for number in range(count):
        sequence = Sequence(f"s{number}", range((number + 1) << 20, ((number + 1) << 20) + tokens), 8)
        sequence.block_table = list(range((number + 1) * pages, number * pages, -1))
        found.append(sequence)
    return found


def logits(backend: MeasuredBackend, size: int) -> torch.Tensor:
    """Of whole prompts, then of chunks behind them beside decode rows, in one pass."""
    rows = sequences(4, 40, size)
    starts = (0, 7, 39, 39)
    first = Forward([Chunk(sequence, 0, start or 40) for sequence, start in zip(rows, starts, strict=True)])
    mixed = Forward([Chunk(sequence, start, 40 - start) for sequence, start in zip(rows[1:], starts[1:], strict=True)])
    return torch.cat([backend.runner.logits(backend.builder.build(each)).float().cpu() for each in (first, mixed)])


def correctness(found: Found, model: PagedModel) -> None:
    wanted: torch.Tensor | None = None
    for name, size, backend in Backends(model, 4, 64).each([*BACKENDS][::-1]):
        if isinstance(backend, str):
            found.correctness.append({"backend": name, "refused": backend})
            continue
        got = logits(backend, size)
        wanted = got if wanted is None else wanted
        error = float((got - wanted).abs().max() / wanted.abs().max())
        right, told = error <= TOLERANCE[model.dtype], backend.choice.attention.describe
        found.correctness.append({"backend": told, "page": size, "error": error, "right": right})
        if not right:
            found.problems.append(f"{name}: logits differ from reference by {error:.2g} of the largest")


def speed(found: Found, model: PagedModel, plan: Plan) -> None:
    rows, context = max(rows for rows, _ in plan.decode), max(context for _, context in plan.decode)
    longest = max(context, *plan.prefill)
    for name, size, backend in Backends(model, rows, longest).each():
        if isinstance(backend, str):
            continue
        for count, context in plan.decode:
            step = _decode_step(count, context, size)
            found.speed.append(_timed(backend, name, size, "decode", f"{count} x {context}", step, plan.repeats))
        for tokens in plan.prefill:
            step = Step(Gauges(1, 0), [Forward([Chunk(sequences(1, tokens, size)[0], 0, tokens)])])
            found.speed.append(_timed(backend, name, size, "prefill", f"{tokens}", step, plan.repeats))


def _decode_step(count: int, context: int, size: int) -> Step:
    rows = [Chunk(sequence, context - 1, 1, decode=True) for sequence in sequences(count, context, size)]
    return Step(Gauges(count, 0), [Forward(rows)])


def _timed(
    backend: MeasuredBackend, name: str, size: int, kind: str, shape: str, step: Step, repeats: int
) -> dict[str, Any]:
    results = []
    for _ in range(repeats + 2):
        backend.launch(step)
        results.append(backend.collect())
    device = sorted(1e3 * result.device_seconds for result in results[2:])
    host = sorted(1e3 * result.host_seconds for result in results[2:])
    return {"backend": name, "page": size, "kind": kind, "shape": shape, "device_ms": device[len(device) // 2],
            "host_ms": host[len(host) // 2], "cuda_graphs": backend.runner.graphs}


def command(*arguments: object) -> tuple[int, Any]:
    """An arcsim command that prints JSON: its exit code and that."""
    out = io.StringIO()
    try:
        with redirect_stdout(out):
            arcsim([*map(str, arguments), "--json"])
    except SystemExit as left:
        text = out.getvalue()
        return int(left.code or 0), json.loads(text) if text.strip().startswith(("{", "[")) else None
    return 0, None


def ab(found: Found, plan: Plan, folder: Path, size: int) -> None:
    """The bundled A/B measured, calibrated without having seen it, simulated, compared."""
    pool = 32 * (-(-600 // size) + 1) + 1
    own = (f"model={plan.model}", f"engine.block_size={size}", f"engine.num_blocks={pool}")
    sets = [part for each in (*own, *plan.sets) for part in ("--set", each)]
    shared = ("--config", "h200_ragged", *sets)
    code, measured = command("run-gpu", *shared, "--device", plan.device, "--out", folder / "measured")
    if measured is None:
        found.problems.append(f"run-gpu left with {code}")
        return
    latency = folder / "latency.yaml"
    code, found.calibration = command(
        "calibrate", "--model", plan.model, "--device", plan.device, "--out", latency, "--block-size", size,
        *plan.calibrate,
    )
    told = ("--set", f"latency={latency}") if latency.is_file() else ()
    if not told:
        found.problems.append(f"calibrate left with {code}: simulated with the latency of the file instead")
    _, simulated = command("simulate", *shared, *told, "--out", folder / "simulated", "--jobs", 1)
    for place in measured["runs"]:
        found.ab.append(_compared(found, place, folder))


def _compared(found: Found, place: str, folder: Path) -> dict[str, Any]:
    _, comparison = command("compare", folder / "measured" / place, folder / "simulated" / place)
    values = {metric["name"]: metric for metric in comparison["metrics"]}
    throughput, width = values["throughput"], values["forward_width.mean"]
    if not comparison["identical"]:
        found.problems.append(f"{place}: the arms decide differently")
    return {"run": place, "identical": comparison["identical"], "measured_tok_s": throughput["a"],
            "simulated_tok_s": throughput["b"], "error": throughput["relative"], "forward_width": width["a"]}


def check(plan: Plan) -> Found:
    chosen = prospect(plan.model, device=plan.device)
    found = Found(machine_facts(chosen.device), chosen.name)
    model = load(chosen)
    with tempfile.TemporaryDirectory() as folder:
        stages: dict[str, Callable[[], None]] = {
            "correctness": lambda: correctness(found, model), "speed": lambda: speed(found, model, plan),
            "A/B": lambda: ab(found, plan, Path(folder), _page(found)),
        }
        for name, stage in stages.items():
            start = time.perf_counter()
            stage()
            found.seconds[name] = time.perf_counter() - start
            model.detach()
    return found


def _page(found: Found) -> int:
    """32 tokens as in the original, unless that leaves only the plain path on a GPU."""
    plain = ("reference", "cpp")
    able = [each["page"] for each in found.correctness if each.get("right") and each["backend"] not in plain]
    return 256 if able and min(able) == 256 else 32


def tables(found: Found) -> str:
    """Markdown."""
    lines = [f"{found.model} on {found.machine['device_name']}, torch {found.machine['torch']}", "",
             "| backend | page | error against reference |", "|---|---|---|"]
    for each in found.correctness:
        told = f"refused: {each['refused']}" if "refused" in each else f"{each['error']:.2g}"
        lines.append(f"| {each['backend']} | {each.get('page', '-')} | {told} |")
    lines += ["", "| backend | page | step | device ms | host ms |", "|---|---|---|---|---|"]
    lines += [f"| {each['backend']} | {each['page']} | {each['kind']} {each['shape']} | {each['device_ms']:.3f} | "
              f"{each['host_ms']:.3f} |" for each in found.speed]
    lines += ["", "| run | decisions | forward width | measured tok/s | simulated tok/s | error |", "|---" * 6 + "|"]
    lines += [f"| {each['run']} | {'identical' if each['identical'] else 'DIFFERENT'} | {each['forward_width']:.2f} | "
              f"{each['measured_tok_s']:.1f} | {each['simulated_tok_s']:.1f} | {100 * each['error']:+.1f} % |"
              for each in found.ab]
    lines += ["", *(f"problem: {problem}" for problem in found.problems or ["none"])]
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dry-run", action="store_true", help="a tiny model on the CPU")
    parser.add_argument("--model", default="qwen2.5-0.5b")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        plan = Plan(given.model, given.device)
        if given.dry_run:
            torch.set_num_threads(1)
            tiny = Path(folder, "tiny.json")
            tiny.write_text(json.dumps(TINY))
            plan = Plan(str(tiny), DRY.device, DRY.decode, DRY.prefill, DRY.repeats, DRY.sets, DRY.calibrate)
        found = check(plan)
    given.out.mkdir(parents=True, exist_ok=True)
    name = "gpu_check_dry" if given.dry_run else "gpu_check"
    (given.out / f"{name}.json").write_text(json.dumps(asdict(found), indent=2) + "\n")
    (given.out / f"{name}.md").write_text(tables(found))
    print(tables(found), end="")
    return 1 if found.problems else 0


if __name__ == "__main__":
    raise SystemExit(main())
