"""The suite finds what it is there to find: each flaw of a transport fails the case for it."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from onward.protocol import Address, Context, LinkDown, LinkLost, Message, is_error_reply
from onward.transports import MemoryLink, MemoryListener, MemoryTransport
from onward.transports.node import _memory as memory
from onward.transports.simulated import SimulatedTransport
from onward.transports.testing import CASES, Claims, Stage, run_case

BY_NAME = {each.name: each for each in CASES}
CLAIMS = Claims(patience=0.3, virtual=True)  # so that no slow machine changes what fails
SIMULATED = Claims(patience=0.3, virtual=True, address_type=240)

Patch = pytest.MonkeyPatch
Transmit = Callable[[MemoryLink, Message], Awaitable[None] | None]


def fails(name: str, text: str, claims: Claims = CLAIMS) -> None:
    """Expect a case to fail, and to say why."""
    with pytest.raises(AssertionError, match=text):
        run_case(BY_NAME[name], "memory://flawed-{n}", claims)


def sending(patch: Patch, flawed: Callable[[Transmit, MemoryLink, Message], Any]) -> None:
    """Have links send in another way."""
    right = MemoryLink.transmit

    def transmit(link: MemoryLink, message: Message) -> Any:
        return flawed(right, link, message)

    patch.setattr(MemoryLink, "transmit", transmit)


def always(*_: object) -> bool:
    return True


def nothing(*_: object) -> None:
    pass


def the_uri(uri: str, _: object) -> str:
    return uri


def with_payload(message: Message, payload: bytes) -> Message:
    return message._replace(payload=payload)


def test_one_that_loses_messages(monkeypatch: Patch) -> None:
    def flawed(right: Transmit, link: MemoryLink, message: Message) -> Any:
        return None if link.taken % 10 == 0 else right(link, message)

    sending(monkeypatch, flawed)
    fails("order_is_kept", "450 of 500 messages came")
    fails("both_directions_at_a_time", "messages came")
    fails("the_last_message", "messages came")


def test_one_that_loses_everything(monkeypatch: Patch) -> None:
    sending(monkeypatch, nothing)
    fails("routes_of_a_message", "0 of 1 message came")


def test_one_that_is_in_doubt_where_there_is_none(monkeypatch: Patch) -> None:
    async def ask(*_: object) -> None:
        raise LinkLost("x")

    async def ask_a_link_that_is_there(stage: Stage, *_: object) -> Message:
        if len(stage.a.parts.table.targets) == 0:
            raise LinkLost("x")
        return Message((), (), b"")

    monkeypatch.setattr(Stage, "ask", ask)
    fails(
        "addresses_where_nobody_listens",
        "which is no NotDelivered",
        Claims(address_type=240, virtual=True),
    )
    monkeypatch.setattr(Stage, "ask", ask_a_link_that_is_there)
    fails("a_link_that_stops", "the error is LinkLost")


def test_one_that_changes_the_order(monkeypatch: Patch) -> None:
    kept: list[Message] = []

    def flawed(right: Transmit, link: MemoryLink, message: Message) -> Any:
        kept.append(message)
        if len(kept) == 2:
            right(link, kept.pop())
            right(link, kept.pop())

    sending(monkeypatch, flawed)
    fails("order_is_kept", "the order is another")


def test_one_that_sends_twice(monkeypatch: Patch) -> None:
    def flawed(right: Transmit, link: MemoryLink, message: Message) -> Any:
        right(link, message)
        return right(link, message)

    sending(monkeypatch, flawed)
    fails("order_is_kept", "the order is another")
    fails("a_receiver_that_is_slow_for_a_while", "messages 750 were lost, 750 doubled")
    fails("a_request_takes_one_answer", "not the dead letters")


def test_one_that_breaks_large_payloads(monkeypatch: Patch) -> None:
    def flawed(right: Transmit, link: MemoryLink, message: Message) -> Any:
        return right(link, with_payload(message, message.payload[:1000]))

    sending(monkeypatch, flawed)
    fails("payloads_of_all_sizes", "of 1023 bytes 1000 came there")


def test_one_that_takes_what_is_too_large() -> None:
    fails(
        "a_payload_that_is_too_large", "2000 bytes got across", Claims(too_large=2000, virtual=True)
    )


def test_one_that_writes_addresses_as_text(monkeypatch: Patch) -> None:
    def flawed(right: Transmit, link: MemoryLink, message: Message) -> Any:
        plain = tuple(
            Address(kind, value.decode(errors="replace").encode())
            for kind, value in message.onward_route
        )
        return right(link, message._replace(onward_route=plain))

    sending(monkeypatch, flawed)
    fails("addresses_of_all_kinds", "the onward route is")


def test_one_that_forgets_the_way_back(monkeypatch: Patch) -> None:
    def flawed(right: Transmit, link: MemoryLink, message: Message) -> Any:
        return right(link, message._replace(return_route=()))

    sending(monkeypatch, flawed)
    fails("routes_of_a_message", "the return route is")
    with pytest.raises(Exception, match=r"no answer|timeout|in time|came"):
        run_case(BY_NAME["answers_come_back"], "memory://flawed-{n}", CLAIMS)


@pytest.mark.parametrize("trace", [None, "always"])
def test_one_that_sends_more_or_less_of_the_context(monkeypatch: Patch, trace: str | None) -> None:
    def arrive(link: MemoryLink, messages: Any) -> None:
        flawed = [each._replace(context=trace and Context(trace=trace)) for each in messages]
        right(link, flawed)

    right = MemoryLink.arrive
    monkeypatch.setattr(MemoryLink, "arrive", arrive)
    fails("the_tracing_text", "the context .* came")
    if trace is not None:
        fails("what_stays_in_the_node", "the context .* came")


def test_one_that_lets_everybody_in(monkeypatch: Patch) -> None:
    monkeypatch.setattr("onward.transports.node._gate.Gate.admits", always)
    for name in (
        "nothing_is_exposed",
        "what_connects_exposes_nothing",
        "the_way_back_leads_no_further",
        "a_request_takes_one_answer",
    ):
        fails(name, "not the dead letters {'not exposed': .}")


def test_one_that_reads_on(monkeypatch: Patch) -> None:
    monkeypatch.setattr(MemoryLink, "hold", nothing)
    fails("a_receiver_that_takes_nothing", "bytes are on the way to a worker that takes none")


def test_one_that_does_not_tell_the_other_end(monkeypatch: Patch) -> None:
    monkeypatch.setattr(MemoryLink, "on_stop", nothing)
    fails("a_listener_that_closes", "the request still waits, though the link is gone")
    fails("a_node_that_stops", "the request still waits, though the link is gone")
    fails("the_last_message", "the other end is still there")


def test_one_that_says_that_nothing_was_delivered(monkeypatch: Patch) -> None:
    monkeypatch.setattr("onward.transports.node._link.LinkLost", LinkDown)
    fails("a_listener_that_closes", "that is InDoubt")


def test_one_that_does_not_stop_its_end(monkeypatch: Patch) -> None:
    def was_cut(link: MemoryLink) -> None:
        link.lost("the connection was cut")

    monkeypatch.setattr(MemoryLink, "_was_cut", was_cut)
    fails("a_listener_that_closes", "the other end is still there, after 0.3 s")


def test_one_that_connects_to_nobody(monkeypatch: Patch) -> None:
    right = MemoryTransport.connect

    async def connect(transport: MemoryTransport, uri: str, **options: Any) -> Address:
        try:
            return await right(transport, uri, **options)
        except Exception:
            return await transport.node.start(lambda: MemoryLink(expose=frozenset()))

    monkeypatch.setattr(MemoryTransport, "connect", connect)
    fails("nobody_listens", "a link without a listener came up")

    async def hang(transport: MemoryTransport, uri: str, **options: Any) -> Address:
        await asyncio.Event().wait()
        raise AssertionError

    monkeypatch.setattr(MemoryTransport, "connect", hang)
    fails("nobody_listens", "connecting without a listener takes for ever")


def test_one_where_two_listen_at_one_place(monkeypatch: Patch) -> None:
    def take(worker: Any) -> None:
        memory._listening[worker.name] = worker

    monkeypatch.setattr(memory.MemoryListenerWorker, "on_start", take)
    fails("a_place_that_is_taken", "two listen at memory://flawed-")


def test_one_whose_listener_does_not_close(monkeypatch: Patch) -> None:
    async def close(listener: MemoryListener) -> None:
        pass

    monkeypatch.setattr(MemoryListener, "close", close)
    fails("a_place_that_is_free_again", "the listener's worker is still there")


def test_one_that_does_not_come_back() -> None:
    fails(
        "a_link_that_comes_back", "the link did not come back", Claims(patience=0.2, virtual=True)
    )


def test_one_that_uses_one_place_twice() -> None:
    claims = Claims(ephemeral=True, patience=0.3, virtual=True)
    with pytest.raises(OSError, match="in use"):
        run_case(BY_NAME["any_free_place"], "memory://always-the-same", claims)


def test_one_that_goes_on_after_its_stop(monkeypatch: Patch) -> None:
    async def not_really(*_: object) -> None:
        pass

    monkeypatch.setattr("onward.actors.Node.stop_worker", not_really)
    fails("a_link_that_stops", "its worker is still there")


def test_one_that_leaves_a_task(monkeypatch: Patch) -> None:
    left: list[asyncio.Task[None]] = []

    def leave(link: MemoryLink) -> None:
        left.append(asyncio.create_task(asyncio.sleep(1000)))
        right(link)

    right = MemoryLink.on_start
    monkeypatch.setattr(MemoryLink, "on_start", leave)
    fails("nothing_is_left", "tasks are left: .*sleep")


def test_one_that_leaves_a_timer(monkeypatch: Patch) -> None:
    def leave(link: MemoryLink) -> None:
        asyncio.get_running_loop().call_later(1000, print)
        right(link)

    right = MemoryLink.on_start
    monkeypatch.setattr(MemoryLink, "on_start", leave)
    fails("nothing_is_left", "timers are left: .*print")


def test_one_that_leaves_a_socket(monkeypatch: Patch) -> None:
    left: list[socket.socket] = []

    def leave(link: MemoryLink) -> None:
        left.append(socket.socket())
        right(link)

    right = MemoryLink.on_start
    monkeypatch.setattr(MemoryLink, "on_start", leave)
    fails("nothing_is_left", "descriptors are left: [0-9]+ of socket")
    while left:
        left.pop().close()


def test_one_that_takes_anything_for_a_uri_or_an_option(monkeypatch: Patch) -> None:
    monkeypatch.setattr(memory, "_name", the_uri)
    fails("uris_that_are_none", "listen takes memory:// for a URI")
    fails("options_that_are_none", "listen takes an option that there is not")


def test_one_whose_worker_fails(monkeypatch: Patch) -> None:
    def flawed(right: Transmit, link: MemoryLink, message: Message) -> Any:
        if message.payload == b"unhandled":
            raise KeyError
        right(link, message)
        if link.taken == 3:
            raise KeyError

    sending(monkeypatch, flawed)
    fails("order_is_kept", "a worker of node a-[0-9]+ failed")


def test_a_case_that_takes_for_ever(monkeypatch: Patch) -> None:
    async def wait(self: Any, *_: Any) -> Any:
        await asyncio.Event().wait()

    monkeypatch.setattr("onward.transports.testing._stage.Stage.link", wait)
    fails("order_is_kept", "it takes longer than 1 s", Claims(patience=0.1, virtual=True))


# --- between more nodes, links and threads ----------------------------------------------


def breaks(name: str, text: str, claims: Claims = CLAIMS, uri: str = "memory://flawed-{n}") -> None:
    """Expect a case to fail, if only by what the transport raises."""
    with pytest.raises(Exception, match=text):
        run_case(BY_NAME[name], uri, claims)


NO_ANSWER = "no answer in time"


def test_one_that_exposes_nothing_of_who_connects(monkeypatch: Patch) -> None:
    right = MemoryTransport.connect

    async def connect(transport: MemoryTransport, uri: str, **_: Any) -> Address:
        return await right(transport, uri)

    monkeypatch.setattr(MemoryTransport, "connect", connect)
    breaks("both_ends_may_ask", NO_ANSWER)


def test_one_that_forgets_who_is_behind_the_first(monkeypatch: Patch) -> None:
    def flawed(right: Transmit, link: MemoryLink, message: Message) -> Any:
        return right(link, message._replace(return_route=message.return_route[:1]))

    sending(monkeypatch, flawed)
    breaks("two_links_and_a_relay", NO_ANSWER)


def test_one_that_does_not_find_its_own_node(monkeypatch: Patch) -> None:
    right = MemoryTransport.connect

    async def connect(transport: MemoryTransport, uri: str, **options: Any) -> Address:
        if memory._listening[uri.partition("://")[2]].node is transport.node:
            raise LinkDown(uri, "nobody else listens there")
        return await right(transport, uri, **options)

    monkeypatch.setattr(MemoryTransport, "connect", connect)
    breaks("a_node_and_itself", "nobody else listens there")


def test_one_that_exchanges_payloads(monkeypatch: Patch) -> None:
    kept: list[Message] = []

    def flawed(right: Transmit, link: MemoryLink, message: Message) -> Any:
        if message.to.value != b"echo":
            return right(link, message)
        kept.append(message)
        if len(kept) == 2:
            one, other = kept
            kept.clear()
            right(link, with_payload(one, other.payload))
            right(link, with_payload(other, one.payload))
        return None

    sending(monkeypatch, flawed)
    fails("many_requests_at_a_time", "request [0-9]+ got the answer of another")


def test_one_whose_listener_mixes_its_links_up(monkeypatch: Patch) -> None:
    first: list[MemoryLink] = []
    right = MemoryLink.join

    def join(link: MemoryLink, peer: MemoryLink) -> None:
        first.append(peer)
        right(link, first[0] if len(first) % 2 else peer)

    monkeypatch.setattr(MemoryLink, "join", join)
    breaks("many_links_to_one_listener", NO_ANSWER)


def test_one_that_has_one_link_for_all(monkeypatch: Patch) -> None:
    links: dict[object, Address] = {}
    right = MemoryTransport.connect

    async def connect(transport: MemoryTransport, uri: str, **options: Any) -> Address:
        if transport not in links:
            links[transport] = await right(transport, uri, **options)
        return links[transport]

    monkeypatch.setattr(MemoryTransport, "connect", connect)
    fails("many_links_to_one_listener", "two links have the same address")


def arriving(patch: Patch, wanted: Callable[[MemoryLink, Message], object]) -> None:
    """Have links take only some of what comes, and say nothing of the rest."""
    right = MemoryLink.arrive

    def arrive(link: MemoryLink, messages: Any) -> None:
        right(link, [each for each in messages if wanted(link, each)])

    patch.setattr(MemoryLink, "arrive", arrive)


def test_one_that_drops_what_is_for_nobody(monkeypatch: Patch) -> None:
    arriving(monkeypatch, lambda link, message: link.node.has(message.to))
    fails("an_exposed_address_nobody_has", "not the dead letters {'no such worker': 1} but {}")


def test_one_whose_ways_back_are_for_once(monkeypatch: Patch) -> None:
    came: set[Address] = set()

    def wanted(_: MemoryLink, message: Message) -> bool:
        known = message.to in came
        came.add(message.to)
        return not known

    arriving(monkeypatch, wanted)
    fails("the_way_back_is_open", "1 of 2 messages came to 0#asker")


def test_one_that_takes_error_replies_for_messages_or_for_nothing(monkeypatch: Patch) -> None:
    with monkeypatch.context() as patch:
        arriving(patch, lambda _, message: not is_error_reply(message))
        fails("error_replies", "the error reply did not come")
    monkeypatch.setattr("onward.actors.access._guards.Guards.lets_error_replies", always)
    fails("error_replies", "the error reply was not kept in")


def test_one_that_lets_routes_grow(monkeypatch: Patch) -> None:
    monkeypatch.setattr("onward.transports.node._link.MAX_ROUTE_LENGTH", 1000)
    fails("routes_that_grew_too_long", "there is no dead letter")


def test_one_that_holds_all_links_up(monkeypatch: Patch) -> None:
    links: list[MemoryLink] = []
    right = MemoryLink.join

    def join(link: MemoryLink, peer: MemoryLink) -> None:
        links.append(link)
        right(link, peer)

    def hold(link: MemoryLink) -> None:
        for each in links:
            each._held = each.node is link.node

    monkeypatch.setattr(MemoryLink, "join", join)
    monkeypatch.setattr(MemoryLink, "hold", hold)
    breaks("others_are_not_held_up", NO_ANSWER)


def test_one_that_opens_a_link_for_each_message(monkeypatch: Patch) -> None:
    right = SimulatedTransport.resolve

    def resolve(transport: SimulatedTransport, message: Message) -> Message:
        transport._resolved.clear()
        return right(transport, message)

    monkeypatch.setattr(SimulatedTransport, "resolve", resolve)
    breaks("addresses_are_resolved", "3 links were opened", SIMULATED, "sim://flawed-{n}")


def test_one_that_takes_any_address_for_a_place(monkeypatch: Patch) -> None:
    right = SimulatedTransport.resolve

    def resolve(transport: SimulatedTransport, message: Message) -> Message:
        return right(transport, message.redirect(Address(240, b"anywhere")))

    monkeypatch.setattr(SimulatedTransport, "resolve", resolve)
    breaks("addresses_that_are_none", "two bytes that are no text", SIMULATED, "sim://flawed-{n}")


def test_one_that_does_nothing_for_another_thread(monkeypatch: Patch) -> None:
    right = MemoryLink._call

    def call(link: MemoryLink, action: Any) -> None:
        if link._loop is asyncio.get_running_loop():
            right(link, action)

    monkeypatch.setattr(MemoryLink, "_call", call)
    breaks("nodes_of_different_threads", NO_ANSWER, Claims(patience=0.1))


def test_one_with_errors_that_nobody_catches(monkeypatch: Patch) -> None:
    right = MemoryLink.on_start
    empty: dict[str, int] = {}

    def on_start(link: MemoryLink) -> None:
        asyncio.get_running_loop().call_soon(empty.__getitem__, "what is not there")
        right(link)

    monkeypatch.setattr(MemoryLink, "on_start", on_start)
    fails("answers_come_back", r"uncaught exceptions: .* KeyError\('what is not there'\)")


def test_every_case_finds_a_flaw() -> None:
    folder = Path(__file__).parent
    text = "".join(path.read_text() for path in folder.glob("test_*.py") if path.stem != "test_run")
    assert [name for name in BY_NAME if f'"{name}"' not in text] == []
