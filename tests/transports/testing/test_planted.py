"""Each fault that is planted into a sound transport over sockets is named by the suite."""

from __future__ import annotations

import asyncio
import gc
import os
import threading
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import pytest

from onward.actors import Node
from onward.protocol import Address, DeliveryError, Message, OnwardError
from onward.transports import Listener, TcpTransport, Transport
from onward.transports.node._stream_dialled import DialledLink
from onward.transports.streams._dial import Dialler
from onward.transports.testing import CASES, Claims, conformance, known_claims, run_case
from tests.support.compiled import COMPILED
from tests.support.counts import ONLY_IN_ALL
from tests.support.plain_transport import MAX_BODY, PlainLink, PlainListener, PlainTransport

BY_NAME = {each.name: each for each in CASES}
SOUND = Claims(ephemeral=True, too_large=MAX_BODY)
HASTY = replace(SOUND, patience=1.0)
"""For faults that show by something that does not happen."""

URI = "plain://127.0.0.1:0"

test_sound = ONLY_IN_ALL(conformance(URI, SOUND, transport=PlainTransport))


def named(
    case: str, text: str, transport: type[Transport], claims: Claims = SOUND, uri: str = URI
) -> None:
    """Expect a case to fail, and to say why."""
    with pytest.raises(AssertionError, match=text):
        run_case(BY_NAME[case], uri, claims, transport=transport)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # of what the fault has left open
        gc.collect()


def with_links(
    link: type[PlainLink], accepted: type[PlainLink] | None = None
) -> type[PlainTransport]:
    """Make a transport whose links have a fault, at both ends unless told otherwise."""

    class Planted(PlainTransport):
        dialled_class = link
        accepted_class = accepted or link

    return Planted


# --- what is buffered -----------------------------------------------------------------------


class NeverDrains(PlainLink):
    """Writes as fast as it is sent to, one message for each pass of the loop."""

    async def write(self, data: bytes) -> None:
        self.writer.write(data)
        await asyncio.sleep(0)


def test_one_that_never_awaits_a_drain() -> None:
    text = "bytes are on the way to a worker that takes none"
    named("a_receiver_that_takes_nothing", text, with_links(NeverDrains))
    # At one end only, too.
    one_end = with_links(PlainLink, accepted=NeverDrains)
    run_case(BY_NAME["a_receiver_that_takes_nothing"], URI, SOUND, transport=one_end)
    named("a_receiver_that_connected_and_takes_nothing", text, one_end)


class ReadsOn(PlainLink):
    """Takes no notice of `hold`."""

    def hold(self) -> None:
        pass


def test_one_that_ignores_hold() -> None:
    # Which of the two depends on how much is sent in the time there is.
    text = "bytes are on the way to a worker that takes none|messages came to 0#stuck"
    named("a_receiver_that_takes_nothing", text, with_links(ReadsOn), HASTY)
    transport = with_links(ReadsOn, accepted=PlainLink)
    run_case(BY_NAME["a_receiver_that_takes_nothing"], URI, SOUND, transport=transport)
    named("a_receiver_that_connected_and_takes_nothing", text, transport, HASTY)


class NeverReleased(PlainLink):
    """Does not go on reading."""

    def release(self) -> None:
        pass


def test_one_that_ignores_release() -> None:
    text = "messages came to 0#stuck"
    named("a_receiver_that_is_slow_for_a_while", text, with_links(NeverReleased), HASTY)
    transport = with_links(NeverReleased, accepted=PlainLink)
    named("a_receiver_that_connected_and_is_slow", text, transport, HASTY)


# --- what vanishes --------------------------------------------------------------------------


class SaysNothing(PlainLink):
    """Never calls `undelivered`."""

    def undelivered(self, message: Message, error: OnwardError) -> None:
        pass


def test_one_that_never_calls_undelivered() -> None:
    transport = with_links(SaysNothing)
    text = "requests had not been sent, and no error is NotDelivered"
    named("requests_behind_a_full_way", text, transport)
    named("requests_behind_a_full_way_back", text, transport)


class CountsNothing(PlainLink):
    """Ends the requests that it cannot send, and makes no dead letter of them."""

    def undelivered(self, message: Message, error: OnwardError) -> None:
        self.node.fail_request(message.return_route[-1], error)


def test_one_that_counts_no_dead_letters() -> None:
    text = "requests had not been sent, and there is no dead letter"
    named("requests_behind_a_full_way", text, with_links(CountsNothing))


class KeepsRequestsWaiting(PlainLink):
    """Ends without a word to those who wait for an answer."""

    def lost(self, detail: str) -> None:
        pass


