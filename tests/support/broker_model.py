"""What a broker has to do, as simply as it can be said: the records of the random walks.

Nothing here knows how Onward works. A destination is a set of tags. A request is a set of
tags, what its requester has said, and what each destination that has it in hand has said.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from tests.support.rsocket_peer import (
    BROKER_FRAME,
    CHANNEL,
    FORWARDING,
    RR,
    SERVICE_NAME,
    C,
    F,
    N,
    Peer,
    composite,
    lists_of_tags,
    payload,
    request,
    restamped,
)

__all__ = ["FIRST_FRAGMENT", "MULTICAST", "REGION", "SHARD", "UNICAST", "Leg", "Request", "Wanted"]

UNICAST, MULTICAST, SHARD = 0x080, 0x040, 0x020
REGION, SHARD_KEY, SHARD_METHOD = 6, 0x1B, 0x1C
USER = "user"
EMPTY_LIST = b"\x80\x00"
NAMES: dict[str, int | str] = {"user": USER, "service": SERVICE_NAME, "region": REGION}
"""What a ShardKey may say, and the tag it names."""

FIRST_FRAGMENT = 59
"""Bytes of metadata in the first fragment: past the mark, and before the end of the tags."""


@dataclass(frozen=True)
class Wanted:
    """What an ADDRESS asks for, right or wrong.

    Attributes:
        flags: All flags of the frame.
        service: A service name, or none.
        region: A region, or none.
        user: The value of the tag that shard requests are sharded by, or none.
        keys: The ShardKeys, each by one of the names that its tag has.
        method: The ShardMethod, or none.
    """

    flags: int
    service: str = ""
    region: str = ""
    user: str = ""
    keys: tuple[str, ...] = ()
    method: str = ""

    @property
    def tags(self) -> dict[int | str, str]:
        """The tags of the request."""
        asked: dict[int | str, str] = {
            SERVICE_NAME: self.service,
            REGION: self.region,
            USER: self.user,
        }
        return {key: value for key, value in asked.items() if value}

    @property
    def query(self) -> frozenset[tuple[int | str, str]]:
        """The tags that a destination must have."""
        if self.flags != SHARD:
            return frozenset(self.tags.items())
        named = {NAMES.get(key) for key in self.keys} - {SERVICE_NAME}
        return frozenset((key, value) for key, value in self.tags.items() if key not in named)

    @property
    def shard(self) -> tuple[str, ...]:
        """The values that choose among the destinations."""
        return tuple(self.tags[NAMES[key]] for key in self.keys)

    def wrong(self, *, specification: bool) -> bool:
        """Say whether the request is INVALID."""
        if self.flags not in {UNICAST, MULTICAST, SHARD}:
            return True
        if self.flags == SHARD:
            named = {NAMES.get(key) for key in self.keys}
            if not specification or not named or not named <= self.tags.keys():
                return True
        return not self.query

    def metadata(self, mark: bytes, *, specification: bool) -> bytes:
        """Return the metadata of a request; the mark stands where the origin does."""
        assert len(mark) == 16
        head = bytes.fromhex("0000 0001") + (0x05 << 10 | self.flags).to_bytes(2) + mark
        if not specification:
            return composite((BROKER_FRAME, head + lists_of_tags(self.tags)))
        hints = b"".join(_metadata(SHARD_KEY, key) for key in self.keys)
        if self.method:
            hints += _metadata(SHARD_METHOD, self.method)
        hints = _ended(hints, len(self.keys) + bool(self.method)) if hints else EMPTY_LIST
        return composite((FORWARDING, head + hints + lists_of_tags(self.tags)))


def _metadata(key: int, value: str) -> bytes:
    return bytes((0x80 | key, len(value))) + value.encode()


def _ended(entries: bytes, count: int) -> bytes:
    """Set the more-flag of all entries but the last."""
    out = bytearray(entries)
    at = 1
    for _ in range(count - 1):
        size = out[at]
        out[at] |= 0x80
        at += size + 2
    return bytes(out)


class Leg:
    """A request in the hands of one destination.

    Attributes:
        destination: Who has it.
        registration: The number of the registration it was given to.
        stream: Its stream there.
        passed: Elements the destination may send.
        answered: Elements it has sent.
        done: Whether it has said all it has to say, or will say nothing more.
        completed: Whether it has said that it is done.
        up_granted: Elements it wants of the requester, in a channel.
    """

    def __init__(self, destination: Peer, registration: int, stream: int, passed: int) -> None:
        self.destination = destination
        self.registration = registration
        self.stream = stream
        self.passed = passed
        self.answered = 0
        self.done = False
        self.completed = False
        self.up_granted = 0

    @property
    def ahead(self) -> int:
        """How many elements more it may send."""
        return self.passed - self.answered


@dataclass(eq=False)
class Request:
    """One request.

    Attributes:
        requester: Who asked.
        stream: Its stream there.
        kind: The frame type.
        wanted: What its ADDRESS says.
        mark: 16 bytes that no other request has.
        granted: Elements the requester wants in all.
        expects: How many destinations it goes to at once: those that matched when it was
            asked if it is a multicast; one otherwise.
        branches: Those who have it, or have had it.
        delivered: Elements the requester has been sent.
        held: Elements of several destinations that it has no credit for, oldest first.
        lost: Whether one of several destinations has gone.
        frames: What the requester has sent so far.
    """

    requester: Peer
    stream: int
    kind: int
    wanted: Wanted
    mark: bytes
    granted: int
    expects: int = 1
    branches: list[Leg] = field(default_factory=list[Leg])
    delivered: int = 0
    held: deque[bytes] = field(default_factory=deque[bytes])
    frames: list[bytes] = field(default_factory=list[bytes])
    requester_done: bool = True
    lost: bool = False
    over: bool = False

    @property
    def merged(self) -> bool:
        """Whether the answers of several are one stream."""
        return self.expects > 1

    @property
    def only(self) -> Leg:
        """The one who has it, if it is not merged."""
        (branch,) = self.branches
        return branch

    @property
    def open(self) -> list[Leg]:
        """Those who have more to say."""
        return [branch for branch in self.branches if not branch.done]

    @property
    def in_hand(self) -> list[Leg]:
        """Those who have a stream for it."""
        return self.open if self.merged else self.branches

    @property
    def said(self) -> bool:
        """Whether anybody has answered anything."""
        return any(branch.answered or branch.completed for branch in self.branches)

    def credit(self, branch: Leg) -> int:
        """How many elements a destination may send now."""
        return 1 if self.kind == RR else branch.ahead

    def write(
        self,
        specification: bool,
        n: int | None,
        *,
        fragments: bool,
        data: bytes,
        last: bool = False,
    ) -> None:
        """Make the frames of the request; `last` has a channel's say that they are all."""
        flags = C if last else 0
        metadata = self.wanted.metadata(self.mark, specification=specification)
        if not fragments or len(metadata) <= FIRST_FRAGMENT:
            self.frames = [request(self.kind, self.stream, metadata, data, n=n, flags=flags)]
            return
        self.frames = [
            request(self.kind, self.stream, metadata[:FIRST_FRAGMENT], n=n, flags=F | flags),
            payload(self.stream, data, F, metadata[FIRST_FRAGMENT:]),
            payload(self.stream, b"the rest"),
        ]

    def rest(self, stream: int) -> list[bytes]:
        """Return the fragments after the first as a destination gets them: mended."""
        if not self.frames[1:]:
            return []
        head, middle, last = (restamped(raw, stream) for raw in self.frames)
        flags = (middle[7] << 8 | middle[8]) | N
        end = (last[7] << 8 | last[8]) | (C if head[8] & C else 0)
        return [middle[:7] + flags.to_bytes(2) + middle[9:], last[:7] + end.to_bytes(2) + last[9:]]

    def complete(self) -> bytes:
        """Return the frame with which the requester of a channel says that it is done."""
        assert self.kind == CHANNEL
        return payload(self.stream, b"", C)
