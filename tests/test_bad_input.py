"""What a user may get wrong: one clear message on stderr, exit code 2, no traceback, and nothing written."""

import os
from pathlib import Path

import pytest

from arcsim.traces.run import Run

from .command import POLICY, SMALL, TWO, arcsim, refused, written


def told(folder: Path, text: str, *more: object) -> str:
    """The message about an experiment of that text; nothing but its file is left in the folder."""
    config = written(folder, text)
    before = sorted(os.listdir(folder))
    message = refused(arcsim("simulate", "-c", config, "-o", folder / "out", *more))
    assert sorted(os.listdir(folder)) == before
    return message.replace(str(folder) + "/", "")


def changed(old: str, new: str) -> str:
    assert old in SMALL
    return SMALL.replace(old, new)


UNKNOWN = {
    "top": (SMALL + "wrokload: 1\n", "small.yaml:6: wrokload: unknown key; did you mean workload?"),
    "engine": (changed("block_size", "blok_size"), "small.yaml:3: engine.blok_size: unknown key; did you mean block_"),
    "workload": (changed("count", "cuont"), "small.yaml:2: workload.cuont: unknown key; did you mean count?"),
    "lengths": (changed("fixed", "fxied"), "small.yaml:2: workload.prompt"),
    "latency": (changed("decode_step", "decode"), "small.yaml:4: latency.decode: unknown key; did you mean decode_"),
    "policy option": (changed("continuous", "{name: continuous, victm: last}"),
                      "small.yaml:5: policy.victm: unknown key; did you mean victim? allowed: batching, "),
    "variant section": (SMALL + "variants: {a: {polcy.victim: last}}\n", "small.yaml:6: variants.a: polcy.victim: "),
    "variant key": (SMALL + "variants:\n  a: {policy.victm: last}\n", "small.yaml:7: variants.a.policy.victm: unknown"),
    "sweep section": (SMALL + "sweep: {wrkload.count: [1]}\n", "small.yaml:6: sweep: wrkload.count: there is no sect"),
    "sweep key": (SMALL + "sweep: {engine.seats: [1]}\n", "small.yaml:6: sweep.engine.seats: unknown key"),
}


@pytest.mark.parametrize("level", UNKNOWN)
def test_an_unknown_key_is_named_at_every_level(tmp_path: Path, level: str) -> None:
    text, message = UNKNOWN[level]
    assert told(tmp_path, text).startswith(message)


