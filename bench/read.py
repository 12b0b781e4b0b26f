"""Reading, recovery and memory, beside plain memory-mapped files measured in the same run.

make bench-read, or: python bench/read.py [--quick] [--rounds N] [--output json] [--folder FOLDER]
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

from _harness import scratch_folder
from _ingest import ingest_section
from _reading import memory_section, reading_section
from _recovery import recovery_section
from _report import Section, as_json, as_text, parse_options

_MB = 1_000_000
_GB = 1_000 * _MB


def main() -> None:
    options = parse_options(__doc__)
    rounds = 1 if options.quick else options.rounds
    scale = 50 if options.quick else 1
    parts: list[Callable[[Path], Section]] = [
        lambda folder: reading_section(1_000, 512 * _MB // scale, rounds, folder),
        lambda folder: reading_section(100, 128 * _MB // scale, rounds, folder),
        lambda folder: memory_section(256 * _MB // scale, _GB // scale, folder),
        lambda folder: recovery_section(_GB // scale, rounds, folder),
        lambda folder: ingest_section(4 * _GB // scale, folder),
    ]
    sections = []
    with scratch_folder(options.folder) as folder:
        for number, part in enumerate(parts):
            own = folder / f"part-{number}"
            own.mkdir()
            sections.append(part(own))
            shutil.rmtree(own)
    print(as_json(sections) if options.output == "json" else as_text(sections))


if __name__ == "__main__":
    main()
