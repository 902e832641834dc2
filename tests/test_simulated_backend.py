"""The simulated backend: what a step asks of the hardware, and what the latency model makes of it."""

import pytest

from arcsim.policies.base import Step
from arcsim.sim.backend import SimulatedBackend, work_of
from arcsim.sim.latency.affine import Affine
from arcsim.sim.latency.work import Work

from .serving import Watching, continuous, of_lengths, paged, request, serve

COSTS = Affine(
    decode_step=1.0, prefill_step=2.0, padded_prefill_token=0.01, row=0.1, context_token=0.001, host_row=0.25
)


class Asking(Watching):
    """Notes the work of every step before it runs."""

    def __init__(self) -> None:
        super().__init__(COSTS)
        self.work: list[Work] = []

    def launch(self, step: Step) -> None:
        self.work.append(work_of(step))
        super().launch(step)


def test_the_work_of_a_step_is_counted_over_its_rows() -> None:
    """A prompt of 5; then it decodes beside a prompt of 9; both decode."""
    backend = Asking()
    serve(continuous(), [request("a", 5, 3), request("b", 9, 2, 1.0)], backend)
    assert backend.work == [
        Work(1, 1, 0, 5, 5, 5, 15), Work(1, 1, 1, 9, 9, 6 + 9, 45), Work(1, 0, 2, 0, 0, 7 + 10, 0),
    ]


def test_padding_is_work_too() -> None:
    backend = Asking()
    serve(paged(prefill="length_rule"), of_lengths([5, 9, 9, 14], 1), backend)
    assert backend.work == [Work(1, 4, 0, 37, 56, 37, 15 + 45 + 45 + 105)]


def test_the_host_is_part_of_the_seconds() -> None:
    served = serve(continuous(), [request("a", 5, 2)], Asking())
    seconds = [2 + 0.01 * 5 + 0.35 + 0.001 * 5, 1 + 0.35 + 0.001 * 6]
    assert served.run.step_seconds().tolist() == pytest.approx(seconds)
    assert served.run.column("host_seconds").tolist() == [0.25, 0.25]
    assert served.run.column("device_seconds").tolist() == pytest.approx([each - 0.25 for each in seconds])


def test_an_empty_step_takes_the_time_it_is_given() -> None:
    assert SimulatedBackend(COSTS).empty_step == 1e-3 and SimulatedBackend(COSTS, empty_step=0.5).empty_step == 0.5
