"""What the executor cannot run."""


class ExecutorError(ValueError):
    """A model, a device or a configuration that cannot be run as asked; the message says why and what to change."""
