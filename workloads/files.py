"""Finding and reading the files that a workload names."""

from collections.abc import Iterator
from pathlib import Path

from .error import WorkloadError


def find(path: str, base: Path | None) -> Path:
    """A relative path is looked for in `base` (the folder of the configuration file), then in the current folder.

    Raises WorkloadError where there is nothing of that name, or a pipe, which could not be read twice.
    """
    given = Path(path).expanduser()
    folders = [folder for folder in (base, Path.cwd()) if folder is not None]
    for folder in folders:
        found = folder / given
        if found.is_file() or found.is_dir():
            return found
        if found.exists():
            raise WorkloadError(f"{found} is a pipe or a device, and a workload is read more than once: give a file")
    looked = "" if given.is_absolute() else f" in {' or '.join(dict.fromkeys(str(folder) for folder in folders))}"
    raise WorkloadError(f"no file {path}{looked}: workload paths are relative to the configuration file")


def text_lines(path: Path) -> Iterator[str]:
    """The lines of a file of UTF-8 text, with their ends, as they are read.

    Raises WorkloadError for a folder and for what is not text; OSError passes through.
    """
    if path.is_dir():
        raise WorkloadError(f"{path} is a folder: give the file in it (ServeGen folders hold chunk-N-trace.csv)")
    try:
        with path.open(encoding="utf-8-sig", newline="\n") as file:
            for number, line in enumerate(file, 1):
                if "\0" in line:
                    raise WorkloadError.at(path, number, "not text (a zero byte): a binary or compressed file?")
                yield line
    except UnicodeDecodeError as error:
        raise WorkloadError(f"{path} is not UTF-8 text ({error.reason}): a binary or compressed file?") from None
