"""What a recorder gives its blocks to, as far as it needs to know."""

from __future__ import annotations

from typing import Protocol

__all__ = ["Figures", "Receipt", "Sink"]


class Receipt:
    """Tells who has handed a block on what became of it. Set once, by the thread that writes.

    Attributes:
        kept: Whether the block is in the log. `None` as long as that is not known: it waits, or
            the disk failed with it, and what is there has not been read again.
        says: What the block says, in events `LOST`, is not in the log. Set by who hands it on.
    """

    __slots__ = ("kept", "says")

    def __init__(self, kept: bool | None = None) -> None:
        self.kept = kept
        self.says: tuple[str, ...] = ()


class Sink(Protocol):
    """Where blocks go: a `LogWriter`. Nothing here blocks."""

    def begin(self, header: bytes, first_seq: int) -> None:
        """Begin a segment."""
        ...

    def append(
        self, block: bytes, body: bytes | None = None, receipt: Receipt | None = None, /
    ) -> bool:
        """Take a block, or its type and its body; say whether it was taken.

        The receipt, of a block of records, tells what became of it if it was.
        """
        ...

    def seal(self, footer: bytes) -> None:
        """End the segment."""
        ...

    def trouble(self) -> str | None:
        """Say what is wrong, if anything is."""
        ...

    def statistics(self) -> Figures:
        """Return what became of blocks after they were taken."""
        ...


class Figures(Protocol):
    """What became of blocks after they were taken: a `LogWriterStatistics`."""

    @property
    def lost_hops(self) -> int:
        """Hops that were taken and then not written."""
        ...

    @property
    def lost_flows(self) -> int:
        """Flows likewise."""
        ...

    @property
    def lost_events(self) -> int:
        """Route events likewise."""
        ...
