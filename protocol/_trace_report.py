"""The report of one hop of a marked message, which a node sends to the tracer; no I/O.

The payload of a report is a CBOR array of fifteen:

```
[1, trace id, hop id, hop id before, depth, node id, node, worker, kind,
 taken, handled or null, outcome, onward route, return route, bytes]
```

Ids are byte strings, of 16 bytes for a trace and of 8 for all else. `taken` is when the worker
took the message up, in nanoseconds since the Unix epoch on the clock of its node; `handled` is
how many nanoseconds that took. Addresses and routes are as on the node-to-node wire. Further
elements are passed over.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from cbor2 import dumps

from ._address import Address, Route
from ._errors import MalformedMessage
from .ockam._cbor import CborReader

__all__ = [
    "MAX_HOP_NAME",
    "MAX_HOP_REPORT",
    "HopOutcome",
    "HopReport",
    "decode_hop_report",
    "encode_hop_report",
]

MAX_HOP_REPORT: Final = 256 * 1024
"""Most bytes of a hop's report; a longer one is malformed. Two routes of the greatest length take
half of it."""

MAX_HOP_NAME: Final = 200
"""Most characters of the name of a node or of a kind of worker in a hop's report; what is
written is cut to it, and a longer one is malformed."""

VERSION: Final = 1
_KNOWN: Final = 15
_MAX_NUMBER: Final = 1 << 63
_UNSIGNED, _BYTES, _TEXT = 0, 2, 3  # major types, RFC 8949 section 3.1


class HopOutcome(IntEnum):
    """The outcome of one hop of a message."""

    HANDLED = 0
    """The handler has returned."""
    AWAITS = 1
    """The handler awaits something; another report follows when it is done."""
    FAILED = 2
    """The handler raised."""


@dataclass(frozen=True, slots=True)
class HopReport:
    """The report of one hop of a marked message.

    Attributes:
        trace: Which trace: 32 hexadecimal digits.
        hop: Which hop: 16 hexadecimal digits. The reports of one hop have the same.
        before: The hop before on a node that reports.
        depth: Number of hops reported so far, this one included.
        node_id: Which node: 16 hexadecimal digits. Names of nodes need not be unique.
        node: Name of the node.
        worker: The address the message came to.
        kind: Name of the worker's class.
        taken: When the worker took it up, in nanoseconds since the Unix epoch, on the clock of
            its node.
        handled: How long handling took, in nanoseconds; `None` while that goes on.
        outcome: What has become of it there.
        onward_route: As the worker got it.
        return_route: As the worker got it.
        size: Bytes of the payload.
    """

    trace: str
    hop: str
    before: str
    depth: int
    node_id: str
    node: str
    worker: Address
    kind: str
    taken: int
    handled: int | None
    outcome: HopOutcome
    onward_route: Route
    return_route: Route
    size: int


def encode_hop_report(report: HopReport) -> bytes:
    """Encode a report; names are cut to `MAX_HOP_NAME` characters."""
    return dumps(
        [
            VERSION,
            bytes.fromhex(report.trace),
            bytes.fromhex(report.hop),
            bytes.fromhex(report.before),
            report.depth,
            bytes.fromhex(report.node_id),
            report.node[:MAX_HOP_NAME],
            list(report.worker),
            report.kind[:MAX_HOP_NAME],
            report.taken,
            report.handled,
            int(report.outcome),
            [list(step) for step in report.onward_route],
            [list(step) for step in report.return_route],
            report.size,
        ]
    )


def decode_hop_report(payload: bytes) -> HopReport:
    """Decode a report.

    Raises:
        MalformedMessage: It is none. Nothing is built of it but what is within the limits.
    """
    if len(payload) > MAX_HOP_REPORT:
        raise MalformedMessage(f"a report of {len(payload)} bytes, over {MAX_HOP_REPORT}")
    reader = _ReportReader(payload)
    elements = reader.elements("a report", _KNOWN)
    if next(elements, None) is None or reader.number("the version") != VERSION:
        raise MalformedMessage("a report of an unknown version")

    def due() -> _ReportReader:
        if next(elements, None) is None:
            raise MalformedMessage("a report is cut short")
        return reader

    report = HopReport(
        trace=due().identity(16),
        hop=due().identity(8),
        before=due().identity(8),
        depth=due().number("the depth"),
        node_id=due().identity(8),
        node=due().name("the node"),
        worker=due().address("a report"),
        kind=due().name("the kind"),
        taken=due().number("the time"),
        handled=due().number_or_none("the duration"),
        outcome=due().outcome(),
        onward_route=due().route("the onward route"),
        return_route=due().route("the return route"),
        size=due().number("the size"),
    )
    next(elements, None)  # passes over what a later version adds
    if reader.position != len(payload):
        raise MalformedMessage("bytes behind a report")
    return report


class _ReportReader(CborReader):
    """A reader for the items that routed messages do not have."""

    __slots__ = ()

    def number(self, what: str) -> int:
        value = self._enter(_UNSIGNED, what)
        if value >= _MAX_NUMBER:
            raise MalformedMessage(f"{what} is {value}")
        return value

    def number_or_none(self, what: str) -> int | None:
        if self._peek() == 0xF6:
            self.position += 1
            return None
        return self.number(what)

    def identity(self, size: int) -> str:
        value = self.string(_BYTES, "an id", size)
        if len(value) != size:
            raise MalformedMessage(f"an id has {len(value)} bytes, not {size}")
        return value.hex()

    def name(self, what: str) -> str:
        try:
            return self.string(_TEXT, what, 4 * MAX_HOP_NAME).decode()[:MAX_HOP_NAME]
        except UnicodeDecodeError:
            raise MalformedMessage(f"{what} is not UTF-8") from None

    def outcome(self) -> HopOutcome:
        value = self.number("the outcome")
        try:
            return HopOutcome(value)
        except ValueError:
            raise MalformedMessage(f"the outcome is {value}") from None
