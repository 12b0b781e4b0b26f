"""Makes helper modules under tests/ importable as `crash.life`, `arrow_strategies`, ...; no test is held to a time."""

import sys
from pathlib import Path

from hypothesis import settings

sys.path.insert(0, str(Path(__file__).parent))
pytest_plugins = ["sparkkit"]

settings.register_profile("any machine", deadline=None)  # a busy one may take its time over any example
settings.load_profile("any machine")
