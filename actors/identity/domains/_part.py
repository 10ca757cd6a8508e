"""Domains: what is sent to one of the members of a domain, and what a member answers.

A message to a domain goes to a member as a request, and at most one answer comes back by the same
way. What has been handed over is not sent again: it ends with its answer, or in doubt.

The source of a request is said by the nodes that have passed it, and is proven by none of them but
the last one. So the worker of a member sees the node at the other end of the link, which has proven
its key, and no other.
"""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, cast

from ....protocol import (
    Address,
    LinkDown,
    Message,
    OnwardError,
    PayloadTooBig,
)
from ....protocol.identity import (
    MAX_BODY,
    MAX_SKEW,
    BadRecord,
    ControlContent,
    DestinationKind,
    DomainAction,
    DomainCounters,
    DomainEnded,
    DomainJoined,
    DomainJoining,
    DomainRecord,
    DomainRefusal,
    DomainRequest,
    DomainRequests,
    DomainResponse,
    Identity,
    LookUp,
    P2PContent,
    Refuse,
    ResultCode,
    SendDomainRecord,
    ServeDomainRequest,
    SigningKey,
    Target,
    parse_domain_record,
    serialize_domain_record,
)
from ....protocol.ockam import encode_message
from ..._errors import Unresolved
from ..._worker import Worker
from ...routing._pending import Pending
from ...runtime._timer import Timer
from .._carriage import ENGINE, Carriage, reply_address
from .._outgoing import ONWARD, Undelivered
from .._router_part import RouterPart
from ..links._session import MAX_WAITING
from ._members import DomainMembers
from ._memberships import Memberships
from ._messages import AskedDomain, AskedDomains, message_of
from ._served_domains import ServedDomains

if TYPE_CHECKING:
    from .._engines import Engine
    from .._options import IdentityOptions
    from .._router import Router
    from ..links._session import Session

__all__ = ["DomainStatistics", "DomainsPart"]

_TICK: Final = 100
"""Time by which a request may end late, in milliseconds: the timer looks at all of them."""
_BITS: Final = 62
"""Bits of a random number. As the number of a request it is not guessed by other nodes, which could
use it before this one does."""


@dataclass(frozen=True, slots=True)
class DomainStatistics:
    """The domains of a node at one moment.

    Attributes:
        known: Domains with members that are known.
        evicted: Domains that were let go for others.
        served: Domains that workers of the node serve.
        pending: Requests of this node and of others that wait for a response.
        unanswered: Those of them that a worker of this node is to answer.
        counters: What came of requests since the start.
    """

    known: int
    evicted: int
    served: int
    pending: int
    unanswered: int
    counters: DomainCounters


