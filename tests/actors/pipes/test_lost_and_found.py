"""What could get lost between the ends of a pipe: each of these was lost once."""

from __future__ import annotations

import asyncio
import logging
from functools import partial

import pytest

from onward.actors import MailboxOptions, Node, Worker
from onward.actors.pipes import PipeReceiver, PipeSender, PipeService, PipeServiceOptions
from onward.actors.testing import Probe
from onward.protocol import Address, Context, Message, route
from onward.protocol.pipes import (
    Broken,
    Gap,
    Missed,
    Mode,
    OpenPipe,
    Ordering,
    PipeData,
    PipeOpened,
    PipeOptions,
    PipeReceiverOptions,
    PipeRefusal,
    PipeRefused,
    decode_frame,
    encode_frame,
)
from onward.transports.simulated import SimulatedNetwork, simulate
from tests.support.fixtures import Caplog
from tests.support.workers import start_worker


def _same(worker: PipeSender) -> PipeSender:
    return worker


class Stuck(Worker):
    """Takes one message, and never another until it is let go."""

    def __init__(self) -> None:
        super().__init__()
        self.go = asyncio.Event()

    async def handle_message(self, message: Message) -> None:
        await self.go.wait()


@pytest.mark.parametrize("ordering", Ordering)
@pytest.mark.parametrize("kind", [PipeReceiver, PipeService])
def test_an_unconfirmed_pipe_goes_on_after_silence(ordering: Ordering, kind: type[Worker]) -> None:
    async def scenario(network: SimulatedNetwork) -> None:
        near, far = await network.node("near"), await network.node("far")
        probe = await Probe.on(far, "probe")
        await far.start(kind, address="out")
        await far.listen("sim://far", expose=["out"], allow=["*"])
        link = await near.connect("sim://far")
        sender = PipeSender([link, "out"], PipeOptions(ordering, confirm=False))
        await near.start(lambda: sender, address="in")
        for number in range(4):
            near.send("in => probe", b"%d" % number)
            await asyncio.sleep(301)
        assert probe.payloads == [b"0", b"1", b"2", b"3"]
        assert dict(far.dead_letters.by_reason) == {}

    simulate(scenario)


async def test_two_senders_that_are_not_confirmed_take_turns(node: Node) -> None:
    probe = await Probe.on(node, "probe")
    await node.start(PipeReceiver, address="out")
    for name in ("one", "two"):
        await node.start(lambda: PipeSender("out", PipeOptions(confirm=False)), address=name)
    for number in range(6):
        node.send(f"{('one', 'two')[number % 2]} => probe", b"%d" % number)
        await asyncio.sleep(0.1)
    assert probe.payloads == [b"%d" % number for number in range(6)]


async def test_what_is_not_confirmed_and_cannot_be_sent_is_lost_aloud(node: Node) -> None:
    sender = await start_worker(node, PipeSender("nobody", PipeOptions(confirm=False)), "in")
    asking = asyncio.ensure_future(node.request("in => probe", b"?", timeout=100))
    node.send("in => probe", b"1")
    await asyncio.sleep(0.1)
    assert str(asking.exception()).startswith("no such worker")
    assert {each.message.payload for each in node.dead_letters.recent} == {b"?", b"1"}
    assert (sender.statistics().unsent, sender.statistics().not_routed) == (2, 1)
    await sender.end()
    assert sender.statistics().state == "CLOSED"


async def test_the_end_comes_behind_what_waits_also_while_there_is_no_room(node: Node) -> None:
    probe = await Probe.on(node, "probe")
    await node.start(PipeReceiver, address="out")
    sender = await start_worker(node, PipeSender("out", PipeOptions(window=2, queue=2)), "in")
    for number in range(20):
        node.send("in => probe", b"%d" % number)
    await sender.end()
    assert probe.payloads == [b"%d" % number for number in range(20)]
    await sender.end()  # it is at its end already


async def test_a_full_sender_stops_at_once(node: Node) -> None:
    await start_worker(node, PipeSender("nobody", PipeOptions(window=5, queue=5)), "in")
    for number in range(20):
        node.send("in => probe", b"%d" % number)
    await asyncio.sleep(1)
    before = node.loop.time()
    await node.stop_worker("in")
    assert node.loop.time() - before < 0.5
    assert dict(node.dead_letters.by_reason)["pipe closed"] == 20
    assert node.statistics().failed == 0


