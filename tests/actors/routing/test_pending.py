from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from onward.actors import (
    Expired,
    MailboxOptions,
    Node,
    NodeLimits,
    Overflow,
    Pending,
    RoutingLoop,
    Rule,
    Unresolved,
)
from onward.protocol import (
    Address,
    Context,
    Message,
    NodeStopped,
    OnwardError,
    Outside,
    UnknownAddressType,
)
from tests.support.compiled import interpreted
from tests.support.workers import Echo, Forwarder, Gate, Recorder, start_worker

TYPE = 200


class Names:
    """A rule with one look-up for all names."""

    def __init__(self, *, timeout: float | None = None) -> None:
        self.pending = Pending(timeout=timeout)
        self.known: dict[bytes, Address] = {}
        self.asked = 0

    def __call__(self, message: Message) -> Message | Pending:
        self.asked += 1
        found = self.known.get(message.to.value)
        return self.pending if found is None else message.redirect(found)


async def node_with(node: Node, rule: Rule, name: str = "w") -> Recorder:
    recorder = await start_worker(node, Recorder(), name)
    node.add_rule(TYPE, rule)
    return recorder


async def test_messages_wait_and_keep_their_order(node: Node) -> None:
    names = Names()
    recorder = await node_with(node, names)
    for number in range(3):
        node.send("200#x", b"%d" % number)
    assert (len(names.pending), node.statistics().pending) == (3, 3)
    names.known[b"x"] = Address(0, b"w")
    names.pending.resume()
    await asyncio.sleep(0.1)
    assert [each.payload for each in recorder.messages] == [b"0", b"1", b"2"]
    assert (len(names.pending), node.statistics().pending) == (0, 0)


async def test_a_refused_request_raises(node: Node) -> None:
    names = Names()
    await node_with(node, names)
    waiting = asyncio.create_task(node.request("200#x", b""))
    await asyncio.sleep(0.1)
    names.pending.refuse("no such name")
    with pytest.raises(Unresolved) as raised:
        await waiting
    assert str(raised.value) == "unresolved: 200#x (no such name)"
    with pytest.raises(Unresolved, match="no such name"):  # it stays settled
        node.send("200#x", b"")
    assert node.dead_letters.by_reason == {"unresolved": 1}


async def test_a_message_waits_as_long_as_its_rule_says_or_the_node_does() -> None:
    async with Node(limits=NodeLimits(pending_timeout=5.0)) as node:
        short, long = Names(timeout=1.0), Names()
        await node_with(node, short)
        node.add_rule(TYPE + 1, long)
        node.send("201#x", b"long")
        node.send("200#x", b"short")
        await asyncio.sleep(1.1)
        assert [each.message.payload for each in node.dead_letters.recent] == [b"short"]
        await asyncio.sleep(4.0)
        assert [each.reason for each in node.dead_letters.recent] == ["unresolved"] * 2
        assert (len(short.pending), len(long.pending)) == (0, 0)


async def test_a_deadline_ends_the_wait(node: Node) -> None:
    await node_with(node, Names())
    node.send("200#x", b"", context=Context(node.loop.time() + 1.0))
    await asyncio.sleep(1.1)
    assert node.dead_letters.by_reason == {Expired.reason: 1}


async def test_asked_again_it_does_not_wait_longer() -> None:
    async with Node(limits=NodeLimits(pending_timeout=2.0)) as node:
        names = Names()
        await node_with(node, names)
        node.send("200#x", b"")
        await asyncio.sleep(1.5)
        first, names.pending = names.pending, Pending()
        first.resume()
        assert len(names.pending) == 1
        await asyncio.sleep(0.6)
        assert node.dead_letters.by_reason == {"unresolved": 1}


async def test_a_settled_answer_is_asked_for_again_a_few_times(node: Node) -> None:
    names = Names()
    await node_with(node, names)
    names.pending.resume()
    with pytest.raises(RoutingLoop):
        node.send("200#x", b"")
    assert names.asked == 9


@pytest.mark.parametrize(
    "limits", [NodeLimits(pending=2), NodeLimits(pending_bytes=9)], ids=["messages", "bytes"]
)
async def test_a_message_beyond_the_limits_is_refused(limits: NodeLimits) -> None:
    async with Node(limits=limits) as node:
        names = Names()
        await node_with(node, names)
        node.send("200#x", b"123")
        node.send("200#x", b"123")
        with pytest.raises(Unresolved, match="2 messages wait for rules"):
            node.send("200#x", b"123")
        assert len(names.pending) == 2
        names.pending.refuse()
        assert node.statistics().pending == 0


