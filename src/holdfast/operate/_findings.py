"""What a check found, as plain data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any


class Severity(StrEnum):
    """What a finding means for the data."""

    DAMAGE = "damage"  # something that was durable cannot be read, or the store does not open
    WARNING = "warning"  # not as it should be, but nothing is missing: another copy holds it
    NOTE = "note"  # as expected, and worth knowing


@dataclass(frozen=True, slots=True)
class Finding:
    """One observation: where, what, and what to do about it."""

    severity: Severity
    path: str
    position: int | None  # byte in the file, where there is one
    what: str
    advice: str


@dataclass(frozen=True, slots=True)
class Repair:
    """What a repair changed, and what it had found before."""

    found: tuple[Finding, ...]
    actions: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class FsckReport:
    """The outcome of a check; after a repair, of the check that followed it."""

    path: str
    kind: str
    findings: tuple[Finding, ...]
    files_checked: int
    bytes_checked: int
    repair: Repair | None = None

    def count(self, severity: Severity) -> int:
        return sum(finding.severity is severity for finding in self.findings)

    @property
    def damaged(self) -> bool:
        return self.count(Severity.DAMAGE) > 0

    def to_document(self) -> dict[str, Any]:
        """As JSON values; the keys are stable."""
        return {
            "path": self.path,
            "kind": self.kind,
            "damaged": self.damaged,
            "counts": {str(severity): self.count(severity) for severity in Severity},
            "findings": _documents(self.findings),
            "files_checked": self.files_checked,
            "bytes_checked": self.bytes_checked,
            "repair": None
            if self.repair is None
            else {"found": _documents(self.repair.found), "actions": list(self.repair.actions)},
        }


def _documents(findings: Sequence[Finding]) -> list[dict[str, Any]]:
    return [{**asdict(finding), "severity": str(finding.severity)} for finding in findings]
