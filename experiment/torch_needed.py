"""The measured arm where torch is not installed: one message instead of a traceback."""

from collections.abc import Iterator
from contextlib import contextmanager

from .errors import UserError

PACKAGES = ("safetensors", "torch", "transformers")


@contextmanager
def torch_needed(command: str) -> Iterator[None]:
    """Around the import of what needs torch. Raises `UserError` where a package of the measured arm is missing."""
    try:
        yield
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing not in PACKAGES:
            raise
        raise UserError(
            f"{command} runs a real model and needs {missing}, which is not installed: pip install arcsim[executor]"
        ) from error
