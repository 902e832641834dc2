"""When running decodes are interrupted for the prompts of waiting requests (Text Generation Inference's rule)."""


class Joining:
    """As soon as there are `ratio` times as many waiting as running, or after `patience` decode steps.

    With a ratio of 0 always.
    """

    def __init__(self, ratio: float, patience: int) -> None:
        self._ratio = ratio
        self._patience = patience
        self._waited = 0

    def due(self, waiting: int, running: int) -> bool:
        return not self._ratio or waiting >= int(running * self._ratio) or self._waited >= self._patience

    def decoded(self) -> None:
        """A step decoded while somebody waited."""
        self._waited += 1

    def joined(self) -> None:
        """A step prefilled."""
        self._waited = 0

    @property
    def steady(self) -> bool:
        """It does not depend on the number of steps."""
        return not self._ratio
