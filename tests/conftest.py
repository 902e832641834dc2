"""Fixtures that many tests share."""

import os
from pathlib import Path

import pytest
from hypothesis import settings

settings.register_profile("stable", derandomize=True, deadline=None)
settings.load_profile("stable")


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of public traces and recorded results; absent in a plain clone."""
    default = Path(__file__).resolve().parent.parent.parent / "shared"
    folder = Path(os.environ.get("ARCSIM_DATA", default))
    if not folder.is_dir():
        pytest.skip(f"no data folder at {folder}: set ARCSIM_DATA")
    return folder


@pytest.fixture(autouse=True)
def no_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Test runners may say how wide their own terminal is; what is printed must not depend on it."""
    monkeypatch.delenv("COLUMNS", raising=False)
