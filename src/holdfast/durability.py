"""How safe an accepted bundle is."""

from __future__ import annotations

from enum import IntEnum


class Durability(IntEnum):
    """Ordered: a higher level survives all that a lower one survives."""

    MEMORY = 0  # in this process: lost when it ends
    OS = 1  # in the page cache: survives the process, lost with the machine
    FSYNC = 2  # on the medium: survives the machine
    OBJECT = 3  # in object storage: survives the disk

    def __str__(self) -> str:
        return self.name.lower()