class DomainsPart(RouterPart):
    """The domains of a router.

    Args:
        worker: The worker of the router.
        router: The router.
        key: The key of the node.
        options: The options.

    Attributes:
        random: Returns a random number, for the choice of members and the numbers of requests.
        served: The domains that workers of this node serve.
        members: The members of domains.
        requests: The requests.
        memberships: The membership of domains, where this node has a part in it.
    """

    kinds = (DestinationKind.DOMAIN,)
    controls = range(48, 64)

    def __init__(
        self, worker: Worker, router: Router, key: SigningKey, options: IdentityOptions
    ) -> None:
        self.random: Callable[[], int] = lambda: secrets.randbits(_BITS)
        self.served: Final = ServedDomains(worker.node, self._worker_ended)
        self.members: Final = DomainMembers(router, self._draw, options.max_parked)
        self.requests: Final = DomainRequests(router.own, self.members.table)
        self.memberships: Final = Memberships(router, key, self.served.identities)
        self.members.on_advert = self.memberships.tell
        self._worker: Final = worker
        self._router: Final = router
        self._asked: Final = AskedDomains(router, self._draw)
        self._timer: Timer | None = None
        self._due = 0

    def _draw(self) -> int:
        return self.random()

    # --- out of the node ----------------------------------------------------------------------

    def resolve(self, message: Message, target: Target) -> Message | Pending | None:
        """Resolve the address of a domain, for any one of its members."""
        router, to, domain = self._router, message[0][0], target.destination.identity
        self.members.learn(domain)
        own = router.own_of(message[3])
        decision = router.decide(target.destination, target.scope, own)
        if isinstance(decision, Refuse):
            raise Unresolved(to, f"the router refuses it: {decision.reason.value}")
        if domain not in self.served:
            if isinstance(decision, LookUp):
                return router.awaited.park(decision.destination.identity, message, target)
            pending = self.members.without_link(domain, message, target)
            if pending is not None:
                return pending
        _, link = router.links.get((own, domain))
        carriage = Carriage(DestinationKind.DOMAIN, (), target.rprefs, target.tprefs)
        return message.redirect(link, carriage.address)

    def carry(
        self,
        own: Identity,
        to: Identity,
        message: Message,
        carriage: Carriage,
        undelivered: Undelivered,
    ) -> Awaitable[None] | None:
        """Send a message to a member of a domain, as a request."""
        if not message[0]:
            message = message._replace(onward_route=(ENGINE,))
        body = encode_message(message)
        if len(body) > MAX_BODY:
            undelivered(message, PayloadTooBig(len(body), MAX_BODY))
            return None
        number = self._asked.add(AskedDomain(own, to, message, undelivered))
        expiry = self._router.outgoing.expiry(message)
        actions = self.requests.send(to, number, expiry, ONWARD, body, self.random())
        self._arm(expiry)
        return self._act(actions)

    def answer(
        self, token: bytes, message: Message, undelivered: Undelivered
    ) -> Awaitable[None] | None:
        """Send the answer of a worker to a request."""
        body = encode_message(message)
        request = self.served.take(token)
        if request is None:
            detail = "the request has been answered, or has ended"
            undelivered(message, LinkDown("a domain", detail))
            return None
        if len(body) > MAX_BODY:
            undelivered(message, PayloadTooBig(len(body), MAX_BODY))
            return self._answer(request, ResultCode.REMOTE_FAILED)
        return self._answer(request, ResultCode.OK, body)

    def _answer(
        self, request: DomainRequest, result: ResultCode, body: bytes = b""
    ) -> Awaitable[None] | None:
        return self._act(self.requests.answer(request, result, ONWARD, body))

    # --- what the state machine says ----------------------------------------------------------

    def _act(self, actions: list[DomainAction]) -> Awaitable[None] | None:
        waits: Awaitable[None] | None = None
        for action in actions:
            match action:
                case SendDomainRecord(node, record):
                    waits = self._send(node, record) or waits
                case ServeDomainRequest(request):
                    self._serve(request)
                case DomainEnded():
                    self._asked.end(action)
        return waits

    def _send(
        self, node: Identity, record: DomainRequest | DomainResponse | DomainRefusal
    ) -> Awaitable[None] | None:
        router = self._router
        session = router.peers.sessions.get(node)
        is_full = session is None or len(session.waiting) >= MAX_WAITING
        if isinstance(record, DomainRequest):
            request = record
            if is_full and request.src != router.own:
                self._not_sent(request)  # the node that asks does not wait for room here
                return None
            content = ControlContent(serialize_domain_record(request))

            def failed(_: OnwardError) -> None:
                self._not_sent(request)

            return router.outgoing.tell(node, content, failed, request.expiry)
        if is_full:
            self._not_answered()  # the other node may ask on and on, and take no answer
            return None
        content = ControlContent(serialize_domain_record(record))
        return router.outgoing.tell(node, content, self._not_answered)

    def _not_answered(self, _: OnwardError | None = None) -> None:
        self._router.counts["answers of domains that were not handed over"] += 1

    def _not_sent(
        self, request: DomainRequest, result: ResultCode = ResultCode.REMOTE_FAILED
    ) -> None:
        self._act(self.requests.not_sent(request, self.random(), result))

    def _serve(self, request: DomainRequest) -> None:
        """Give a request to the worker that serves the domain."""
        served = self.served.get(request.domain)
        inner = None if served is None else message_of(request, served, self._router.counts)
        if inner is None:
            self._not_sent(request, ResultCode.DENIED)
            return
        back = inner[1]
        link, _ = self._router.links.get((request.domain, request.path[-1]), request.path[-1])
        if back:
            back = reply_address(DestinationKind.DOMAIN, self.served.expect(request)), *back
        link.receive(inner._replace(return_route=back))
        if not back:
            self._answer(request, ResultCode.OK)

    # --- into the node ------------------------------------------------------------------------

    def receive(self, session: Session, content: P2PContent) -> None:
        """Receive a control record about domains."""
        try:
            record = parse_domain_record(cast("ControlContent", content).record)
        except BadRecord:
            self._router.counts["records that cannot be read"] += 1
            return
        self._receive(session.node, record)

    def _receive(self, peer: Identity, record: DomainRecord) -> None:
        requests = self.requests
        match record:
            case DomainRequest():
                self._receive_request(peer, record)
            case DomainResponse():
                self._act(requests.receive_response(record, peer))
            case DomainRefusal():
                self._act(requests.receive_refusal(record, peer, self.random()))
            case DomainJoining():
                self.memberships.receive_joining(peer, record)
            case DomainJoined():
                self.memberships.receive_joined(peer, record)

    def _receive_request(self, peer: Identity, request: DomainRequest) -> None:
        refusal = self._refusal(request)
        if refusal is not None and request.path[-1] == peer:
            reason, result = refusal
            self._router.counts[f"requests to a domain that are refused: {reason}"] += 1
            self._send(peer, DomainRefusal(request.src, request.id, result))
            return
        before, now = len(self.requests), self._router.milliseconds()
        self._act(self.requests.receive_request(request, peer, now, self.random()))
        if len(self.requests) > before:
            self._arm(request.expiry + MAX_SKEW)

    def _refusal(self, request: DomainRequest) -> tuple[str, ResultCode] | None:
        """Return why a request of another node is refused here, and what it is told."""
        router = self._router
        if any(map(router.table.is_banned, (request.domain, *request.path))):
            return "banned", ResultCode.DENIED
        if request.domain in self.served:
            return None
        self.members.learn(request.domain)
        # A node passes on for those domains alone that it is in.
        if not self.members.has(request.domain, router.own):
            return "not a member", ResultCode.UNKNOWN
        return None

    # --- domains that are served --------------------------------------------------------------

    def serve(self, domain: Identity, worker: Address, expose: frozenset[Address]) -> None:
        """Serve a domain by a worker of this node, in the place of the one before.

        Raises:
            UnknownAddress: There is no such worker.
            LimitReached: There are as many domains as there may be.
        """
        self.served.add(domain, worker, expose)
        self._end_served(domain)
        self._router.links.end_of(domain)  # what they expose has changed
        self.requests.serve(domain)
        self.members.resume(domain)
        self.memberships.tell(domain)

    def stop(self, domain: Identity) -> bool:
        """Serve a domain no more; return whether it was served.

        What its worker has in hand is answered all the same.
        """
        self.requests.stop(domain)
        return self.served.remove(domain)

    def _worker_ended(self, domain: Identity) -> None:
        self.stop(domain)
        self._end_served(domain)

    def _end_served(self, domain: Identity) -> None:
        """End what a worker has in hand, in doubt."""
        for request in self.served.take_all(domain):
            self._answer(request, ResultCode.REMOTE_FAILED)

    # --- events -------------------------------------------------------------------------------

    def node_joined(self, node: Identity) -> None:
        """Prefer a node from now on, and send it what waits for a member."""
        self.requests.open_link(node)
        self.members.node_joined(node)
        self.memberships.node_joined(node)

    def node_lost(self, node: Identity) -> None:
        """End the requests that were sent to a node, in doubt."""
        self.members.node_lost(node)
        self._act(self.requests.close_link(node))
        self.memberships.node_lost(node)

    def clock_set(self, *, back: bool) -> None:
        """Sign the adverts of the domains that are founded here anew."""
        self.memberships.clock_set()

    def needs(self, node: Identity) -> bool:
        """Whether a request to a domain waits for a response of a node, or of this one to it."""
        return self.requests.is_waiting(node)

    def engine_ended(self, engine: Engine) -> None:
        """Refuse what an engine that has ended has sent, and is waiting."""
        self.members.engine_ended(engine.identity)

    def banned(self, identity: Identity) -> None:
        """End the requests of an identity that is banned, and to it."""
        self.members.table.remove(identity)
        self.served.forget(identity)
        self._act(self.requests.end(identity))

    def statistics(self) -> DomainStatistics:
        """Return the domains at this moment."""
        table, served, requests = self.members.table, self.served, self.requests
        return DomainStatistics(
            known=len(table),
            evicted=table.evicted,
            served=len(served),
            pending=len(requests),
            unanswered=served.waiting,
            counters=replace(requests.counters),
        )

    # --- time ---------------------------------------------------------------------------------

    def _arm(self, expiry: int) -> None:
        """Look at the requests when one that has just come is over."""
        if self._timer is None or expiry < self._due:
            self._set_timer(expiry)

    def _set_timer(self, due: int) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._due = -(-due // _TICK) * _TICK
        seconds = max(0, self._due - self._router.milliseconds()) / 1000
        self._timer = self._worker.after(seconds, self._late)

    def _late(self) -> None:
        self._timer = None
        now = self._router.milliseconds()
        self._act(self.requests.handle_timer(now))
        self.served.expire(now)
        due = self.requests.get_timer()
        if due is not None:
            self._arm(max(due, now + 1))

    def close(self) -> None:
        """End the watches of workers, and the messages that are under way, in doubt."""
        self.served.close()
        self.members.close()
        self.memberships.close()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._asked.close()
