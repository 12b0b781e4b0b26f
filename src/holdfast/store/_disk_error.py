"""What a caller is told when the system refuses."""

from __future__ import annotations

import errno

from holdfast.errors import DiskFault, DiskFull, HoldfastError


def disk_error(problem: OSError, where: str) -> HoldfastError:
    """What a caller is told when the system refuses: no room, or something else."""
    if problem.errno in (errno.ENOSPC, errno.EDQUOT):
        return DiskFull(f"{where}: {problem}; free some space")
    return DiskFault(f"{where}: {problem}; what was asked for may be half done: repeat it when the disk is well")
