"""The fast path of messages between dispatchers.

Of messages to a name that enter at one node, the transit addresses differ in their id alone. So
what a node does with one it does with the next: it puts the id into the address for the next node,
which it has written before, or hands the message to its consumer. Nothing is kept of a pre-settled
message; an unsettled one has an entry: see `_fast_unsettled.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from ...protocol import DELIVERY, Address, Context, Message, OnwardError, Route
from ...protocol.dispatch import (
    ID_SIZE,
    FastLink,
    FastPath,
    Transit,
    encode_transit,
    milliseconds,
    next_wait,
    node_digest,
)
from ._bundle_parts import id_of
from ._bundle_receiver import BUNDLE_KINDS, BundleReceiver
from ._fast_unsettled import FastUnsettled

if TYPE_CHECKING:
    from ._arrival import Arrival
    from ._bundle_sender import Bundle
    from ._consumer_record import ConsumerRecord
    from ._core import DispatchCore
    from ._fast_path import FastPaths
    from ._name_state import NameState

__all__ = ["FastTransits", "Way"]

MAX_TRANSITS: Final = 4096
"""Most transit addresses of which the way is remembered, without their ids; the oldest is read in
full again."""

_EMPTY: Final = (None, None, None, 0)
"""All of a context but what it is allowed: it says nothing."""
_TRANSIT: Final = b"t"
"""The first byte of a transit address; the others are those of outcomes."""
_NO_WAY: Final = 0, b"", b"-", None

_new: Final = tuple.__new__  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]


class Way(NamedTuple):
    """The way of messages that have all but their id in common.

    Attributes:
        state: Their name.
        plans: The number of its plan: another one may have another way.
        source: The link that they come over; `None` if they enter here.
        link: The link to the next node; `None`: they are for a consumer here.
        head: The transit address for the next node, as far as its id.
        tail: What follows the id.
        to: The link as their target; `None` if they are pre-settled, or for a consumer here.
        settled: Whether they are pre-settled.
        wait: Time for which their outcome is awaited, in seconds; 0 is no limit.
        neighbour: The node that they come from, as the source of a share: its link as text.
        bundle: What waits to be sent their way; `None` if the next node takes no bundles.
    """

    state: NameState
    plans: int
    source: Address | None
    link: Address | None
    head: bytes
    tail: bytes
    to: FastLink | None = None
    settled: bool = True
    wait: float = 0.0
    neighbour: tuple[str, str] = "neighbour", ""
    bundle: Bundle | None = None


class FastTransits:
    """The ways of messages to and from other dispatchers.

    Args:
        core: The dispatcher.
        paths: The fast paths of its names.

    Attributes:
        unsettled: What is known of unsettled messages.
        bundle_receiver: The receiver of bundles.
    """

    def __init__(self, core: DispatchCore, paths: FastPaths) -> None:
        self._core: Final = core
        self._paths: Final = paths
        self._dispatch: Final = core.node.parts.router.dispatch
        self._run_queue: Final = core.node.parts.run_queue
        self._digest: Final = node_digest(core.own)
        self._empty: Context | None = None  # the last one that was seen to say nothing
        self.unsettled: Final = FastUnsettled(core, paths)
        self.bundle_receiver: Final = BundleReceiver(core, paths, self)
        # Of what enters here, by the value of its name: pre-settled messages, and others.
        self._ways: Final[dict[bytes, Way]] = {}
        self._unsettled_ways: Final[dict[bytes, Way]] = {}
        self._transits: Final[dict[bytes, Way]] = {}  # of transit addresses without their id
        self._of_state: Final[dict[NameState, set[bytes]]] = {}  # the keys of those of a name
        # The last one: where its id begins, what is in front of it and behind it, and its way.
        self._last: tuple[int, bytes, bytes, Way | None] = _NO_WAY

    def clear(self) -> None:
        """Forget all ways."""
        self._ways.clear()
        self._unsettled_ways.clear()
        self._transits.clear()
        self._of_state.clear()
        self._last = _NO_WAY

    def forget_way(self, name: bytes) -> None:
        """Forget the ways of messages to a name that enter here."""
        self._ways.pop(name, None)
        self._unsettled_ways.pop(name, None)

    def forget(self, state: NameState) -> None:
        """Forget the ways of messages of other dispatchers to a name."""
        self._last = _NO_WAY
        for key in self._of_state.pop(state, ()):
            del self._transits[key]

    # --- messages that enter here -----------------------------------------------------------

    def learn_way(self, name: bytes, state: NameState) -> None:
        """Remember the ways of messages to a name that enter here, if they are one link."""
        fast = state.fast
        if fast is not None:
            transit = Transit(state.name.text, *self._core.identity(), settled=True)
            none = Way(state, fast.plans, None, None, b"", b"")
            self._ways[name] = self._way(state, transit, None) or none
            # Its outcome is awaited for the same time here.
            wait = milliseconds(self._core.options.outcome_timeout)
            transit = transit._replace(settled=False, wait=wait)
            self._unsettled_ways[name] = self._way(state, transit, None) or none

    def knows(self, name: bytes, plans: int) -> bool:
        """Whether the way of a name, or that it has none, is remembered for a plan."""
        way = self._ways.get(name)
        return way is not None and way.plans == plans

    def send_on(self, state: NameState, fast: FastPath[Arrival], message: Message) -> bool:
        """Send a message that enters here on; return whether its way is known."""
        onward, back, _, _, _ = message
        way = (self._unsettled_ways if back else self._ways).get(onward[0][1])
        if way is None or way[3] is None or way[1] != fast.plans:
            return False
        number = self._core.identity()[2]
        if back:
            return self.unsettled.ask(fast, way, number, message)
        self.send(way, number, message[2], message[3], onward[1:])
        return True

    # --- messages of other dispatchers ------------------------------------------------------

    def receive(self, message: Message) -> bool:
        """Receive a transit address or an outcome in second place; return whether it was taken."""
        onward, _, _, source, context = message
        value = onward[1][1]
        if context is not None and (context is not self._empty or len(onward) > 2):
            if len(onward) > 2 or context[:4] != _EMPTY:
                return False
            self._empty = context
        if value[:1] != _TRANSIT:
            taken_by = self.bundle_receiver if value[:1] in BUNDLE_KINDS else self.unsettled
            return taken_by.receive(value, message)
        at, head, tail, way = self._last
        end = at + ID_SIZE
        if value[:at] != head or value[end:] != tail or way is None:
            at = id_of(value)
            if not at:
                return False
            end = at + ID_SIZE
            head, tail = value[:at], value[end:]
            way = self._transits.get(head + tail)
            if way is None:
                return False
            self._last = at, head, tail, way
        if way[2] != source:
            return False
        state = way[0]
        fast = state.fast
        if fast is None or way[1] != fast.plans or state.performing or self.are_counted:
            return False
        number = value[at:end]
        if not way[7]:
            return self.unsettled.pass_on(fast, way, number, message)
        if way[3] is not None:
            self.send(way, number, message[2], source, onward[2:])
            return True
        target = fast.only or fast.choose()
        if target is None:
            return False
        record: ConsumerRecord = target.consumer
        route = record.route + onward[2:]
        return self._paths.hand(state, fast, target, message[2], source, route)

    def way(self, key: bytes, source: Address) -> Way | None:
        """Return the way of messages over a link by their transit address without the id."""
        way = self._transits.get(key)
        return None if way is None or way[2] != source or self.are_counted else way

    @property
    def are_counted(self) -> bool:
        """Whether the event log counts each message by its name: none goes the fast path then."""
        instruments = self._run_queue.instruments
        return instruments is not None and instruments.names is not None

    def learn(self, value: bytes, transit: Transit, state: NameState, source: Address) -> None:
        """Remember the way of messages like one of another dispatcher that was received in full."""
        if transit.redirected or transit.ttl or (transit.settled and transit.wait):
            return
        at = id_of(value)
        if not at or not self._paths.plan(state) or state.fast is None:
            return
        key = value[:at] + value[at + ID_SIZE :]
        known = self._transits.get(key)
        if known is not None and known.plans == state.fast.plans and known.source == source:
            return
        way = self._way(state, transit, source)
        if way is not None:
            if known is not None:
                self._drop(key)
            elif len(self._transits) >= MAX_TRANSITS:
                self._drop(next(iter(self._transits)))
            self._transits[key] = way
            self._of_state.setdefault(state, set()).add(key)
            self._last = _NO_WAY

    def _drop(self, key: bytes) -> None:
        state = self._transits.pop(key).state
        keys = self._of_state[state]
        keys.remove(key)
        if not keys:
            del self._of_state[state]

    def _way(self, state: NameState, transit: Transit, source: Address | None) -> Way | None:
        fast = state.fast
        if fast is None or not state.is_near(transit.path):
            return None
        settled, wait = transit.settled, transit.wait / 1000
        text = "" if source is None else self._core.topology.text_of(source)
        neighbour = "neighbour", text
        found = fast.link(transit.ingress, transit.path)
        if found is None:
            here = any(record.active for record in state.consumers.values())
            ends = None, settled, wait, neighbour
            return Way(state, fast.plans, source, None, b"", b"", *ends) if here else None
        link = self._core.topology.links.get(found)
        if link is None:
            return None
        path = (*transit.path, self._digest)
        next_ = next_wait(wait) if wait else 0
        value = encode_transit(transit._replace(path=path, wait=next_))
        at = id_of(value)
        if not at:
            return None
        to = None if settled else fast.link_target(found)
        head, tail = value[:at], value[at + ID_SIZE :]
        bundle = self._core.bundles.to(link, head, tail, state, settled=settled)
        ways = state, fast.plans, source, link, head, tail
        return Way(*ways, to, settled, wait, neighbour, bundle)

    def send(
        self, way: Way, number: bytes, payload: bytes, source: Address | None, rest: Route
    ) -> None:
        """Send a pre-settled message to the next node; drop it if the link takes none.

        Args:
            way: Its way.
            number: Its id.
            payload: Its payload.
            source: The link that it came over.
            rest: What follows the name.
        """
        core, link, bundle = self._core, way[3], way[10]
        if bundle is not None and not rest and bundle.takes(payload):
            bundle.add(number, payload)
            return
        if link is None:
            raise AssertionError("a way to another node without a link")
        core.bundles.flush()  # those in front of it go first
        value = b"".join((way[4], number, way[5]))
        onward = (link, core.address, _new(Address, (DELIVERY, value)), *rest)
        try:
            self._dispatch(_new(Message, (onward, (), payload, None, None)))
        except OnwardError:
            way[0].dropped += 1
            core.counts["copies that a link did not take"] += 1
            core.counts["link down"] += 1
            lost = Message(rest, (), payload, source, None)
            core.node.dead_letter(lost, "link down")
