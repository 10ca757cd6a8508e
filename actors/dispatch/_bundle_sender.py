"""Bundles of what goes to a neighbour: the messages and acceptances of one turn.

A neighbour that says so takes them. What the fast path sends to it waits for the end of the turn of
the worker that has sent it, at most: then it goes as one message for each name, or return route of
answers. All else that goes to a neighbour about a delivery sends first what waits. So the messages
of a producer keep their order, those that may not stand in one bundle included.
"""

from __future__ import annotations

from collections import deque
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Final

from ...protocol import DELIVERY, Address, InDoubt, Message, OnwardError, Route
from ...protocol.dispatch import (
    ACCEPTED,
    BUNDLES_TAKEN,
    ID_SIZE,
    MAX_BUNDLE,
    MAX_BUNDLE_SIZE,
    MAX_BUNDLED,
    MODIFIED,
    RELEASED,
    SETTLED,
    TOKEN_SIZE,
    DeliveryState,
    Disposition,
    bundle_address,
    bundle_return_address,
    disposition_address,
    encode_bundle,
    encode_disposition,
    return_address,
    takes_bundles,
)
from ..runtime._mailbox import CalledTarget

if TYPE_CHECKING:
    from ._core import DispatchCore
    from ._name_state import NameState

__all__ = ["Bundle", "BundleSender"]

MAX_SENT: Final = 1024
"""Most bundles of which the tokens are remembered, for word that one was lost; the oldest is
forgotten, and what it had ends when its time is over."""
MAX_ANSWERED: Final = 256
"""Most return routes of answers of which the bundle is kept; the oldest is made anew."""

LEAST_LARGEST: Final = 32 * 1024
"""Bytes of the largest message that a link must take, routes included, for bundles to be sent or
received over it: twice those of the largest bundle with the usual routes."""

_UNSETTLED, _ANSWERS, _TOKENS = b"m", b"a", b"n"
_ACCEPTED: Final = encode_disposition(Disposition(ACCEPTED))
_HEAD: Final = TOKEN_SIZE + TOKEN_SIZE + 2  # bytes of a record of an unsettled message

_new: Final = tuple.__new__  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]


class Bundle:
    """A bundle that waits to be sent to a neighbour.

    Args:
        bundles: All of them.
        link: The link to the neighbour.
        value: The address that says what is in it.
        back: The return route of answers.
        state: The name of its messages; `None`: it has acceptances.
        around: The transit address of its messages, in front of the id and behind it.

    Attributes:
        kind: The first byte of its address.
        link: The link to the neighbour.
        back: The return route of answers.
        state: The name of its messages.
        around: Their transit address, in front of the id and behind it.
        onward: The route of the bundle.
        records: The records.
        payloads: The payload of each.
        size: The bytes of these.
        waits: Whether it will be looked at.
        way: What is the same for all messages to a name that have entered at one node and go over
            this link; `None`: it has acceptances.
    """

    __slots__ = (
        "_bundles",
        "around",
        "back",
        "kind",
        "link",
        "onward",
        "payloads",
        "records",
        "size",
        "state",
        "waits",
        "way",
    )

    def __init__(
        self,
        bundles: BundleSender,
        link: Address,
        value: bytes,
        back: Route = (),
        state: NameState | None = None,
        around: tuple[bytes, bytes] = (b"", b""),
    ) -> None:
        self._bundles: Final = bundles
        self.kind: Final = value[:1]
        self.link: Final = link
        self.back: Final = back
        self.state: Final = state
        self.around: Final = around
        self.onward: Final[Route] = link, bundles.own, Address(DELIVERY, value)
        self.records: list[bytes] = []
        self.payloads: list[bytes] = []
        self.size = 0
        self.waits = False
        self.way: Final = None if state is None else (link, around[0])

    @staticmethod
    def takes(payload: bytes) -> bool:
        """Whether a payload may stand in a bundle: the link refuses what is not `bytes`."""
        return type(payload) is bytes and len(payload) <= MAX_BUNDLED

    def add(self, record: bytes, payload: bytes) -> None:
        """Add a message or an answer.

        Args:
            record: The id of a message, the token, or both.
            payload: The payload, of at most `MAX_BUNDLED` bytes.
        """
        size = len(payload)
        self.records.append(record + size.to_bytes(2))
        self.payloads.append(payload)
        self.size += size
        if not self.waits:
            self._bundles.begun(self)
        elif len(self.records) >= MAX_BUNDLE or self.size >= MAX_BUNDLE_SIZE:
            self._bundles.send(self)

    def add_token(self, token: bytes) -> None:
        """Add an acceptance without an answer."""
        self.records.append(token)
        if not self.waits:
            self._bundles.begun(self)
        elif len(self.records) >= MAX_BUNDLE:
            self._bundles.send(self)

    def take(self) -> tuple[list[bytes], list[bytes]]:
        """Remove and return the records and the payloads."""
        taken = self.records, self.payloads
        self.records, self.payloads, self.size = [], [], 0
        return taken


