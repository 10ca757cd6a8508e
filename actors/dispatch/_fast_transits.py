"""The fast path of pre-settled messages between dispatchers.

Of messages to a name that enter at one node, the transit addresses differ in their id alone. So
what a node does with one it does with the next: it puts the id into the address for the next node,
which it has written before, or hands the message to its consumer. Nothing is kept of the message.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from ...protocol import DELIVERY, Address, Context, Message, OnwardError
from ...protocol.dispatch import ID_SIZE, FastPath, Transit, encode_transit, node_digest

if TYPE_CHECKING:
    from ._arrival import Arrival
    from ._consumer_record import ConsumerRecord
    from ._core import DispatchCore
    from ._fast_path import FastPaths
    from ._name_state import NameState

__all__ = ["FastTransits"]

MAX_TRANSITS: Final = 4096
"""Most transit addresses of which the way is remembered, without their ids; the oldest is read in
full again."""

_EMPTY: Final = (None, None, None, 0)
"""All of a context but what it is allowed: it says nothing."""
_SHORT, _LONG = 0x60, 0x78
"""The head of a text in CBOR: of one of less than 24 bytes the first and its size; of 24 to 255
bytes the second, followed by the size."""

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
    """

    state: NameState
    plans: int
    source: Address | None
    link: Address | None
    head: bytes
    tail: bytes


class FastTransits:
    """The ways of pre-settled messages to and from other dispatchers.

    Args:
        core: The dispatcher.
        paths: The fast paths of its names.
    """

    def __init__(self, core: DispatchCore, paths: FastPaths) -> None:
        self._core: Final = core
        self._paths: Final = paths
        self._dispatch: Final = core.node.parts.router.dispatch
        self._run_queue: Final = core.node.parts.run_queue
        self._digest: Final = node_digest(core.own)
        self._ways: Final[dict[bytes, Way]] = {}  # of what enters here, by the value of its name
        self._transits: Final[dict[bytes, Way]] = {}  # of transit addresses without their id

    def clear(self) -> None:
        """Forget all ways."""
        self._ways.clear()
        self._transits.clear()

    def forget(self, name: bytes) -> None:
        """Forget the way of a name."""
        self._ways.pop(name, None)

    # --- messages that enter here -----------------------------------------------------------

    def learn_way(self, name: bytes, state: NameState) -> None:
        """Remember the way of messages to a name that enter here, if it is one link."""
        fast = state.fast
        if fast is not None:
            transit = Transit(state.name.text, *self._core.identity(), settled=True)
            none = Way(state, fast.plans, None, None, b"", b"")
            self._ways[name] = self._way(state, transit, None) or none

    def knows(self, name: bytes, plans: int) -> bool:
        """Whether the way of a name, or that it has none, is remembered for a plan."""
        way = self._ways.get(name)
        return way is not None and way.plans == plans

    def send_on(self, state: NameState, fast: FastPath[Arrival], message: Message) -> bool:
        """Send a pre-settled message that enters here on; return whether its way is known."""
        onward, _, payload, _, _ = message
        way = self._ways.get(onward[0][1])
        if way is None or way[3] is None or way[1] != fast.plans:
            return False
        value = b"".join((way[4], self._core.identity()[2], way[5]))
        self._send(state, way, value, message, onward[1:], payload)
        return True

    # --- messages of other dispatchers ------------------------------------------------------

    def receive(self, message: Message) -> bool:
        """Receive a transit address in second place; return whether it went on, or is dropped."""
        onward, _, payload, source, context = message
        value = onward[1][1]
        if context is not None and (len(onward) > 2 or context[:4] != _EMPTY):
            return False
        at = _id_of(value)
        if not at:
            return False
        way = self._transits.get(value[:at] + value[at + ID_SIZE :])
        if way is None or way[2] != source:
            return False
        state, instruments = way[0], self._run_queue.instruments
        fast = state.fast
        if (
            fast is None
            or way[1] != fast.plans
            or state.performing
            or (instruments is not None and instruments.names is not None)
        ):
            return False
        if way[3] is not None:
            value = b"".join((way[4], value[at : at + ID_SIZE], way[5]))
            self._send(state, way, value, message, onward[2:], payload)
            return True
        target = fast.only or fast.choose()
        if target is None:
            return False
        record: ConsumerRecord = target[4]
        return self._paths.hand(state, fast, target, message, record.route + onward[2:])

    def learn(self, value: bytes, transit: Transit, state: NameState, source: Address) -> None:
        """Remember the way of messages like one of another dispatcher that was received in full."""
        if not transit.settled or transit.redirected or transit.ttl or transit.wait:
            return
        at = _id_of(value)
        if not at or not self._paths.plan(state) or state.fast is None:
            return
        key = value[:at] + value[at + ID_SIZE :]
        known = self._transits.get(key)
        if known is not None and known.plans == state.fast.plans and known.source == source:
            return
        way = self._way(state, transit, source)
        if way is not None:
            if len(self._transits) >= MAX_TRANSITS:
                del self._transits[next(iter(self._transits))]
            self._transits[key] = way

    def _way(self, state: NameState, transit: Transit, source: Address | None) -> Way | None:
        fast = state.fast
        if fast is None or not state.is_near(transit.path):
            return None
        found = fast.link(transit.ingress, transit.path)
        if found is None:
            here = any(record.active for record in state.consumers.values())
            return Way(state, fast.plans, source, None, b"", b"") if here else None
        link = self._core.topology.links.get(found)
        if link is None:
            return None
        path = (*transit.path, self._digest)
        value = encode_transit(transit._replace(path=path))
        at = _id_of(value)
        if not at:
            return None
        return Way(state, fast.plans, source, link, value[:at], value[at + ID_SIZE :])

    def _send(
        self,
        state: NameState,
        way: Way,
        value: bytes,
        message: Message,
        rest: tuple[Address, ...],
        payload: bytes,
    ) -> None:
        """Send a message to the next node; drop it if the link takes none."""
        core, link = self._core, way[3]
        if link is None:
            raise AssertionError("a way to another node without a link")
        onward = (link, core.address, _new(Address, (DELIVERY, value)), *rest)
        try:
            self._dispatch(_new(Message, (onward, (), payload, None, None)))
        except OnwardError:
            state.dropped += 1
            core.counts["copies that a link did not take"] += 1
            core.counts["link down"] += 1
            context: Context | None = None
            lost = Message(rest, (), payload, message[3], context)
            core.node.dead_letter(lost, "link down")


def _id_of(value: bytes) -> int:
    """Return where the id of a transit address begins; 0 if it is none, or has an unusual name.

    What is in front of that place says where it is: two addresses that are alike without their ids
    have them at the same place.
    """
    at = 3
    try:
        for _ in range(2):
            head = value[at]
            if not _SHORT < head <= _LONG:
                return 0
            at += 1 + head - _SHORT if head < _LONG else 2 + value[at + 1]
    except IndexError:
        return 0
    return at + 10  # behind the instance, and the heads of both