async def test_a_rule_that_fails_loses_that_one_message(caplog: Caplog, node: Node) -> None:
    def rule(message: Message) -> Message:
        raise KeyError(message.to)

    probe = await Probe.on(node, "probe")
    gaps: list[Gap] = []
    missed: list[Missed] = []
    node.add_rule(77, rule)
    await node.start(lambda: PipeReceiver(on_gap=gaps.append), address="out")
    await start_worker(node, PipeSender("out", on_missed=missed.append), "in")
    with caplog.at_level(logging.ERROR, "onward"):
        for payload in (b"1", b"2", b"bad", b"3"):
            node.send("in => 77#x" if payload == b"bad" else "in => probe", payload)
        await asyncio.sleep(10)
    assert probe.payloads == [b"1", b"2", b"3"]
    assert [each.payload for every in missed for each in every.messages] == [b"bad"]
    assert gaps == [Gap(3, 3)]  # a message that no worker took is missed like any other
    assert "0#out could not hand on a message" in caplog.text


async def test_an_abandoned_worker_blocks_only_after_it_takes_a_message(node: Node) -> None:
    stuck = await start_worker(node, Stuck(), "stuck", mailbox=MailboxOptions(1))
    probe = await Probe.on(node, "probe")
    receiver = PipeReceiver(PipeReceiverOptions(stall_timeout=10.0))
    await node.start(lambda: receiver, address="out")
    await node.start(lambda: PipeSender("out", PipeOptions(window=4)), address="in")
    for number in range(100):
        node.send("in => stuck", b"")
        node.send("in => probe", b"%d" % number)
        await asyncio.sleep(1)
    assert len(probe.payloads) == 100
    stuck.go.set()
    await asyncio.sleep(1)
    before = receiver.statistics().refused
    node.send("in => stuck", b"")
    await asyncio.sleep(1)
    assert receiver.statistics().refused == before


async def test_deadlines_and_traces_do_not_end_at_a_pipe(node: Node) -> None:
    seen: list[Message] = []

    class Sink(Worker):
        def handle_message(self, message: Message) -> None:
            seen.append(message)

    await node.start(Sink, address="sink")
    sender = await start_worker(node, PipeSender("out", PipeOptions(give_up=60.0)), "in")
    asking = asyncio.ensure_future(node.request("in => sink", b"late", timeout=2))
    node.send("in => sink", b"traced", context=Context(trace='{"a": "b"}'))
    await asyncio.sleep(10)
    assert str(asking.exception()).startswith("no answer in time")
    await node.start(PipeReceiver, address="out")
    await asyncio.sleep(10)
    assert [(each.payload, each.context) for each in seen] == [
        (b"traced", Context(trace='{"a": "b"}'))
    ]
    assert sender.statistics().overdue == 1
    assert dict(node.dead_letters.by_reason)["expired"] == 1


def test_a_request_through_a_pipe_to_another_node_is_warned_of_once(caplog: Caplog) -> None:
    async def scenario(network: SimulatedNetwork) -> None:
        near, far = await network.node("near"), await network.node("far")
        await Probe.on(far, "probe")
        await far.start(PipeService, address="pipes")
        await far.listen("sim://far", expose=["pipes"], allow=["*"])
        link = await near.connect("sim://far")
        await near.start(lambda: PipeSender([link, "pipes"]), address="in")
        await near.start(PipeReceiver, address="here")
        await near.start(lambda: PipeSender("here"), address="in here")
        await near.start(lambda: PipeSender("240#far => pipes"), address="in too")
        for name in ("in", "in", "in here", "in too"):
            with pytest.raises(Exception, match=r"no answer in time|no such worker"):
                await near.request([name, "probe"], b"", timeout=1)

    with caplog.at_level(logging.WARNING, "onward"):
        simulate(scenario)
    said = [each.getMessage() for each in caplog.records if "use a PipeChannel" in each.message]
    assert [each.split(",")[0] for each in said] == [
        "a request goes through 0#in",
        "a request goes through 0#in too",
    ]


