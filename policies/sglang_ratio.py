"""How much of its remaining output SGLang reserves for a running request."""

from collections.abc import Iterable

from .sglang_options import SglangOptions
from .sglang_request import Request


class NewTokenRatio:
    """Starts high, decays with every decode step, and is estimated anew when memory runs out."""

    def __init__(self, options: SglangOptions) -> None:
        self.initial = min(options.init_new_token_ratio * options.schedule_conservativeness, 1.0)
        self.lowest = min(self.initial * options.min_new_token_ratio_factor, 1.0)
        self.decay = (self.initial - self.lowest) / options.new_token_ratio_decay_steps
        self.current = self.initial
        self._retract_steps = options.retract_decode_steps

    def step(self, steps: int = 1) -> None:
        for _ in range(steps):
            self.current = max(self.current - self.decay, self.lowest)

    def retract(self, survivors: Iterable[Request]) -> None:
        done = wanted = 0
        for request in survivors:
            done += request.output + self._retract_steps
            wanted += request.max_new_tokens
        self.current = min(1.0, done / (wanted + 1))

    def reset(self) -> None:
        self.current = self.initial
