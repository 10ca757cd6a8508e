"""The copies of messages on their way: to consumers of this node, and to other dispatchers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias

from ...protocol import DELIVERY, Address, InDoubt, Message, OnwardError, Route
from ...protocol.dispatch import (
    ACCEPTED,
    MODIFIED,
    RELEASED,
    BadTransit,
    Delivery,
    DeliveryState,
    LinkTarget,
    Name,
    Outcome,
    Tally,
    Target,
    Transit,
    encode_transit,
    ended_address,
    milliseconds,
    next_wait,
    node_digest,
    return_address,
)
from ._arrival import PLAIN, Arrival, CopyPath
from ._consumer_record import ConsumerRecord
from ._name_state import NameState
from ._traced import TracedPaths

if TYPE_CHECKING:
    from ._core import DispatchCore

__all__ = ["Copies"]

_ByLink: TypeAlias = "dict[str, dict[bytes, NameState]]"


class Copies:
    """The copies that have no outcome yet, and the sender of copies.

    Args:
        core: The dispatcher.

    Attributes:
        tokens: The name and the target of each copy that has no outcome yet.
        upstream: The names of the unsettled deliveries of neighbours, by link, then by token.
        downstream: The names of the unsettled copies at neighbours, in the same way.
        traced: The paths for reports about marked messages.
    """

    def __init__(self, core: DispatchCore) -> None:
        self._core: Final = core
        self._digest: Final = node_digest(core.own)
        self.tokens: Final[dict[bytes, tuple[NameState, Target]]] = {}
        self.upstream: Final[_ByLink] = {}
        self.downstream: Final[_ByLink] = {}
        self.traced: Final = TracedPaths(core.node.parts.router.dispatch)

    # --- to consumers -----------------------------------------------------------------------

    def deliver(self, record: ConsumerRecord, arrival: Arrival, token: bytes | None) -> None:
        """Send a message to a consumer.

        Raises:
            DeliveryError: It was certainly not handed over.
        """
        if record.local is not None:
            self._copy_to(record.local, arrival, token)
            return
        if record.deliver is not None:
            record.deliver(arrival.message, token)
            return
        self._send(record.route, arrival.message, self._back(arrival, token, remote=record.remote))

    def send_along(
        self, route: Route, arrival: Arrival, token: bytes | None, *, remote: bool
    ) -> None:
        """Send a message along the route of a redirect, which this node has chosen.

        Args:
            route: The route.
            arrival: The message.
            token: The token of its copy; `None` if it is pre-settled.
            remote: Whether the first address of the route is a link.

        Raises:
            DeliveryError: It was certainly not handed over.
        """
        message = arrival.message._replace(source=None)
        self._send(route, message, self._back(arrival, token, remote=remote))

    def is_remote(self, address: Address) -> bool:
        """Whether an address is that of a link."""
        cell = self._core.node.parts.table.cell_at(address)
        return cell is not None and cell.worker.leaves_node

    def _send(self, route: Route, message: Message, back: Route) -> None:
        onward, _, payload, source, context = message
        self._core.node.parts.router.dispatch(
            Message((*route, *onward), back, payload, source, context)
        )

    def _back(self, arrival: Arrival, token: bytes | None, *, remote: bool) -> Route:
        if token is None:
            return ()
        self.traced.note(token, arrival)
        end = Address(DELIVERY, return_address(token))
        # A link remembers return routes that begin with a worker only.
        return (self._core.address, end) if remote else (end,)

    def _copy_to(self, name: Name, arrival: Arrival, token: bytes | None) -> None:
        """Give a copy of a message to a name of this node, in a later turn."""
        core = self._core
        copy = Arrival(
            arrival.message,
            token is None,
            core.identity(),
            PLAIN,
            None if token is None else CopyPath(token),
            until=arrival.until,
            deadline=core.now() + core.options.outcome_timeout,
            leg=True,
        )
        core.schedule.soon(lambda: core.bind(name, copy))

    def copied(self, token: bytes, outcome: Outcome, answer: Message | None) -> None:
        """Receive the outcome of such a copy."""
        if answer is not None:
            self.answer_of(token, answer)
        self.disposition(token, outcome, None)

    # --- to other dispatchers ---------------------------------------------------------------

    def send_on(
        self,
        name: Name,
        delivery: Delivery[Arrival],
        link: str,
        token: bytes | None,
    ) -> bool:
        """Send a copy to the next node; return whether it went."""
        core = self._core
        arrival, limit = delivery.message, delivery.limit
        address = core.topology.links.get(link)
        if address is None or not core.topology.network.is_joined(link):
            return False
        onward, _, payload, _, context = arrival.message
        now = core.now()
        ttl = 0 if arrival.until is None else milliseconds(arrival.until - now)
        wait = 0 if limit is None or token is None else next_wait(limit - now)
        path = (*arrival.path, self._digest)
        try:
            transit = encode_transit(
                Transit(
                    name.text,
                    *delivery.identity,
                    settled=token is None,
                    redirected=delivery.redirected,
                    ttl=ttl,
                    wait=wait,
                    path=path,
                )
            )
            to = (address, core.address, Address(DELIVERY, transit), *onward)
            back: Route = ()
            if token is not None:
                self.traced.note(token, arrival)
                back = (core.address, Address(DELIVERY, return_address(token)))
            core.bundles.flush()  # those in front of it go first
            core.node.parts.router.dispatch(Message(to, back, payload, None, context))
        except (BadTransit, OnwardError):
            core.counts["copies that a link did not take"] += 1
            return False
        return True

    def tell_end(self, link: str, token: bytes, *, settled: bool) -> None:
        """Report to a next node that the outcome of a copy is not waited for any more."""
        core = self._core
        address = core.topology.links.get(link)
        if address is None:
            return
        end = Address(DELIVERY, ended_address(token, settled=settled))
        try:
            core.bundles.flush()  # the message itself may be in one
            message = Message((address, core.address, end), (), b"", None, None)
            core.node.parts.router.dispatch(message)
        except OnwardError:
            core.counts["ends that could not be told"] += 1

    # --- from other dispatchers -------------------------------------------------------------

    def source_ended(self, link: str, token: bytes, *, settled: bool) -> None:
        """Receive word of the node before this one that it waits for an outcome no more."""
        state = self.returned(link, token)
        if state is not None:
            state.source_ended(link, token, settled=settled)
            self._core.names.tidy(state)

    def came(self, link: str, token: bytes, state: NameState, *, anew: bool) -> bool:
        """Keep the name of an unsettled delivery of a neighbour.

        Args:
            link: The link.
            token: The token of the neighbour.
            state: The name.
            anew: Whether it has just come, and was not redirected.

        Returns:
            Whether it is kept: another one that has the token is.
        """
        of_link = self.upstream.setdefault(link, {})
        if anew and token in of_link:
            return False
        of_link[token] = state
        return True

    def is_of_another(self, link: str, token: bytes, name: Name) -> bool:
        """Whether a token of a neighbour is that of a message to another name."""
        state = self.upstream.get(link, {}).get(token)
        return state is not None and state.name.text != name.text

    def returned(self, link: str, token: bytes) -> NameState | None:
        """Forget such a delivery, which has its outcome; return its name."""
        return _taken(self.upstream, link, token)

    def lost(self, link: str) -> list[NameState]:
        """Return the names that have something unsettled on a link that is lost, each once."""
        self._core.fast.link_lost(link)
        found = [table.pop(link, {}) for table in (self.upstream, self.downstream)]
        return list({id(state): state for each in found for state in each.values()}.values())

    # --- outcomes ---------------------------------------------------------------------------

    def disposition(
        self, token: bytes, state: DeliveryState, target: Target | None, tally: Tally | None = None
    ) -> None:
        """Receive the state of a copy.

        Args:
            token: The token.
            state: The state.
            target: The target that tells it; `None` for a worker of this node, which knows the
                token from the message only.
            tally: The outcomes behind a link.
        """
        fast = self._core.fast
        if state == ACCEPTED and target is not None and not tally and fast.accept(token, target):
            return
        fast.promote(token)
        found = self.tokens.get(token)
        if found is None:
            self._core.counts["outcomes that came late or for no delivery"] += 1
            return
        name, at = found
        name.disposition(token, state, at if target is None else target, tally)
        self._core.names.tidy(name)

    def answer_of(self, token: bytes, message: Message) -> None:
        """Keep the reply of a consumer for the producer that waits for it."""
        self._core.fast.promote(token)
        found = self.tokens.get(token)
        arrival = None if found is None else found[0].arrival_of(token)
        if arrival is not None and arrival.answer is None:
            arrival.answer = message

    def answered(self, token: bytes, payload: bytes) -> None:
        """Keep the answer of a handler for the producer that waits for it."""
        self.answer_of(token, Message((), (), payload, None, None))

    def begun(self, token: bytes, state: NameState, target: Target) -> None:
        """Keep the name and the target of a copy."""
        self.tokens[token] = state, target
        if isinstance(target, LinkTarget):
            self.downstream.setdefault(target.link, {})[token] = state

    def ended(self, token: bytes) -> None:
        """Forget a copy that has ended."""
        _, target = self.tokens.pop(token, (None, None))
        if isinstance(target, LinkTarget):
            _taken(self.downstream, target.link, token)

    def failed(self, end: Address, error: OnwardError) -> bool:
        """Receive word that a worker could not handle a delivery; return whether it is one."""
        value = end.value
        if value[:1] == b"b":
            return self._core.bundles.failed(value, error)
        if len(value) != 9 or value[:1] != b"r":
            return False
        token = value[1:]
        if isinstance(error, InDoubt):
            self._core.schedule.soon(lambda: self.disposition(token, MODIFIED, None))
        else:
            self._core.schedule.soon(lambda: self._given_back(token))
        return True

    def _given_back(self, token: bytes) -> None:
        """Receive word that a copy was certainly not handled."""
        if self._core.is_stopping:
            # Another consumer would not be able to tell what becomes of it any more.
            self._core.fast.promote(token)
            state, _ = self.tokens.get(token, (None, None))
            arrival = None if state is None else state.arrival_of(token)
            if state is not None and arrival is not None and not arrival.stored:
                state.stop_unread(token)
                return
        self.disposition(token, RELEASED, None)


def _taken(table: _ByLink, link: str, token: bytes) -> NameState | None:
    """Remove what a link has under a token, and return it."""
    of_link = table.get(link, {})
    state = of_link.pop(token, None)
    if not of_link:
        table.pop(link, None)
    return state
