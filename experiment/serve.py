"""Serves a workload on a backend, and records what made the trace."""

import platform
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

from .. import __version__
from ..engine.backend import Backend
from ..engine.loop import Loop
from ..traces.run import Run
from .errors import UserError
from .parts import Served
from .plan import Config

Progress = Callable[[int, int, float], None]
"""Called with the requests that have ended, how many there are, and the time on the run's clock in seconds."""

EVENTS = 20
"""Rare events of a run that its record repeats."""


@contextmanager
def policy_stays(config: Config) -> Iterator[None]:
    """A policy must not end the process. Raises `UserError` where it tries."""
    try:
        yield
    except SystemExit as error:
        name = config.raw["policy"]["name"]
        raise UserError(f"{config.where('policy')}: {name} called sys.exit({error.code!r})") from error


def serve(
    parts: Served, backend: Backend, arm: Mapping[str, Any], *, audit: bool, progress: Progress | None, origin: str,
    outputs: Literal["forced", "sampled"] = "forced",
) -> Run:
    """Serve the workload once. `arm`: what the record says of it. Raises `PolicyError`, `LawBroken`."""
    count = parts.workload.count
    told = None if progress is None else lambda ended, now: progress(ended, count, now)
    loop = Loop(parts.policy, parts.workload.start(), backend, audit=audit, progress=told, outputs=outputs)
    with redirect_stdout(sys.stderr):  # what a policy prints is no result
        loop.run()
    run = loop.recorder.run(_record(parts, loop, arm, origin))
    run.meta["notes"] += _rejections(run)
    return run


def _record(parts: Served, loop: Loop, arm: Mapping[str, Any], origin: str) -> dict[str, Any]:
    return {
        "origin": origin, **arm, "policy": parts.resolved["policy"]["name"], "outcome": loop.outcome,
        "report": loop.report, "log_style": parts.policy.log_style, "seed": parts.resolved["workload"].get("seed", 0),
        "config": parts.resolved, "notes": [*parts.notes, *_first(loop.recorder.events)],
        "events": loop.recorder.events, "versions": _versions(),
        "machine": _machine(), "git_revision": _git_revision(),
    }


def _first(events: list[str]) -> list[str]:
    more = [f"and {len(events) - EVENTS} more such events"] if len(events) > EVENTS else []
    return events[:EVENTS] + more


def _rejections(run: Run) -> list[str]:
    """What can never be served is no secret: how many, and the first with its reason."""
    statuses = run.requests.column("status").to_pylist()
    count = statuses.count("rejected")
    if not count:
        return []
    first = run.requests.slice(statuses.index("rejected"), 1).to_pylist()[0]
    return [f"{count:,} of {len(statuses):,} requests rejected, the first {first['id']}: {first['reason']}"]


def _versions() -> dict[str, str]:
    names = ("numpy", "pyarrow", "pydantic", "simpy")
    return {"arcsim": __version__, "python": platform.python_version()} | {name: version(name) for name in names}


def _machine() -> dict[str, str]:
    return {"system": platform.system(), "architecture": platform.machine()}


@cache
def _git_revision() -> str | None:
    """Of the checkout that arcsim runs from, if it is one."""
    root = Path(__file__).resolve().parent.parent
    if not (root / ".git").exists():
        return None
    command = ["git", "-C", str(root), "rev-parse", "HEAD"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip() or None
