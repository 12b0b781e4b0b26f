"""Acknowledgements: writing and replaying them, what a subscriber costs, deletion, and how soon it hears of new data.

make bench-acks, or: python bench/acks.py [--quick] [--rounds N] [--output json] [--folder FOLDER]
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

from _ack_log import price_section, replay_section, writing_section
from _ack_notice import notice_section
from _ack_store import quiet
from _ack_sweep import sweep_section
from _delivery import cost_sections
from _harness import scratch_folder
from _report import Section, as_json, as_text, parse_options


def main() -> None:
    options = parse_options(__doc__)
    rounds = 1 if options.quick else options.rounds
    scale = 50 if options.quick else 1
    parts: list[Callable[[Path], Sequence[Section]]] = [
        lambda folder: [writing_section(1_000_000 // scale, 50_000 // scale, rounds, folder)],
        lambda folder: [price_section(rounds, folder)],
        lambda folder: [replay_section(1_000_000 // scale, rounds, folder)],
        lambda folder: cost_sections(50_000 // scale, rounds, folder),
        lambda folder: [sweep_section(100 // min(scale, 10), rounds, folder)],
        lambda folder: [notice_section(100 // min(scale, 10), rounds, folder)],
    ]
    quiet()
    sections: list[Section] = []
    with scratch_folder(options.folder) as folder:
        for number, part in enumerate(parts):
            own = folder / f"part-{number}"
            own.mkdir()
            sections += part(own)
            shutil.rmtree(own)
    print(as_json(sections) if options.output == "json" else as_text(sections))


if __name__ == "__main__":
    main()
