"""Both filesystems, so that a test of the protocol runs over the real one and the simulated one."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.files import Files, SystemFiles
from holdfast.testing import SimulatedFiles


@pytest.fixture(params=["system", "simulated"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Files, Path]:
    """A filesystem and an empty folder in it."""
    if request.param == "system":
        return SystemFiles(), tmp_path
    files, folder = SimulatedFiles(), Path("/store")
    files.make_folder(folder)
    return files, folder
