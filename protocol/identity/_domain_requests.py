"""Requests to any member of a domain, at the node they are from, on their way, and at the member.

A request is handed over once at most. It goes to another member only if it was certainly not handed
over: it was not sent, or the node that it was sent to refused it. When the link ends after it was
sent, it is in doubt, and is not sent again.

It ends after a bounded number of frames: no node is twice in a path, a path has a bounded length,
and only the node that a request is from tries another member.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field, replace
from typing import Annotated, NamedTuple, TypeAlias

from ..options import Count, Range, check_options
from ._domain_records import MAX_DOMAIN_PATH, DomainRefusal, DomainRequest, DomainResponse
from ._domains import DomainTable, choose_member
from ._freshness import MAX_SKEW, expiry_refusal
from ._identities import Identity
from ._messages import MAX_BODY
from ._preferences import Protocol
from ._results import ResultCode

__all__ = [
    "DomainAction",
    "DomainCounters",
    "DomainEnded",
    "DomainRequestLimits",
    "DomainRequests",
    "SendDomainRecord",
    "ServeDomainRequest",
]

Attempts: TypeAlias = Annotated[int, Range(least=1, most=64)]
"""A number of members that are tried."""
Size: TypeAlias = Annotated[int, Range(least=MAX_BODY, unit="bytes")]
"""Bytes of bodies."""


@dataclass(frozen=True, slots=True)
class DomainRequestLimits:
    """Limits of the requests to domains at a node.

    Attributes:
        pending: Requests that wait for a response. One more is refused: `OVERFLOW`.
        pending_of_peer: Those of them that came from one peer. One more is refused: `OVERFLOW`.
        pending_size: Bytes of the bodies of those of this node, which it may have to send again.
            Beyond: a further one is refused: `OVERFLOW`. Of others no body is kept.
        attempts: Members that one request of this node is tried at.
        remembered: Requests that were served here and are remembered to be served once. Beyond:
            the oldest is forgotten, and counted.
    """

    pending: Count = 4096
    pending_of_peer: Count = 512
    pending_size: Size = 64 * 1024 * 1024
    attempts: Attempts = 3
    remembered: Count = 65_536

    def __post_init__(self) -> None:
        check_options(self)


class SendDomainRecord(NamedTuple):
    """A record has to be sent to a node.

    Attributes:
        node: The node.
        record: The record.
    """

    node: Identity
    record: DomainRequest | DomainResponse | DomainRefusal


class ServeDomainRequest(NamedTuple):
    """A request has to be served by the worker of the domain at this node.

    Attributes:
        request: The request.
    """

    request: DomainRequest


class DomainEnded(NamedTuple):
    """A request of this node has ended.

    Attributes:
        id: Its number.
        result: `OK`, the result of the member, or why there is none.
        response: The response, if a member gave one.
        in_doubt: Whether a member may have it all the same.
    """

    id: int
    result: ResultCode
    response: DomainResponse | None = None
    in_doubt: bool = False


DomainAction: TypeAlias = SendDomainRecord | ServeDomainRequest | DomainEnded
"""An effect of an input of the requests to domains."""


@dataclass(slots=True)
class DomainCounters:
    """Counts of the requests to domains at a node.

    Attributes:
        served: Requests that were served here.
        forwarded: Requests of others that were sent on.
        refused: Requests of others that were refused: no member, a loop, or a limit.
        forged: Records that were dropped, as their path does not fit the peer they came from.
        duplicates: Requests that were dropped, as they came before.
        unexpected: Responses and refusals that were dropped, as none was waited for.
        expired: Requests that had no response in time.
        forgotten: Requests that were forgotten at the limit `remembered`.
    """

    served: int = 0
    forwarded: int = 0
    refused: int = 0
    forged: int = 0
    duplicates: int = 0
    unexpected: int = 0
    expired: int = 0
    forgotten: int = 0


@dataclass(slots=True)
class _Pending:
    request: DomainRequest
    deadline: int
    # The peer it came from; `None` if it is of this node.
    peer: Identity | None
    # The node it was sent to; `None` while it is served here.
    member: Identity | None = None
    tried: set[Identity] = field(default_factory=set[Identity])


_Key: TypeAlias = tuple[Identity, int]


class DomainRequests:
    """The requests to domains at a node. Each that is pending waits for one thing: its response.

    Times are Unix milliseconds.

    Args:
        node: The node.
        table: The members of domains.
        limits: Its limits.
    """

    __slots__ = (
        "_limits",
        "_links",
        "_node",
        "_of_peer",
        "_pending",
        "_remembered",
        "_served",
        "_size",
        "_table",
        "_under_way",
        "counters",
    )

    def __init__(
        self, node: Identity, table: DomainTable, limits: DomainRequestLimits | None = None
    ) -> None:
        self._node = node
        self._table = table
        self._limits = DomainRequestLimits() if limits is None else limits
        self._served: set[Identity] = set()
        self._links: set[Identity] = set()
        self._under_way: dict[Identity, int] = {}
        self._pending: dict[_Key, _Pending] = {}
        self._of_peer: dict[Identity, int] = {}
        self._size = 0
        self._remembered: OrderedDict[_Key, None] = OrderedDict()
        self.counters = DomainCounters()

    def __len__(self) -> int:
        """Return the number of requests that are pending."""
        return len(self._pending)

    def is_waiting(self, node: Identity) -> bool:
        """Whether a request waits for a response of a node, or for one that it is to get."""
        return any(node in {each.member, each.peer} for each in self._pending.values())

    def serve(self, domain: Identity) -> None:
        """Serve a domain at this node: its requests go no further."""
        self._served.add(domain)

    def stop(self, domain: Identity) -> None:
        """Serve a domain no more. What is being served is answered all the same."""
        self._served.discard(domain)

    def open_link(self, node: Identity) -> None:
        """Prefer a node, as there is a link to it."""
        self._links.add(node)

    def close_link(self, node: Identity) -> list[DomainAction]:
        """End the requests that were sent to a node in doubt, as the link to it has ended."""
        self._links.discard(node)
        lost = [key for key, each in self._pending.items() if each.member == node]
        return [action for key in lost for action in self._doubt(self._pop(key))]

    def end(self, identity: Identity) -> list[DomainAction]:
        """End the requests from an identity, over it and to it in doubt, as it is banned."""
        ended = [
            key
            for key, each in self._pending.items()
            if identity in {each.request.domain, each.member, *each.request.path}
        ]
        actions = [action for key in ended for action in self._doubt(self._pop(key))]
        return [each for each in actions if identity != getattr(each, "node", None)]

    def get_timer(self) -> int | None:
        """Return when `handle_timer` is due; `None` for never. It looks at all pending requests."""
        return min((each.deadline for each in self._pending.values()), default=None)

    def handle_timer(self, now: int) -> list[DomainAction]:
        """End the requests that had no response in time."""
        actions: list[DomainAction] = []
        for key in [key for key, each in self._pending.items() if each.deadline <= now]:
            pending = self._pop(key)
            self.counters.expired += 1
            if pending.peer is None:
                number = pending.request.id
                actions.append(DomainEnded(number, ResultCode.TIMEOUT, in_doubt=True))
        return actions

    def send(
        self,
        domain: Identity,
        number: int,
        expiry: int,
        protocol: Protocol,
        body: bytes,
        random: int,
    ) -> list[DomainAction]:
        """Send a request of this node.

        Args:
            domain: The domain.
            number: A number that no other request of this node has.
            expiry: When it ends without a response, in Unix milliseconds.
            protocol: What the body is written in.
            body: The body.
            random: A random number, at least 0.

        Raises:
            BadRecord: A value is over its limit.
            ValueError: A request of this node with that number is pending.
        """
        if (self._node, number) in self._pending:
            raise ValueError(f"a request {number} is pending")
        limits = self._limits
        if len(self._pending) >= limits.pending or self._size + len(body) > limits.pending_size:
            return [DomainEnded(number, ResultCode.OVERFLOW)]
        path = (self._node,)
        request = DomainRequest(self._node, domain, number, path, expiry, protocol, body)
        return self._place(_Pending(request, expiry, None), random)

    def receive_request(
        self, request: DomainRequest, peer: Identity, now: int, random: int
    ) -> list[DomainAction]:
        """Receive a request from a peer: serve it, send it on, or refuse it.

        Args:
            request: The request.
            peer: The node at the other end of the link.
            now: The time.
            random: A random number, at least 0.
        """
        if request.path[-1] != peer:
            self.counters.forged += 1
            return []
        key = request.src, request.id
        if key in self._pending or key in self._remembered:
            # It may have been handed over, so to refuse it would be wrong.
            self.counters.duplicates += 1
            return []
        refusal = self._refusal(request, peer, now)
        if refusal is not None:
            return self._refuse(request, peer, refusal)
        if request.domain not in self._served:
            if len(request.path) >= MAX_DOMAIN_PATH:
                return self._refuse(request, peer, ResultCode.DENIED)
            request = replace(request, path=(*request.path, self._node))
        return self._place(_Pending(request, request.expiry + MAX_SKEW, peer), random)

    def receive_response(self, response: DomainResponse, peer: Identity) -> list[DomainAction]:
        """Receive a response from the peer that the request was sent to."""
        pending = self._sent_to(response.dst, response.id, peer)
        if pending is None:
            return []
        if response.path != _way_back(pending.request):
            self.counters.forged += 1
            return []
        self._pop((response.dst, response.id))
        return self._return(pending, response)

    def receive_refusal(
        self, refusal: DomainRefusal, peer: Identity, random: int
    ) -> list[DomainAction]:
        """Receive a refusal from the peer that the request was sent to, and try another member."""
        pending = self._sent_to(refusal.src, refusal.id, peer)
        return [] if pending is None else self._again(pending, refusal.result, random)

    def not_sent(
        self,
        request: DomainRequest,
        random: int,
        result: ResultCode = ResultCode.REMOTE_FAILED,
    ) -> list[DomainAction]:
        """Try another member for a request that was certainly not sent, or not taken here.

        Args:
            request: The request.
            random: A random number, at least 0.
            result: Why, for the node that it is from if there is no other member.
        """
        pending = self._pending.get((request.src, request.id))
        return [] if pending is None else self._again(pending, result, random)

    def answer(
        self, request: DomainRequest, result: ResultCode, protocol: Protocol, body: bytes
    ) -> list[DomainAction]:
        """Answer a request that is served here.

        Raises:
            BadRecord: The body is over its limit; the request is still pending.
        """
        key = request.src, request.id
        pending = self._pending.get(key)
        if pending is None or pending.member is not None:
            self.counters.unexpected += 1
            return []
        response = DomainResponse(
            request.domain,
            self._node,
            request.src,
            request.id,
            _way_back(request),
            result,
            protocol,
            body,
        )
        self._pop(key)
        if pending.peer is None:
            return [DomainEnded(request.id, result, response)]
        return [SendDomainRecord(pending.peer, response)]

    def _refusal(self, request: DomainRequest, peer: Identity, now: int) -> ResultCode | None:
        """Return why a request of a peer is refused; `None` if it is not."""
        if expiry_refusal(request.expiry, now) is not None:
            return ResultCode.TIMEOUT
        if self._node in request.path:
            return ResultCode.DENIED
        limits = self._limits
        if (
            len(self._pending) >= limits.pending
            or self._of_peer.get(peer, 0) >= limits.pending_of_peer
        ):
            return ResultCode.OVERFLOW
        return None

    def _refuse(
        self, request: DomainRequest, peer: Identity, result: ResultCode
    ) -> list[DomainAction]:
        self.counters.refused += 1
        return [SendDomainRecord(peer, DomainRefusal(request.src, request.id, result))]

    def _place(
        self, pending: _Pending, random: int, result: ResultCode = ResultCode.UNKNOWN
    ) -> list[DomainAction]:
        """Serve a request here, or send it to a member; end it with a result if none is left."""
        request = pending.request
        key = request.src, request.id
        if request.domain in self._served and self._node not in pending.tried:
            self._add(key, pending)
            self._remember(key)
            self.counters.served += 1
            return [ServeDomainRequest(request)]
        member = choose_member(
            self._table.members(request.domain) or (),
            random,
            excluded={*request.path, *pending.tried, self._node},
            alive=self._links,
            loads=self._under_way,
        )
        if member is None:
            return self._fail(pending, result)
        pending.member = member
        self._add(key, pending)
        self.counters.forwarded += pending.peer is not None
        return [SendDomainRecord(member, request)]

    def _again(self, pending: _Pending, result: ResultCode, random: int) -> list[DomainAction]:
        """Try another member, as this one certainly does not have the request."""
        self._pop((pending.request.src, pending.request.id))
        pending.tried.add(self._node if pending.member is None else pending.member)
        pending.member = None
        # Another node on the way tries none: the number of frames would grow with each.
        if pending.peer is not None or len(pending.tried) >= self._limits.attempts:
            return self._fail(pending, result)
        return self._place(pending, random, result)

    def _fail(self, pending: _Pending, result: ResultCode) -> list[DomainAction]:
        """End a request that was certainly not handed over."""
        request = pending.request
        if pending.peer is None:
            return [DomainEnded(request.id, result)]
        # It may come again by another way.
        self._remembered.pop((request.src, request.id), None)
        return self._refuse(request, pending.peer, result)

    def _doubt(self, pending: _Pending) -> list[DomainAction]:
        """End a request that may have been handed over."""
        request = pending.request
        if pending.peer is None:
            return [DomainEnded(request.id, ResultCode.REMOTE_FAILED, in_doubt=True)]
        way = _way_back(request)
        response = DomainResponse(
            request.domain,
            self._node,
            request.src,
            request.id,
            way[1:] if way[0] == self._node else way,
            ResultCode.REMOTE_FAILED,
            request.protocol,
            b"",
        )
        return [SendDomainRecord(pending.peer, response)]

    def _return(self, pending: _Pending, response: DomainResponse) -> list[DomainAction]:
        if pending.peer is None:
            in_doubt = response.result is ResultCode.REMOTE_FAILED
            return [DomainEnded(response.id, response.result, response, in_doubt)]
        return [SendDomainRecord(pending.peer, replace(response, path=response.path[1:]))]

    def _sent_to(self, src: Identity, number: int, peer: Identity) -> _Pending | None:
        pending = self._pending.get((src, number))
        if pending is None or pending.member != peer:
            self.counters.unexpected += 1
            return None
        return pending

    def _add(self, key: _Key, pending: _Pending) -> None:
        self._pending[key] = pending
        member = pending.member
        if member is not None:
            self._under_way[member] = self._under_way.get(member, 0) + 1
        if pending.peer is None:
            self._size += len(pending.request.body)
            return
        # This node sends it to one member, and has just done so or serves it.
        pending.request = replace(pending.request, body=b"")
        self._of_peer[pending.peer] = self._of_peer.get(pending.peer, 0) + 1

    def _pop(self, key: _Key) -> _Pending:
        pending = self._pending.pop(key)
        if pending.member is not None:
            _count_off(self._under_way, pending.member)
        if pending.peer is None:
            self._size -= len(pending.request.body)
        else:
            _count_off(self._of_peer, pending.peer)
        return pending

    def _remember(self, key: _Key) -> None:
        self._remembered[key] = None
        if len(self._remembered) > self._limits.remembered:
            self._remembered.popitem(last=False)
            self.counters.forgotten += 1


def _count_off(counts: dict[Identity, int], node: Identity) -> None:
    left = counts.pop(node) - 1
    if left:
        counts[node] = left


def _way_back(request: DomainRequest) -> tuple[Identity, ...]:
    """Return the path of the response to a request."""
    return tuple(reversed(request.path))
