"""One request as the scheduler knows it."""

from collections.abc import Iterable, Sequence as Ids

from .tokens import Tokens, as_tokens, content_base


class Clock:
    """Counts the decode steps of a set of sequences that advance together (see `DecodeBatch`)."""

    __slots__ = ("ticks",)

    def __init__(self) -> None:
        self.ticks = 0


STILL = Clock()
"""The clock of a sequence that is in no decode batch; it never ticks."""


class Sequence:
    """A prompt, the tokens generated so far, and how many of both have their KV computed.

    All lengths are in tokens. A policy never learns the true output length, only `max_tokens`.
    `arrival` is in seconds. `priority`: smaller is more urgent.
    `computed` counts tokens whose KV the engine holds; preemption by recompute sets it to 0 or to the prefix hit.
    `block_table` is the policy's; the backend reads it at launch. `ignore_eos`: the client asked for all `max_tokens`.
    """

    __slots__ = (
        "_clock", "_computed", "_generated", "_output_base", "_tokens", "arrival", "block_table", "cached", "id",
        "ignore_eos", "max_tokens", "order", "preemptions", "priority", "prompt_len",
    )

    def __init__(
        self, id: str, prompt: Tokens | Ids[int], max_tokens: int, *, arrival: float = 0.0, priority: int = 0,
        output_base: int | None = None, order: int = 0,
    ) -> None:
        self.id = id
        self.max_tokens = max_tokens
        self.arrival = arrival
        self.priority = priority
        self.order = order  # of submission: the last tie-break of policies that need one
        self.block_table: list[int] = []
        self.preemptions = 0
        self.cached = 0  # prefix hit of the latest admission
        self.ignore_eos = False
        self._tokens = as_tokens(prompt)
        self.prompt_len = len(self._tokens)
        self._output_base = content_base(f"output of {id}") if output_base is None else output_base
        self._computed = 0
        self._generated = 0
        self._clock = STILL

    def replace_prompt(self, prompt: Tokens) -> None:
        """Serve another prompt in its place, as an engine does that answers an impossible request with a stub."""
        self._tokens = Tokens()
        self._tokens.extend(prompt.ids(0, len(prompt)))
        self.prompt_len = len(prompt)

    @property
    def generated(self) -> int:
        return self._generated + self._clock.ticks

    @property
    def computed(self) -> int:
        return self._computed + self._clock.ticks

    @computed.setter
    def computed(self, tokens: int) -> None:
        self._computed = tokens - self._clock.ticks

    @property
    def num_tokens(self) -> int:
        """Prompt plus generated tokens, the last sampled one included though its KV is not written yet."""
        return self.prompt_len + self._generated + self._clock.ticks

    @property
    def uncomputed(self) -> int:
        return self.num_tokens - self.computed

    @property
    def decoding(self) -> bool:
        """Only the last sampled token is left to compute."""
        return self.generated > 0 and self.uncomputed == 1

    @property
    def tokens(self) -> Tokens:
        """The token ids. An emulated output (see `emulate`) is derived here, when it is asked for."""
        missing = self.num_tokens - len(self._tokens)
        if missing:
            self._tokens.extend_run(self._output_base + self.generated - missing, missing)
        return self._tokens

    def emulate(self, count: int) -> range:
        """The ids of the next `count` output tokens where no model computes them."""
        first = self._output_base + self.generated
        return range(first, first + count)

    def append(self, ids: Ids[int]) -> None:
        """Take newly sampled token ids."""
        self._generated += len(ids)
        if not self._is_emulated(ids):
            self._tokens.extend(ids)

    def record(self, ids: Iterable[int]) -> None:
        """Note real ids of tokens already counted by the clock of a decode batch."""
        self._tokens.extend(ids)

    def bind(self, clock: Clock) -> None:
        """Advance with `clock` from now on (`STILL` to stop)."""
        computed, generated = self.computed, self.generated
        self._clock = clock
        self._computed = computed - clock.ticks
        self._generated = generated - clock.ticks

    @property
    def clock(self) -> Clock:
        return self._clock

    def drop_kv(self) -> None:
        """Preemption by recompute: the KV is gone, the tokens stay."""
        self.computed = 0
        self.cached = 0
        self.preemptions += 1

    def _is_emulated(self, ids: Ids[int]) -> bool:
        return isinstance(ids, range) and ids.stop == self._output_base + self.generated

    def __repr__(self) -> str:
        return f"<{self.id}: {self.prompt_len}+{self.generated} tokens, {self.computed} computed>"
