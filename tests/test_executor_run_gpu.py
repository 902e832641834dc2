"""`arcsim run-gpu` from the command line to the trace, on the CPU and with a tiny model; and what it refuses."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the executor needs torch: pip install 'arcsim[executor]'")
pytest.importorskip("transformers", reason="the executor needs transformers: pip install 'arcsim[executor]'")

from arcsim.executor.runner import Runner
from arcsim.traces.compare import compare
from arcsim.traces.run import Run

from .command import Left, arcsim, refused, written
from .executing import config_file

AB = """\
name: ab
workload: {kind: synthetic, count: 4, prompt: {spread: [10, 40], distinct: 4}, output: 5, arrivals: at_once}
engine: {block_size: 16, num_blocks: 60, max_num_seqs: 8}
latency: {kind: affine, decode_step: 1ms, prefill_step: 2ms, row: 0.1ms}
policy: {name: mistralrs_paged, caching: none}
variants:
  bucketed: {policy.decode: bucketed, policy.prefill: bucketed}
  ragged: {policy.decode: ragged, policy.prefill: bucketed}
sweep: {workload.count: [1, 4]}
control:
  - equal_steps(bucketed, ragged) where workload.count == 1
expect:
  - mean(forward_width, bucketed) == 1 where workload.count == 4
  - mean(forward_width, ragged) > 1.5 where workload.count == 4
"""
ONE = """\
name: one
workload: {kind: synthetic, count: 3, prompt: {spread: [5, 20], distinct: 3}, output: 6, arrivals: at_once}
engine: {block_size: 4, num_blocks: 40}
latency: {kind: affine, decode_step: 1ms, prefill_step: 2ms}
policy: continuous
"""


def run_gpu(folder: Path, text: str, *more: object, model: object = None) -> Left:
    config = written(folder, text)
    chosen = ("--model", config_file("llama") if model is None else model)
    return arcsim("run-gpu", "-c", config, *chosen, "-o", folder / "measured", "--dtype", "float32", *more)


def meta(folder: Path) -> Any:
    return json.loads((folder / "measured" / "run.json").read_text())


@pytest.fixture(scope="module")
def ab(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same experiment on both arms."""
    folder = tmp_path_factory.mktemp("ab")
    left = run_gpu(folder, AB, "--audit")
    assert left.code == 0, left
    simulated = arcsim("simulate", "-c", folder / "small.yaml", "-o", folder / "simulated")
    assert simulated.code == 0, simulated
    return folder


def test_both_arms_decide_alike(ab: Path) -> None:
    """Every scheduling column of every step; the measured seconds are the machine's own."""
    for place in ("count=1/bucketed", "count=1/ragged", "count=4/bucketed", "count=4/ragged"):
        simulated, measured = (Run.load(ab / arm / place) for arm in ("simulated", "measured"))
        found = compare(simulated, measured)
        assert found.identical and not found.same_times and found.arms == ("simulated", "measured"), place
        assert measured.outcome == "completed" and (measured.column("device_seconds") > 0).all()


def test_what_ran_is_in_the_record(ab: Path) -> None:
    found = json.loads((ab / "measured" / "count=4" / "ragged" / "run.json").read_text())
    assert found["arm"] == "measured" and found["seed"] == 0 and found["config"]["engine"]["num_blocks"] == 60
    ran = found["measured"]
    assert ran["device"] == "cpu" and ran["dtype"] == "float32" and ran["torch"] == torch.__version__
    assert ran["weights"] == "random" and ran["source"].endswith("llama.json") and ran["model"] == "llama"
    assert ran["attention"] in ("cpp", "reference") and ran["attention_why"] and ran["threads"] == 1
    assert ran["blocks"] == 60 and ran["kv_bytes"] == 60 * 16 * 512 and ran["warm_up"]["passes"] > 0
    assert ran["outputs"] == "forced" and ran["cuda_graphs"].startswith("off")


def test_the_report_and_the_verdict_are_those_of_simulate(ab: Path) -> None:
    assert (ab / "measured" / "report.html").is_file()
    record = json.loads((ab / "measured" / "experiment.json").read_text())
    assert record["verdict"] == "CONFIRMED" and len(record["runs"]) == 4
    assert any("random weights" in note for note in record["notes"])


