"""A crash of the engine that a policy reproduces."""


class EngineFault(Exception):
    """The real engine would have panicked here; the message says on what."""
