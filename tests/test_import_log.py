"""Logs as they come: prefixes, colours, cut and glued lines, ranks, clocks without a year or a day."""

import gzip
import json
import os
import random
import re
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from arcsim.traces.importers import sink
from arcsim.traces.importers.catalog import import_file, names
from arcsim.traces.importers.errors import ImportFault
from arcsim.traces.importers.options import ImportOptions
from arcsim.traces.run import Run, no_samples
from arcsim.traces.run_files import RunError

from .command import arcsim, refused
from .importing import (
    decode,
    launch,
    lmdeploy,
    mistralrs,
    prefill,
    pytorch,
    read,
    records,
    triton,
    vllm,
    vllm_v0,
)

BAR = "Processed prompts:   0%|  | 34/10000 [00:29<3:36:54,  1.31s/it, est. speed input: 407.31 toks/s]"
CONTAINER = "2025-10-15T00:02:38.756689123Z "


def test_other_peoples_text_before_a_record_and_the_engines_own_clock(tmp_path: Path) -> None:
    """Caught: taking the first clock of a line for the engine's."""
    lines = [BAR + vllm_v0(34, 9832, 100), CONTAINER + vllm(3, 1, "08-09 10:11:22")]
    lines.append("web | " + vllm(4, 0, "08-09 10:11:32"))
    found = read(tmp_path, "\n".join(lines) + "\n")
    assert found.counts() == [(34, 9832), (3, 1), (4, 0)] and found.column("swapped") == [100, None, None]
    assert found.column("time") == [0, 10, 20] and found.run.meta["clock_start"] == "2026-08-09T10:11:12+00:00"


def test_everything_that_waits_is_the_sum_of_its_kinds(tmp_path: Path) -> None:
    found = read(tmp_path, "\n".join([vllm_v0(1, 20, 3), lmdeploy(1, 5, 50), pytorch(2)]) + "\n", "vllm")
    assert found.run.sample_column("waiting_all").tolist() == [23]
    found = read(tmp_path, "\n".join([lmdeploy(1, 5, 50)]) + "\n")
    assert found.run.sample_column("waiting_all").tolist() == [55]
    found = read(tmp_path, pytorch(2) + "\n")
    assert np.isnan(found.run.sample_column("waiting_all")).tolist() == [True]


def test_colours_line_ends_and_packed_files_change_nothing(tmp_path: Path) -> None:
    plain = "\n".join([vllm(3, 1), "other", vllm(4, 2, "03-04 05:06:17")]) + "\n"
    coloured = re.sub("INFO|Running|Engine", lambda m: f"\x1b[32m{m[0]}\x1b[0m", plain)
    expected = read(tmp_path, plain)
    for text in (coloured, plain.replace("\n", "\r\n"), "\ufeff" + plain, plain.replace("other", BAR + "\r" + BAR)):
        found = read(tmp_path, text)
        assert found.run.samples.equals(expected.run.samples) and found.counts() == [(3, 1), (4, 2)]
    assert read(tmp_path, plain, name="log.gz").run.samples.equals(expected.run.samples)


def test_glued_records_are_all_read_and_a_broken_one_is_not_completed_by_the_next(tmp_path: Path) -> None:
    """Caught: the first half's throughput with the second one's counts; a rank's running with another's queue."""
    half = vllm(8, 7).split("Waiting")[0]
    found = read(tmp_path, vllm(1, 2) + vllm(3, 4, "03-04 05:06:08") + half + vllm(5, 6, "03-04 05:06:09") + "\n")
    assert found.counts() == [(1, 2), (3, 4), (5, 6)] and found.column("time") == [0, 1, 2]
    half = decode(8, 7).split("#queue")[0]
    found = read(tmp_path, half + decode(1, 2) + prefill(3, 4) + "\n" + decode(5, 1) + "3\n")
    assert found.counts() == [(3, 4), (5, 13)]  # `#queue-req: 2[...` might have gone on; 1 and 3 stand together


