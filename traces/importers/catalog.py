"""What can be imported, and the import itself."""

from pathlib import Path
from typing import Any

from ..run_files import save
from .aiperf import AIPERF
from .errors import ImportFault
from .guidellm import GUIDELLM
from .importer import FileImporter, Imported, LogImporter
from .log import choose_log, import_log
from .log_llamacpp import LlamacppReader
from .log_lmdeploy import LmdeployReader
from .log_mistralrs import MistralrsReader
from .log_sglang import SglangReader
from .log_tensorrt import TensorrtReader
from .log_tgi import TgiReader
from .log_vllm import VllmReader
from .options import ImportOptions
from .prometheus import PrometheusReader
from .source import read_head
from .vllm_bench import VLLM_BENCH
from .vllm_record import RECORD

FILES: tuple[FileImporter, ...] = (RECORD, AIPERF, GUIDELLM, VLLM_BENCH)
"""Files that are read whole; the first that recognises a file takes it."""

LOGS: tuple[LogImporter, ...] = (
    LogImporter("lmdeploy", "LMDeploy's interval lines", LmdeployReader),
    LogImporter("vllm", "vLLM's interval lines (2023, v0, v1) and iterations", VllmReader),
    LogImporter("sglang", "SGLang's prefill, decode and retraction lines", SglangReader),
    LogImporter("mistralrs", "mistral.rs's interval lines and steps", MistralrsReader),
    LogImporter("tensorrt", "TensorRT-LLM's statistics of an iteration, C++ and PyTorch", TensorrtReader),
    LogImporter("tgi", "TGI's line of each request", TgiReader),
    LogImporter("llamacpp", "llama.cpp's slot launches and releases", LlamacppReader),
    LogImporter("prometheus", "Prometheus snapshots of vLLM, SGLang, TGI or llama.cpp", PrometheusReader),
)
"""Logs, read line by line; where two take equally many lines, the first has it."""

AUTO = "auto"


def import_file(path: Path, out: Path, engine: str = AUTO, options: ImportOptions | None = None) -> Imported:
    """Read `path` (plain or gzipped) and write its run into the folder `out`, whole or not at all.

    `engine`: a name in `FILES` or `LOGS`; `auto` finds out. Raises ImportFault where nothing in the file is known, and
    RunError where `out` holds something else; OSError passes through.
    """
    chosen, options = _choose(path, engine, options or ImportOptions()), options or ImportOptions()
    meta = _meta(path, chosen, options)
    if isinstance(chosen, LogImporter):
        return import_log(path, chosen, options, out, meta)
    run = chosen.read(path, options)
    run.meta.update({key: value for key, value in meta.items() if key not in run.meta})
    save(run, out)
    notes = tuple(run.meta["notes"])
    return Imported(chosen.name, 0, 0, run.samples.num_rows, run.steps.num_rows, run.requests.num_rows, notes)


def importers() -> tuple[FileImporter | LogImporter, ...]:
    return (*FILES, *LOGS)


def names() -> tuple[str, ...]:
    return tuple(importer.name for importer in importers())


def _choose(path: Path, engine: str, options: ImportOptions) -> FileImporter | LogImporter:
    if engine != AUTO:
        found = next((each for each in importers() if each.name == engine), None)
        if found is None:
            raise ImportFault(f"no engine or format {engine!r}; there are {AUTO}, {', '.join(names())}")
        return found
    head = read_head(path)
    found = next((each for each in FILES if each.recognises(head)), None) or choose_log(path, LOGS, options)
    if found is None:
        known = "".join(f"\n  {each.name}: {each.about}" for each in importers())
        raise ImportFault(f"{path}: no line in it is of a known log or result; known are:{known}")
    return found


def _meta(path: Path, chosen: FileImporter | LogImporter, options: ImportOptions) -> dict[str, Any]:
    return {
        "arm": "measured", "engine": chosen.name, "outcome": "imported", "report": "", "origin": str(path), "notes": [],
        "source": {"file": str(path), "format": chosen.name, "rank": options.rank, "offset": options.offset},
    }
