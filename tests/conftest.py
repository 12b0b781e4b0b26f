"""Makes helper modules under tests/ importable as `crash.life`, `arrow_strategies`, ...; no test is held to a time."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog
from hypothesis import settings

sys.path.insert(0, str(Path(__file__).parent))
pytest_plugins = ["sparkkit"]

settings.register_profile("any machine", deadline=None)  # a busy one may take its time over any example
settings.load_profile("any machine")


@pytest.fixture(autouse=True)
def log_as_by_default() -> Iterator[None]:
    """A command that ran in this process silences the log, or sends it elsewhere; for its own test only."""
    yield
    structlog.reset_defaults()
