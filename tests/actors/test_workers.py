from __future__ import annotations

import asyncio

import pytest

from onward.actors import LimitReached, Node, NodeLimits, Worker
from onward.actors.runtime._stopping import Stop
from onward.protocol import Address, AddressError, AddressInUse, Message, UnknownAddress
from tests.support.workers import Echo, Failing, Forwarder, Recorder, spawn_worker


async def test_addresses(node: Node) -> None:
    random = node.spawn(Echo)
    assert len(random.value) == 32
    assert node.spawn(Echo, address="a") == Address(0, b"a")
    assert node.spawn(Echo, address=b"b") == Address(0, b"b")
    assert node.spawn(Echo, address=Address(7, b"c")) == Address(7, b"c")
    assert node.spawn(Echo, address=["d", b"e", "d"]) == Address(0, b"d")
    for address in (random, "a", "b", "7#c", "d", "e"):
        assert node.has(address)
    assert not node.has("f")
    with pytest.raises(ValueError, match="needs an address"):
        node.spawn(Echo, address=[])
    with pytest.raises(AddressError):
        node.spawn(Echo, address="")


async def test_all_addresses_or_none(node: Node) -> None:
    made: list[Worker] = []

    def make() -> Worker:
        made.append(Echo())
        return made[-1]

    node.spawn(Echo, address="b")
    with pytest.raises(AddressInUse, match="address in use: 0#b"):
        node.spawn(make, address=["a", "b"])
    assert not node.has("a")
    assert made == []
    assert node.statistics().worker_count == 1


async def test_an_address_taken_while_the_worker_is_made(node: Node) -> None:

    def make() -> Worker:
        node.spawn(Recorder, address="a")
        return Echo()

    with pytest.raises(AddressInUse):
        node.spawn(make, address="a")
    assert node.statistics().workers[0].kind == "Recorder"


async def test_one_worker_with_several_addresses(node: Node) -> None:
    recorder = spawn_worker(node, Recorder(), ["a", "b"])
    node.add_address("b", "c")
    node.send("a", b"")
    node.send("b", b"")
    node.send("c", b"")
    await asyncio.sleep(0.1)
    assert [str(message.to) for message in recorder.messages] == ["0#a", "0#b", "0#c"]
    assert [str(address) for address in recorder.addresses] == ["0#a", "0#b", "0#c"]
    assert recorder.address == Address(0, b"a")
    node.remove_address("b")
    assert [str(address) for address in recorder.addresses] == ["0#a", "0#c"]
    assert not node.has("b")
    with pytest.raises(ValueError, match="primary"):
        node.remove_address("a")
    with pytest.raises(UnknownAddress):
        node.remove_address("b")
    with pytest.raises(UnknownAddress):
        node.add_address("b", "x")
    with pytest.raises(AddressInUse):
        node.add_address("a", "c")
    await node.stop_worker("c")
    assert not node.has("a")
    assert not node.has("c")


async def test_the_number_of_addresses_is_limited() -> None:
    async with Node(limits=NodeLimits(addresses=2)) as node:
        node.spawn(Echo, address="a")
        with pytest.raises(LimitReached, match="2 addresses"):
            node.spawn(Echo, address=["b", "c"])
        node.spawn(Echo, address="b")
        with pytest.raises(LimitReached):
            node.add_address("b", "c")


async def test_a_factory_that_fails(node: Node) -> None:
    def broken() -> Worker:
        raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        node.spawn(broken, address="a")
    assert not node.has("a")


async def test_a_request_s_mailbox_is_no_worker(node: Node) -> None:
    recorder = spawn_worker(node, Recorder(), "silent")
    task = asyncio.create_task(node.request("silent", b""))
    await asyncio.sleep(0.1)
    [back] = recorder.messages[0].return_route
    assert node.has(back)
    with pytest.raises(UnknownAddress):
        node.ref(back)
    with pytest.raises(UnknownAddress):
        await node.stop_worker(back)
    recorder.reply(recorder.messages[0], b"")
    await task


async def test_statistics() -> None:
    async with Node("name") as node:
        node.spawn(Failing, address=["failing", "also"])
        node.spawn(Forwarder, address="forwarder")
        node.send("failing", b"!")
        node.send("forwarder => failing", b"fine")
        node.parts.router.dispatch_or_lose(Message((Address(0, b"x"),), (), b""))
        await asyncio.sleep(0.1)
        during = node.statistics()
        assert during.name == "name"
        assert [worker.kind for worker in during.workers] == ["Failing", "Forwarder"]
        assert (during.worker_count, during.handled, during.failed) == (2, 3, 1)
        assert (during.dead_letters, during.dead_letter_reasons) == (
            2,
            {"no such worker": 1, "worker failed": 1},
        )
        assert node.statistics(workers=False).workers == ()
    after = node.statistics()
    assert (after.worker_count, after.handled, after.failed) == (0, 3, 1)


async def test_an_address_missing_from_the_table_keeps_no_worker_from_stopping(node: Node) -> None:
    node.spawn(Echo, address="a")
    cell = node.parts.table.cell("a")
    cell.addresses = (*cell.addresses, Address(0, b"never registered"))
    cell.post(Stop(), first=True)
    node.send("a", b"left")
    await asyncio.sleep(1)
    assert node.dead_letters.by_reason == {"worker stopped": 1}
    assert node.statistics().worker_count == 0


async def test_a_link_that_connects_again_tells_of_it(node: Node) -> None:
    link, other = node.spawn(Echo), node.spawn(Echo)
    workers, told = node.parts.workers, list[str]()
    unwatch = workers.watch_losses(link, lambda: told.append("lost"), lambda: told.append("back"))
    workers.watch_losses(link, lambda: told.append("lost too"))
    workers.tell_connected(link)  # for the first time, which is no news
    workers.tell_loss(other, reconnects=True)
    workers.tell_loss(link)
    assert not workers.is_disconnected(link)
    workers.tell_connected(link)
    assert told == ["lost", "lost too"]
    workers.tell_loss(link, reconnects=True)
    assert workers.is_disconnected(link)
    workers.tell_connected(link)
    assert not workers.is_disconnected(link)
    assert told[2:] == ["lost", "lost too", "back"]
    unwatch()
    workers.tell_loss(link, reconnects=True)
    workers.tell_connected(link)
    assert told[5:] == ["lost too"]
    await node.stop_worker(other)
    assert not workers.is_disconnected(other)
    workers.tell_loss(other, reconnects=True)
    workers.tell_connected(other)
