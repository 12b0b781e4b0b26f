"""Appending, beside the bare disk, Redis Streams, NATS JetStream and SQLite, all measured in one run.

make bench-append, or: python bench/append.py [--quick] [--rounds N] [--output json] [--folder FOLDER]
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from _data import Pool, make_pool
from _harness import (
    Contender,
    Run,
    Spread,
    Target,
    end_progress,
    fitting_count,
    interleaved,
    measure_once,
    per_round_ratios,
    progress,
    scratch_folder,
)
from _latency import latency_section
from _ours import SEGMENTS, UNTIL_SEALED, Holdfast
from _peers import IN_FLIGHT, Bare, Nats, Redis, Sqlite, missing
from _report import Row, Section, as_json, as_text, parse_options

_RUN_SECONDS = 1.2  # one contender, one round
_MOST_BYTES = 800_000_000  # of bundles in one run


@dataclass(frozen=True)
class Size:
    """What holdfast should reach against each peer with bundles of so many rows; `None`: only shown."""

    rows: int
    bare: float | None
    redis: float
    nats: float
    redis_clients: int  # with so many Redis is fastest, of 1, 2, 4 and 8 tried


_SIZES = (
    Size(rows=1_000, bare=0.6, redis=4, nats=2.5, redis_clients=8),
    Size(rows=100, bare=None, redis=4, nats=4, redis_clients=4),
)


def throughput_section(size: Size, rounds: int, folder: Path, seconds: float) -> Section:
    """64 in flight: every contender's rate, and ours as a multiple of it."""
    pool = make_pool(size.rows)
    ours = Holdfast(pool)
    same_groups = Bare("bare disk, holdfast's own group sizes", pool, ours.last_groups)
    judged: list[tuple[Contender, float | None]] = [
        (same_groups, size.bare),
        (Bare.of(pool, IN_FLIGHT), None),
        (Bare.of(pool, 8), None),
    ]
    notes = []
    if (lack := missing("redis-server", "redis")) is None:
        judged += [(Redis(pool, 1), size.redis), (Redis(pool, size.redis_clients), None)]
    else:
        notes.append(f"without Redis: {lack}")
    if (lack := missing("nats-server", "nats")) is None:
        judged.append((Nats(pool), size.nats))
    else:
        notes.append(f"without NATS: {lack}")
    judged.append((Sqlite(pool), None))

    contenders = [ours, *(peer for peer, _ in judged)]
    counts = calibrated_counts(contenders, pool, folder, seconds)

    def measure(contender: Contender) -> Run:
        count = counts[contender.name]
        return measure_once(contender, count, folder, warm_bytes(contender, count, pool))

    runs = interleaved(contenders, rounds, measure)
    end_progress()
    group = Spread.of(ours.groups.bundles() or [0])
    segments = Spread.of([run.extra[SEGMENTS] for run in runs[ours.name]])
    notes += [
        f"{SEGMENTS}: {segments.median:g} ({segments.low:g}..{segments.high:g})",
        f"holdfast's groups, last round: {group.median:g} bundles per sync ({group.low:g}..{group.high:g})",
        "targets compare one producer with one producer; several Redis clients at once are shown beside",
        "peers get their bytes ready-made; NATS does not sync before it acknowledges",
    ]
    return Section(
        f"append: {size.rows:,}-row bundles of {pool.payload_bytes / 1e3:.1f} KB, {IN_FLIGHT} in flight, "
        f"medians of {rounds} interleaved rounds",
        [*_our_rows(ours, runs, pool), *(_peer_row(peer, goal, ours, runs, pool) for peer, goal in judged)],
        "holdfast / it",
        notes,
    )


def calibrated_counts(contenders: Sequence[Contender], pool: Pool, folder: Path, seconds: float) -> Mapping[str, int]:
    """How many bundles each contender appends in a run, so that it lasts about as long as it should."""
    counts = {}
    most = int(_MOST_BYTES / pool.payload_bytes)
    for contender in contenders:
        progress(f"calibrating: {contender.name}")
        trial = fitting_count(4_000, seconds / 3, multiple_of=IN_FLIGHT, most=most)
        rate = measure_once(contender, trial, folder, warm_bytes(contender, trial, pool)).per_s
        counts[contender.name] = fitting_count(rate, seconds, multiple_of=IN_FLIGHT, most=most)
    return counts


def warm_bytes(contender: Contender, count: int, pool: Pool) -> int:
    return int(count * pool.payload_bytes * contender.footprint)


def _rates(bundles_per_s: float, pool: Pool) -> dict[str, float]:
    return {
        "bundles/s": bundles_per_s,
        "rows/s": bundles_per_s * pool.rows,
        "MB/s": bundles_per_s * pool.payload_bytes / 1e6,
    }


def _our_rows(ours: Holdfast, runs: Mapping[str, Sequence[Run]], pool: Pool) -> list[Row]:
    acknowledged = Spread.of([run.per_s for run in runs[ours.name]])
    sealed = Spread.of([run.extra[UNTIL_SEALED] for run in runs[ours.name]])
    return [
        Row(ours.name, _rates(acknowledged.median, pool)),
        Row("  the same, until all is sealed", _rates(sealed.median, pool)),
    ]


def _peer_row(
    peer: Contender, goal: float | None, ours: Holdfast, runs: Mapping[str, Sequence[Run]], pool: Pool
) -> Row:
    rates = [run.per_s for run in runs[peer.name]]
    ratios = per_round_ratios([run.per_s for run in runs[ours.name]], rates)
    target = None if goal is None else Target(goal)
    return Row(peer.name, _rates(Spread.of(rates).median, pool), Spread.of(ratios), target)


def main() -> None:
    options = parse_options(__doc__)
    rounds, seconds = (1, 0.2) if options.quick else (options.rounds, _RUN_SECONDS)
    blocks = 2 * rounds
    with scratch_folder(options.folder) as folder:
        sections = [throughput_section(size, rounds, folder, seconds) for size in _SIZES]
        sections += [latency_section(size.rows, blocks, folder) for size in _SIZES]
    print(as_json(sections) if options.output == "json" else as_text(sections))


if __name__ == "__main__":
    main()
