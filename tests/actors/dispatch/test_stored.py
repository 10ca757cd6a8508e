"""Names that hold on disk: what is kept, until when, and what is left after a kill."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import textwrap
import time
from asyncio import sleep
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from onward.actors import Node, Worker
from onward.actors.dispatch import (
    DISPATCH,
    Accept,
    ConsumerRefused,
    Dispatcher,
    DispatchOptions,
    HoldStoreInUse,
    Received,
)
from onward.actors.dispatch._dispatch_worker import DispatchWorker
from onward.actors.dispatch._hold_store import HoldStore, StoredMessage
from onward.actors.dispatch._stored import StoredMessages
from onward.protocol import Message
from onward.protocol.dispatch import (
    ACCEPTED,
    RELEASED,
    BadSemantics,
    DeliveryLimits,
    Gate,
    Hold,
    Last,
    Redirect,
    Reliability,
    Retry,
    RoutingPattern,
    Semantics,
    Settlement,
)
from onward.protocol.eventlog import Kind, Outcome
from tests.actors.dispatch.kept import Kept
from tests.support.names import Counted
from tests.support.workers import Echo, start_worker


def on_disk(
    settle: Settlement = Settlement.AT_ONCE,
    *chain: Redirect | Last,
    messages: int = 100,
    size: int = 1_000_000,
    age: float = 60.0,
    rounds: int = 0,
) -> Semantics:
    hold = Hold(messages=messages, size=size, age=age, disk=True)
    return Semantics(
        undeliverable=(Retry(rounds=rounds, hold=hold), *(chain or (Last.RELEASE,))),
        reliability=Reliability(settle=settle),
    )


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "held.db"


async def attached(node: Node, path: Path, **options: int) -> Dispatcher:
    return await Dispatcher.attach(node, DispatchOptions(hold_file=str(path), **options))  # type: ignore[arg-type]


def stored(path: Path) -> list[bytes]:
    """Return what is in the file, which no dispatcher has open."""
    store = HoldStore(path, 1000, 1_000_000)
    found = [each.payload for each in rows(store)]
    store.close()
    return found


def rows(store: HoldStore, name: str = "") -> list[StoredMessage]:
    """Return the messages of a file, of one name or of all."""
    numbers = store.numbers()
    found = [store.read(each) for text in numbers if name in ("", text) for each in numbers[text]]
    return [each for each in found if each is not None]


async def test_a_message_beyond_the_limits_of_the_node_is_not_accepted(
    node: Node, path: Path
) -> None:
    options = DispatchOptions(hold_file=str(path), deliveries=DeliveryLimits(max_unsettled_size=30))
    dispatcher = await Dispatcher.attach(node, options)
    dispatcher.provision("orders", on_disk())
    producer = await dispatcher.produce_any()
    outcomes = [await producer.send("orders", b"0123456789") for _ in range(5)]
    assert outcomes == [ACCEPTED] * 3 + [RELEASED] * 2
    assert dispatcher.statistics().counts["more than max_unsettled"] == 2
    await node.stop()
    assert len(stored(path)) == 3


@pytest.mark.parametrize("messages", [100, 0], ids=["room", "no-room"])
async def test_a_redirect_to_a_name_on_disk_gives_credit_back(
    messages: int, node: Node, path: Path
) -> None:
    dispatcher = await attached(node, path)
    there = Redirect("34#there"), Last.RELEASE
    dispatcher.provision("orders", Semantics(window=2, gate=Gate.OPEN, undeliverable=there))
    dispatcher.provision("there", on_disk(messages=messages or 1, size=1 if not messages else 9))
    await dispatcher.consume("there", lambda _: None)
    producer = await dispatcher.produce("orders")
    for _ in range(5):
        outcome = await producer.send(b"xy", timeout=1)
        assert outcome == (ACCEPTED if messages else RELEASED)
    await sleep(0.1)
    assert producer.credit == 2


async def test_what_is_accepted_at_once_is_on_disk_until_a_consumer_settles_it(
    node: Node, path: Path
) -> None:
    dispatcher = await attached(node, path)
    dispatcher.provision("orders", on_disk())
    producer = await dispatcher.produce_any()
    assert [await producer.send("orders", b"%d" % each) for each in range(3)] == [ACCEPTED] * 3
    kept = Kept()
    await dispatcher.consume("orders", kept, accept=Accept.SELF)
    await sleep(1)
    assert kept.payloads == [b"0", b"1", b"2"]
    assert not any(each.settled for each in kept.deliveries)
    kept.deliveries[0].accept()
    await node.stop_worker(dispatcher.address)
    assert stored(path) == [b"1", b"2"]


async def test_messages_go_on_after_a_restart(node: Node, path: Path) -> None:
    dispatcher = await attached(node, path)
    dispatcher.provision("orders", on_disk())
    assert (await node.request("34#orders => shelf", b"1")).payload == b""
    await node.stop_worker(dispatcher.address)

    class Onward(Worker):
        def handle_message(self, message: Message) -> None:
            self.forward(message)

    await start_worker(node, Onward(), "shop")
    await start_worker(node, Echo(), "shelf")
    dispatcher = await attached(node, path)
    await dispatcher.consume("orders", "shop")
    dispatcher.provision("mail", Semantics())
    await sleep(1)
    assert dispatcher.statistics().unsettled == 0
    dispatcher.provision("orders", on_disk())
    dispatcher.provision("news", on_disk())
    await sleep(1)
    (row,) = [each for each in dispatcher.names() if each.name == "orders"]
    assert (row.accepted, row.held) == (1, 0)
    await node.stop_worker(dispatcher.address)
    assert stored(path) == []


@pytest.mark.parametrize("settle", list(Settlement))
async def test_a_message_on_disk_is_counted_once_as_it_enters(
    settle: Settlement, node: Node, path: Path
) -> None:
    told = Counted()
    node.add_instrument(told)
    at_once = settle is Settlement.AT_ONCE
    dispatcher = await attached(node, path)
    dispatcher.provision("orders", on_disk(settle))
    sending = asyncio.create_task((await dispatcher.produce_any()).send("orders", b"1"))
    await sleep(0.1)
    await node.stop_worker(dispatcher.address)
    await asyncio.wait([sending])
    assert sending.exception() is None or not at_once
    first = {Outcome.DELIVER: 1} if at_once else {Outcome.CANCELED: 1}
    entered = {Outcome.RECEIVED: 1, Outcome.HOLD: 1, **first}
    assert told.of(Kind.NAME) == entered
    dispatcher = await attached(node, path)
    dispatcher.provision("orders", on_disk(settle))
    await dispatcher.consume("orders", Kept())
    await sleep(1)
    assert told.of(Kind.NAME) == entered
    again = told.of(Kind.NAME_AGAIN)
    assert (again[Outcome.RECEIVED], again[Outcome.DELIVER]) == (1, 1)
    assert not told.open()


async def test_a_default_that_holds_on_disk(node: Node, path: Path) -> None:
    options = DispatchOptions(hold_file=str(path), default=on_disk())
    dispatcher = await Dispatcher.attach(node, options)
    producer = await dispatcher.produce_any()
    assert await producer.send("orders", b"1") == ACCEPTED
    await node.stop_worker(dispatcher.address)
    dispatcher = await Dispatcher.attach(node, options)
    kept = Kept()
    await dispatcher.consume("orders", kept)
    await sleep(1)
    assert kept.payloads == [b"1"]


async def test_as_sent_the_outcome_is_that_of_the_consumer(node: Node, path: Path) -> None:
    dispatcher = await attached(node, path)
    dispatcher.provision("orders", on_disk(Settlement.AS_SENT))
    producer = await dispatcher.produce_any()
    sending = asyncio.create_task(producer.send("orders", b"1"))
    await sleep(1)
    assert not sending.done()
    kept = Kept()
    await dispatcher.consume("orders", kept, accept=Accept.SELF)
    await sleep(1)
    kept.deliveries[0].accept()
    assert await sending == ACCEPTED
    await producer.send_settled("orders", b"2")
    await node.stop_worker(dispatcher.address)
    assert stored(path) == []


async def test_what_there_is_no_room_for_is_released_and_not_accepted(
    node: Node, path: Path
) -> None:
    dispatcher = await attached(node, path, max_held_on_disk=3)
    dispatcher.provision("few", on_disk(messages=1))
    dispatcher.provision("small", on_disk(size=10))
    dispatcher.provision("any", on_disk())
    producer = await dispatcher.produce_any()
    sent = [("few", b"1"), ("few", b"2"), ("small", b"x" * 11), ("small", b"x" * 10)]
    sent += [("any", b"1"), ("any", b"2")]
    outcomes = [await producer.send(*each) for each in sent]
    assert outcomes == [ACCEPTED, RELEASED, RELEASED, ACCEPTED, ACCEPTED, RELEASED]
    assert dispatcher.statistics().counts["no room on disk to hold it"] == 3
    released = {each.name: each.released for each in dispatcher.names()}
    # Nothing was left of `small` after the first one: it was forgotten with its outcomes.
    assert released == {"any": 1, "few": 1, "small": 0}


async def test_a_full_disk_releases_and_is_told_once(
    node: Node, path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    dispatcher = await attached(node, path)
    dispatcher.provision("orders", on_disk())
    producer = await dispatcher.produce_any()
    assert await producer.send("orders", b"1") == ACCEPTED
    stored_ones = dispatcher._core.stored
    assert stored_ones is not None
    file = stored_ones.store._file
    assert file is not None
    (pages,) = file.execute("PRAGMA page_count").fetchone()
    file.execute(f"PRAGMA max_page_count={pages}")
    for _ in range(2):
        assert await producer.send("orders", b"x" * 100_000) == RELEASED
    assert caplog.text.count("database or disk is full") == 1
    assert dispatcher.statistics().counts["failures of the file of messages on hold"] == 2
    (row,) = dispatcher.names()
    assert (row.name, row.released) == ("orders", 2)
    kept = Kept()
    await dispatcher.consume("orders", kept)
    await sleep(1)
    assert kept.payloads == [b"1"]


async def accepted(node: Node, path: Path, *names: str, semantics: Semantics | None = None) -> None:
    """Let a process before this one accept a message of 10 bytes for each name."""
    dispatcher = await attached(node, path)
    producer = await dispatcher.produce_any()
    for name in dict.fromkeys(names):
        dispatcher.provision(name, semantics or on_disk())
    for number, name in enumerate(names):
        assert await producer.send(name, b"%010d" % number) == ACCEPTED
    await node.stop_worker(dispatcher.address)


@pytest.mark.parametrize(
    "options",
    [
        DispatchOptions(max_names=2),
        DispatchOptions(deliveries=DeliveryLimits(max_unsettled_size=20)),
    ],
    ids=["names", "bytes"],
)
async def test_what_a_limit_refuses_after_a_restart_stays_and_is_tried_again(
    options: DispatchOptions, node: Node, path: Path
) -> None:
    names = [f"orders.{number}" for number in range(5)]
    await accepted(node, path, *names)
    options = replace(options, hold_file=str(path), default=on_disk())
    dispatcher = await Dispatcher.attach(node, options)
    await sleep(1)
    figures = dispatcher.statistics()
    assert (figures.unsettled, figures.on_disk, figures.left_on_disk) == (2, 5, 3)
    assert figures.counts["left on disk until there is room"] == 3
    producer = await dispatcher.produce_any()
    assert await producer.send("orders.4", b"0123456789") == RELEASED
    kept: dict[str, Kept] = {name: Kept() for name in names}
    for name in names:
        taken = kept[name]
        async with asyncio.timeout(30):
            while True:
                try:
                    consumer = await dispatcher.consume(name, taken)
                    break
                except ConsumerRefused:  # as there are max_names
                    await sleep(0.1)
            while not taken.payloads:  # noqa: ASYNC110
                await sleep(0.1)
        consumer.close()
    assert [each.payloads for each in kept.values()] == [[b"%010d" % n] for n in range(5)]
    figures = dispatcher.statistics()
    assert (figures.on_disk, figures.left_on_disk) == (0, 0)
    assert await producer.send("orders.4", b"0123456789") == ACCEPTED
    await node.stop_worker(dispatcher.address)
    assert stored(path) == [b"0123456789"]


async def test_a_smaller_hold_refuses_nothing_that_was_accepted(node: Node, path: Path) -> None:
    await accepted(node, path, *["orders"] * 5)
    dispatcher = await attached(node, path)
    dispatcher.provision("orders", on_disk(messages=2))
    await sleep(1)
    (row,) = dispatcher.names()
    assert (row.held, dispatcher.statistics().left_on_disk) == (5, 0)
    producer = await dispatcher.produce_any()
    assert await producer.send("orders", b"1") == RELEASED


async def test_pre_settled_messages_take_no_room_of_those_that_were_accepted(
    node: Node, path: Path
) -> None:
    dispatcher = await attached(node, path)
    dispatcher.provision("orders", on_disk(messages=2))
    producer = await dispatcher.produce_any()
    for _ in range(2):
        await producer.send_settled("orders", b"settled")
    for _ in range(2):
        assert await producer.send("orders", b"accepted") == ACCEPTED
    (row,) = dispatcher.names()
    assert row.held == 4
    assert dispatcher.statistics().on_disk == 2


async def test_what_does_not_hold_on_disk_any_more_stays_in_the_file(
    node: Node, path: Path
) -> None:
    dispatcher = await attached(node, path)
    dispatcher.provision("orders", on_disk())
    producer = await dispatcher.produce_any()
    assert await producer.send("orders", b"1") == ACCEPTED
    dispatcher.withdraw("orders")
    await sleep(1)
    figures = dispatcher.statistics()
    assert (figures.names, figures.on_disk, figures.left_on_disk) == (0, 1, 1)
    kept = Kept()
    await dispatcher.consume("orders", kept)
    dispatcher.provision("orders", on_disk())
    await sleep(1)
    assert kept.payloads == [b"1"]
    assert dispatcher.statistics().on_disk == 0


async def test_what_is_read_while_its_name_is_closed_stays_in_the_file(
    node: Node, path: Path
) -> None:
    names = [f"queue/{number}" for number in range(250)]
    await accepted(node, path, *names)
    dispatcher = await attached(node, path, name_slice=10)
    dispatcher.provision("queue/#", on_disk())
    while dispatcher.statistics().left_on_disk > 150:  # noqa: ASYNC110
        await asyncio.sleep(0)
    assert dispatcher.statistics().left_on_disk == 150
    dispatcher.update("queue/#", Semantics(pattern=RoutingPattern.UNAVAILABLE))
    await sleep(5)
    figures = dispatcher.statistics()
    assert (figures.on_disk, figures.left_on_disk) == (250, 250)
    assert "on disk, and not delivered" not in figures.counts
    dispatcher.update("queue/#", on_disk())
    await sleep(5)
    figures = dispatcher.statistics()
    assert (figures.on_disk, figures.left_on_disk, figures.unsettled) == (250, 0, 250)


async def test_a_redirect_beyond_max_names_waits_on_disk(node: Node, path: Path) -> None:
    options = DispatchOptions(hold_file=str(path), max_names=1)
    dispatcher = await Dispatcher.attach(node, options)
    redirect = Redirect("34#failed"), Last.RELEASE
    dispatcher.provision("orders", on_disk(Settlement.AT_ONCE, *redirect, rounds=1))
    consumer = await dispatcher.consume("orders", lambda each: each.release())
    producer = await dispatcher.produce_any()
    assert await producer.send("orders", b"1") == ACCEPTED
    await sleep(5)
    assert dispatcher.statistics().counts["left on disk until there is room"]
    assert dispatcher.statistics().on_disk == 1
    consumer.close()
    kept = Kept()
    await dispatcher.consume("orders", kept)
    await sleep(3)
    assert kept.payloads == [b"1"]
    assert dispatcher.statistics().on_disk == 0


async def test_a_redirect_beyond_max_names_waits_as_long_as_it_is_worth_handling(
    node: Node, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = SimpleNamespace(time=node.loop.time)
    monkeypatch.setattr("onward.actors.dispatch._stored.time", clock)
    options = DispatchOptions(hold_file=str(path), max_names=1)
    dispatcher = await Dispatcher.attach(node, options)
    redirect = Redirect("34#failed"), Last.RELEASE
    dispatcher.provision("orders", on_disk(Settlement.AT_ONCE, *redirect, rounds=1, age=5.0))
    await dispatcher.consume("orders", lambda each: each.release())
    producer = await dispatcher.produce_any()
    assert await producer.send("orders", b"1") == ACCEPTED
    await sleep(4)
    assert dispatcher.statistics().on_disk == 1
    await sleep(6)
    assert dispatcher.statistics().on_disk == 0
    assert dispatcher.statistics().counts["on disk, and not delivered"] == 1


async def test_a_restart_reads_page_by_page_and_leaves_what_it_cannot_read(
    node: Node, path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store, now = HoldStore(path, 1000, 10_000), time.time()
    for number in range(250):
        store.put("orders", "", b"%d" % number, entered=now, expires=now + 60)
    file = store._file
    assert file is not None
    file.execute("UPDATE message SET onward = '0#a =>' WHERE number = 1")
    file.execute("UPDATE message SET expires = 'soon' WHERE number = 2")
    store.close()
    dispatcher = await attached(node, path)
    dispatcher.provision("orders", on_disk())
    left: list[int] = []
    for _ in range(100):
        left.append(dispatcher.statistics().left_on_disk)
        await asyncio.sleep(0)
    assert sorted(set(left), reverse=True) == [250, 150, 50, 0]
    figures = dispatcher.statistics()
    assert (figures.unsettled, figures.on_disk) == (248, 250)
    assert figures.counts["messages on disk that cannot be read"] == 2
    assert caplog.text.count("cannot be read, and stay there") == 2


async def test_names_with_messages_on_disk_are_looked_at_in_slices(node: Node, path: Path) -> None:
    store, now = HoldStore(path, 1000, 10_000), time.time()
    for number in range(50):
        store.put(f"name.{number}", "", b"%d" % number, entered=now, expires=now + 60)
    store.close()
    looked: list[str] = []
    worker = DispatchWorker(
        DispatchOptions(default=on_disk(), hold_file=str(path), name_slice=10),
        None,
        HoldStore(path, 1000, 10_000),
    )
    await node.start(lambda: worker, address=DISPATCH)
    stored = worker.core.stored
    assert stored is not None
    right = stored._look_at

    def look_at(text: str) -> None:
        looked.append(text)
        right(text)

    stored._look_at = look_at  # type: ignore[method-assign]
    worker.core.restore()
    assert len(looked) == 10
    await sleep(1)
    assert len(looked) == 50
    assert stored.left == 0
    # One that does not hold there any more is left in the file.
    dispatcher = Dispatcher(worker.core)
    assert dispatcher.statistics().on_disk == 50


async def test_a_dispatcher_that_cannot_be_made_whole_is_stopped(
    node: Node, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: StoredMessages) -> None:
        raise RuntimeError("broken")

    with monkeypatch.context() as patch:
        patch.setattr(StoredMessages, "restore", fail)
        with pytest.raises(RuntimeError, match="broken"):
            await attached(node, path)
    assert (await attached(node, path)).statistics().on_disk == 0


@pytest.mark.parametrize("lost", ["closed", "modified"])
async def test_what_a_consumer_leaves_in_doubt_goes_to_the_next_one(
    lost: str, node: Node, path: Path
) -> None:
    dispatcher = await attached(node, path)
    dispatcher.provision("orders", on_disk())
    producer = await dispatcher.produce_any()
    first, second = Kept(), Kept()
    consumer = await dispatcher.consume("orders", first, accept=Accept.SELF)
    assert await producer.send("orders", b"1") == ACCEPTED
    await sleep(0.1)
    assert first.payloads == [b"1"]
    if lost == "closed":
        consumer.close()
    else:
        first.deliveries[0].modify()
    await sleep(0.1)
    figures = dispatcher.statistics()
    assert (figures.on_disk, figures.unsettled) == (1, 1)
    assert figures.counts["in doubt, and sent again"] == 1
    consumer.close()
    await dispatcher.consume("orders", second)
    await sleep(0.1)
    assert second.payloads == [b"1"]
    assert dispatcher.statistics().on_disk == 0
    assert node.dead_letters.total == 0


async def test_a_multicast_goes_on_if_its_only_consumer_is_lost_with_it(
    node: Node, path: Path
) -> None:
    dispatcher = await attached(node, path)
    dispatcher.provision("news", replace(on_disk(), pattern=RoutingPattern.MULTICAST))
    producer = await dispatcher.produce_any()
    first, others = Kept(), [Kept(), Kept()]
    consumer = await dispatcher.consume("news", first, accept=Accept.SELF)
    assert await producer.send("news", b"1") == ACCEPTED
    await sleep(0.1)
    assert first.payloads == [b"1"]
    consumer.close()
    await sleep(0.1)
    assert (dispatcher.statistics().on_disk, node.dead_letters.total) == (1, 0)
    for each in others:
        await dispatcher.consume("news", each)
    await sleep(10)
    assert b"1" in {*others[0].payloads, *others[1].payloads}
    assert dispatcher.statistics().on_disk == 0


async def test_a_message_that_each_consumer_dies_of_goes_on_along_its_chain(
    node: Node, path: Path
) -> None:
    dispatcher = await attached(node, path)
    redirect = Redirect("34#failed"), Last.RELEASE
    dispatcher.provision("orders", on_disk(Settlement.AT_ONCE, *redirect, rounds=3))
    taken: list[bytes] = []

    def die(delivery: Received) -> None:
        taken.append(delivery.payload)
        raise RuntimeError("poison")

    failed = Kept()
    await dispatcher.consume("failed", failed)
    for _ in range(2):
        await dispatcher.consume("orders", die)
    producer = await dispatcher.produce_any()
    assert await producer.send("orders", b"1") == ACCEPTED
    await sleep(20)
    assert taken == [b"1"] * 3
    assert failed.payloads == [b"1"]
    assert dispatcher.statistics().on_disk == 0


async def test_what_is_not_delivered_in_time_is_accounted_for(node: Node, path: Path) -> None:
    dispatcher = await attached(node, path)
    dispatcher.provision("orders", on_disk(age=5.0))
    producer = await dispatcher.produce_any()
    assert await producer.send("orders", b"1") == ACCEPTED
    await sleep(10)
    assert dispatcher.statistics().counts["on disk, and not delivered"] == 1
    assert node.dead_letters.by_reason == {"on disk, and not delivered": 1}
    await node.stop_worker(dispatcher.address)
    assert stored(path) == []


async def test_what_was_over_before_the_restart_is_not_delivered(node: Node, path: Path) -> None:
    store = HoldStore(path, 10, 1000)
    now = time.time()
    store.put("orders", "", b"late", entered=now - 60, expires=now - 1)
    store.put("orders", "", b"in time", entered=now - 60, expires=now + 60)
    store.put("x" * 600, "", b"other limits", entered=now, expires=now + 60)
    store.close()
    dispatcher = await attached(node, path)
    dispatcher.provision("orders", on_disk())
    kept = Kept()
    await dispatcher.consume("orders", kept)
    await sleep(1)
    assert kept.payloads == [b"in time"]
    counts = dispatcher.statistics().counts
    assert counts["on disk, and not delivered"] == 1
    assert counts["messages on disk that cannot be read"] == 1


async def test_what_is_redirected_stays_on_disk_until_it_is_settled(node: Node, path: Path) -> None:
    dispatcher = await attached(node, path)
    redirect = Redirect("34#failed")
    dispatcher.provision("orders", on_disk(Settlement.AT_ONCE, redirect, Last.RELEASE, rounds=1))
    kept = Kept()
    await dispatcher.consume("failed", kept, accept=Accept.SELF)
    producer = await dispatcher.produce_any()
    assert await producer.send("orders", b"1") == ACCEPTED
    await sleep(5)
    assert kept.payloads == [b"1"]
    assert dispatcher._core.stored is not None
    assert len(dispatcher._core.stored.store) == 1
    kept.deliveries[0].accept()
    assert len(dispatcher._core.stored.store) == 0


async def test_what_is_redirected_to_a_worker_is_not_held_any_more(node: Node, path: Path) -> None:
    dispatcher = await attached(node, path)
    redirect = Redirect("echo")
    semantics = on_disk(Settlement.AS_SENT, redirect, Last.RELEASE, rounds=1)
    dispatcher.provision("orders", semantics)
    await start_worker(node, Echo(), "echo")
    assert (await node.request("34#orders", b"1")).payload == b"1"
    assert dispatcher._core.stored is not None
    assert len(dispatcher._core.stored.store) == 0


@pytest.mark.parametrize("there", [True, False])
async def test_what_is_redirected_to_a_worker_stays_on_disk_until_it_has_replied(
    there: bool, node: Node, path: Path
) -> None:
    dispatcher = await attached(node, path)
    chain = Redirect("shelf"), Last.RELEASE
    dispatcher.provision("orders", on_disk(Settlement.AT_ONCE, *chain, rounds=1))
    got: list[Message] = []

    class Shelf(Worker):
        def handle_message(self, message: Message) -> None:
            got.append(message)

    shelf = Shelf()
    if there:
        await start_worker(node, shelf, "shelf")
    producer = await dispatcher.produce_any()
    assert await producer.send("orders", b"1") == ACCEPTED
    await sleep(5)
    assert [each.payload for each in got] == [b"1"] * there
    assert dispatcher.statistics().on_disk == there
    if there:
        shelf.reply(got[0], b"")
        await sleep(1)
    assert dispatcher.statistics().on_disk == 0
    assert dispatcher.statistics().counts.get("on disk, and not delivered", 0) == (not there)


async def test_a_hold_on_disk_needs_a_file(node: Node, path: Path) -> None:
    dispatcher = await Dispatcher.attach(node)
    with pytest.raises(BadSemantics, match=r"needs a file: DispatchOptions\.hold_file"):
        dispatcher.provision("orders", on_disk())


async def test_the_file_is_of_one_dispatcher(node: Node, path: Path) -> None:
    await attached(node, path)
    async with Node("other") as other:
        with pytest.raises(HoldStoreInUse):
            await attached(other, path)


PROGRAM = """
    import asyncio, sys
    from onward.actors import Node
    from onward.actors.dispatch import Dispatcher, DispatchOptions
    from tests.actors.dispatch.test_stored import on_disk

    async def main():
        async with Node("held") as node:
            dispatcher = await Dispatcher.attach(node, DispatchOptions(hold_file=sys.argv[1]))
            dispatcher.provision("orders", on_disk(messages=1_000_000, size=10**9))
            dispatcher.provision("short", on_disk(messages=1_000_000, size=10**9, age=0.5))
            producer = await dispatcher.produce_any()
            for number in range(1_000_000):
                name = ("orders", "short")[number % 2]
                outcome = await producer.send(name, b"%d" % number)
                print(number, type(outcome).__name__, flush=True)

    asyncio.run(main())