@pytest.mark.parametrize(("engine", "line"), [
    ("vllm", vllm(12, 345)), ("vllm", vllm_v0(12, 345)), ("vllm", vllm(12, 345, more="Deferred: 3 reqs, ")),
    ("mistralrs", mistralrs(12, 345)), ("lmdeploy", lmdeploy(12, 345, 6)), ("tensorrt", triton(12, 345)),
    ("sglang", prefill(12, 345)), ("tensorrt", pytorch(123)),
    ("tensorrt", pytorch(123, ", num_active = 140, num_unscheduled = 5")),
])
def test_a_cut_line_tells_its_counts_or_nothing(engine: str, line: str) -> None:
    """From the right at every place, and from the left, after a whole one. Caught: `Running: 1` of `Running: 12`."""
    whole = {record[2:4] for record in records(engine, line) or ()}
    for place in range(len(line)):
        for part in (line[:place], line[place:]):
            assert {record[2:4] for record in records(engine, line, part) or ()} <= whole, part


def test_a_last_number_that_the_end_of_the_file_cuts_is_no_sample(tmp_path: Path) -> None:
    """A line that ends without a line end, in a number with which the one before it began."""
    log = f"{decode(4, 138)}\n{decode(4, 137)}\n{decode(4, 13)}"
    found = read(tmp_path, log)
    assert found.counts() == [(4, 138), (4, 137)] and "the last line is cut" in found.report.notes[0]
    assert read(tmp_path, log + "\n").counts()[-1] == (4, 13)
    assert read(tmp_path, f"{decode(4, 138)}\n{decode(4, 77)}").counts()[-1] == (4, 77)
    assert read(tmp_path, decode(4, 77)).counts() == [(4, 77)]


def test_ranks_are_neither_added_up_nor_counted_twice(tmp_path: Path) -> None:
    moments = [(second, engine) for second in ("07", "17") for engine in range(3)]
    lines = [vllm(engine + 1, 10 * engine, f"03-04 05:06:{second}", engine) for second, engine in moments]
    text = "\n".join(lines) + "\n"
    assert read(tmp_path, text).counts() == [(1, 0), (1, 0)]
    found = read(tmp_path, text, rank=2)
    assert found.counts() == [(3, 20), (3, 20)] and found.column("rank") == [2, 2]
    assert "0 (2), 1 (2)" in found.report.notes[0]
    with pytest.raises(ImportFault, match="6 lines .* none tells of rank 5; ranks in it: 0, 1, 2"):
        read(tmp_path, text, rank=5)


def test_the_ranks_of_one_replica_print_the_same_counts(tmp_path: Path) -> None:
    both = "\n".join(decode(4, 1, label=f" DP{dp} TP{tp}") for dp, tp in ((0, 0), (0, 1), (1, 2), (1, 3))) + "\n"
    found = read(tmp_path, both)
    assert found.counts() == [(4, 1)]
    assert "other processes than DP0 TP0 were left out, as repetitions: 1" in found.report.notes[1]
    assert read(tmp_path, both, rank=1).counts() == [(4, 1)]
    ranks = "\n".join(decode(4 + tp, 1, label=f" TP{tp}") for tp in (0, 1)) + "\n"
    assert read(tmp_path, ranks).counts() == [(4, 1)] and read(tmp_path, ranks, rank=1).counts() == [(5, 1)]


def test_the_turn_of_the_year(tmp_path: Path) -> None:
    """A line of the old year that another process writes late has the time of the one before it."""
    clocks = ("12-31 23:59:50", "01-01 00:00:00", "12-31 23:59:59", "01-01 00:00:10")
    found = read(tmp_path, "\n".join(vllm(1, 0, clock) for clock in clocks) + "\n", year=2023)
    assert found.column("time") == [0, 10, 10, 20]
    assert found.run.meta["clock_start"] == "2023-12-31T23:59:50+00:00"


