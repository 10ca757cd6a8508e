"""The circuits of a node, driven over its links to neighbours and for the ends that are here."""

from __future__ import annotations

import hashlib
import secrets
from collections import Counter, deque
from collections.abc import Callable, Hashable, Iterator
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final, TypeAlias

from ...protocol import Message, NotExposed
from ...protocol.dispatch import (
    CIRCUIT_KEY_SIZE,
    CIRCUIT_SOURCE_SIZE,
    TOKEN_SIZE,
    BadName,
    CircuitAttach,
    CircuitCondition,
    CircuitFrameError,
    CircuitOpened,
    CircuitPool,
    CircuitRefused,
    Circuits,
    CircuitSend,
    CircuitSide,
    ConsumerTarget,
    LaterVersion,
    LinkTarget,
    Target,
    node_digest,
    parse_circuit_frame,
    read_token,
    serialize_circuit_frame,
)
from ._access import is_anonymous, may_consume, may_produce, source_of
from ._circuit_container import CircuitContainer
from ._circuit_link import CircuitLink
from ._circuit_sending import CircuitSending, Far
from ._name_state import NameState

if TYPE_CHECKING:
    from ._core import DispatchCore

__all__ = ["CircuitTable"]

_UP, _DOWN = CircuitSide.UPSTREAM, CircuitSide.DOWNSTREAM

_IN_TURN: Final = 256
"""Frames of circuits that are passed on in one turn; what is then left waits for the next one."""

_Side: TypeAlias = "CircuitLink | Far"
"""What is behind a side of a circuit: an end here, or a label on a link to a neighbour."""


