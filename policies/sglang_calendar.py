"""When each request of a decode batch needs its next page."""

from .sequence import Clock
from .sglang_request import Request


class PageCalendar:
    """Who needs a page for which decode step, for one list of members at a time."""

    def __init__(self, page_size: int, launches: Clock) -> None:
        self._page_size = page_size
        self._launches = launches
        self._members: list[Request] = []
        self._due: list[list[Request]] = []

    def due(self, members: list[Request], ahead: int = 0) -> list[Request]:
        """Those whose pages are full, `ahead` decode steps from now."""
        if self._page_size == 1:
            return members
        if members is not self._members:
            self._members = members
            self._due = [[] for _ in range(self._page_size)]
            for request in members:
                self._due[(self._launches.ticks - request.kv) % self._page_size].append(request)
        return self._due[(self._launches.ticks + ahead) % self._page_size]

    def steps_within(self, members: list[Request], pages: int) -> int:
        """How many decode steps `pages` pages suffice for, from the next one on."""
        cycles, left = divmod(pages, len(members))
        for ahead in range(self._page_size):
            left -= len(self.due(members, ahead))
            if left < 0:
                return cycles * self._page_size + ahead
        return (cycles + 1) * self._page_size