def test_one_that_keeps_requests_waiting() -> None:
    transport = with_links(KeepsRequestsWaiting)
    named("a_listener_that_closes", "the request still waits", transport, HASTY)
    named("requests_behind_a_full_way", "requests [0-9]+ still wait", transport, HASTY)


class DropsAtItsClose(PlainLink):
    """Closes its socket without writing what it has taken."""

    async def write(self, data: bytes) -> None:
        self.writer.write(data)  # `close` is to see to the rest

    async def close(self) -> None:
        self.writer.transport.abort()


def test_one_that_drops_at_its_close() -> None:
    named("the_last_message", "of 31 messages came", with_links(DropsAtItsClose), HASTY)
    transport = with_links(PlainLink, accepted=DropsAtItsClose)
    run_case(BY_NAME["the_last_message"], URI, SOUND, transport=transport)
    named("the_last_message_back", "of 31 messages came", transport, HASTY)


# --- what comes otherwise than it was sent --------------------------------------------------


class SmallOnesFirst(PlainLink):
    """Lets small messages overtake large ones."""

    def on_start(self) -> None:
        super().on_start()
        self.later: list[bytes] = []

    async def write(self, data: bytes) -> None:
        if len(data) > 50_000:
            self.later.append(data)
        else:
            await super().write(data + b"".join(self.later))
            self.later.clear()


def test_one_that_reorders() -> None:
    transport = with_links(SmallOnesFirst)
    run_case(BY_NAME["order_is_kept"], URI, SOUND, transport=transport)
    named("order_of_all_sizes", "the order is another", transport)


class Truncates(PlainLink):
    """Cuts off what is above 64 KiB."""

    def came(self, message: Message) -> None:
        super().came(message._replace(payload=message.payload[: 64 * 1024]))


class Swaps(PlainLink):
    """Takes two parts of a large payload for each other."""

    def came(self, message: Message) -> None:
        data = message.payload
        if len(data) > 8192:
            data = data[4096:8192] + data[:4096] + data[8192:]
        super().came(message._replace(payload=data))


# Compiled code does not take them.
VIEWS = "0 of 1 message" if COMPILED else "a payload of 0 bytes came there as bytearray"


class GivesViews(PlainLink):
    """Gives away what it has read by, to be written over."""

    def came(self, message: Message) -> None:
        data: Any = bytearray(message.payload)
        super().came(message._replace(payload=data))


@pytest.mark.parametrize(
    ("link", "text"),
    [
        (Truncates, "of 65537 bytes 65536 came there"),
        (Swaps, "of 16383 bytes 16383 came there, which are others"),
        (GivesViews, VIEWS),
    ],
)
def test_one_that_changes_payloads(link: type[PlainLink], text: str) -> None:
    named("payloads_of_all_sizes", text, with_links(link))


# --- who is let in ---------------------------------------------------------------------------


class ExposesForAll(PlainTransport):
    """Keeps what is exposed once for all its listeners and links."""

    def __init__(self, node: Node) -> None:
        super().__init__(node)
        self.all: set[Address] = set()

    async def listen(self, uri: str, *, expose: frozenset[Address], **options: Any) -> Listener:
        self.all |= expose
        return await super().listen(uri, expose=frozenset(self.all), **options)

    async def connect(self, uri: str, *, expose: frozenset[Address], **options: Any) -> Address:
        self.all |= expose
        return await super().connect(uri, expose=frozenset(self.all), **options)


def test_one_with_one_exposure_for_all() -> None:
    named("two_listeners_of_a_node", "not the dead letters", ExposesForAll, HASTY)
    named("two_links_of_a_node", "not the dead letters", ExposesForAll, HASTY)


class ForgetsWhatIsAllowed(PlainTransport):
    """Makes a set of its own of what is exposed at the end that connects."""

    async def connect(self, uri: str, *, expose: frozenset[Address], **options: Any) -> Address:
        return await super().connect(uri, expose=frozenset(expose), **options)


def test_one_that_hands_on_expose_without_allow() -> None:
    text = "0 of 1 message came to 0#allowed"
    named("what_is_allowed_behind", text, ForgetsWhatIsAllowed, HASTY)


class LetsGoOnAnywhere(PlainLink):
    """Gives away what comes as if it were of this node."""

    def came(self, message: Message) -> None:
        if self._gate.admits(message.onward_route):
            self.node.parts.router.dispatch(
                message._replace(return_route=(self.address, *message.return_route))
            )
        else:
            super().came(message)


