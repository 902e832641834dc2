"""One simulated run: a configuration in, a trace out."""

from ..sim.backend import SimulatedBackend
from ..traces.run import Run
from .parts import build_parts
from .plan import Config
from .serve import Progress, policy_stays, serve


def simulate(config: Config, *, audit: bool = False, progress: Progress | None = None, origin: str = "") -> Run:
    """Build the parts of a configuration and serve its workload once.

    `origin` says in the record which experiment, cell and variant it was. Raises `UserError`, `PolicyError`,
    `LawBroken`.
    """
    with policy_stays(config):
        parts = build_parts(config)
        backend = SimulatedBackend(parts.latency, empty_step=parts.empty_step)
        return serve(parts, backend, {"arm": "simulated"}, audit=audit, progress=progress, origin=origin)