def test_the_model_of_the_file_and_one_variant(tmp_path: Path) -> None:
    text = AB + f"model: {config_file('llama')}\n"
    left = arcsim(
        "run-gpu", "-c", written(tmp_path, text), "-o", tmp_path / "out", "--variant", "ragged", "--json",
        "--set", "sweep={}", "--set", "expect=[]", "--set", "control=[]", "--attention", "reference",
        "--dtype", "float32",
    )
    assert left.code == 0 and list(left.json["cells"][0]["variants"]) == ["ragged"]
    assert json.loads((tmp_path / "out" / "run.json").read_text())["measured"]["attention_why"] == "as asked"


def test_a_pool_that_nobody_states_is_the_same_for_every_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Here 4 MiB, where a token takes 512 bytes."""
    monkeypatch.setattr("arcsim.executor.memory.CPU_MOST", 4 << 20)
    text = AB.replace(", num_blocks: 60", "").replace("expect:", "note:")
    assert run_gpu(tmp_path, text).code == 0
    records = [json.loads(path.read_text()) for path in (tmp_path / "measured").rglob("run.json")]
    [blocks] = {record["measured"]["blocks"] for record in records}
    assert blocks == 512 and {record["config"]["engine"]["num_blocks"] for record in records} == {blocks}


def test_a_policy_that_does_not_page_leaves_the_pool_to_the_executor(tmp_path: Path) -> None:
    assert run_gpu(tmp_path, ONE.replace("continuous", "mistralrs_dense")).code == 0
    found = meta(tmp_path)
    assert (found["measured"]["blocks"], found["measured"]["block_size"]) == (40, 4)
    assert not [note for note in found["notes"] if "not heeded" in note]


def test_sampled_outputs_end_by_the_models_own_token(tmp_path: Path) -> None:
    """`max_tokens` ends those that do not: the workload's own lengths no longer count."""
    text = ONE.replace("output: 6", "output: 2, max_tokens: 9")
    assert run_gpu(tmp_path, text, "--outputs", "sampled").code == 0
    assert meta(tmp_path)["measured"]["outputs"] == "sampled"
    lengths = Run.load(tmp_path / "measured").requests.column("output_tokens").to_pylist()
    assert all(length <= 9 for length in lengths) and max(lengths) > 2


def test_a_cache_that_lies_is_named(tmp_path: Path) -> None:
    text = ONE.replace("continuous", "{name: mistralrs_paged, caching: by_len}")
    assert "by_len takes blocks for cached that were never computed" in run_gpu(tmp_path, text).out


def test_the_bundled_ab_in_small(tmp_path: Path) -> None:
    """On both arms, with a tiny model: the same decisions, and with as many prompt lengths as sequences one sequence a
    pass in bucketed decode. How fast a tiny model is predicts nothing, so a refuted throughput is allowed."""
    shared = ("-c", "ab_cpu", "--set", "workload.output=3", "--set", "sweep.workload.count=[1, 8]")
    model = config_file("llama")
    measured = arcsim("run-gpu", *shared, "-m", model, "--dtype", "float32", "-o", tmp_path / "measured")
    simulated = arcsim("simulate", *shared, "--set", f"model={model}", "-o", tmp_path / "simulated", "--jobs", "1")
    assert measured.code in (0, 1) and simulated.code in (0, 1), (measured, simulated)
    runs = json.loads((tmp_path / "measured" / "experiment.json").read_text())["runs"]
    assert len(runs) == 12
    for place in runs:
        simulation, measurement = (Run.load(tmp_path / arm / place) for arm in ("simulated", "measured"))
        assert compare(simulation, measurement).identical, place
    [spread] = [place for place in runs if "spread" in place and place.endswith("count=8/bucketed")]
    assert (Run.load(tmp_path / "measured" / spread).column("forward_width") == 1).all()


# What goes wrong in the middle