def test_a_leap_day_in_the_year_that_has_one(tmp_path: Path) -> None:
    clocks = ("02-28 23:59:59", "02-29 00:00:01", "03-01 00:00:01")
    lines = "\n".join(vllm(1, 0, clock) for clock in clocks) + "\n"
    assert read(tmp_path, lines, year=2024).column("time") == [0, 2, 86_402]


def test_clocks_without_a_date_go_on_at_midnight(tmp_path: Path) -> None:
    found = read(tmp_path, "\n".join(decode(1, 0, clock) for clock in ("23:59:58", "00:00:03", "12:00:00")) + "\n")
    assert found.column("time") == [0, 5, 43_202] and found.run.meta["clock_start"] is None
    elapsed = launch(0, "1.59.000.000 I ") + "\n" + launch(1, "2.00.500.250 I ") + "\n"
    assert read(tmp_path, elapsed).column("time") == pytest.approx([0, 1.50025])


def test_a_clock_that_jumps_back_goes_on_and_is_told(tmp_path: Path) -> None:
    clocks = ("10-25 02:59:50", "10-25 02:00:00", "10-25 02:00:10")
    found = read(tmp_path, "\n".join(vllm(1, 0, clock) for clock in clocks) + "\n")
    assert found.column("time") == [0, 0, 10] and "jumps back 1 times" in found.report.notes[0]


def test_time_zone_and_offset(tmp_path: Path) -> None:
    found = read(tmp_path, vllm(1, 0) + "\n", zone="+02:30", offset=100.0)
    assert found.run.meta["clock_start"] == "2026-03-04T05:06:07+02:30" and found.column("time") == [100]
    assert read(tmp_path, vllm(1, 0) + "\n", zone="Europe/Berlin").run.meta["clock_start"].endswith("+01:00")
    with pytest.raises(ImportFault, match="no time zone 'Mars'"):
        read(tmp_path, vllm(1, 0) + "\n", zone="Mars")


def test_wrapped_lines_only_where_asked(tmp_path: Path) -> None:
    line = triton(4, 9)
    text = "other\n" + "\n".join(line[place:place + 100] for place in range(0, len(line), 100)) + f"\n{line}\n"
    assert read(tmp_path, text).counts() == [(4, 5)]
    found = read(tmp_path, text, wrapped=True)
    assert found.counts() == [(4, 5), (4, 5)] and found.column("time") == pytest.approx([0, 0], abs=1)


def test_logs_that_a_collector_keeps_as_json(tmp_path: Path) -> None:
    kept = {"time": "03-04 05:06:07", "message": vllm(3, 1).split("] ")[1]}
    assert read(tmp_path, json.dumps(kept) + "\n").counts() == [(3, 1)]
    docker = "".join(json.dumps({"log": decode(n, 1) + "\n", "stream": "stdout"}) + "\n" for n in (4, 5))
    assert read(tmp_path, docker).counts() == [(4, 1), (5, 1)]


def test_a_launcher_may_say_first_whose_line_it_is(tmp_path: Path) -> None:
    """As `mpirun --tag-output` does, in what is JSON as well."""
    told = ('{"timestamp":"05-06-2026 07:08:09.1","iterLatencyMS":5.0,"numActiveRequests":3,"numQueuedRequests":1,'
            '"inflightBatchingStats":{"numScheduledRequests":2,"numContextRequests":1,"numGenRequests":1}}')
    assert read(tmp_path, f"[1,0]<stdout>:{told}\n").counts() == read(tmp_path, f"[{told}]\n").counts() == [(2, 1)]


def test_silence_is_not_zero(tmp_path: Path) -> None:
    found = read(tmp_path, mistralrs(3, 1) + "\n" + mistralrs(2, 0, "2026-01-02T03:05:05.678901Z") + "\n")
    assert found.column("time") == pytest.approx([0, 60]) and found.counts() == [(3, 1), (2, 0)]


