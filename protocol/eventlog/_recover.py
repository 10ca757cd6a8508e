"""Recovery of a segment that its writer left open: keep its whole blocks, and seal it."""

from __future__ import annotations

from dataclasses import dataclass

from ._blocks import EVENTS, FLOWS, HOPS
from ._errors import EventLogError
from ._header import SegmentFooter, SegmentHeader
from ._scan import Scan

__all__ = ["Recovered", "recover"]


@dataclass(frozen=True, slots=True)
class Recovered:
    """The intact part of a segment.

    The first `valid` bytes, with the footer behind them, are a sealed segment; where it is
    `sealed` already, the first `valid` bytes are.

    Attributes:
        header: The header; `None` if it cannot be read, and then nothing is left.
        valid: Number of bytes to keep: the header and whole blocks.
        footer: The footer for these bytes.
        lost: Number of bytes behind them that are lost.
        reason: The reason of the loss; empty if nothing is lost.
        sealed: Whether the footer is among the bytes to keep.
        refused: Whether what follows those begins with a block that is whole, by its check, and
            that this Onward does not understand. That is no torn end: nothing is to be cut.
    """

    header: SegmentHeader | None
    valid: int
    footer: SegmentFooter
    lost: int
    reason: str
    sealed: bool = False
    refused: bool = False


def recover(data: bytes | memoryview) -> Recovered:
    """Find the intact part of a segment: everything up to the first block that is not whole.

    It never raises: bytes that are not a segment give a result without a header. So does a segment
    of a later format, which must not be cut.

    Args:
        data: All of the file.
    """
    try:
        scan = Scan(data)
    except EventLogError as error:
        return Recovered(None, 0, SegmentFooter(0, 0, 0, 0, 0), len(data), str(error))
    reason = ""
    while scan.offset < len(data):
        try:
            scan.step()
        except EventLogError as error:
            reason = str(error)
            break
    footer = scan.footer or SegmentFooter(
        scan.records[HOPS], scan.records[FLOWS], scan.records[EVENTS], scan.last_seq, scan.end_us
    )
    lost = len(data) - scan.offset
    sealed = scan.footer is not None
    return Recovered(scan.header, scan.offset, footer, lost, reason, sealed, scan.refused)