def failing(monkeypatch: pytest.MonkeyPatch, error: BaseException, after: int) -> None:
    """The model raises at its n-th pass of every run; those of the warm-up do not count."""
    honest, passes = Runner.run, [0]

    def run(runner: Runner, inputs: Any) -> Any:
        if inputs.sampling and not inputs.sampling[0].id.startswith("warm-up"):
            passes[0] += 1
            if passes[0] > after:
                raise error
        return honest(runner, inputs)

    monkeypatch.setattr(Runner, "run", run)


def test_out_of_memory_in_the_middle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The trace so far is kept and the run marked failed."""
    failing(monkeypatch, torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB"), after=3)
    left = run_gpu(tmp_path, ONE)
    assert left.code == 2 and "lower engine.num_blocks" in left.err and "INVALID" in left.out
    assert meta(tmp_path)["outcome"] == "failed" and "out of memory" in meta(tmp_path)["report"]
    assert len(Run.load(tmp_path / "measured").steps) == 3


def test_an_interrupt_in_the_middle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    failing(monkeypatch, KeyboardInterrupt(), after=3)
    assert run_gpu(tmp_path, ONE).code == 130
    assert meta(tmp_path)["outcome"] == "interrupted" and len(Run.load(tmp_path / "measured").steps) == 3


def test_an_interrupt_keeps_the_runs_before_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where it comes while the next run is made ready."""
    from arcsim.executor.backend import MeasuredBackend

    honest, made = MeasuredBackend.warm_up, [0]

    def warm_up(backend: MeasuredBackend) -> None:
        made[0] += 1
        if made[0] == 2:
            raise KeyboardInterrupt
        honest(backend)

    monkeypatch.setattr(MeasuredBackend, "warm_up", warm_up)
    assert run_gpu(tmp_path, AB).code == 130
    assert [path.parent.name for path in (tmp_path / "measured").rglob("run.json")] == ["bucketed"]


def test_a_later_run_that_finds_no_memory_fails_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from arcsim.executor.backend import MeasuredBackend

    honest, made = MeasuredBackend.warm_up, [0]

    def warm_up(backend: MeasuredBackend) -> None:
        made[0] += 1
        if made[0] == 2:
            raise torch.OutOfMemoryError("CUDA out of memory")
        honest(backend)

    monkeypatch.setattr(MeasuredBackend, "warm_up", warm_up)
    left = run_gpu(tmp_path, AB)
    assert left.code == 2 and "out of memory with a KV pool of 60 blocks of 16 tokens" in left.err
    outcomes = [json.loads(path.read_text())["outcome"] for path in sorted((tmp_path / "measured").rglob("run.json"))]
    assert outcomes == ["completed", "failed", "completed", "completed"]


def test_a_later_model_that_cannot_be_loaded_fails_alone(tmp_path: Path) -> None:
    """Its config can be read, its weights cannot: what was measured before it is kept."""
    written(tmp_path / "broken", config_file("llama").read_text(), "config.json")
    written(tmp_path / "broken", "junk", "model.safetensors")
    sweep = f"sweep: {{model: [{config_file('llama')}, ./broken]}}\n"
    left = arcsim("run-gpu", "-c", written(tmp_path, ONE + sweep), "-o", tmp_path / "measured", "--dtype", "float32")
    assert left.code == 2 and "broken: the weights cannot be loaded: SafetensorError" in left.err
    outcomes = {json.loads(path.read_text())["outcome"] for path in (tmp_path / "measured").rglob("run.json")}
    assert outcomes == {"completed", "failed"}


# What is refused before anything is loaded


