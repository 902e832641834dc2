"""The measured backend in the engine's loop: clocks, outputs that end by themselves, what goes wrong in the middle."""

import json
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the executor needs torch: pip install 'arcsim[executor]'")
pytest.importorskip("transformers", reason="the executor needs transformers: pip install 'arcsim[executor]'")

from arcsim.engine.loop import Loop
from arcsim.executor import backend as backend_module
from arcsim.executor.backend import MeasuredBackend, _Pending
from arcsim.executor.errors import ExecutorError
from arcsim.executor.model import load_model
from arcsim.policies.base import EngineConfig
from arcsim.workloads.arrival import Arrival
from arcsim.workloads.requests import OpenSession

from .executing import Recording, generated, mixed_requests, policy, request, serve, tiny

ENGINE = EngineConfig(block_size=4, num_blocks=60, max_num_seqs=8, max_num_batched_tokens=32)


def _backend(**choices: Any) -> MeasuredBackend:
    return MeasuredBackend(tiny("qwen2"), blocks=60, block_size=4, **choices)


def test_a_steps_time_is_what_the_clocks_say(monkeypatch: pytest.MonkeyPatch) -> None:
    """A model that takes 5 ms, input building that takes 3 ms and a policy that takes 2 ms, by a clock of our own."""
    now = [0.0]

    def later(seconds: float, honest: Any) -> Any:
        def slow(*args: Any, **rules: Any) -> Any:
            now[0] += seconds
            return honest(*args, **rules)
        return slow

    monkeypatch.setattr("arcsim.executor.clock.perf_counter", lambda: now[0])
    backend, served = Recording(tiny("qwen2"), blocks=60, block_size=4), policy("continuous", ENGINE)
    backend.clock = lambda: now[0]
    backend.builder.build = later(0.003, backend.builder.build)  # type: ignore[method-assign]
    backend.runner.run = later(0.005, backend.runner.run)  # type: ignore[method-assign]
    served.schedule = later(0.002, served.schedule)  # type: ignore[method-assign]
    loop = Loop(served, OpenSession((request("a", 9, 4),)), backend)
    loop.run()
    steps = loop.recorder.run({}).steps
    assert (steps.column("t_end").to_numpy() - steps.column("t_start").to_numpy()).tolist() == pytest.approx([0.01] * 4)
    assert steps.column("host_seconds").to_pylist() == pytest.approx([0.005] * 4)
    assert steps.column("device_seconds").to_pylist() == pytest.approx([0.005] * 4)


def test_real_time_passes() -> None:
    ran = serve(tiny("qwen2"), mixed_requests(), policy("continuous", ENGINE))
    steps = ran.run.steps
    host, device = (steps.column(name).to_numpy() for name in ("host_seconds", "device_seconds"))
    whole = steps.column("t_end").to_numpy() - steps.column("t_start").to_numpy()
    assert (host > 0).all() and (device > 0).all()
    assert whole == pytest.approx(host + device, abs=1e-8)


def test_sampled_outputs_end_with_the_models_own_end_token() -> None:
    """As `generate` ends them; the end token belongs to the output. `max_tokens` ends the others."""
    model = tiny("qwen2")
    requests = [request(each.id, each.prompt, 1, max_tokens=12) for each in mixed_requests()]
    end = generated("qwen2", requests[0].prompt, 12).tokens[5]
    plain = model.vocabulary
    model.vocabulary = type(plain)(plain.size, frozenset({end}))
    try:
        ran = serve(model, requests, policy("continuous", ENGINE), outputs="sampled")
    finally:
        model.vocabulary = plain
    assert ran.loop.outcome == "completed"
    lengths = set()
    for each in requests:
        wanted = generated("qwen2", each.prompt, 12, end=end).tokens
        assert tuple(ran.backend.tokens[each.id]) == wanted
        lengths.add(len(wanted))
    assert {len(ran.backend.tokens["a"]), 12} <= lengths and len(ran.backend.tokens["a"]) <= 6


def test_forced_outputs_ignore_the_end_token() -> None:
    model, each = tiny("qwen2"), mixed_requests()[0]
    plain = model.vocabulary
    model.vocabulary = type(plain)(plain.size, frozenset(range(plain.size)))
    try:
        ran = serve(model, [each], policy("continuous", ENGINE))
    finally:
        model.vocabulary = plain
    assert len(ran.backend.tokens["a"]) == each.output


@pytest.mark.parametrize("error", [
    torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB\nmore"), MemoryError("none left"),
    RuntimeError("[enforce fail at alloc_cpu.cpp] DefaultCPUAllocator: can't allocate memory: you tried"),
])
def test_out_of_memory_in_the_middle_keeps_the_trace(error: Exception) -> None:
    backend, steps = Recording(tiny("qwen2"), blocks=60, block_size=4), [0]
    honest = backend.runner.run

    def starved(inputs: Any) -> Any:
        steps[0] += 1
        if steps[0] > 3:
            raise error
        return honest(inputs)

    backend.runner.run = starved  # type: ignore[method-assign]
    loop = Loop(policy("continuous", ENGINE), OpenSession(tuple(mixed_requests())), backend)
    loop.run()
    assert loop.outcome == "failed"
    assert loop.report.startswith("out of memory in a step of ")
    assert "lower engine.num_blocks, engine.max_num_batched_tokens or engine.max_num_seqs (" in loop.report
    assert "\n" not in loop.report
    run = loop.recorder.run({})
    assert len(run.steps) == 3
    assert "unfinished" in run.requests.column("status").to_pylist()


