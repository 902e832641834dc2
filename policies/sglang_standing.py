"""The standing decode batch of SGLang's running requests, with those whose last token is still in flight apart."""

from collections import deque
from collections.abc import Mapping, Sequence as Ids

from .decode_batch import DecodeBatch
from .sequence import Sequence
from .sglang_request import Request
from .sglang_rows import Launch
from .step import Chunk, Forward

Row = tuple[Request, Chunk]


def decode_row(request: Request) -> Row:
    """The next token of a running request, as a row of its own."""
    return request, Chunk(request.sequence, request.kv, 1, 0, True, True)


class Standing:
    """Keeps a `DecodeBatch` equal to the running batch. `flying`: the steps whose output is still to come."""

    def __init__(self, flying: deque[Launch]) -> None:
        self.batch = DecodeBatch()
        self._flying = flying
        self._members: list[Request] | None = None

    def forward(self, members: list[Request], *, overlap: bool) -> tuple[Forward, list[Row]]:
        """A decode step of the members. Those that cannot join the batch yet, because their last token is in flight,
        are rows of their own for this step."""
        rows = [] if members is self._members else self._arrange(members)
        if overlap:
            self.batch.launch()
        return Forward([chunk for _, chunk in rows], self.batch), rows

    def _arrange(self, members: list[Request]) -> list[Row]:
        order, batch = [request.sequence for request in members], self.batch
        apart = [request for request in members if request.sequence not in batch and request.in_flight]
        flying = {request.sequence for request in apart}
        for sequence in order:
            if sequence not in batch and sequence not in flying:
                batch.join(sequence)
        if not apart:
            batch.arrange(order)
            self._members = members
        return [decode_row(request) for request in apart]

    def leave(self, sequence: Sequence) -> None:
        """It does not run any more; a token in flight is lost."""
        if sequence in self.batch:
            self.batch.leave(sequence)

    def step_out(self, request: Request) -> None:
        """It goes on as a row of its own, and still gets the token that is in flight."""
        if request.sequence in self.batch:
            owed = self.batch.flying > 0
            self.batch.leave(request.sequence, owed=owed)
            if owed:
                self._flying[-1].owed.append(request)

    def advance(self, launch: Launch, sampled: Mapping[Sequence, Ids[int]]) -> None:
        """The output of a decode step is there."""
        self.batch.advance(sampled)
        for request in launch.owed:
            request.sequence.computed += 1
            request.sequence.append(sampled[request.sequence])

    def join(self) -> None:
        """The output of a prefill is there: rows of their own in the decode step after it can join the batch."""
        for launch in self._flying:
            for request, chunk in () if launch.prefills else launch.chunks:
                if not request.gone:
                    self.batch.join(chunk.sequence)