class Link(Echo):
    leaves_node = True


async def test_one_link_leaves_room_to_others() -> None:
    async with Node(limits=NodeLimits(pending=4)) as node:
        names = Names()
        await node_with(node, names)
        node.spawn(Link, address="a")
        node.spawn(Link, address="b")
        for _ in range(4):
            node.parts.router.dispatch_or_lose(
                Message((Address(TYPE, b"x"),), (Address(0, b"a"),), b"")
            )
        assert len(names.pending) == 2
        for _ in range(4):
            node.parts.router.dispatch_or_lose(
                Message((Address(TYPE, b"x"),), (Address(0, b"b"),), b"")
            )
        assert len(names.pending) == 3
        assert node.dead_letters.by_reason == {"unresolved": 5}


class Connection(Echo):
    is_connection = True


async def test_the_peer_that_a_message_came_from(node: Node) -> None:
    node.spawn(Echo, address="inside")
    node.spawn(Connection, address="connection")
    node.spawn(Link, address="link")
    inside, connection, link, gone = (
        Address(0, each) for each in (b"inside", b"connection", b"link", b"gone")
    )
    context = Context(outside=Outside(0, node.has))
    for source, back, peer in (
        (None, (), None),
        (inside, (inside,), None),
        (connection, (), connection),
        (inside, (inside, connection, link), connection),
        (inside, (link,), link),
        (inside, (gone, link), None),
    ):
        message = Message((inside,), back, b"", source)
        assert node.parts.table.peer_of(message) == peer
        message = message._replace(context=context)
        assert node.parts.table.peer_of(message) == (peer or node.has)


async def test_without_its_rule_a_message_is_lost(node: Node) -> None:
    names = Names()
    await node_with(node, names)
    node.send("200#x", b"")
    node.remove_rule(TYPE)
    assert node.dead_letters.by_reason == {UnknownAddressType.reason: 1}


async def test_a_node_that_stops_refuses_what_waits() -> None:
    async with Node() as node:
        await node_with(node, Names())
        node.send("200#x", b"")
    assert node.dead_letters.by_reason == {NodeStopped.reason: 1}


async def test_a_rule_that_fails_when_it_is_asked_again(node: Node) -> None:
    pending = Pending()
    answers: list[Any] = [pending, pending]

    def rule(message: Message) -> Message | Pending:
        del message
        answer: Pending = answers.pop()
        return answer

    recorder = await node_with(node, rule)
    node.send("200#x", b"1")
    node.send("200#x", b"2")
    pending.resume()
    await asyncio.sleep(0.1)
    assert recorder.messages == []
    assert node.dead_letters.by_reason == {"unresolved": 2}


@pytest.mark.real_time
async def test_senders_and_owners_on_other_threads(node: Node) -> None:
    names = Names()
    recorder = await node_with(node, names)
    sender = threading.Thread(target=node.send, args=("200#x", b""))
    sender.start()
    await asyncio.to_thread(sender.join)
    names.known[b"x"] = Address(0, b"w")
    await asyncio.to_thread(names.pending.resume)
    node.spawn(Echo, address="e")
    await node.request("e", b"")  # its turn comes after the recorder's
    assert len(recorder.messages) == 1


class _Watched(Pending):
    """A pending whose settling thread is stopped where it has just looked for kept messages."""

    __module__ = "onward.watched"  # only the package itself may extend it

    def __init__(self) -> None:
        super().__init__()
        self.looked, self.go_on = threading.Event(), threading.Event()
        self.thread: threading.Thread | None = None

    def __getattribute__(self, name: str) -> Any:
        found = super().__getattribute__(name)
        if name == "_table" and threading.current_thread() is self.thread:
            self.looked.set()
            self.go_on.wait(5.0)
        return found


@interpreted
async def test_a_message_is_not_kept_while_another_thread_settles() -> None:
    known: set[bytes] = set()
    threads: list[threading.Thread] = []

    def rule(message: Message) -> Message | Pending:
        if message.to.value in known:
            return message.redirect(Address(0, b"w"))
        pending = _Watched()
        known.add(message.to.value)
        pending.thread = thread = threading.Thread(target=pending.resume)
        threads.append(thread)
        thread.start()
        pending.looked.wait(5.0)
        threading.Timer(0.05, pending.go_on.set).start()
        return pending

    async with Node() as node:
        await node.start(Echo, address="w")
        node.add_rule(TYPE, rule)
        answer = await node.request("200#x", b"hi", timeout=3.0)
        assert answer.payload == b"hi"
    for thread in threads:
        thread.join()


