"""The records of an event log: hops, flows and route events, and the codes in them.

Numbers that stand for names, routes and tag sets (`origin`, `dest`, `route`, `tagset`) are
places in the segment's own lists, from 1 on; 0 stands for none, or for one that there was no
room for. Times are microseconds since the Unix epoch, UTC.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum, IntFlag
from struct import Struct
from typing import Final

from ..broker import RoutingType, TagList

__all__ = [
    "FLOW",
    "HOP",
    "PEER_BROKER",
    "Asked",
    "EventName",
    "Flag",
    "Flow",
    "Hop",
    "Kind",
    "Outcome",
    "RouteEvent",
]

HOP: Final = Struct("<QqQQBBBBIIIIIII")
"""A hop, 64 bytes: the fields of `Hop` in their order."""

FLOW: Final = Struct("<QqIIIIIBBHQQ")
"""A flow, 56 bytes: the fields of `Flow` in their order; the 16 bits before the last two are 0."""


PEER_BROKER: Final = "(peer broker)"
"""The origin of requests that another broker has forwarded: that one has the requester."""


class Kind(IntEnum):
    """The kind of traffic that a record is of."""

    MESSAGE = 1
    """A message to a worker."""
    RESPONSE = 2
    """A request/response of RSocket."""
    FIRE_AND_FORGET = 3
    STREAM = 4
    CHANNEL = 5
    PUSH = 6
    """A metadata push."""
    LINK = 7
    """A message that crossed a link; in flows only, where both ends count."""
    NAME = 8
    """A message to a name, at the dispatcher where it entered the network; in flows only, as are
    the next ones. The origin is the name."""
    NAME_LEG = 9
    """A message to a name that another dispatcher has sent on, which counts it as its own."""
    NAME_COPY = 10
    """A message to a name, or a copy of one, that was handed to a consumer of this node."""
    NAME_AGAIN = 11
    """A message to a name that has come out of the file of messages on hold, as after a restart.
    It was counted as `NAME` when it entered."""
    RELAY = 12
    """A message that a relay of identities has given to a link, from the node before to the node
    after; in flows only. Of one that it refuses, the receiver is the status."""


class Outcome(IntEnum):
    """The outcome of a message or request.

    Each that is `RECEIVED` ends as one of the outcomes from `DELIVER` on. `FORWARD` is in between:
    it is counted once for each receiver.
    """

    RECEIVED = 1
    """Read from its sender. In flows only; on a link, at the end that received."""
    FORWARD = 2
    """Handed on. On a link, at the end that sent."""
    DELIVER = 3
    """Delivered to its end, without an error."""
    RETURN = 4
    """An answer, on its way back or at its end. In hops only."""
    UNROUTABLE = 5
    """No destination carries the tags, or no worker has the address; certainly not handed over."""
    REJECTED = 6
    """Certainly not handed over for another reason: busy, no lease, no room."""
    INVALID = 7
    """It could not be read, or asks for what there is not."""
    DROP = 8
    """Lost; handed over, or in doubt."""
    CANCELED = 9
    """Cancelled by the requester, or the requester has disconnected."""
    FAILED = 10
    """The destination answered with an error, or the worker failed. To a name: rejected."""
    RELEASED = 11
    """To a name: certainly not handed over."""
    MODIFIED = 12
    """To a name: in doubt."""
    SETTLED = 13
    """To a name: handed on, and its sender learns no more of it."""
    HOLD = 14
    """To a name: on hold, in between, each time that it is."""
    REDIRECT = 15
    """To a name: redirected, in between; the receiver is the route."""


class Flag(IntFlag):
    """Further properties of a hop."""

    MULTICAST = 1
    """One of several copies."""
    SHARD = 2
    """`shard_hash` chose the destination."""
    STICKY = 4
    """`shard_hash` is of the tags that keep it on one destination."""
    FOREIGN = 8
    """The trace id came with the request."""


class EventName(IntEnum):
    """The kind of an event: a change of a destination, or of the log itself."""

    UP = 1
    """A destination joined."""
    DOWN = 2
    """A destination left."""
    DRAIN = 3
    """A destination accepts no new requests."""
    RETAG = 4
    """A destination has other tags, or another connection took over its route id."""
    REJECT = 5
    """A request without a destination; `tags` are those of its query. Limited a second."""
    CLOCK = 6
    """The clock was set; `reason` says by how many microseconds."""
    LOST = 7
    """Events were not recorded; `reason` says how many and why."""
    IDLE = 8
    """Nothing happened since the segment was begun; the log is alive."""


@dataclass(frozen=True, slots=True)
class Asked:
    """The query of requests: one entry of a segment's tag sets.

    Attributes:
        tags: The tags that a destination must carry, in normal form; for messages to workers none.
        routing: Unicast, multicast or shard.
        method: The method that chooses, in the form of `method_name`; empty for the default.
    """

    tags: TagList
    routing: RoutingType = RoutingType.UNICAST
    method: str = ""


@dataclass(frozen=True, slots=True)
class Hop:
    """One hop of a message that was sampled, or one request through a broker.

    Attributes:
        seq: Its number in the log's epoch.
        ts_us: When, in microseconds since the Unix epoch.
        trace_id: The id of the message, 64 bits, the same in all its hops on all nodes.
        shard_hash: The hash of the tags that choose, 64 bits; else 0. Never the tags.
        kind: See `Kind`.
        outcome: See `Outcome`.
        hop: Number of hops recorded before, at most 255.
        flags: See `Flag`.
        origin: The sender: a number of the segment's names.
        dest: The receiver: a number of the segment's names.
        route: The route that took it: a number of the segment's routes.
        tagset: The query: a number of the segment's tag sets.
        latency_us: Time from its arrival to its end here, in microseconds, at most 2^32 - 1.
        bytes: Size of its payload, at most 2^32 - 1.
        weight: Number of hops it stands for: 1 / sampling rate, rounded.
    """

    seq: int
    ts_us: int
    trace_id: int
    shard_hash: int
    kind: int
    outcome: int
    hop: int
    flags: int
    origin: int
    dest: int
    route: int
    tagset: int
    latency_us: int
    bytes: int
    weight: int


@dataclass(frozen=True, slots=True)
class Flow:
    """The traffic of one kind from one place to another within a window. Never sampled.

    Attributes:
        seq: Its number in the log's epoch.
        window_us: Start of the window, in microseconds since the Unix epoch.
        window_ms: Length of the window, in milliseconds.
        origin: The sender: a number of the segment's names.
        dest: The receiver: a number of the segment's names. Of a link, the link.
        route: A number of the segment's routes.
        tagset: A number of the segment's tag sets.
        kind: See `Kind`.
        outcome: See `Outcome`.
        frames: Number of frames.
        bytes: Size of their payloads together.
    """

    seq: int
    window_us: int
    window_ms: int
    origin: int
    dest: int
    route: int
    tagset: int
    kind: int
    outcome: int
    frames: int
    bytes: int


@dataclass(frozen=True, slots=True)
class RouteEvent:
    """A destination came, changed or went; or something befell the log itself.

    Attributes:
        seq: Its number in the log's epoch.
        ts_us: When, in microseconds since the Unix epoch.
        name: What.
        route_id: The destination's identity, 16 bytes; `None` if it is about none.
        node: The destination's service name, or empty.
        tags: All its tags, the default ones included; of a `REJECT`, what was asked for.
        reason: Why, in a few words, or empty.
    """

    seq: int
    ts_us: int
    name: EventName
    route_id: bytes | None = None
    node: str = ""
    tags: TagList = ()
    reason: str = ""