def test_one_whose_messages_may_go_anywhere() -> None:
    text = "not the dead letters {'not exposed': 2} but {'not exposed': 1}"
    named("what_is_allowed_behind", text, with_links(LetsGoOnAnywhere), HASTY)


class ListenerOfAll(PlainListener):
    async def close(self) -> None:
        for each in list(self.node.statistics().workers):
            if each.kind == "Door" and self.node.has(each.address):
                await self.node.stop_worker(each.address)


class ClosesAll(PlainTransport):
    """Closes all its listeners with one."""

    async def listen(self, uri: str, *, expose: frozenset[Address], **options: Any) -> Listener:
        listener: Any = await super().listen(uri, expose=expose, **options)
        return ListenerOfAll(self.node, listener.door)


def test_one_whose_listeners_share_their_end() -> None:
    with pytest.raises((AssertionError, DeliveryError)):
        run_case(BY_NAME["two_listeners_of_a_node"], URI, HASTY, transport=ClosesAll)


class RefusesInSilence(PlainLink):
    """Looks itself at what is exposed, and counts nothing."""

    def came(self, message: Message) -> None:
        if self._gate.admits(message.onward_route):
            super().came(message)


def test_one_that_does_not_count_what_it_refuses() -> None:
    text = "not the dead letters {'not exposed': 4} but {}"
    named("nothing_is_exposed", text, with_links(RefusesInSilence), HASTY)


# --- ends ------------------------------------------------------------------------------------


class TakesAfterItsEnd(PlainLink):
    """Stops its worker, and goes on reading until the peer closes the connection."""

    async def on_stop(self) -> None:
        self.past_end = self.node.parts.router.dispatch
        self.own = self.address

    def end(self) -> None:
        self.writer.transport.abort()

    def came(self, message: Message) -> None:
        if not hasattr(self, "past_end"):
            super().came(message)
        else:
            self.past_end(message._replace(return_route=(self.own, *message.return_route)))


def test_one_that_takes_messages_after_its_end() -> None:
    text = "a message came by a link of a listener that was closed"
    named("nothing_comes_after_the_end", text, with_links(PlainLink, accepted=TakesAfterItsEnd))


# --- what is left behind ---------------------------------------------------------------------


class Leaks(PlainLink):
    """Opens a descriptor of its own for each connection, and never closes it."""

    opened: ClassVar[list[int]] = []

    def open(self) -> int:
        raise NotImplementedError

    def on_start(self) -> None:
        self.opened.append(self.open())
        super().on_start()


class LeaksFiles(Leaks):
    def open(self) -> int:
        return os.open(os.devnull, os.O_RDONLY)


class LeaksSockets(Leaks):
    def open(self) -> int:
        return os.dup(self.writer.get_extra_info("socket").fileno())


@pytest.mark.parametrize(
    ("link", "text"),
    [(LeaksFiles, "descriptors are left: 2 of device /dev/null"), (LeaksSockets, "2 of socket")],
)
def test_one_that_leaks_a_descriptor_for_each_connection(link: type[Leaks], text: str) -> None:
    hasty = replace(HASTY, connected=False)
    try:
        named("routes_of_a_message", text, with_links(link), hasty)
    finally:
        while Leaks.opened:
            os.close(Leaks.opened.pop())


class LeaksUntilTheEnd(PlainTransport):
    """Keeps something of each link until its node stops."""

    def __init__(self, node: Node) -> None:
        super().__init__(node)
        self.kept: list[Any] = []

    async def connect(self, uri: str, *, expose: frozenset[Address], **options: Any) -> Address:
        self.keep()
        return await super().connect(uri, expose=expose, **options)

    def keep(self) -> None:
        self.kept.append(Path(os.devnull).open())  # noqa: SIM115 - it is to stay open

    def drop(self, kept: Any) -> None:
        kept.close()

    async def stop(self) -> None:
        for each in self.kept:
            self.drop(each)


class KeepsTasks(LeaksUntilTheEnd):
    def keep(self) -> None:
        self.kept.append(asyncio.create_task(asyncio.sleep(1000)))

    def drop(self, kept: asyncio.Task[None]) -> None:
        kept.cancel()


class KeepsTimers(KeepsTasks):
    def keep(self) -> None:
        self.kept.append(asyncio.get_running_loop().call_later(1000, print))


@pytest.mark.parametrize(
    ("transport", "text"),
    [
        (LeaksUntilTheEnd, "descriptors are left: 10 of device /dev/null"),
        (KeepsTasks, "tasks are left: .*sleep"),
        (KeepsTimers, "timers are left: .*print"),
    ],
)
def test_one_that_keeps_something_of_links_that_have_stopped(
    transport: type[PlainTransport], text: str
) -> None:
    run_case(BY_NAME["nothing_is_left"], URI, SOUND, transport=transport)  # when all has stopped
    named("links_that_come_and_go", text, transport, HASTY)


