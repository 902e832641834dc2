"""ServeGen (github.com/alibaba/ServeGen): rates of clients per ten minutes and histograms of their lengths.

`chunk-N-trace.csv` has no header: window start (s), rate (requests/s), coefficient of variation, family (Gamma,
Weibull or empty), shape, scale. `chunk-N-dataset.json` has for every six hours the histograms, as Python literals in
strings. Requests are sampled: rate times 600 s is a whole number and exactly so many fall into a window; the gaps
between them are drawn from the window's family and shape and stretched to fill it. Prompt and output are drawn
independently, as the histograms are. Either file of a pair stands for its client, a folder for all clients in it.
"""

import ast
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from .error import WorkloadError
from .fields import token_count
from .files import text_lines
from .format import Format, Head, Reading
from .rows import Floats, Integers, Rows
from .streams import stream
from .table import Table, read_csv

COLUMNS = ("start", "rate", "cv", "family", "shape", "scale")
TRACE, DATASET = "-trace.csv", "-dataset.json"
WINDOW = 600
MOST_REQUESTS = 2_000_000
"""More than that is not read without a limit: the busiest client alone has 80 million in its two weeks."""


def _matches(head: Head) -> bool:
    name = head.path.name
    if head.path.is_dir() or name.endswith((TRACE, DATASET)):
        return True
    return len(head.fields) == len(COLUMNS) and head.fields[3] in ("Gamma", "Weibull", "")


@dataclass(frozen=True, slots=True)
class Histogram:
    """Token counts and how likely each is (they need not add up to 1)."""

    values: Integers
    cumulated: Floats

    def draw(self, count: int, random: np.random.Generator) -> Integers:
        places = np.searchsorted(self.cumulated, random.random(count) * self.cumulated[-1], side="right")
        drawn: Integers = self.values[np.minimum(places, len(self.values) - 1)]
        return drawn


@dataclass(frozen=True, slots=True)
class Client:
    """One client: its windows (by start) and its length histograms, parsed when they are first asked for."""

    name: str
    dataset: Path
    windows: dict[float, tuple[int, str, float]]
    texts: dict[float, dict[str, Any]]
    parsed: dict[tuple[float, str], Histogram | None] = field(default_factory=dict)

    def histogram(self, start: float, name: str) -> Histogram:
        """The one in force at `start`; where it is empty the latest before, else the first after."""
        before = [key for key in self.texts if key <= start]
        after = [key for key in self.texts if key > start]
        for key in (*sorted(before, reverse=True), *sorted(after)):
            found = self._parse(key, name)
            if found is not None:
                return found
        raise WorkloadError(f"{self.dataset}: no {name} at all, though the trace has requests")

    def _parse(self, key: float, name: str) -> Histogram | None:
        if (key, name) not in self.parsed:
            self.parsed[key, name] = _histogram(self.texts[key].get(name), f"{self.dataset}: key {key:g}, {name}")
        return self.parsed[key, name]


def _histogram(text: Any, where: str) -> Histogram | None:
    try:
        table = ast.literal_eval(text)
        pairs = sorted((token_count(tokens), float(share)) for tokens, share in table.items())
    except (AttributeError, MemoryError, RecursionError, SyntaxError, TypeError, ValueError) as error:
        raise WorkloadError(f"{where}: not a dict of token counts and shares in a string: {error}") from None
    if any(not share >= 0 for _, share in pairs):
        raise WorkloadError(f"{where}: a share is negative")
    cumulated = np.cumsum([share for _, share in pairs], dtype=np.float64)
    if not pairs or not 0 < cumulated[-1] < np.inf:
        return None
    return Histogram(np.array([tokens for tokens, _ in pairs], dtype=np.int64), cumulated)


def _read(path: Path, reading: Reading) -> Rows:
    clients = [_client(trace) for trace in _trace_files(path)]
    starts = sorted({start for client in clients for start in client.windows if _wanted(start, reading)})
    _check_size(path, clients, starts, reading)
    parts: list[Rows] = []
    for start in starts:
        parts += [_sample(client, start, reading.seed) for client in clients if start in client.windows]
        if reading.limit is not None and sum(_servable(part) for part in parts) >= reading.limit:
            break
    return _joined(parts, f"sampled from {', '.join(client.name for client in clients)} with seed {reading.seed}")


