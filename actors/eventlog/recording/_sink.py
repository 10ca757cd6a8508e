"""The interface of the receiver of a recorder's blocks."""

from __future__ import annotations

from typing import Protocol

__all__ = ["Figures", "Receipt", "Sink"]


class Receipt:
    """The result of writing a block, set once by the thread that writes.

    Attributes:
        kept: Whether the block is in the log. `None` while that is unknown: the block waits, or
            the disk failed on it and the file has not been read again.
        says: The losses that the block reports, in events `LOST`. Set by the recorder.
    """

    __slots__ = ("kept", "says")

    def __init__(self, kept: bool | None = None) -> None:
        self.kept = kept
        self.says: tuple[str, ...] = ()


class Sink(Protocol):
    """The receiver of blocks: a `LogWriter`. No method blocks."""

    def begin(self, header: bytes, first_seq: int) -> None:
        """Begin a segment."""
        ...

    def append(
        self, block: bytes, body: bytes | None = None, receipt: Receipt | None = None, /
    ) -> bool:
        """Add a block, or its type and its body; return whether it was accepted.

        The receipt of an accepted block of records shows the result of writing it.
        """
        ...

    def seal(self, footer: bytes) -> None:
        """End the segment."""
        ...

    def trouble(self) -> str | None:
        """Return the current failure, if there is one."""
        ...

    def statistics(self) -> Figures:
        """Return the figures of accepted blocks."""
        ...


class Figures(Protocol):
    """Figures of blocks that were accepted and not written: a `LogWriterStatistics`."""

    @property
    def lost_hops(self) -> int:
        """Hops that were accepted and not written."""
        ...

    @property
    def lost_flows(self) -> int:
        """Flows likewise."""
        ...

    @property
    def lost_events(self) -> int:
        """Route events likewise."""
        ...
