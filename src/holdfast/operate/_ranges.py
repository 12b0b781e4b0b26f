"""Ranges of offsets, the end not included."""

from __future__ import annotations

from collections.abc import Iterable

from holdfast.encoded import EncodedBundle

Range = tuple[int, int]


def subtract(whole: Range, parts: Iterable[Range]) -> list[Range]:
    """What of `whole` is in none of `parts`."""
    at, end = whole
    left: list[Range] = []
    for first, stop in sorted(parts):
        if first >= end:
            break
        if first > at:
            left.append((at, first))
        at = max(at, stop)
    if at < end:
        left.append((at, end))
    return left


def intersects(one: Range, others: Iterable[Range]) -> bool:
    return any(max(one[0], first) < min(one[1], end) for first, end in others)


def runs(bundles: Iterable[EncodedBundle]) -> list[list[EncodedBundle]]:
    """Bundles in the order of offsets, cut wherever a number is missing."""
    found: list[list[EncodedBundle]] = []
    for bundle in bundles:
        if found and found[-1][-1].offset + 1 == bundle.offset:
            found[-1].append(bundle)
        else:
            found.append([bundle])
    return found


def shown(span: Range) -> str:
    """For people: both ends included."""
    first, end = span
    return f"offset {first}" if end == first + 1 else f"offsets {first} to {end - 1}"