def _trace_files(path: Path) -> list[Path]:
    if path.is_dir():
        found = sorted(path.glob(f"*{TRACE}"), key=lambda file: (len(file.name), file.name))
        if not found:
            raise WorkloadError(f"{path} is a folder without ServeGen files (chunk-N{TRACE}): give a trace file")
        return found
    if path.name.endswith(DATASET):
        path = path.with_name(path.name.removesuffix(DATASET) + TRACE)
    if not path.is_file():
        raise WorkloadError(f"no file {path}: ServeGen's datasets come with a trace file each")
    return [path]


def _client(trace: Path) -> Client:
    dataset = trace.with_name(trace.name.removesuffix(TRACE) + DATASET)
    if not trace.name.endswith(TRACE) or not dataset.is_file():
        raise WorkloadError(f"{trace}: its lengths are missing: ServeGen's chunk-N{TRACE} comes with chunk-N{DATASET}")
    return Client(trace.name.removesuffix(TRACE), dataset, _windows(read_csv(trace, header=COLUMNS)), _texts(dataset))


def _windows(table: Table) -> dict[float, tuple[int, str, float]]:
    """Start -> how many requests, family, shape; busy windows only."""
    starts, rates, shapes = (table.seconds(name) for name in ("start", "rate", "shape"))
    counts = np.rint(rates * WINDOW).astype(np.int64)
    windows = {}
    for row in np.flatnonzero(counts != 0).tolist():
        family = table.columns["family"][row].strip()
        if counts[row] < 0 or family not in ("Gamma", "Weibull", "") or (family and not shapes[row] > 0):
            raise table.wrong(row, f"rate {rates[row]:g}, family {family!r}, shape {shapes[row]:g}: needs a positive "
                                   "rate, Gamma or Weibull or nothing, and a positive shape")
        windows[float(starts[row])] = (int(counts[row]), family, float(shapes[row]))
    return windows


def _texts(dataset: Path) -> dict[float, dict[str, Any]]:
    try:
        data = json.loads("".join(text_lines(dataset)))
        return {float(key): dict(value) for key, value in data.items()}
    except (AttributeError, RecursionError, TypeError, ValueError) as error:
        if isinstance(error, WorkloadError):
            raise
        raise WorkloadError(f"{dataset}: not a JSON object of histograms by window start: {error}") from None


def _wanted(start: float, reading: Reading) -> bool:
    return reading.window is None or (start + WINDOW > reading.window[0] and start < reading.window[1])


def _check_size(path: Path, clients: list[Client], starts: list[float], reading: Reading) -> None:
    total = sum(client.windows[start][0] for client in clients for start in starts if start in client.windows)
    if not total:
        raise WorkloadError(f"{path} has no requests{' in that window' if reading.window else ''}")
    if total > MOST_REQUESTS and reading.limit is None:
        raise WorkloadError(f"{path} describes {total:,} requests: give a 'window' in seconds or a 'limit'")


def _sample(client: Client, start: float, seed: int) -> Rows:
    count, family, shape = client.windows[start]
    random = {name: stream(seed, "servegen", client.name, int(start), name)
              for name in ("arrivals", "input_tokens", "output_tokens")}
    prompts, outputs = (client.histogram(start, name).draw(count, random[name])
                        for name in ("input_tokens", "output_tokens"))
    return Rows(prompts, outputs, start + _offsets(count, family, shape, random["arrivals"]), dated=True)


def _offsets(count: int, family: str, shape: float, random: np.random.Generator) -> Floats:
    """Seconds into the window: `count` gaps and one more for the end, together as long as the window."""
    ends = np.cumsum(_gaps(count + 1, family, shape, random))
    return ends[:-1] * (WINDOW / ends[-1]) if ends[-1] > 0 else np.zeros(count)


def _gaps(count: int, family: str, shape: float, random: np.random.Generator) -> Floats:
    if family == "Gamma":
        return random.standard_gamma(shape, size=count)
    if family == "Weibull":
        return random.weibull(shape, size=count)
    return random.standard_exponential(count)


def _servable(rows: Rows) -> int:
    return int(np.count_nonzero((rows.prompts > 0) & (rows.outputs > 0)))


def _joined(parts: list[Rows], note: str) -> Rows:
    times = np.concatenate([part.times for part in parts if part.times is not None])
    rows = Rows(
        np.concatenate([part.prompts for part in parts]),
        np.concatenate([part.outputs for part in parts]),
        times, dated=True, notes=(note,),
    )
    return rows.take(np.argsort(times, kind="stable"))


SERVEGEN = Format(
    "servegen", "ServeGen clients (chunk-N-trace.csv with chunk-N-dataset.json, or a folder): sampled", _matches, _read,
)