"""


def accepted_until_killed(path: Path) -> tuple[list[int], float]:
    """Kill a process that sends messages; return those that were accepted, and the time."""
    words = [sys.executable, "-c", textwrap.dedent(PROGRAM), str(path)]
    accepted: list[int] = []
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            for line in process.stdout:
                if not line.endswith("\n"):
                    break  # the process was killed as it wrote
                number, outcome = line.split()
                assert outcome == "Accepted"
                accepted.append(int(number))
                if len(accepted) == 400:
                    os.kill(process.pid, signal.SIGKILL)  # it goes on sending meanwhile
        finally:
            process.kill()
    assert process.returncode == -signal.SIGKILL
    assert len(accepted) >= 400
    return accepted, time.time()


@pytest.mark.real_time
async def test_each_message_that_was_accepted_survives_kill_9(path: Path) -> None:
    accepted, killed = await asyncio.to_thread(accepted_until_killed, path)
    written = HoldStore(path, 1_000_000, 10**9)
    on_it = {int(each.payload) for each in rows(written)}
    expires = [each.expires for each in rows(written, "short")]
    written.close()
    # A message that was written as the process was killed had no outcome yet.
    assert set(accepted) <= on_it | {number for number in accepted if number % 2}
    assert len(on_it - set(accepted)) <= 1
    assert max(expires) <= killed + 0.5
    await asyncio.sleep(max(expires) - time.time())

    got: list[int] = []
    async with Node("held") as node:
        dispatcher = await attached(node, path)
        for name in ("orders", "short"):
            await dispatcher.consume(name, lambda each: got.append(int(each.payload)))
            dispatcher.provision(name, on_disk(messages=1_000_000, size=10**9))
        async with asyncio.timeout(30):
            while dispatcher.statistics().on_disk:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        late = dispatcher.statistics().counts["on disk, and not delivered"]
        await node.stop_worker(dispatcher.address)
    orders = {number for number in on_it if number % 2 == 0}
    assert sorted(got) == sorted(orders)
    assert late == len(on_it) - len(orders)
    assert stored(path) == []


async def test_a_file_that_fails_later_is_counted_and_told_once(
    node: Node, path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = HoldStore(path, 10, 1000)
    store.put("orders", "", b"before", entered=time.time(), expires=time.time() + 60)
    store.close()
    dispatcher = await attached(node, path)
    dispatcher.provision("mail", on_disk())
    kept = Kept()
    await dispatcher.consume("mail", kept, accept=Accept.SELF)
    producer = await dispatcher.produce_any()
    assert await producer.send("mail", b"1") == ACCEPTED
    await sleep(1)
    messages = dispatcher._core.stored
    assert messages is not None
    assert messages.store._file is not None
    messages.store._file.execute("DROP TABLE message")
    kept.deliveries[0].accept()
    dispatcher.provision("orders", on_disk())
    await sleep(0.1)
    assert dispatcher.statistics().counts["failures of the file of messages on hold"] == 2
    assert caplog.text.count("no such table") == 1
    assert dispatcher.statistics().unsettled == 0


async def test_a_producer_of_the_name_has_its_credit_back(node: Node, path: Path) -> None:
    dispatcher = await attached(node, path)
    dispatcher.provision("orders", on_disk(messages=1))
    kept = Kept()
    await dispatcher.consume("orders", kept, accept=Accept.SELF)
    producer = await dispatcher.produce("orders")
    assert await producer.send(b"1") == ACCEPTED
    assert await producer.send(b"2") == RELEASED
    assert (producer.credit, producer.unsettled) == (250, 0)
    await sleep(1)
    kept.deliveries[0].accept()
    assert await producer.send(b"3") == ACCEPTED
    kept.deliveries[-1].accept()
    await sleep(1)
    kept.deliveries[-1].accept()
    assert (producer.credit, producer.unsettled) == (250, 0)
    assert dispatcher.statistics().unsettled == 0
