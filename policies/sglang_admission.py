"""SGLang's admission of prompts to a prefill step: budgets of tokens, and an estimate of the memory to come."""

from collections.abc import Sequence as Ids
from dataclasses import dataclass
from enum import Enum, auto

from .fault import EngineFault
from .kv.radix import RadixNode
from .kv.token_cache import TokenCache
from .sglang_lookahead import Lookahead
from .sglang_options import SglangOptions
from .sglang_request import Request


class Verdict(Enum):
    """Whether the queue is looked at further; `NO_TOKEN` keeps it closed until somebody leaves the batch."""

    CONTINUE = auto()
    NO_TOKEN = auto()
    OTHER = auto()


@dataclass(frozen=True, slots=True)
class Grant:
    """A request that takes part in the step with tokens `start` to `end`; `fresh`: it comes from the queue."""

    request: Request
    start: int
    end: int
    fresh: bool


class Admission:
    """One look at the queue. All budgets are in tokens.

    `rem_input` and `rem_chunk` (None: prompts are not cut) are of this step. `rem_total` is what memory would be left
    if every running request went on for `ratio` of its remaining output and everyone admitted now for all of it;
    `rem_now` leaves the outputs out. Both shrink while a candidate's prefix is locked.
    """

    def __init__(
        self, cache: TokenCache, options: SglangOptions, ratio: float, running: Ids[Request], mixed_rows: int,
    ) -> None:
        self.granted: list[Grant] = []
        self.chunked: Request | None = None
        self.hit_tokens = 0
        self.logged_tokens = 0
        self._cache = cache
        self._options = options
        self._clip = options.clip_max_new_tokens
        self._page = cache.page_size
        self._ratio = ratio
        self._running = running
        self._lookahead: Lookahead | None = None
        self.rem_input = options.max_prefill_tokens - mixed_rows
        chunk = options.chunked_prefill_size
        self.rem_chunk = None if chunk == -1 else chunk - mixed_rows
        self._now = mixed_rows
        self._total = mixed_rows + self._reserved()

    def _reserved(self) -> float:
        """Rounded as the engine's: summed in order."""
        reserved: float = 0
        for request in self._running:
            reserved += min(request.max_new_tokens - request.output, self._clip) * self._ratio
        return reserved

    @property
    def rem_total(self) -> float:
        return self._cache.spare - self._total

    @property
    def rem_now(self) -> float:
        return self._cache.spare - self._now

    def go_on(self, request: Request) -> None:
        """The next chunk of the request that an earlier step began. It is never refused."""
        assert self.rem_chunk is not None
        room = min(self.rem_chunk, int(self.rem_total))
        if room <= 0:
            room = self.rem_chunk  # whatever memory there is
        left = request.sequence.num_tokens - request.prefix
        length = min(left, room)
        if length < left:
            self.chunked = request
        self._grant(request, length, request.prefix, fresh=False, output=0 if length < left else self._output(request))

    def overcommits(self, request: Request) -> bool:
        """`go_on` would take memory that is not there."""
        assert self.rem_chunk is not None
        left = request.sequence.num_tokens - request.prefix
        return self.rem_total < 1 and self._ceil(min(left, self.rem_chunk)) + self._now > self._cache.spare

    def add(self, request: Request) -> Verdict:
        """Look at the next request of the queue."""
        sequence, most = request.sequence, self._options.prefill_max_requests
        node, prefix = self._cache.match(sequence.tokens, sequence.num_tokens - 1)  # a look-up leaves its trace
        if most is not None and len(self.granted) >= most:
            return Verdict.OTHER
        if not self._cache.radix and sequence.ignore_eos:
            return self._add_ignoring_eos(request, node)
        return self._add(request, node, prefix)

    def _add(self, request: Request, node: RadixNode, prefix: int) -> Verdict:
        length = request.sequence.num_tokens - prefix
        needed = length + min(max(request.max_new_tokens - request.output, 0), self._clip) + self._page
        if needed >= self.rem_total:
            return Verdict.NO_TOKEN
        if self.rem_chunk is None and self.granted and self._ceil(length) >= self.rem_input:
            return Verdict.OTHER
        self._cache.tree.lock(node)
        try:
            if needed >= self.rem_total:
                return Verdict.NO_TOKEN
            if self.rem_chunk is None or self._ceil(length) <= self.rem_chunk:
                return self._admit(request, node, prefix, length)
            return self._admit_part(request, node, prefix, self._whole_pages(prefix, self.rem_chunk))
        finally:
            self._cache.tree.unlock(node)

    def _whole_pages(self, prefix: int, room: int) -> int:
        """What a cut prompt gets, so that it ends on a page."""
        chunk = room // self._page * self._page
        return (prefix + chunk) // self._page * self._page - prefix if chunk > 0 else 0

    def _add_ignoring_eos(self, request: Request, node: RadixNode) -> Verdict:
        """Lengths are known: look ahead to when each running request ends and gives its memory back."""
        length = request.sequence.num_tokens
        if self._ceil(length) > min(self.rem_now, self.rem_total):
            return Verdict.NO_TOKEN
        if self._lookahead is None:
            others = [*self._running, *(grant.request for grant in self.granted)]
            self._lookahead = Lookahead(request, others, self._ratio)
        else:
            self._lookahead.insert(request)
        if not self._lookahead.fits(self.rem_now - self._ceil(length)):
            return Verdict.NO_TOKEN
        if self.rem_chunk is None or length <= self.rem_chunk:
            return self._admit(request, node, 0, length)
        return self._admit_part(request, node, 0, self.rem_chunk)

    def _admit(self, request: Request, node: RadixNode, prefix: int, length: int) -> Verdict:
        self._enter(request, node, prefix)
        self._grant(request, length, prefix, fresh=True, output=self._output(request))
        return self._verdict()

    def _admit_part(self, request: Request, node: RadixNode, prefix: int, length: int) -> Verdict:
        if length <= 0 or (self.chunked is not None and not self._options.strict_sglang):
            return Verdict.OTHER
        if self.chunked is not None:
            names = f"{self.chunked.sequence.id} and {request.sequence.id}"
            raise EngineFault(f"{names} are both computed in part: the engine goes on with the last only")
        self._enter(request, node, prefix)
        self.chunked = request
        self._grant(request, length, prefix, fresh=True, output=0)
        return self._verdict()

    def _enter(self, request: Request, node: RadixNode, prefix: int) -> None:
        self._cache.start(request.sequence, node, prefix)
        request.prefix = prefix
        self.hit_tokens += prefix

    def _grant(self, request: Request, length: int, start: int, *, fresh: bool, output: int) -> None:
        request.end = start + length
        self.granted.append(Grant(request, start, request.end, fresh))
        paged = self._ceil(length)
        self._total += paged + output + self._page
        self._now += paged + self._page
        self.rem_input -= paged
        self.logged_tokens += paged
        if self.rem_chunk is not None:
            self.rem_chunk -= paged

    def _verdict(self) -> Verdict:
        if self.rem_total <= 0 or self.rem_now <= 0:
            return Verdict.NO_TOKEN
        if self.rem_input <= 0 or (self.rem_chunk is not None and self.rem_chunk <= 0):
            return Verdict.OTHER
        return Verdict.CONTINUE

    def _output(self, request: Request) -> int:
        return min(request.max_new_tokens, self._clip)

    def _ceil(self, tokens: int) -> int:
        return -(-tokens // self._page) * self._page