async def test_a_service_says_that_it_is_full_and_keeps_places_for_others(node: Node) -> None:
    probe = await Probe.on(node, "probe")
    back = await Probe.on(node, "back")
    service = PipeService(PipeServiceOptions(receivers=3, receivers_per_peer=2))
    await node.start(lambda: service, address="pipes")
    for number in range(3):
        frame = encode_frame(OpenPipe(bytes([number]) * 16, Mode()))
        node.send("pipes", frame, return_route="back")
    await back.count(3)
    refused, *opened = [decode_frame(each) for each in back.payloads]
    assert [type(each) for each in opened] == [PipeOpened, PipeOpened]
    assert refused == PipeRefused(bytes([2]) * 16, PipeRefusal.PEER_FULL)
    broken: list[Broken] = []
    senders = [PipeSender("pipes", on_broken=broken.append) for _ in range(2)]
    for number, sender in enumerate(senders):
        await node.start(partial(_same, sender), address=f"in{number}")
        node.send(f"in{number} => probe", b"%d" % number)
        await asyncio.sleep(1)
    assert probe.payloads == [b"0"]
    assert [(each.why, len(each.unsent)) for each in broken] == [
        ("the receiver has as many pipes as it may", 1)
    ]
    assert dict(node.dead_letters.by_reason) == {"limit reached": 2, "pipe closed": 1}
    await senders[0].end()
    node.send("in1 => probe", b"now")
    await probe.count(2)


@pytest.mark.parametrize("confirm", [True, False])
def test_the_receivers_of_a_service_hold_so_many_bytes_together(confirm: bool) -> None:
    async def scenario(network: SimulatedNetwork) -> None:
        node = await network.node("node")
        stuck = await start_worker(node, Stuck(), "stuck", mailbox=MailboxOptions(1))
        probe = await Probe.on(node, "probe")
        service = PipeService(PipeServiceOptions(held_bytes=100_000))
        await node.start(lambda: service, address="pipes")
        for name in ("big", "small"):
            made = PipeSender("pipes", PipeOptions(confirm=confirm))
            await node.start(partial(_same, made), address=name)
        for _ in range(20):
            node.send("big => stuck", bytes(30_000))
            await asyncio.sleep(0.01)
        await asyncio.sleep(1)
        held = sum(made.statistics().held for made, _ in service._workers.values())
        assert held <= 3
        assert 0 < service._budget.used <= 100_000
        node.send("small => probe", b"1")  # who holds nothing is let take a small frame
        assert (await probe.next()).payload == b"1"
        lost = dict(node.dead_letters.by_reason).get("mailbox full", 0)
        assert lost == (0 if confirm else 20 - held - 2)
        stuck.go.set()
        await asyncio.sleep(5)
        assert service._budget.used == 0

    simulate(scenario)


async def test_addresses_of_any_form_may_be_drawn(node: Node) -> None:
    count = iter(range(10_000))
    probe = await Probe.on(node, "probe")
    node.parts.table.random_address = lambda: Address(0, b"drawn-%d" % next(count))
    await node.start(PipeService, address="pipes")
    await node.start(lambda: PipeSender("pipes"), address="in")
    node.send("in => probe", b"1")
    assert (await probe.next()).payload == b"1"


async def test_a_service_loses_late_frames_aloud(node: Node) -> None:
    plain, to = Mode(confirm=False), route("probe")
    await Probe.on(node, "probe")
    sender = PipeSender("pipes", PipeOptions(confirm=False))
    service = await start_worker(node, PipeService(), "pipes")
    await node.start(lambda: sender, address="in")
    node.send("in => probe", b"1")
    await asyncio.sleep(0.1)
    (identity,) = service.receivers
    await sender.end()
    late = tuple(Message(to, (), payload) for payload in (b"1", b"2"))
    node.send("pipes", encode_frame(PipeData(identity, bytes(8), plain, 1, 1, late)))
    await asyncio.sleep(0.1)
    assert [each.message.payload for each in node.dead_letters.recent] == [b"2"]