class BundleSender:
    """The bundles that wait to be sent, which have a turn of their own.

    Args:
        core: The dispatcher.

    Attributes:
        own: The address of dispatchers.
    """

    __slots__ = (
        "_answers",
        "_core",
        "_last",
        "_numbers",
        "_sent",
        "_takers",
        "_target",
        "_waiting",
        "own",
    )

    def __init__(self, core: DispatchCore) -> None:
        self._target: Final = CalledTarget(self.turn, self.recover, self.give_up)
        self.own: Final = core.address
        self._core: Final = core
        self._takers: Final[set[Address]] = set()
        self._waiting: Final[deque[Bundle]] = deque()
        # Of those that wait: the one of each way.
        self._last: Final[dict[tuple[Address, bytes], Bundle]] = {}
        self._answers: Final[dict[tuple[Address, Route | None], Bundle]] = {}
        self._numbers: Final = count()
        # Of bundles of messages, by number: the link, the records, the name if pre-settled.
        self._sent: Final[dict[bytes, tuple[Address, bytes, NameState | None]]] = {}

    # --- neighbours that take them ----------------------------------------------------------

    def offer(self, link: Address) -> None:
        """Offer a neighbour to take bundles, if the link to it does."""
        core = self._core
        if not self._has_room(link):
            return
        route = link, self.own, Address(DELIVERY, BUNDLES_TAKEN)
        try:
            core.node.parts.router.dispatch(Message(route, (), b"", None, None))
        except OnwardError:
            core.counts["frames that a link did not take"] += 1

    def offered(self, link: Address, value: bytes) -> None:
        """Remember that a neighbour takes bundles.

        Raises:
            BadTransit: It cannot be read.
        """
        if takes_bundles(value) and link not in self._takers and self._has_room(link):
            self._takers.add(link)
            self._core.fast.clear()  # the ways to it are by bundles from now on

    def _has_room(self, link: Address) -> bool:
        """Whether a link takes the largest bundle: it may take messages by themselves only."""
        cell = self._core.node.parts.table.cell_at(link)
        largest = None if cell is None else cell.worker._largest()
        return largest is None or largest >= LEAST_LARGEST

    def link_lost(self, link: str) -> None:
        """Forget a neighbour by its link, and send what waits."""
        self.flush()
        for address in [each for each in self._takers if str(each) == link]:
            self._takers.remove(address)
            self._answers.clear()
            self._core.fast.clear()

    def to(
        self, link: Address, head: bytes, tail: bytes, state: NameState, *, settled: bool
    ) -> Bundle | None:
        """Return the bundle of messages that go one way; `None` if the neighbour takes none.

        Args:
            link: The link to the neighbour.
            head: Their transit address, as far as the id.
            tail: What follows the id.
            state: Their name.
            settled: Whether they are pre-settled.
        """
        if link not in self._takers:
            return None
        value = bundle_address(head, tail, settled=settled)
        return Bundle(self, link, value, (), state, (head, tail))

    def accept(self, link: Address, token: bytes, back: Route, payload: bytes | None) -> bool:
        """Send an acceptance to a neighbour; return whether it takes bundles.

        Args:
            link: The link to the neighbour.
            token: Its token.
            back: The return route of the answer.
            payload: The answer; `None` if there is none.
        """
        if link not in self._takers:
            return False
        key: tuple[Address, Route | None] = link, None if payload is None else back
        if payload is None:
            value = _TOKENS
        elif Bundle.takes(payload):
            value = _ANSWERS
        else:
            return False
        bundle = self._answers.get(key)
        if bundle is None:
            if len(self._answers) >= MAX_ANSWERED:
                del self._answers[next(iter(self._answers))]
            bundle = self._answers[key] = Bundle(self, link, value, key[1] or ())
        if payload is None:
            bundle.add_token(token)
        else:
            bundle.add(token, payload)
        return True

    # --- sending ----------------------------------------------------------------------------

    def begun(self, bundle: Bundle) -> None:
        """Schedule a turn for a bundle that has its first record.

        Messages of its way that wait in another one, as they are pre-settled or are awaited for
        another time, go first.
        """
        way = bundle.way
        if way is not None and self._last.setdefault(way, bundle) is not bundle:
            self.flush()
            self._last[way] = bundle
        bundle.waits = True
        self._waiting.append(bundle)
        if not self._target.scheduled:
            self._schedule()

    def _schedule(self) -> None:
        self._target.scheduled = True
        self._core.node.parts.run_queue.schedule(self._target)

    def turn(self) -> int:
        """Send what waits; return the cost of the turn in messages."""
        self._target.scheduled = False
        sent = len(self._waiting)
        self.flush()
        return 1 + sent

    def recover(self, error: BaseException) -> None:
        """Go on with the other bundles after an error in a turn."""
        self._core.node.parts.run_queue.fault("sending a bundle", error)
        if self._waiting and not self._target.scheduled:
            self._schedule()

    def give_up(self) -> None:
        """Make dead letters of what waits, as the event loop was closed."""
        for bundle in self._waiting:
            for payload in bundle.payloads:
                lost = Message(bundle.onward, bundle.back, payload, None, None)
                self._core.node.dead_letter(lost, "event loop closed")
        self._waiting.clear()
        self._last.clear()

    def flush(self) -> None:
        """Send what waits."""
        waiting, last = self._waiting, self._last
        while waiting:
            bundle = waiting.popleft()
            bundle.waits = False
            if bundle.way is not None:
                last.pop(bundle.way, None)
            if bundle.records:
                self.send(bundle)

    def send(self, bundle: Bundle) -> None:
        """Send what is in a bundle; a single message or acceptance goes by itself."""
        records, payloads = bundle.take()
        if len(records) == 1:
            message = self._alone(bundle, records[0], payloads[0] if payloads else _ACCEPTED)
        else:
            message = self._together(bundle, records, payloads)
        try:
            self._core.node.parts.router.dispatch(message)
        except OnwardError as error:
            self._not_taken(bundle, records, payloads, error)

    def _together(self, bundle: Bundle, records: list[bytes], payloads: list[bytes]) -> Message:
        """Return the message of several."""
        tokens = bundle.kind == _TOKENS
        payload = b"".join(records) if tokens else encode_bundle(records, payloads)
        back = bundle.back if bundle.state is None else self._note(bundle, records)
        return _new(Message, (bundle.onward, back, payload, None, None))

    def _alone(self, bundle: Bundle, record: bytes, payload: bytes) -> Message:
        """Return the message of a single one, which is as if there were no bundles."""
        kind, back = bundle.kind, bundle.back
        if bundle.state is not None:
            (head, tail), number = bundle.around, record[:ID_SIZE]
            value = head + number + tail
            if kind == _UNSETTLED:
                end = return_address(record[ID_SIZE:-2])
                back = self.own, _new(Address, (DELIVERY, end))
        else:
            value = return_address(record[:TOKEN_SIZE])
            if kind == _TOKENS:
                value = disposition_address(value)
        route = bundle.link, self.own, _new(Address, (DELIVERY, value))
        return _new(Message, (route, back, payload, None, None))

    def _note(self, bundle: Bundle, records: list[bytes]) -> Route:
        """Remember what is in a bundle of messages; return its return route."""
        end = bundle_return_address(next(self._numbers))
        settled, sent = bundle.kind != _UNSETTLED, self._sent
        sent[end] = bundle.link, b"".join(records), bundle.state if settled else None
        if len(sent) > MAX_SENT:
            del sent[next(iter(sent))]
        return self.own, Address(DELIVERY, end)

    # --- what is lost -----------------------------------------------------------------------

    def _not_taken(
        self, bundle: Bundle, records: list[bytes], payloads: list[bytes], error: OnwardError
    ) -> None:
        """Act on a bundle that the link has not taken, as on each of its messages."""
        core, state = self._core, bundle.state
        if state is None:
            core.counts["outcomes that could not be told"] += len(records)
            for record, payload in zip(records, payloads or [b""] * len(records), strict=True):
                end = Address(DELIVERY, return_address(record[:TOKEN_SIZE]))
                answer = Message((*bundle.onward[:2], end), bundle.back, payload, None, None)
                core.node.dead_letter(answer, error)
            return
        core.counts["copies that a link did not take"] += len(records)
        if bundle.kind == _UNSETTLED:
            for record in records:
                core.copies.disposition(record[TOKEN_SIZE:-2], RELEASED, None)
            return
        state.dropped += len(records)
        core.counts["link down"] += len(records)
        for payload in payloads:
            core.node.dead_letter(Message((), (), payload, None, None), "link down")

    def failed(self, end: bytes, error: OnwardError) -> bool:
        """Receive word that a bundle could not be sent or handled; return whether it is known."""
        state = MODIFIED if isinstance(error, InDoubt) else RELEASED
        return self.lost(end, None, state)

    def lost(self, end: bytes, link: Address | None, state: DeliveryState) -> bool:
        """End the messages of a bundle that is lost; return whether it is known.

        Args:
            end: Its return address.
            link: The link that the word came over; `None`: this node has lost it.
            state: What its unsettled messages are then.
        """
        found = self._sent.get(end)
        if found is None or (link is not None and link != found[0]):
            return False
        del self._sent[end]
        core, (_, table, name) = self._core, found
        if name is not None:
            lost = len(table) // SETTLED.size
            name.dropped += lost
            core.counts["messages of a bundle that was lost"] += lost
            return True
        for at in range(TOKEN_SIZE, len(table), _HEAD):
            token = table[at : at + TOKEN_SIZE]
            core.schedule.soon(partial(core.copies.disposition, token, state, None))
        return True
