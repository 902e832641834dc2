"""TGI's router log: one line a request when it has ended, from which the counts are rebuilt."""

import re
from array import array
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from .clock import Clock
from .record import Record

CLOCK = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,9})?(?:Z|[+-]\d\d:\d\d)?", re.ASCII)
REQUEST = re.compile(r"\b(?:generate|generate_stream|chat_completions|completions|compat_generate|vertex_compat)\{")
SPANS = ("total_time", "validation_time", "queue_time", "inference_time", "time_per_token")
SPAN = re.compile(rf"\b({'|'.join(SPANS)})=\"?(\d{{1,15}}(?:\.\d{{1,15}})?)(s|ms|µs|μs|us|ns)(?![a-z])", re.ASCII)
UNITS = {"s": 1.0, "ms": 1e-3, "µs": 1e-6, "μs": 1e-6, "us": 1e-6, "ns": 1e-9}
NEEDED = ("total_time", "validation_time", "queue_time")


class TgiReader:
    """A request arrived when its line was written, less its total time; it started when it had been validated and had
    queued. Running: started and not ended. Requests that were not over when the log ended are not in it."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._arrived, self._started, self._ended, self._output = (array("d") for _ in range(4))
        self._untimed: list[dict[str, float]] = []

    def read(self, line: str) -> Sequence[Record] | None:
        if "total_time=" not in line or not REQUEST.search(line) or not line.rstrip().endswith("Success"):
            return None
        spans = {name: float(number) * UNITS[unit] for name, number, unit in SPAN.findall(line)}
        if any(name not in spans for name in NEEDED):
            return None
        stamps = CLOCK.findall(line, 0, line.find("total_time="))
        if not stamps:
            return [Record("request", None, request=_row(0.0, spans))]
        self._keep(self._clock.seconds(stamps[0]), spans)
        return ()

    def _keep(self, end: float, spans: dict[str, float]) -> None:
        row = _row(end - spans["total_time"], spans)
        self._arrived.append(round(row["arrival"], 9))  # spans add up to the same moments, but for noise
        self._started.append(min(round(row["first_scheduled"], 9), end))
        self._ended.append(end)
        self._output.append(row["output_tokens"])

    def end(self) -> Iterable[Record]:
        if self._ended:
            yield from self._counts()
            for arrived, started, ended, output in zip(
                self._arrived, self._started, self._ended, self._output, strict=True,
            ):
                yield Record("request", ended, request={
                    "arrival": arrived, "first_scheduled": started, "finish": ended, "output_tokens": int(output),
                })

    def _counts(self) -> Iterator[Record]:
        """A sample at every moment at which a request arrives, starts or ends."""
        groups = [np.sort(np.asarray(values)) for values in (self._arrived, self._started, self._ended)]
        moments = np.unique(np.concatenate(groups))
        counts = (np.searchsorted(values, moments, side="right").tolist() for values in groups)
        for moment, arrived, started, ended in zip(moments.tolist(), *counts, strict=True):
            yield Record("request", moment, started - ended, arrived - started)


def _row(arrival: float, spans: dict[str, float]) -> dict[str, float]:
    """Tokens: the time of inference by the time of a token, where the line has both."""
    each, inference = spans.get("time_per_token", 0.0), spans.get("inference_time", 0.0)
    return {
        "arrival": arrival, "first_scheduled": arrival + spans["validation_time"] + spans["queue_time"],
        "finish": arrival + spans["total_time"], "output_tokens": round(inference / each) if each > 0 else 0,
    }
