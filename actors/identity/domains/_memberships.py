"""The membership of domains: adverts of those that are founded here, and requests to join.

The key of a domain is at one node, which signs the list of its members: a newer advert each time.
It is told to all nodes that there are links to; and by each member that serves the domain to those
that it has links to, once for each version. So members learn of each other without a look-up.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from inspect import isawaitable
from typing import TYPE_CHECKING, Final, TypeAlias

from ....protocol import LinkLost, OnwardError
from ....protocol.identity import (
    MAX_DOMAIN_NODES,
    MAX_SKEW,
    AdvertEnvelope,
    AdvertResponse,
    AdvertSource,
    BadRecord,
    ControlContent,
    DomainAdvert,
    DomainJoined,
    DomainJoining,
    Identity,
    JoinRequest,
    JoinResponse,
    PutOutcome,
    ResultCode,
    SigningKey,
    open_join_request,
    open_join_response,
    read_advert,
    serialize_control,
    serialize_domain_record,
    short_text,
    sign_advert,
    sign_join_request,
    sign_join_response,
)
from ..._errors import LimitReached
from ..links._session import MAX_WAITING

if TYPE_CHECKING:
    from .._router import Router

__all__ = ["Admit", "Memberships", "admit_none"]

_logger: Final = logging.getLogger("onward.actors.identity")

Admit: TypeAlias = Callable[[JoinRequest], bool | Awaitable[bool]]
"""Decides whether a node that asks to join a domain is let in. It runs on the node's loop; if it
raises, the exception is logged and the node is not let in. A coroutine is cancelled after 25
seconds, and the node gets `TIMEOUT`."""

_MAX_FOUNDED: Final = 1024
"""Most domains that are founded at a node. Beyond: a further one raises `LimitReached`."""
_MAX_JOINING: Final = 64
"""Most requests to join that a node has under way. Beyond: a further one raises `LimitReached`."""
_MAX_DECISIONS: Final = 64
"""Most requests to join that are decided at a time, one of each node. Beyond: `OVERFLOW`."""
_MAX_ASKERS: Final = 4096
"""Most nodes with a time of their last request to join that is remembered. Beyond: the oldest is
forgotten; what comes again of it is of the same node, as its link proves that."""
_JOIN_TIME: Final = 30.0
"""Time that a node waits for the answer to a request to join, in seconds."""
_DECISION_TIME: Final = 25.0
"""Time in which it is decided about a request to join, in seconds. Then the decision is cancelled,
and the answer is `TIMEOUT`, while the node that asks still waits for it. A decision that goes on
after it was cancelled keeps its place, so that there are never more than `_MAX_DECISIONS`."""


def admit_none(_: JoinRequest) -> bool:
    """Return false: no node is let in."""
    return False


@dataclass(slots=True)
class _Founded:
    """A domain with its key at this node."""

    key: SigningKey
    nodes: tuple[Identity, ...]
    version: int
    admit: Admit


class Memberships:
    """The membership of domains, as a node has a part in it.

    Args:
        router: The router.
        key: The key of the node.
        serves: Returns the domains that the node serves.
    """

    __slots__ = (
        "_asked",
        "_deciding",
        "_founded",
        "_joining",
        "_key",
        "_last",
        "_router",
        "_serves",
        "_told",
    )

    def __init__(
        self, router: Router, key: SigningKey, serves: Callable[[], tuple[Identity, ...]]
    ) -> None:
        self._router: Final = router
        self._key: Final = key
        self._serves: Final = serves
        self._founded: Final[dict[Identity, _Founded]] = {}
        # The version of each domain that all nodes with links were told; those of the domains that
        # are founded or served here alone.
        self._told: Final[dict[Identity, int]] = {}
        # Of this node, by the domain and the time, with the node that is asked.
        self._joining: Final[
            dict[tuple[Identity, int], tuple[Identity, asyncio.Future[ResultCode]]]
        ] = {}
        self._last = -1
        # The time of the last request of each node, and the decisions under way.
        self._asked: Final[OrderedDict[Identity, int]] = OrderedDict()
        self._deciding: Final[dict[Identity, asyncio.Task[None]]] = {}

    # --- domains with their key here ----------------------------------------------------------

    def found(self, key: SigningKey, nodes: tuple[Identity, ...] | None, admit: Admit) -> None:
        """Sign the members of a domain, in the place of those before, and tell them to all nodes.

        Args:
            key: The key of the domain.
            nodes: The members; `None`: those that are known, or this node.
            admit: Decides about requests to join.

        Raises:
            LimitReached: There are more members than a domain may have, or more domains than are
                founded at one node.
            ValueError: The directory refuses the advert, as the domain is banned.
        """
        domain = key.identity
        if nodes is None:
            known = self._known(domain)
            nodes = (self._router.own,) if known is None else known[0].nodes
        if len(nodes) > MAX_DOMAIN_NODES:
            raise LimitReached("nodes of a domain", MAX_DOMAIN_NODES)
        if domain not in self._founded and len(self._founded) >= _MAX_FOUNDED:
            raise LimitReached("domains that are founded", _MAX_FOUNDED)
        before = self._founded.get(domain)
        version = -1 if before is None else before.version
        self._publish(_Founded(key, nodes, version, admit))

    def _publish(self, founded: _Founded) -> None:
        """Sign the next advert of a domain, and tell it to all nodes that there are links to."""
        router, domain = self._router, founded.key.identity
        now = router.milliseconds()
        known = self._known(domain)
        last = founded.version if known is None else max(founded.version, known[0].version)
        # The version is the time in seconds, so that it grows over a restart as well.
        founded.version = max(now // 1000, last + 1)
        advert = DomainAdvert(domain, founded.nodes, founded.version, now)
        outcome = router.directory.put(sign_advert(advert, founded.key), AdvertSource.LOCAL)
        if outcome not in {PutOutcome.STORED, PutOutcome.REPLACED}:
            raise ValueError(f"the directory refuses the advert: {outcome.value}")
        self._founded[domain] = founded
        self.tell(domain)

    def clock_set(self) -> None:
        """Sign the adverts of the domains that are founded here anew, as the clock was set."""
        self._last = 0
        for founded in tuple(self._founded.values()):
            with suppress(ValueError):  # it is banned meanwhile
                self._publish(founded)

    def _known(self, domain: Identity) -> tuple[DomainAdvert, AdvertEnvelope] | None:
        """Return the newest advert of a domain that is known."""
        record = self._router.directory.peek(domain)
        if record is None or record.advert is None or record.is_banned:
            return None
        advert = read_advert(record.advert).advert
        return (advert, record.advert) if isinstance(advert, DomainAdvert) else None

    # --- to tell ------------------------------------------------------------------------------

    def tell(self, domain: Identity) -> None:
        """Send all nodes the advert of a domain of this node, if they were not sent it yet."""
        if domain not in self._founded and domain not in self._serves():
            self._told.pop(domain, None)
            return
        known = self._known(domain)
        if known is None or known[0].version <= self._told.get(domain, -1):
            return
        self._told[domain] = known[0].version
        for session in tuple(self._router.peers.sessions.values()):
            if session.is_greeted:
                self._send_advert(session.node, *known)

    def node_joined(self, node: Identity) -> None:
        """Send a node the adverts of the domains of this node."""
        for domain in dict.fromkeys((*self._founded, *self._serves())):
            known = self._known(domain)
            if known is not None:
                self._send_advert(node, *known)

    def _send_advert(self, node: Identity, advert: DomainAdvert, envelope: AdvertEnvelope) -> None:
        response = AdvertResponse(advert.identity, (envelope,))
        content = ControlContent(serialize_control(response))
        # If it is not handed over, the session has ended, and the next one begins with it.
        self._router.outgoing.say(node, content)

    # --- to join ------------------------------------------------------------------------------

    async def join(self, domain: Identity, via: Identity, auth: bytes | None) -> ResultCode:
        """Ask to join a domain, at a node that has its key.

        Args:
            domain: The domain.
            via: The node; there has to be a link to it.
            auth: What is shown to be let in.

        Returns:
            `OK`, or why not: `EXISTS` if this node is a member, `DENIED`, `OVERFLOW`, `UNKNOWN` if
            the other node does not have the key, and `TIMEOUT` if it has not decided in time, or
            has not answered.

        Raises:
            LinkDown: There is no link to the node.
            LinkLost: The link has ended meanwhile.
            LimitReached: There are too many requests to join under way.
            BadRecord: There is more to be shown than may be.
        """
        if len(self._joining) >= _MAX_JOINING:
            raise LimitReached("requests to join", _MAX_JOINING)
        # The other node takes none that is not newer than the one before.
        router, created = self._router, max(self._router.milliseconds(), self._last + 1)
        self._last = created
        request = JoinRequest(router.own, domain, auth, created)
        record = DomainJoining(sign_join_request(request, self._key))
        answer: asyncio.Future[ResultCode] = asyncio.get_running_loop().create_future()
        self._joining[domain, created] = via, answer
        try:
            content = ControlContent(serialize_domain_record(record))
            router.outgoing.tell(via, content, lambda error: _fail(answer, error))
            async with asyncio.timeout(_JOIN_TIME):
                return await answer
        except TimeoutError:
            return ResultCode.TIMEOUT
        finally:
            del self._joining[domain, created]

    def receive_joined(self, node: Identity, record: DomainJoined) -> None:
        """Receive the answer to a request to join."""
        counts = self._router.counts
        try:
            response = open_join_response(record.envelope, self._router.verifiers)
        except BadRecord:
            counts["records that cannot be read"] += 1
            return
        if response is None:
            counts["answers to requests to join with a wrong signature"] += 1
            return
        asked = self._joining.get((response.domain, response.created))
        # The domain alone lets in; a node without its key says so.
        may = response.approver == response.domain or (
            response.approver == node and response.result is not ResultCode.OK
        )
        if asked is None or asked[0] != node or response.requestor != self._router.own or not may:
            counts["answers to no request to join"] += 1
        elif not asked[1].done():
            asked[1].set_result(response.result)

    # --- to let in ----------------------------------------------------------------------------

    def receive_joining(self, node: Identity, record: DomainJoining) -> None:
        """Receive a request to join of the node at the other end of a link."""
        router = self._router
        try:
            request = open_join_request(record.envelope, router.verifiers)
        except BadRecord:
            router.counts["records that cannot be read"] += 1
            return
        if request is None:
            router.counts["requests to join with a wrong signature"] += 1
        elif request.requestor != node:
            router.counts["requests to join of another node"] += 1
        elif abs(request.created - router.milliseconds()) > MAX_SKEW:
            router.counts["requests to join that are not fresh"] += 1
        elif request.created <= self._asked.get(node, -1):
            router.counts["requests to join that came before"] += 1
        else:
            self._asked[node] = request.created
            self._asked.move_to_end(node)
            if len(self._asked) > _MAX_ASKERS:
                self._asked.popitem(last=False)
            self._decide(request)

    def _decide(self, request: JoinRequest) -> None:
        founded, node = self._founded.get(request.domain), request.requestor
        if founded is None or self._router.table.is_banned(request.domain):
            self._respond(request, ResultCode.UNKNOWN)
            return
        refusal = _refusal(founded, node)
        if refusal is None and (node in self._deciding or len(self._deciding) >= _MAX_DECISIONS):
            refusal = ResultCode.OVERFLOW
        if refusal is not None:
            self._respond(request, refusal)
            return
        task = asyncio.get_running_loop().create_task(self._ask(founded, request))
        self._deciding[node] = task
        task.add_done_callback(lambda _: self._deciding.pop(node, None))

    async def _ask(self, founded: _Founded, request: JoinRequest) -> None:
        """Ask whether a node is let in, and let it in or not."""
        lets_in, limit = False, asyncio.timeout(_DECISION_TIME)
        try:
            async with limit:
                answer = founded.admit(request)
                lets_in = await answer if isawaitable(answer) else answer
        except (Exception, asyncio.CancelledError) as error:
            task = asyncio.current_task()
            if isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling():
                raise  # the node ends
            if not (limit.expired() and isinstance(error, TimeoutError)):
                self._router.counts["decisions about requests to join that have failed"] += 1
                _logger.exception(
                    "the decision about a request to join failed",
                    extra={"event": "identity.admit_failed"},
                )
        if limit.expired():
            self._router.counts["decisions about requests to join that took too long"] += 1
            self._respond(request, ResultCode.TIMEOUT)
            return
        is_banned = self._router.table.is_banned
        if lets_in is not True or is_banned(request.requestor) or is_banned(request.domain):
            self._respond(request, ResultCode.DENIED)
            return
        # It may have been founded anew while it was decided.
        founded = self._founded.get(request.domain, founded)
        refusal = _refusal(founded, request.requestor)
        if refusal is None:
            try:
                self._publish(replace(founded, nodes=(*founded.nodes, request.requestor)))
            except ValueError:
                refusal = ResultCode.DENIED  # the directory has just banned the domain
        self._respond(request, ResultCode.OK if refusal is None else refusal)

    def _respond(self, request: JoinRequest, result: ResultCode) -> None:
        founded = self._founded.get(request.domain)
        key, epoch = self._key, None
        if founded is not None:
            key, epoch = founded.key, founded.version
        response = JoinResponse(
            key.identity, request.requestor, request.domain, request.created, epoch, result
        )
        record = DomainJoined(sign_join_response(response, key))
        content = ControlContent(serialize_domain_record(record))
        session = self._router.peers.sessions.get(request.requestor)
        if session is None or len(session.waiting) >= MAX_WAITING:
            self._not_answered()  # the other node may ask on and on, and take no answer
            return
        self._router.outgoing.tell(request.requestor, content, self._not_answered)

    def _not_answered(self, _: OnwardError | None = None) -> None:
        self._router.counts["answers of domains that were not handed over"] += 1

    # --- events -------------------------------------------------------------------------------

    def node_lost(self, node: Identity) -> None:
        """End the requests to join that were sent to a node."""
        for via, answer in self._joining.values():
            if via == node:
                _fail(answer, LinkLost(short_text(node), "the link between the nodes has ended"))

    def close(self) -> None:
        """End the decisions that are under way."""
        for task in tuple(self._deciding.values()):
            task.cancel()


def _refusal(founded: _Founded, node: Identity) -> ResultCode | None:
    """Return why a node cannot be one more member of a domain; `None` if it can."""
    if node in founded.nodes:
        return ResultCode.EXISTS
    return ResultCode.OVERFLOW if len(founded.nodes) >= MAX_DOMAIN_NODES else None


def _fail(answer: asyncio.Future[ResultCode], error: OnwardError) -> None:
    if not answer.done():
        answer.set_exception(error)