def test_a_file_in_which_nothing_is_known_is_refused(tmp_path: Path) -> None:
    for text, said in (
        ("one\ntwo\n", "(?s)no line in it is of a known log or result; known are:.*vllm-bench: .*sglang: .*tgi: "),
        ("", "is empty"), ("\n \n", "is empty"), ("\0\1\2", "no line in it"),
    ):
        with pytest.raises(ImportFault, match=said):
            read(tmp_path, text)
    with pytest.raises(ImportFault, match="none of its 1 lines is SGLang's"):
        read(tmp_path, vllm(1, 1) + "\n", "sglang")
    with pytest.raises(ImportFault, match="no engine or format 'vlm'; there are auto, .*vllm"):
        read(tmp_path, vllm(1, 1) + "\n", "vlm")
    with pytest.raises(ImportFault, match="is a folder"):
        import_file(tmp_path, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_broken_gzip_file_leaves_nothing(tmp_path: Path) -> None:
    read(tmp_path, (vllm(1, 1) + "\n") * 50_000, name="log.gz")
    data = (tmp_path / "log.gz").read_bytes()
    (tmp_path / "cut.gz").write_bytes(data[: len(data) // 2])
    (tmp_path / "bent.gz").write_bytes(data[:-8] + bytes(8))
    (tmp_path / "torn.gz").write_bytes(data[:20] + bytes(40) + data[60:])
    for name, said in (("cut.gz", "ends early"), ("bent.gz", "is broken: CRC"), ("torn.gz", "is broken: Error -3")):
        with pytest.raises(ImportFault, match=f"{name}: the gzip file {said}"):
            import_file(tmp_path / name, tmp_path / "other", "vllm")
    assert not (tmp_path / "other").exists()


def test_a_pipe_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ImportFault, match="pipe is a pipe or a device, .* read more than once: give a file"):
        import_file(tmp_path / "pipe", tmp_path / "run")
    with pytest.raises(FileNotFoundError):
        import_file(tmp_path / "none", tmp_path / "run")


def test_other_peoples_folders_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "mine.txt").write_text("mine")
    with pytest.raises(RunError, match=r"not those of a run \(mine.txt\)"):
        read(tmp_path, vllm(1, 1) + "\n")
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["mine.txt"]


def test_the_same_log_gives_the_same_bytes_and_no_sample_is_lost_between_batches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sink, "BATCH", 100)
    start = datetime(2026, 3, 4)
    lines = [vllm(n % 97, n % 89, f"{start + timedelta(seconds=n):%m-%d %H:%M:%S}") for n in range(203)]
    text = "\n".join(lines) + "\n"
    found = read(tmp_path, text)
    assert found.column("running") == [n % 97 for n in range(len(lines))]
    assert found.column("time") == list(range(len(lines)))
    first = (tmp_path / "run" / "samples.parquet").read_bytes()
    read(tmp_path, text)
    assert (tmp_path / "run" / "samples.parquet").read_bytes() == first


ENGINES = {
    "vllm": lambda r, w, n: vllm(r, w, f"03-04 05:06:{n:02}", n % 3),
    "sglang": lambda r, w, n: prefill(r, w, f"2026-02-03 04:05:{n:02}", f" DP{n % 3} TP{n % 3}"),
    "lmdeploy": lambda r, w, n: lmdeploy(r, w, 1, f"2026-02-03 04:05:{n:02}").replace("DP0", f"DP{n % 3}"),
}
"""Lines number n, of rank n % 3."""
NOISE = ("", BAR, CONTAINER, "\x1b[31mERROR\x1b[0m ", "'Running: 5 reqs, Waiting: 7 reqs'", "\t\0\ufffd", "] - ")


