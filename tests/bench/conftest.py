"""The benchmarks are plain scripts: their folder goes onto the path, as when they are run."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "bench"))
