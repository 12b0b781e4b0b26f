"""Choices by chance that come out the same on every machine: a failing crash state can be found again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeVar

T = TypeVar("T")
_MASK: Final = 2**64 - 1


class Dice:
    """SplitMix64, seeded by a few numbers."""

    __slots__ = ("_state",)

    def __init__(self, *seeds: int) -> None:
        self._state = 0
        for seed in seeds:
            self._state = (self._next() ^ seed) & _MASK

    def _next(self) -> int:
        self._state = (self._state + 0x9E3779B97F4A7C15) & _MASK
        mixed = self._state
        mixed = ((mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & _MASK
        return mixed ^ (mixed >> 31)

    def below(self, end: int) -> int:
        """A number from 0 to `end - 1`."""
        return self._next() % end

    def coin(self) -> bool:
        return self._next() & 1 == 1

    def pick(self, options: Sequence[T]) -> T:
        return options[self.below(len(options))]