WRONG = {
    "no number": (changed("num_blocks: 100", "num_blocks: many"),
                  'engine.num_blocks: found "many"; it must be a whole number or \'auto\''),
    "a fraction": (changed("num_blocks: 100", "num_blocks: 1.5"), "engine.num_blocks: found 1.5"),
    "negative": (changed("num_blocks: 100", "num_blocks: -5"),
                 "engine.num_blocks: found -5; it must be greater than 0 or 'auto'"),
    "zero": (changed("num_blocks: 100", "num_blocks: 0"), "engine.num_blocks: found 0; it must be greater than 0"),
    "zero block size": (changed("block_size: 16", "block_size: 0"), "engine.block_size: found 0"),
    "no requests": (changed("count: 4", "count: 0"), "workload.count: found 0; it must be greater than 0"),
    "negative output": (changed("output: 5", "output: -5"), "workload.output: found -5"),
    "negative time": (changed("1ms", "-1ms"), "latency.decode_step: found -0.001"),
    "no unit": (changed("1ms", "1 parsec"), "latency.decode_step: '1 parsec' is not a quantity"),
    "a model of keys": (SMALL + "model: {name: llama-3.1-8b}\n", 'small.yaml:6: model: found {"name": "'),
    "a variant's model": (SMALL + "variants: {a: {model: {a: 1}}}\n", "small.yaml:6: variants.a.model: found {"),
    "a variant's hardware": (SMALL + "variants: {a: {hardware: 5}}\n", "small.yaml:6: variants.a.hardware: found 5"),
    "a swept model": (SMALL + "sweep: {model: [5]}\n", "small.yaml:6: sweep.model: found 5; it must be a text"),
    "a list": (changed("policy: continuous", "policy: [continuous]"), "small.yaml:5: policy: "),
    "no section": (changed("engine: {block_size: 16, num_blocks: 100, max_num_seqs: 4, max_num_batched_tokens: 64}",
                           "engine: 16"), "small.yaml:3: engine: found 16"),
    "budget below seats": (changed("tokens: 64", "tokens: 3"), "max_num_batched_tokens (3) is below engine.max_num_"),
    "auto without model": (changed("num_blocks: 100", "num_blocks: auto"),
                           "engine.num_blocks: give a number of blocks; 'auto' needs model and hardware"),
    "too large a model": (changed("num_blocks: 100", "num_blocks: auto") + "model: llama-3.1-70b\nhardware: l40s\n",
                          "engine.num_blocks: "),
    "roofline without model": (changed("{kind: affine, decode_step: 1ms, prefill_step: 2ms, row: 0.1ms}",
                                       "{kind: roofline}"), "small.yaml:4: latency: the roofline latency model needs"),
    "empty workload": (changed("{kind: synthetic, count: 4, prompt: {fixed: 20}, output: 5}", ""), "workload: missing"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_value_is_told_with_what_is_allowed(tmp_path: Path, case: str) -> None:
    text, message = WRONG[case]
    assert message in told(tmp_path, text)


NAMES = {
    "policy": (changed("continuous", "continous"),
               "small.yaml:5: policy: no policy 'continous'; did you mean continuous?"),
    "model": (SMALL + "model: lama\n", "small.yaml:6: model: 'lama' is neither a known model nor a file here; "),
    "hardware": (SMALL + "hardware: b200\n", "small.yaml:6: hardware: 'b200' is neither a known hardware"),
    "latency": (changed("{kind: affine, decode_step: 1ms, prefill_step: 2ms, row: 0.1ms}", "fit.yaml"),
                "small.yaml:4: latency: no latency file fit.yaml in "),
    "column": (SMALL + "expect: ['mean(runing, continuous) < 3']\n",
               "small.yaml:6: expect.0: 'mean(runing, continuous) < 3', character 6: mean reads no column 'runing'"),
    "variant of a statement": (SMALL + "expect: ['mean(running, a) < 3']\n", "small.yaml:6: expect.0: "),
    "key of a statement": (SMALL + "expect: ['mean(running, continuous) < 3 where workload.cnt == 1']\n",
                           "small.yaml:6: expect.0: "),
}


@pytest.mark.parametrize("what", NAMES)
def test_an_unknown_name_is_told_with_those_there_are(tmp_path: Path, what: str) -> None:
    text, message = NAMES[what]
    assert told(tmp_path, text).startswith(message)


@pytest.mark.parametrize(("option", "message"), [
    (("--set", "engine.max_num_seqs"), "--set engine.max_num_seqs: no '='"),
    (("--set", "engin.max_num_seqs=3"), "--set engin.max_num_seqs: there is no section engin; did you mean engine?"),
    (("--set", "engine.max_num_seqs=["), "--set engine.max_num_seqs=[:1: not YAML: "),
    (("--set", "engine.max_num_seqs=many"), '--set engine.max_num_seqs: found "many"; it must be a whole number'),
    (("--set", "engine.num_blocks=-1"), "--set engine.num_blocks: found -1; it must be greater than 0"),
    (("--set", "policy.victm=last"), "--set policy.victm: unknown key; did you mean victim?"),
    (("--set", "policy=nope"), "--set policy: no policy 'nope'; known: continuous, "),
    (("--variant", "c"), "--variant c: no such variant; variants: plain, first"),
])
def test_a_wrong_option_is_named_as_it_was_given(tmp_path: Path, option: tuple[str, str], message: str) -> None:
    assert told(tmp_path, TWO, *option).startswith(message)


@pytest.mark.parametrize(("arguments", "message"), [
    (("simulate",), "Missing option '--config'"), (("simulat",), "No such command 'simulat'"),
    (("simulate", "-c", "h200_ragged", "--jobs", "0"), "--jobs"), (("show",), "Missing argument"),
    (("show", "x", "--interval", "soon"), "--interval"), (("fit", "x"), "Missing option '--out'"),
    (("import", "x", "--offset", "nan"), "--offset"), (("compare", "x", "y", "--offset", "inf"), "--offset"),
])
def test_a_command_that_cannot_be_read_is_explained(arguments: tuple[str, ...], message: str) -> None:
    left = arcsim(*arguments)
    assert left.code == 2 and left.out == "" and message in left.err and "Traceback" not in left.err


CONFIGS = {
    "a list": ("[1, 2]", "small.yaml: found [1, 2] where an experiment (a mapping with workload and policy) must"),
    "nothing": ("", "small.yaml: found nothing where an experiment"),
    "no YAML": ("a: [", "small.yaml:1: not YAML: "),
    "a program": ("import os\n\ndef main():\n    return {}\n", "small.yaml:"),
    "twice": (SMALL + "policy: continuous\n", "small.yaml:6: the key policy stands twice, first on line 5: keep one"),
}


@pytest.mark.parametrize("case", CONFIGS)
def test_a_config_that_is_none(tmp_path: Path, case: str) -> None:
    text, message = CONFIGS[case]
    assert told(tmp_path, text).startswith(message)


def test_a_config_that_is_no_text_or_no_file(tmp_path: Path) -> None:
    (tmp_path / "bytes.yaml").write_bytes(bytes(range(128, 256)))
    assert "is not UTF-8" in refused(arcsim("simulate", "-c", tmp_path / "bytes.yaml"))
    assert "is a folder; an experiment is a YAML file" in refused(arcsim("simulate", "-c", tmp_path))
    assert "no bundled experiment of that name; did you mean h200_ragged? bundled: " in refused(
        arcsim("simulate", "-c", "h200_raged")
    )


BROKEN = {
    "no class": (POLICY.replace("class Mine", "class Yours"), "mine.py has no policy 'Mine' (policies in it: Yours)"),
    "no policy": ("class Mine:\n    pass\n", "mine.py has no policy 'Mine' (policies in it: none)"),
    "syntax": ("class Mine(:\n", "mine.py cannot be imported: SyntaxError"),
    "an import": ("import no_such_thing\n", "mine.py cannot be imported: ModuleNotFoundError: No module named 'no_"),
    "no commit": (POLICY.replace("def commit", "def comit"), "Mine in mine.py lacks commit"),
    "in __init__": (POLICY.replace("self.waiting, self", "raise RuntimeError('no luck')\n        self.waiting, self"),
                    "mine.py:Mine cannot be built: RuntimeError: no luck"),
    "other arguments": (POLICY.replace("(self, engine, options)", "(self)"),
                        "mine.py:Mine cannot be built: TypeError: Mine.__init__() takes 1 positional argument"),
    "in add": (POLICY.replace("self.waiting.append(sequence)", "raise LookupError('where?')"),
               "policy Mine raised LookupError in add() at mine.py:10: where?"),
    "in schedule": (POLICY.replace("self.running += admitted", "self.running[7]"),
                    "policy Mine raised IndexError in schedule() at mine.py:14: list index out of range"),
    "in commit": (POLICY.replace("step.settle(sampled)", "1 / 0"),
                  "policy Mine raised ZeroDivisionError in commit() at mine.py:19: division by zero"),
    "leaves": (POLICY.replace("step.settle(sampled)", "raise SystemExit(0)"), "mine.py:Mine called sys.exit(0)"),
    "too many tokens": (POLICY.replace("Chunk.rest(sequence)", "Chunk(sequence, 0, 3000)"),
                        "policy Mine scheduled the impossible: <r0: 20+0 tokens, 0 computed>: tokens 0 to 3000 of 20"),
    "a gap": (POLICY.replace("Chunk.rest(sequence)", "Chunk(sequence, 5, 3, samples=False)"),
              "the chunk starts at 5, but 0 tokens are computed"),
    "twice": (POLICY.replace("in self.running]\n        return Step", "in self.running * 2]\n        return Step"),
              "scheduled the impossible: <r0: 20+0 tokens, 0 computed>: it is in the same forward pass twice"),
    "takes no token": (POLICY.replace("step.settle(sampled)", "pass"),
                       "policy Mine: commit() did not take the token of <r0: 20+0 tokens, 0 computed>"),
    "no step": (POLICY.replace("return Step(", "return dict(admitted=admitted) or Step("),
                "policy Mine: schedule() returned {'admitted': [<r0"),
    "no gauges": (POLICY.replace("step.settle(sampled)", "return step.settle(sampled)"),
                  "policy Mine: commit() returned None, it must return Gauges"),
    "a stranger": (POLICY.replace("Chunk.rest(sequence) for", "Chunk.rest(type(sequence)('x', [1], 1)) for"),
                   "it was never submitted"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_policy_that_is_wrong(tmp_path: Path, case: str) -> None:
    text, message = BROKEN[case]
    written(tmp_path, text, "mine.py")
    assert message in told(tmp_path, SMALL.replace("continuous", "mine.py:Mine"))


def test_a_policys_file_that_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert told(tmp_path, SMALL, "--set", "policy=./mine.py:Mine").startswith("--set policy: no file ./mine.py in ")
    assert "no_such cannot be imported: ModuleNotFoundError" in told(tmp_path, SMALL, "--set", "policy=no_such:Mine")


def test_the_audit_names_the_broken_law(tmp_path: Path) -> None:
    written(tmp_path, POLICY, "mine.py")
    message = told(tmp_path, SMALL.replace("continuous", "mine.py:Mine"), "--audit")
    assert message == "law budget broken by Mine in step 0: 80 tokens in a step, the budget is 64"


def test_what_can_never_fit_is_rejected_with_the_numbers(tmp_path: Path) -> None:
    written(tmp_path, "arrival,prompt,output\n0,10,5\n1,9000,5\n2,8000,5\n", "trace.csv")
    config = written(tmp_path, changed("{kind: synthetic, count: 4, prompt: {fixed: 20}, output: 5}",
                                       "{kind: trace, path: trace.csv}"))
    left = arcsim("simulate", "-c", config, "-o", tmp_path / "out")
    why = "needs 563 blocks of 16 tokens (prompt 9000 + max_tokens 5 - 1), the pool has 100"
    assert left.code == 0 and "2 rejected" in left.out
    assert f"note: 2 of 3 requests rejected, the first r1: {why}" in " ".join(left.out.split())
    assert Run.load(tmp_path / "out").requests.column("reason").to_pylist()[1] == why


TRACES = {
    "is missing": (None, "no file trace.csv in "),
    "is empty": (b"", "trace.csv is empty"),
    "has no rows": (b"arrival,prompt,output\n", "trace.csv has no rows"),
    "is cut off": (b"arrival,prompt,output\n0,10,5\n1,10", "trace.csv:3: 2 fields, but there are 3 columns: a cut "),
    "is binary": (bytes(range(256)) * 9, "trace.csv is not text (it has zero bytes): a binary or compressed file?"),
    "has a text for a number": (b"arrival,prompt,output\n0,ten,5\n", "trace.csv:2: prompt = 'ten' is not a number"),
    "is of no known format": (b"a,b\n1,2\n", "trace.csv:1: format not recognised"),
    "goes negative": (b"arrival,prompt,output\n0,-1,5\n", "trace.csv:2: prompt = '-1' is negative"),
}


@pytest.mark.parametrize("case", TRACES)
def test_a_trace_that(tmp_path: Path, case: str) -> None:
    content, message = TRACES[case]
    if content is not None:
        (tmp_path / "trace.csv").write_bytes(content)
    text = changed("{kind: synthetic, count: 4, prompt: {fixed: 20}, output: 5}", "{kind: trace, path: trace.csv}")
    found = told(tmp_path, text)
    assert found.startswith("small.yaml:2: workload.path: ") and message in found


def test_a_folder_for_a_trace(tmp_path: Path) -> None:
    text = changed("{kind: synthetic, count: 4, prompt: {fixed: 20}, output: 5}", "{kind: trace, path: .}")
    assert "is a folder without ServeGen files" in told(tmp_path, text)


def test_a_missing_trace_says_how_to_name_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    message = refused(arcsim("simulate", "-c", "azure_conv"))
    assert message.startswith("azure_conv.yaml:") and "no file AzureLLMInferenceTrace_conv.csv in " in message
    assert message.endswith("name another with --set workload.path=...")


@pytest.mark.parametrize(("arguments", "message"), [
    (("show", "none"), "no run at none: there is no such folder"),
    (("show", "empty"), "no run at empty: it has no run.json, steps.parquet, requests.parquet"),
    (("compare", "file", "file"), "no run at file: a run is a folder, this is a file"),
    (("fit", "empty", "-o", "x.yaml"), "no run at empty: it has no run.json"),
    (("fit", "file", "-o", "x.yaml"), "file: found "),
    (("policies", "none"), "no policy 'none'; known: continuous, "),
    (("workloads", "none.csv"), "none.csv: no such file, and no bundled experiment of that name"),
    (("workloads", "empty"), "is a folder without ServeGen files"),
    (("workloads", "file"), "file: workload.path: "),
    (("workloads", "file", "--format", "xml"), 'file: workload.format: found "xml"; it must be \'auto\', \'azure\''),
    (("workloads", "file", "--set", "workload.limt=3"), "--set workload.limt: unknown key; did you mean limit?"),
])
def test_the_other_commands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("some words\nin lines\n")
    assert message in refused(arcsim(*arguments))
    assert sorted(os.listdir(tmp_path)) == ["empty", "file"]


@pytest.mark.parametrize("option", [("--interval", "0"), ("--rate", "hourly"), ("--throughput", "all")])
def test_what_the_log_cannot_show(tmp_path: Path, option: tuple[str, str]) -> None:
    arcsim("simulate", "-c", written(tmp_path, SMALL), "-o", tmp_path / "out", "-q")
    assert refused(arcsim("show", tmp_path / "out", *option)).startswith(option[0].strip("-"))


def test_a_policy_that_runs_who_has_ended_is_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Finished sequences keep their seats: only tokens nobody asked for are made, and two requests wait for ever."""
    monkeypatch.setattr("arcsim.engine.loop.THRASHING", 200)
    two = "free = 2 - len(self.running)\n        admitted, self.waiting = self.waiting[:free], self.waiting[free:]"
    keeps = POLICY.replace("admitted, self.waiting = self.waiting, []", two)
    written(tmp_path, keeps.replace("if sequence not in stopped", ""), "mine.py")
    config = written(tmp_path, SMALL.replace("continuous", "mine.py:Mine"))
    left = arcsim("simulate", "-c", config, "-o", tmp_path / "out")
    assert left.code == 2 and "stalled: 200 steps in a row computed nothing new" in left.err


def test_gauges_below_zero_are_refused(tmp_path: Path) -> None:
    written(tmp_path, POLICY.replace("Gauges(len(self.running), 0)", "Gauges(len(self.running), -5)"), "mine.py")
    assert "a count below 0" in told(tmp_path, SMALL.replace("continuous", "mine.py:Mine"))


def test_what_a_policy_prints_is_no_result(tmp_path: Path) -> None:
    written(tmp_path, POLICY.replace("step.settle(sampled)", "step.settle(sampled); print('hello')"), "mine.py")
    config = written(tmp_path, SMALL.replace("continuous", "mine.py:Mine"))
    left = arcsim("simulate", "-c", config, "-o", tmp_path / "out", "--json")
    assert left.code == 0 and "hello" not in left.out and "hello" in left.err


def test_a_run_that_served_nobody_says_so_even_where_it_is_quiet(tmp_path: Path) -> None:
    config = written(tmp_path, SMALL)
    left = arcsim("simulate", "-c", config, "-o", tmp_path / "out", "-q", "--set", "engine.num_blocks=1")
    assert left.code == 0 and "every request was rejected" in left.err