def test_a_device_that_fails_is_told_when_its_tokens_are_read() -> None:
    """Its errors come late: not when a step is launched. The trace so far is kept."""
    backend, read = Recording(tiny("qwen2"), blocks=60, block_size=4), _Pending.tokens
    with pytest.MonkeyPatch.context() as patch:
        steps = iter(range(9))

        def broken(pending: _Pending) -> Any:
            if next(steps) == 3:
                raise torch.AcceleratorError("CUDA error: an illegal memory access was encountered\nmore")
            return read(pending)

        patch.setattr(_Pending, "tokens", broken)
        loop = Loop(policy("continuous", ENGINE), OpenSession(tuple(mixed_requests())), backend)
        loop.run()
    assert loop.outcome == "failed" and len(loop.recorder.run({}).steps) == 3
    assert loop.report.startswith("the device failed in or before a step of ")
    assert loop.report.endswith("CUDA error: an illegal memory access was encountered")


def test_another_error_of_the_model_is_not_hidden() -> None:
    backend = _backend()

    def broken(inputs: Any) -> Any:
        raise RuntimeError("shapes do not match")

    backend.runner.run = broken  # type: ignore[method-assign]
    with pytest.raises(RuntimeError, match="shapes do not match"):
        Loop(policy("continuous", ENGINE), OpenSession(tuple(mixed_requests())), backend).run()


def test_an_interrupt_in_the_middle_keeps_the_trace() -> None:
    backend, steps = Recording(tiny("qwen2"), blocks=60, block_size=4), [0]
    honest = backend.runner.run

    def interrupted(inputs: Any) -> Any:
        steps[0] += 1
        if steps[0] > 3:
            raise KeyboardInterrupt
        return honest(inputs)

    backend.runner.run = interrupted  # type: ignore[method-assign]
    loop = Loop(policy("continuous", ENGINE), OpenSession(tuple(mixed_requests())), backend)
    loop.run()
    assert loop.outcome == "interrupted"
    assert len(loop.recorder.run({}).steps) == 3


def test_idle_gaps_take_no_wall_time() -> None:
    far = Arrival("far", 1e6, (("p", 5),), 2, 2)
    backend = _backend()
    loop = Loop(policy("continuous", ENGINE), OpenSession((request("a", 5, 2), far)), backend)
    loop.run()
    assert loop.outcome == "completed"
    assert loop.now > 1e6


def test_warming_up_changes_no_token() -> None:
    requests = mixed_requests()
    cold = serve(tiny("qwen2"), requests, policy("continuous", ENGINE)).backend.tokens
    warm = Recording(tiny("qwen2"), blocks=60, block_size=4, max_num_seqs=8)
    warm.warm_up()
    Loop(policy("continuous", ENGINE), OpenSession(tuple(requests)), warm).run()
    assert warm.tokens == cold


def test_warming_up_keeps_to_the_positions_of_a_model(tmp_path: Path) -> None:
    """GPT-2 has a table of them: there is no position beyond."""
    shape = {"model_type": "gpt2", "vocab_size": 50, "n_embd": 16, "n_layer": 1, "n_head": 2, "n_positions": 24}
    (tmp_path / "gpt2.json").write_text(json.dumps(shape | {"bos_token_id": 1, "eos_token_id": 2}), encoding="utf-8")
    model = load_model(str(tmp_path / "gpt2.json"), dtype="float32")
    backend = MeasuredBackend(model, blocks=40, block_size=32, max_num_seqs=4)
    backend.warm_up()
    assert backend.facts()["warm_up"]["passes"] > 0


def test_the_record_of_a_run() -> None:
    facts = _backend(attention="reference").facts()
    assert facts.items() >= {
        "device": "cpu", "threads": 1, "model": "qwen2", "seed": 0, "dtype": "float32", "attention": "reference",
        "attention_why": "as asked", "linears": "plain: it helps 16-bit weights on a CPU only", "outputs": "forced",
        "cuda_graphs": "off: they need a CUDA device", "blocks": 60, "block_size": 4, "torch": torch.__version__,
    }.items()
    assert facts["device_name"]


@pytest.mark.parametrize("size", [0, 257])
def test_block_sizes_beyond_what_pages(size: int) -> None:
    with pytest.raises(ExecutorError, match="engine.block_size: the executor pages by 1 to 256 tokens, found"):
        MeasuredBackend(tiny("qwen2"), blocks=8, block_size=size)


def test_steps_are_collected_in_the_order_of_their_launch() -> None:
    """Two steps may be under way; each result belongs to its own."""
    backend, served = _backend(), policy("continuous", ENGINE)
    from arcsim.engine.stepper import Stepper
    from arcsim.policies.base import Sequence, Tokens

    stepper = Stepper(served)
    first = Sequence("first", Tokens.of_pieces((("a", 6),)), 3)
    second = Sequence("second", Tokens.of_pieces((("b", 6),)), 3)
    stepper.arrive(first, 3)
    backend.launch(stepper.schedule(0.0).step)
    other = policy("continuous", ENGINE)
    stepper = Stepper(other)
    other.pool.allocate(8)  # type: ignore[attr-defined]
    stepper.arrive(second, 3)
    backend.launch(stepper.schedule(0.0).step)
    assert [list(backend.collect().sampled) for _ in range(2)] == [[first], [second]]


def test_empty_steps_take_the_policys_own_time() -> None:
    assert backend_module.MeasuredBackend(tiny("qwen2"), blocks=8, block_size=4).empty_step == 0.0
