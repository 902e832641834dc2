"""How SGLang's scheduler takes memory: what is needed is evicted first, then allocated, and lacking it is fatal."""

from collections.abc import Sequence as Ids

from .fault import EngineFault
from .kv.token_cache import TokenCache
from .sequence import Clock, Sequence
from .sglang_admission import Grant
from .sglang_calendar import PageCalendar
from .sglang_request import Request


class Memory:
    """Pages for chunks and for decode steps, out of a `TokenCache`."""

    def __init__(self, cache: TokenCache, launches: Clock) -> None:
        self.cache = cache
        self.calendar = PageCalendar(cache.page_size, launches)
        self._page = cache.page_size

    def extend(self, grants: Ids[Grant]) -> dict[Sequence, list[int]]:
        """Pages for the chunks of a step. Raises `EngineFault` where the engine would crash.

        The engine makes room for a page more than each chunk can need.
        """
        tokens = sum(grant.end - grant.start for grant in grants)
        self.cache.make_room(tokens if self._page == 1 else tokens + len(grants) * self._page)
        pages_for = self.cache.pool.pages_for
        if sum(pages_for(grant.end) - pages_for(grant.start) for grant in grants) > self.cache.pool.free_pages:
            raise self.fault("Prefill", tokens)
        given = {}
        for grant in grants:
            grant.request.kv = grant.end
            given[grant.request.sequence] = self.cache.grow(grant.request.sequence, grant.end)
        return given

    def has_room(self, members: list[Request]) -> bool:
        """Whether everybody can decode once more; what that lacks is evicted."""
        return self.cache.make_room(len(self.calendar.due(members)) * self._page)

    def decode(self, members: list[Request], ahead: int = 0) -> tuple[list[Request], list[int]]:
        """One page for each member that needs one to decode: those members, and their pages.

        The engine makes room for a page for everybody. Raises `MemoryError` if there are too few.
        """
        self.cache.make_room(len(members) * self._page)
        due = self.calendar.due(members, ahead)
        pages = self.cache.pool.allocate(len(due))
        for request, page in zip(due, pages, strict=True):
            request.sequence.block_table.append(page)
        return due, pages

    def decode_ahead(self, members: list[Request], steps: int) -> list[int]:
        """Pages for `steps` decode steps after the one scheduled last, with no eviction that it would not have done.
        Returns the pages given out by the end of each."""
        given: list[int] = []
        while len(given) < steps:
            at_once = min(self.cache.pool.available // (len(members) * self._page), steps - len(given))
            if self._page == 1 and at_once > 1:
                self._decode_at_once(members, at_once)
                given += [len(members)] * at_once
            else:
                given.append(len(self.decode(members, len(given))[0]))
        return given

    def _decode_at_once(self, members: list[Request], steps: int) -> None:
        pages = self.cache.pool.allocate(len(members) * steps)
        for place, request in enumerate(members):
            request.sequence.block_table += pages[place::len(members)]

    def steps_within(self, members: list[Request]) -> int:
        """How many decode steps there is memory for."""
        return self.calendar.steps_within(members, self.cache.spare // self._page)

    def fault(self, what: str, tokens: int) -> EngineFault:
        free, evictable = self.cache.available, self.cache.evictable
        return EngineFault(
            f"{'Out' if self._page == 1 else f'{what} out'} of memory. Try to lower your batch size.\n"
            f"Try to allocate {tokens} tokens.\n"
            f"Available tokens: {free + evictable} (available_size={free} + evictable_size={evictable})\n"
        )
