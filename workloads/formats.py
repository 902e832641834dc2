"""The trace formats there are, and which of them a file is in."""

from pathlib import Path

from .error import WorkloadError
from .format import Format, read_head
from .format_azure import AZURE
from .format_burstgpt import BURSTGPT
from .format_mooncake import MOONCAKE
from .format_plain import PLAIN
from .format_ragpulse import RAGPULSE
from .format_run import RUN
from .format_servegen import SERVEGEN
from .format_vidur import VIDUR

FORMATS: tuple[Format, ...] = (RUN, AZURE, BURSTGPT, MOONCAKE, RAGPULSE, SERVEGEN, VIDUR, PLAIN)
"""In the order in which they are tried: the plain one takes what no other does."""


def choose_format(path: Path, name: str) -> Format:
    """The format of that name, or, for `auto`, the one that the file's first line (or the file's name) tells.

    Raises WorkloadError where none does.
    """
    if name != "auto":
        return next(format for format in FORMATS if format.name == name)
    head = read_head(path)
    for format in FORMATS:
        if format.matches(head):
            return format
    found = list(head.record) if head.record else list(head.fields)
    names = ", ".join(format.name for format in FORMATS)
    raise WorkloadError(
        f"{path}:1: format not recognised from {_short(found)}: name one of {names}, or name the columns "
        "'arrival', 'prompt' and 'output'"
    )


def _short(names: list[str]) -> str:
    text = ", ".join(names)
    return repr(text if len(text) <= 80 else f"{text[:80]}...")
