"""Golden trace files, read and compared with the policies of the same name."""

import gzip
import json
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from ..engine.errors import PolicyError
from .difference import Difference
from .formats import replay_of
from .known import Known, KnownDifferences

ENDINGS = (".json", ".json.gz")


@dataclass(frozen=True, slots=True)
class Checked:
    """A trace file that was replayed: how many steps were compared and where the policy parts from it, if it does.

    `known`: the difference that was expected of this file. `broken` says why the file could not be replayed.
    """

    file: str
    steps: int = 0
    difference: Difference | None = None
    known: Known | None = None
    broken: str | None = None

    @property
    def accepted(self) -> bool:
        """Parts from the trace just where it is known to."""
        return self.difference is not None and self.known is not None and self.known.names(self.difference)

    @property
    def identical(self) -> bool:
        return self.difference is None and self.broken is None

    @property
    def passes(self) -> bool:
        return self.identical or self.accepted


def trace_files(paths: Iterable[Path]) -> list[Path]:
    """The files themselves, and all traces in the folders among them. Raises ValueError on a folder without any."""
    found = []
    for path in paths:
        inside = [path] if not path.is_dir() else sorted(file for file in path.iterdir() if file.name.endswith(ENDINGS))
        if not inside:
            raise ValueError(f"{path}: no golden trace (*.json, *.json.gz) in this folder")
        found += inside
    return found


def check(path: Path, known: KnownDifferences) -> Checked:
    """Replay one file up to the first difference. An unreadable one is told in the answer."""
    expected = known.get(path.name)
    steps = 0
    try:
        trace = read(path)
        for frame in _frames(trace):
            difference = Difference.first(frame)
            if difference is not None:
                return Checked(str(path), steps, difference, expected)
            steps += frame.step is not None
    except PolicyError as error:
        return Checked(str(path), steps, Difference(steps, "(decision)", "a step", str(error), ""), expected)
    except (ValueError, OSError) as error:
        return Checked(str(path), steps, known=expected, broken=str(error))
    return Checked(str(path), steps, known=expected)


def read(path: Path) -> Mapping[str, Any]:
    """A trace, plain or gzipped. Raises ValueError or OSError."""
    try:
        data = path.read_bytes()
        trace = json.loads(gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise ValueError(f"not a whole gzip file: {error}") from error
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"not JSON: {error}") from error
    if not isinstance(trace, dict) or not isinstance(trace.get("steps"), list):
        raise ValueError("not a golden trace: it has no steps")
    if odd := [place for place, step in enumerate(trace["steps"]) if not isinstance(step, dict)]:
        raise ValueError(f"not a golden trace: steps[{odd[0]}] is no object")
    return trace


def _frames(trace: Mapping[str, Any]) -> Iterator[Any]:
    try:
        yield from replay_of(trace)(trace)
    except PolicyError:
        raise
    except KeyError as error:
        raise ValueError(f"not a whole trace: it has no {error}") from error
    except ValidationError as error:
        first = error.errors()[0]
        told = f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
        raise ValueError(f"its settings are none of {trace.get('engine')}'s: {told}") from error
    except (TypeError, IndexError, AttributeError, ArithmeticError) as error:
        raise ValueError(f"not a trace of {trace.get('engine')}: {error}") from error
