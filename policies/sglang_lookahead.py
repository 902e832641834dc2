"""SGLang's look-ahead for requests that ignore EOS: when the running ones end, and what they give back."""

from collections.abc import Iterable

from .sglang_request import Request

RESERVE = 1
"""Tokens that stay free for each request that is still running."""


class Lookahead:
    """Requests by the output they have left (tokens), with the tokens they hold."""

    def __init__(self, first: Request, others: Iterable[Request], ratio: float) -> None:
        self._ratio = ratio
        self._states = [state for request in (first, *others) if (state := self._state(request))[0] > 0]
        self._states.sort(key=lambda state: state[0])

    def insert(self, request: Request) -> None:
        """Another candidate. The engine puts one that has more left than all others before the last of them."""
        left, held = self._state(request)
        if left <= 0:
            return
        place = 0
        for place, (other, _) in enumerate(self._states):  # noqa: B007 - the last place is used after the loop
            if left <= other:
                break
        self._states.insert(place, (left, held))

    def fits(self, free: float) -> bool:
        """Memory lasts until each of them ends in turn; `free` tokens are free now."""
        freed, running = 0, len(self._states)
        for left, held in self._states:
            if free + freed - left * running <= RESERVE * running:
                return False
            freed += held
            running -= 1
        return True

    def _state(self, request: Request) -> tuple[float, int]:
        share = 1.0 if request.sequence.ignore_eos else self._ratio
        return request.max_new_tokens * share - request.output, request.sequence.num_tokens