@settings(max_examples=60)
@given(engine=st.sampled_from(sorted(ENGINES)), seed=st.integers(0, 2**32), count=st.integers(1, 60))
def test_a_mangled_log_never_crashes_the_import_and_never_invents_a_sample(
    tmp_path_factory: pytest.TempPathFactory, engine: str, seed: int, count: int,
) -> None:
    """Lines are cut, glued, coloured, prefixed and left out. Caught: a pattern that does not ask what follows a
    number, and one that spans two records."""
    chance, folder = random.Random(seed), tmp_path_factory.mktemp("fuzz")
    truth = [(chance.randrange(300), chance.randrange(300)) for _ in range(count)]
    text = "".join(_mangled(chance, ENGINES[engine](*pair, n)) for n, pair in enumerate(truth))
    rank = chance.randrange(3)
    try:
        counts = read(folder, text, engine, rank=rank).counts()
    except ImportFault:
        return
    left: Iterator[tuple[int | None, int | None]] = iter(truth[rank::3])
    assert all(pair in left for pair in counts), "not those of the log, or not in its order"


def _mangled(chance: random.Random, line: str) -> str:
    if chance.random() < 0.3:
        place = chance.randrange(len(line))
        line = line[:place] if chance.random() < 0.7 else line[place:]
    if chance.random() < 0.3:
        place = chance.randrange(len(line) + 1)
        colour = f"\x1b[{chance.randrange(99)}m"
        line = line[:place] + colour + line[place:]
    return chance.choice(NOISE) + line + chance.choice(("\n", "\n", "\n", "\r\n", "\r", ""))


@settings(max_examples=60)
@given(data=st.binary(max_size=400), engine=st.sampled_from(["auto", *names()]))
def test_any_bytes_are_refused_or_read(tmp_path_factory: pytest.TempPathFactory, data: bytes, engine: str) -> None:
    folder = tmp_path_factory.mktemp("bytes")
    try:
        assert read(folder, data, engine).report.matched >= 0
    except ImportFault as error:
        assert str(folder) in str(error)


def test_the_command(tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    log.write_text("starting\n" + vllm(12, 3) + "\n" + vllm(11, 0, "03-04 05:06:17") + "\n")
    left = arcsim("import", log, "--out", tmp_path / "real", "--year", 2025, "--tz", "+01:00")
    assert left.code == 0 and "vllm: 2 of 3 lines matched, 1 did not" in left.out and "2 samples" in left.out
    told = arcsim("import", log, "--out", tmp_path / "real", "--json").json
    assert (told["matched"], told["unmatched"], told["samples"], told["format"]) == (2, 1, 2, "vllm")
    shown = arcsim("show", tmp_path / "real")
    assert shown.code == 0 and len(shown.out.splitlines()) == 2
    assert shown.out.startswith("2026-03-04 05:06:07.000 interval  12 running, 3 waiting, prompt 812.5 tok/s")
    assert arcsim("show", tmp_path / "real", "--json").json[1]["running"] == 11
    assert arcsim("compare", tmp_path / "real", tmp_path / "real").code == 0
    nothing = tmp_path / "nothing.log"
    nothing.write_text("nothing\n")
    assert "no line in it is of a known log" in refused(arcsim("import", nothing, "--out", tmp_path / "none"))
    assert not (tmp_path / "none").exists()


def test_logs_of_several_days_go_into_folders_of_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name, zipped in (("server.2026-03-04.log", False), ("server.2026-03-05.log.gz", True)):
        data = (vllm(1, 1) + "\n").encode()
        Path(name).write_bytes(gzip.compress(data) if zipped else data)
        assert arcsim("import", name).code == 0
    assert {path.name for path in Path("runs").iterdir()} == {"server.2026-03-04", "server.2026-03-05"}


def test_a_run_without_samples_has_no_file_of_them(tmp_path: Path) -> None:
    read(tmp_path, vllm(1, 1) + "\n")
    (tmp_path / "run" / "samples.parquet").unlink()
    run = Run.load(tmp_path / "run")
    assert run.samples.equals(no_samples()) and run.sample_column("running").tolist() == []
    run.save(tmp_path / "run")
    assert {path.name for path in (tmp_path / "run").iterdir()} == {"requests.parquet", "run.json", "steps.parquet"}


def test_options_have_defaults() -> None:
    assert ImportOptions() == ImportOptions(2026, "UTC", 0, 0.0, False)