class CircuitTable:
    """The circuits of a node. All of it on the node's loop.

    Args:
        core: The dispatcher.

    Attributes:
        circuits: Their states.
        limits: Their limits.
        max_payload: Bytes of a payload that the node sends.
    """

    def __init__(self, core: DispatchCore) -> None:
        self._core: Final = core
        self.limits: Final = core.options.circuits
        self.max_payload: Final = core.node.limits.payload
        self.circuits: Final = Circuits(node_digest(core.own), self.limits)
        self.scheduled: float | None = None
        self._sending: Final = CircuitSending(core, self)
        self._sides: Final[dict[tuple[int, CircuitSide], _Side]] = {}
        self._labels: Final[dict[Far, tuple[int, CircuitSide]]] = {}
        self._placed: Final[dict[int, tuple[NameState, Target]]] = {}
        self._containers: Final[dict[int, CircuitContainer]] = {}
        self._resumable: Final[dict[bytes, CircuitLink]] = {}
        self._links: Final[dict[CircuitLink, None]] = {}
        self._unchecked: dict[CircuitLink, None] = {}  # since rules have changed
        self._work: Final = deque[Callable[[], object]]()
        self._running = False

    @property
    def open_circuits(self) -> int:
        """The number of circuits that this node is a part of."""
        return len(self.circuits)

    def counts(self) -> Counter[str]:
        """Return what was refused, lost or ignored, by its reason."""
        it = self.circuits.statistics()
        made = Counter({f"circuits refused: {each}": count for each, count in it.refused.items()})
        made.update({f"circuits lost: {each}": count for each, count in it.lost.items()})
        made["frames of circuits that are over"] = it.ignored
        made["of a later version"] = it.later
        return made

    # --- for ends ---------------------------------------------------------------------------

    @staticmethod
    def key() -> bytes:
        """Return the key of a circuit, which cannot be guessed."""
        return secrets.token_bytes(CIRCUIT_KEY_SIZE)

    def now(self) -> float:
        """Return the time of the node's loop, in seconds."""
        return self._core.now()

    def fault(self, error: Exception) -> None:
        """Log an error of the code of an end."""
        self._core.fault("an end of a circuit", error)

    def arm(self, link: CircuitLink) -> None:
        """Look at an end again when something of it is due."""
        self._core.schedule.arm(link)

    def soon(self, action: Callable[[], object]) -> None:
        """Perform an action after what is under way."""
        self._work.append(action)

    def add(self, link: CircuitLink) -> None:
        """Keep an end until it is over."""
        self._links[link] = None

    def open(self, link: CircuitLink, data: bytes) -> None:
        """Attach an end of this node, by its frame."""
        frame = parse_circuit_frame(data)
        if isinstance(frame, CircuitAttach):
            source = self._source(link)
            # A program of the node is not authenticated either, and is no connection.
            anonymous = bool(source) and is_anonymous(link.principal)
            frame = replace(frame, source=source, anonymous=anonymous)
            self.soon(partial(self._open, frame, link.client, link))
        self.run()

    def _source(self, link: CircuitLink) -> bytes:
        """Return what the circuits of an end are counted with here and at other nodes."""
        source = source_of(link.principal, link.connection)
        if source is None:
            return b""
        text = repr((self._core.own, source)).encode()
        return hashlib.blake2b(text, digest_size=CIRCUIT_SOURCE_SIZE).digest()

    def put(self, link: CircuitLink, data: bytes) -> None:
        """Pass on a frame of an end of this node."""
        if link.number:
            side = _DOWN if link.container else _UP
            self.soon(partial(self._receive, link.number, side, data, None))

    def check_access(self) -> None:
        """Detach the ends that would be refused now, in slices."""
        under_way = bool(self._unchecked)
        self._unchecked = self._links.copy()
        if self._unchecked and not under_way:
            self._core.slices.begin(self._to_check(), self._check)

    def _to_check(self) -> Iterator[CircuitLink]:
        while self._unchecked:
            yield self._unchecked.popitem()[0]

    def _check(self, link: CircuitLink) -> None:
        semantics = self._core.provisioning.semantics_of(link.name)
        may = may_produce if link.producer else may_consume
        if not (link.container or link.over or may(semantics, link.principal)):
            self.soon(partial(link.detach, condition=CircuitCondition.UNAUTHORIZED))
            self.run()

    def suspend(self, link: CircuitLink) -> None:
        """Keep an end for an attach that resumes its circuit; the oldest ones go beyond a limit."""
        self._resumable.pop(link.key, None)
        self._resumable[link.key] = link
        waiting = [each for each in self._resumable.values() if not each.attached]
        if len(waiting) > self.limits.max_suspended:
            self._core.counts["circuits over max_suspended"] += 1
            waiting[0].detach(condition=CircuitCondition.ROUTE_LOST)

    def forget(self, link: CircuitLink) -> None:
        """Forget an end that is over."""
        self._links.pop(link, None)
        self._core.schedule.forget(link)
        if self._resumable.get(link.key) is link:
            del self._resumable[link.key]

    # --- for containers ---------------------------------------------------------------------

    def add_container(self, container: CircuitContainer) -> None:
        """Add a container."""
        self._containers[container.number] = container

    def remove_container(self, container: CircuitContainer) -> None:
        """Remove a container: its circuits are lost."""
        self._containers.pop(container.number, None)
        self._peer_lost(_container(container.number))
        for link in tuple(self._links):
            if link.container == container.number:
                self.soon(partial(link.lost, for_good=True))
        self.run()

    # --- for neighbours ---------------------------------------------------------------------

    def receive(self, message: Message, value: bytes) -> None:
        """Receive a frame of a neighbour.

        Args:
            message: The message that it came in.
            value: The value of the address with the label of its circuit on that link.

        Raises:
            BadTransit: The value cannot be read.
        """
        far = Far(str(message.source), read_token(value, b"c"))
        known = self._labels.get(far)
        if known is not None:
            self.soon(partial(self._receive, *known, message.payload, message))
        elif self._core.topology.is_joined(message):
            self._attach(far, message)
        else:
            self._core.counts["messages of no neighbour"] += 1
            self._core.node.lose(message, NotExposed(message.onward_route[0]))
            return
        self.run()

    def _attach(self, far: Far, message: Message) -> None:
        try:
            frame = parse_circuit_frame(message.payload)
        except (CircuitFrameError, LaterVersion):
            self._core.counts["frames of circuits that cannot be read"] += 1
            return
        if isinstance(frame, CircuitAttach):
            self.soon(partial(self._open, frame, ("link", far.link), far, message))
        else:
            self._core.counts["frames of circuits that are over"] += 1

    def link_lost(self, link: str) -> None:
        """Receive the loss of a link: its circuits are lost in both directions."""
        self._sending.forget(link)
        self._peer_lost(("link", link))
        self.run()

    def side_lost(self, far: Far, condition: CircuitCondition) -> None:
        """End the circuit of a label, of which its link takes no frame."""
        self.soon(partial(self._side_lost, far, condition))
        self.run()

    def _side_lost(self, far: Far, condition: CircuitCondition) -> None:
        known = self._labels.get(far)
        if known is not None:
            self._perform(self.circuits.side_lost(*known, condition), known[0])

    def _peer_lost(self, peer: Hashable) -> None:
        numbers = self.circuits.of_peer(peer)
        self._perform(self.circuits.link_lost(peer), *numbers)

    def close(self) -> None:
        """End all ends, since the dispatcher stops."""
        self._perform(self.circuits.close())
        for link in tuple(self._links):
            self.soon(partial(link.lost, for_good=True))
        while self._work:
            self.run()

    # --- passing on -------------------------------------------------------------------------

    def run(self) -> None:
        """Perform what is to be done, of many frames a part in a later turn."""
        if self._running:
            return
        self._running = True
        try:
            for _ in range(_IN_TURN):
                if not self._work:
                    break
                try:
                    self._work.popleft()()
                except Exception as error:  # noqa: BLE001 - the others must be performed too
                    self._core.fault("a circuit", error)
        finally:
            self._running = False
        if self._work:
            self._core.schedule.soon(self.run)
        self._core.schedule.arm(self)

    def get_timer(self) -> float | None:
        """Return when `due` has to be called, in seconds."""
        return self.circuits.get_timer()

    def due(self, now: float) -> None:
        """End the circuits with times that are over."""
        self._perform(self.circuits.due(now))
        self.run()

    def _receive(self, number: int, side: CircuitSide, data: bytes, came: Message | None) -> None:
        sends = self.circuits.receive(number, side, data, self.now())
        self._perform(sends, number, came=came, passed=True)

    def _perform(
        self,
        sends: tuple[CircuitSend, ...],
        *numbers: int,
        came: Message | None = None,
        passed: bool = False,
    ) -> None:
        """Send frames to their sides, and forget the circuits that are over."""
        for send in sends:
            to = self._sides.get((send.number, send.side))
            if isinstance(to, CircuitLink):
                self.soon(partial(self._hand, to, send.number, send.data))
            elif to is not None:
                sender = self._sides.get((send.number, send.side.other)) if passed else None
                self._sending.send(to, send.data, _own(sender), came)
        for number in {*numbers, *(each.number for each in sends)}:
            if number not in self.circuits:
                self._over(number)

    @staticmethod
    def _hand(link: CircuitLink, number: int, data: bytes) -> None:
        if link.number == number:
            link.take(data)

    def _over(self, number: int) -> None:
        for side in CircuitSide:
            to = self._sides.pop((number, side), None)
            if isinstance(to, Far):
                self._labels.pop(to, None)
        placed = self._placed.pop(number, None)
        if placed is not None:
            state, target = placed
            state.circuit_ended(target)

    # --- attaching --------------------------------------------------------------------------

    def _open(
        self, attach: CircuitAttach, upstream: Hashable, up: _Side, came: Message | None = None
    ) -> None:
        found = self._place(attach)
        downstream = None if found is None else _peer(found[1])
        pool = None if found is None else self._pool(found[1])
        now, far = self.now(), isinstance(up, Far)
        result = self.circuits.open(attach, upstream, downstream, now, neighbour=far, pool=pool)
        if isinstance(result, CircuitRefused):
            self._refuse(up, result)
        elif found is not None:
            self._begin(attach, result, found, up, came)

    def _begin(
        self,
        attach: CircuitAttach,
        opened: CircuitOpened,
        found: tuple[NameState, Target],
        up: _Side,
        came: Message | None,
    ) -> None:
        """Tie the sides of a circuit, and pass its attach on."""
        state, target = found
        number = opened.number
        self._placed[number] = found
        state.circuit_begun(target)
        self._tie(number, _UP, up)
        if isinstance(target, LinkTarget):
            down = Far(target.link, secrets.token_bytes(TOKEN_SIZE))
            self._tie(number, _DOWN, down)
            self._sending.send(down, opened.attach, _own(up), came)
        else:
            self._offer(self._containers[target.consumer], number, attach)

    def _refuse(self, up: _Side, refused: CircuitRefused) -> None:
        data = serialize_circuit_frame(refused)
        if isinstance(up, CircuitLink):
            up.take(data)
        else:
            self._sending.send(up, data, None, None)

    def _place(self, attach: CircuitAttach) -> tuple[NameState, Target] | None:
        """Return the container, or the link towards one, that a circuit goes to."""
        try:
            state = self._core.names.find(self._core.parse(attach.name))
        except BadName:
            return None
        if state is None:
            return None
        resumed = self._resumed(attach)
        if resumed is not None and resumed.container in self._containers:
            return state, ConsumerTarget(resumed.container)
        target = state.place_circuit(attach.path)
        if target is None:
            self._core.names.tidy(state)
            return None
        return state, target

    def _pool(self, target: Target) -> CircuitPool | None:
        """Return the circuits of which a source has a share, if they are not those of one peer."""
        if isinstance(target, LinkTarget):
            return None
        return self._containers[target.consumer].pool

    def _resumed(self, attach: CircuitAttach) -> CircuitLink | None:
        """Return the end here that has the other half of a circuit that is resumed."""
        link = self._resumable.get(attach.key) if attach.unsettled is not None else None
        return link if link is not None and link.name.text == attach.name else None

    def _tie(self, number: int, side: CircuitSide, to: _Side) -> None:
        self._sides[number, side] = to
        if isinstance(to, Far):
            self._labels[to] = number, side
        else:
            to.number = number

    def _offer(self, container: CircuitContainer, number: int, attach: CircuitAttach) -> None:
        link = self._resumed(attach)
        if link is not None:
            link.lost()  # it may learn of the loss by this
            self._tie(number, _DOWN, link)
            link.resume(number, attach)
            return
        link = container.make(self, attach)
        self._links[link] = None
        self._tie(number, _DOWN, link)
        container.offer(link, attach)


def _own(side: _Side | None) -> CircuitLink | None:
    """Return the end that a side is, if it is one of this node."""
    return side if isinstance(side, CircuitLink) else None


def _container(number: int) -> Hashable:
    return "container", number


def _peer(target: Target) -> Hashable:
    """Return the peer of a circuit that goes to a target."""
    return ("link", target.link) if isinstance(target, LinkTarget) else _container(target.consumer)
