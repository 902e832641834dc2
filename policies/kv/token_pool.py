"""A pool of token slots, handed out in pages."""


class TokenPool:
    """`pages` pages of `page_size` token slots; who holds which is the caller's business.

    `available` counts tokens. Pages are numbered from 0 and reused last freed first.
    """

    def __init__(self, pages: int, page_size: int) -> None:
        self.pages = pages
        self.page_size = page_size
        self._free = list(range(pages - 1, -1, -1))

    @property
    def free_pages(self) -> int:
        return len(self._free)

    @property
    def available(self) -> int:
        return len(self._free) * self.page_size

    @property
    def size(self) -> int:
        """Tokens in all."""
        return self.pages * self.page_size

    def pages_for(self, tokens: int) -> int:
        return -(-tokens // self.page_size)

    def allocate(self, count: int) -> list[int]:
        """Take `count` pages. Raises `MemoryError` if there are fewer."""
        if count > len(self._free):
            raise MemoryError(f"{count} pages wanted, {len(self._free)} of {self.pages} free")
        if not count:
            return []
        taken = self._free[-count:]
        del self._free[-count:]
        taken.reverse()
        return taken

    def release(self, pages: list[int]) -> None:
        self._free.extend(reversed(pages))

    def listed(self) -> list[int]:
        """The free pages; a copy."""
        return list(self._free)