# --- several receivers ----------------------------------------------------------------------
async def test_a_rule_names_several_receivers(node: Node) -> None:
    one = await node_with(
        node, lambda message: [message.redirect(Address(0, each)) for each in (b"w", b"v")]
    )
    other = await start_worker(node, Recorder(), "v")
    node.send("200#x => rest", b"hi")
    await asyncio.sleep(0.1)
    for recorder, name in ((one, "w"), (other, "v")):
        assert [str(each) for each in recorder.messages] == [f"[0#{name} => 0#rest] <- [] 2 bytes"]


async def test_an_error_is_raised_only_if_none_can_be_delivered(node: Node) -> None:
    members = [b"w", b"nobody"]
    recorder = await node_with(
        node, lambda message: [message.redirect(Address(0, each)) for each in members]
    )
    node.send("200#x", b"")
    await asyncio.sleep(0.1)
    assert len(recorder.messages) == 1
    assert node.dead_letters.by_reason == {"no such worker": 1}
    del members[0]
    with pytest.raises(OnwardError, match="no such worker: 0#nobody"):
        node.send("200#x", b"")
    members.clear()
    with pytest.raises(Unresolved, match="names no receiver"):
        node.send("200#x", b"")


def handled(gate: Gate) -> list[bytes]:
    return [each.payload for each in gate.messages]


async def full_receiver(node: Node, name: str, overflow: Overflow) -> Gate:
    gate = await start_worker(node, Gate(), name, mailbox=MailboxOptions(1, overflow))
    node.send(name, b"in hand")
    return gate


async def full_receivers(node: Node, overflow: dict[str, Overflow]) -> dict[str, Gate]:
    """Start workers with full mailboxes, which a rule names together."""
    gates = {name: await full_receiver(node, name, each) for name, each in overflow.items()}
    await asyncio.sleep(0.1)
    for name in gates:
        node.send(name, b"waits")
    node.add_rule(TYPE, lambda m: [m.redirect(Address(0, each.encode())) for each in gates])
    return gates


async def test_each_copy_waits_for_its_receiver(node: Node) -> None:
    gates = await full_receivers(node, {"a": Overflow.WAIT, "b": Overflow.WAIT})
    sent = asyncio.create_task(node.send_wait("200#x", b"copy"))
    await asyncio.sleep(0.1)
    gates["a"].opened.set()
    await asyncio.sleep(0.1)
    assert not sent.done()
    gates["b"].opened.set()
    await sent
    await asyncio.sleep(0.1)
    assert [handled(each) for each in gates.values()] == [[b"in hand", b"waits", b"copy"]] * 2
    assert node.dead_letters.total == 0


async def test_a_copy_that_may_not_wait_is_a_dead_letter(node: Node) -> None:
    gates = await full_receivers(node, {"a": Overflow.WAIT, "b": Overflow.FAIL})
    sent = asyncio.create_task(node.send_wait("200#x", b"copy"))
    await asyncio.sleep(0.1)
    gates["a"].opened.set()
    await sent
    await asyncio.sleep(0.1)
    assert handled(gates["a"]) == [b"in hand", b"waits", b"copy"]
    assert node.dead_letters.by_reason == {"mailbox full": 1}
    gates["b"].opened.set()


async def test_a_copy_whose_receiver_stops_is_a_dead_letter(node: Node) -> None:
    gates = await full_receivers(node, {"a": Overflow.WAIT, "b": Overflow.WAIT})
    sent = asyncio.create_task(node.send_wait("200#x", b"copy"))
    await asyncio.sleep(0.1)
    await node.stop_worker("b", timeout=1.0)
    gates["a"].opened.set()
    await sent
    assert b"copy" in {each.message.payload for each in node.dead_letters.recent}


async def test_a_worker_does_not_wait_for_one_of_several_receivers(node: Node) -> None:
    gates = await full_receivers(node, {"a": Overflow.WAIT, "b": Overflow.WAIT})
    await node.start(Forwarder, address="f")
    node.send("f => 200#x", b"copy")
    await asyncio.sleep(0.1)
    assert node.dead_letters.by_reason == {"mailbox full": 1}
    for gate in gates.values():
        gate.opened.set()
    await asyncio.sleep(0.1)
    assert [handled(each) for each in gates.values()] == [[b"in hand", b"waits"]] * 2


async def test_copies_are_not_copied_again(node: Node) -> None:
    await node_with(node, lambda message: [message, message])
    with pytest.raises(RoutingLoop, match="copied by a second rule"):
        node.send("200#x", b"")