@pytest.fixture
def no_loading(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("arcsim.experiment.measured.load", lambda *_, **__: pytest.fail("it was loaded"))


@pytest.mark.usefixtures("no_loading")
@pytest.mark.parametrize(("more", "message"), [
    (("--set", "engine.block_size=512"), "engine.block_size: the executor pages by 1 to 256 tokens, found 512"),
    (("--attention", "flash_attn"), "attention 'flash_attn' cannot serve: it computes on cuda, the model is on cpu"),
    (("--attention", "flash"), "no attention backend 'flash'; known: auto, flash_attn,"),
    (("--device", "tpu"), "no device 'tpu': auto, cpu, cuda or cuda:N is meant"),
    (("--dtype", "int8"), "dtype int8: the executor computes in float32, float16, bfloat16"),
    (("--outputs", "free"), "--outputs free: forced (as long as the workload says) or sampled (until the model"),
    (("--set", "engine.num_blocks=2000000000"), "a KV pool of 8,000,000,000 tokens 3,814.70 GiB make"),
    (("--set", "policy={name: mistralrs_dense, speculative: {tokens: 2, acceptance: 0.5}}"),
     "policy.speculative: the executor has no draft model, so it cannot run what is simulated here"),
    (("--set", "policy.batching=some"), "policy.batching: found \"some\""),
])
def test_refusals(tmp_path: Path, more: tuple[str, ...], message: str) -> None:
    found = refused(run_gpu(tmp_path, ONE, *more))
    assert message in found and "\n" not in found and not (tmp_path / "measured").exists()


@pytest.mark.usefixtures("no_loading")
def test_a_cuda_device_that_is_not_there(tmp_path: Path) -> None:
    if torch.cuda.is_available():
        pytest.skip("there is one")
    assert "finds no CUDA device here; use cpu" in refused(run_gpu(tmp_path, ONE, "--device", "cuda"))


@pytest.mark.usefixtures("no_loading")
def test_more_positions_than_the_model_has(tmp_path: Path) -> None:
    """GPT-2 has a table of them; rotary ones are computed."""
    shape = {"model_type": "gpt2", "vocab_size": 50, "n_embd": 16, "n_layer": 1, "n_head": 2, "n_positions": 24}
    model = written(tmp_path, json.dumps(shape), "gpt2.json")
    found = refused(run_gpu(tmp_path, ONE, "--set", "engine.max_model_len=25", model=model))
    assert "engine.max_model_len: gpt2 has a table of 24 positions, found 25" in found


@pytest.mark.usefixtures("no_loading")
def test_models_that_cannot_run(tmp_path: Path) -> None:
    """A directory without weights, a recurrent model, one whose weights are more than is free, an unknown one, none."""
    empty = tmp_path / "empty"
    written(empty, config_file("llama").read_text(), "config.json")
    message = refused(run_gpu(tmp_path, ONE, model=empty))
    assert message.startswith(f"{empty}: no weights: model.safetensors is not there")
    mamba = {"model_type": "mamba", "hidden_size": 16, "num_hidden_layers": 1, "vocab_size": 50}
    recurrent = written(tmp_path, json.dumps(mamba), "mamba.json")
    assert "mamba cannot run on a paged KV cache: " in refused(run_gpu(tmp_path, ONE, model=recurrent))
    huge = json.loads(config_file("llama").read_text()) | {"hidden_size": 1 << 16, "intermediate_size": 1 << 20}
    wide = written(tmp_path, json.dumps(huge), "huge.json")
    message = refused(run_gpu(tmp_path, ONE, model=wide))
    assert message.startswith("huge does not fit on cpu: weights of ") and " is free; take a smaller model" in message
    message = refused(run_gpu(tmp_path, ONE, model="smollm"))
    assert "'smollm' is neither a known model (did you mean smollm-135m?)" in message
    message = refused(arcsim("run-gpu", "-c", written(tmp_path, ONE), "-o", tmp_path / "measured"))
    assert "model: missing; the executor runs a preset" in message and "--model" in message


@pytest.mark.usefixtures("no_loading")
def test_a_policy_without_a_ledger(tmp_path: Path) -> None:
    mini = Path(__file__).parent.parent / "docs" / "mini_policy.py"
    found = refused(run_gpu(tmp_path, ONE, "--set", f"policy={mini}:ShortestFirst"))
    assert "keeps no ledger (Policy.ledger), so nobody says where its KV lies" in found


WITHOUT = """
import sys
sys.modules[sys.argv[1]] = None
from arcsim.cli import main
main(["run-gpu", "-c", "h200_ragged", "-m", "smollm-135m", "-o", sys.argv[2]])
"""


@pytest.mark.parametrize("package", ["torch", "transformers"])
def test_without_torch(tmp_path: Path, package: str) -> None:
    command = [sys.executable, "-c", WITHOUT, package, str(tmp_path / "out")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr == (
        f"error: run-gpu runs a real model and needs {package}, which is not installed: pip install arcsim[executor]\n"
    )