class LeavesFailures(PlainTransport):
    """Starts something before it connects, and leaves it when that fails."""

    async def connect(self, uri: str, *, expose: frozenset[Address], **options: Any) -> Address:
        waiting = asyncio.get_running_loop().call_later(1000, print)
        address = await super().connect(uri, expose=expose, **options)
        waiting.cancel()
        return address


def test_one_that_leaves_something_of_a_connection_that_failed() -> None:
    run_case(BY_NAME["links_that_come_and_go"], URI, SOUND, transport=LeavesFailures)
    named("connections_that_fail", "timers are left: .*print", LeavesFailures, HASTY)


class Forgets(PlainTransport):
    """Opens a socket to look whether anybody is there, and drops it."""

    async def connect(self, uri: str, *, expose: frozenset[Address], **options: Any) -> Address:
        address = await super().connect(uri, expose=expose, **options)
        self.look()
        return address

    def look(self) -> None:
        Path(os.devnull).open()  # noqa: SIM115 - it is dropped


def test_one_that_drops_what_it_has_not_closed() -> None:
    named("routes_of_a_message", "dropped without having been closed: .*/dev/null", Forgets)


# --- the event loop --------------------------------------------------------------------------


class Blocks(PlainLink):
    """Waits as threads do."""

    seconds: ClassVar[float | None] = 3.0
    go_on: ClassVar[threading.Event]

    async def write(self, data: bytes) -> None:
        self.go_on.wait(self.seconds)
        await super().write(data)


class BlocksForGood(Blocks):
    seconds = None


@pytest.mark.parametrize(
    ("link", "text", "claims"),
    [
        (Blocks, "the event loop was blocked for 1 s, in write at .*planted.py:[0-9]+", SOUND),
        (BlocksForGood, "the event loop is blocked for good, in write at .*planted.py", HASTY),
    ],
)
def test_one_that_blocks_the_loop(link: type[Blocks], text: str, claims: Claims) -> None:
    Blocks.go_on = threading.Event()
    threads = threading.active_count()
    try:
        named("routes_of_a_message", text, with_links(link, accepted=PlainLink), claims)
    finally:
        Blocks.go_on.set()
        for thread in threading.enumerate():
            if thread.name == "conformance":
                thread.join()
    assert threading.active_count() == threads


# --- over a connection that is made again -----------------------------------------------------


class Reconnecting(TcpTransport):
    """As `tcp`, with links of another class."""

    scheme = "planted"
    schemes: ClassVar = {"planted": False}
    link_class: ClassVar[type[DialledLink]]

    def _open(
        self, endpoint: Any, expose: frozenset[Address], options: Any, credentials: Any = None
    ) -> DialledLink:
        link = self.link_class(Dialler(endpoint, None, 1), expose, options, self._dialled.forget)
        self._dialled.open(link, self.max_dialled, options.mailbox)
        return link


class Resends(DialledLink):
    """Sends again what may have arrived, and so twice what has."""

    last: Message | None = None

    def transmit(self, message: Message) -> Any:
        self.last = message
        return super().transmit(message)

    def socket_ready(self, wire_socket: Any) -> None:
        super().socket_ready(wire_socket)
        if self.last is not None:
            wire_socket.send(self.last)


class KeepsQuiet(DialledLink):
    """Never calls `undelivered`."""

    def undelivered(self, message: Message, error: OnwardError) -> None:
        pass


TCP = replace(known_claims("tcp://"), raw=None)
PLACE = "planted://127.0.0.1:0"


def reconnecting(link: type[DialledLink]) -> type[Reconnecting]:
    class Planted(Reconnecting):
        link_class = link

    return Planted


def test_links_that_are_connected_again() -> None:
    for name in ("nothing_comes_twice", "what_is_sent_to_nobody", "a_link_that_comes_back"):
        run_case(BY_NAME[name], PLACE, TCP, transport=reconnecting(DialledLink))


def test_one_that_sends_again_what_may_have_arrived() -> None:
    named("nothing_comes_twice", "came twice", reconnecting(Resends), TCP, PLACE)


def test_one_that_drops_while_nobody_is_there() -> None:
    text = "of 3000 messages without a receiver [0-9]+ vanished"
    named("what_is_sent_to_nobody", text, reconnecting(KeepsQuiet), TCP, PLACE)
