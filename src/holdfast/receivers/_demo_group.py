"""What a demo source waits for: blocks that are answered together."""

from __future__ import annotations

from typing import Final

from holdfast.errors import WaitTimeout
from holdfast.store import Batch, Receipt

DURABLE: Final = "durable"


class Group:
    """Some blocks: answered when each is as durable as its topic asks for, or, as a batch, when that is answered.

    `known` says that the topic has the batch from an earlier run: there is nothing to append.
    """

    def __init__(self, blocks: range, batch: Batch | None = None, *, known: bool = False) -> None:
        self.blocks, self.batch, self._known = blocks, batch, known
        self._receipts: list[Receipt] = []

    @property
    def missing(self) -> int | None:
        """The next block to append; `None` when all are."""
        done = len(self.blocks) if self._known else len(self._receipts)
        return self.blocks[done] if done < len(self.blocks) else None

    def add(self, receipt: Receipt) -> None:
        """The next block was appended. After the last one the answer can come."""
        self._receipts.append(receipt)
        if self.batch is not None and self.missing is None:
            self.batch.close()

    def answer(self, timeout: float) -> str | None:
        """What became of them, or `None` if that is not known in time; raises why they could not be stored."""
        try:
            if self.batch is not None:
                return self.batch.status or (self.batch.wait(timeout) if timeout else None)
            for receipt in self._receipts:
                if receipt.durability < receipt.level:
                    receipt.wait(timeout)
        except WaitTimeout:
            return None
        return DURABLE
