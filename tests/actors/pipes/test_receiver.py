"""`PipeReceiver` and `PipeService`: handing on, stalling, replacing, expiring."""

from __future__ import annotations

import asyncio
from functools import partial

from onward.actors import MailboxOptions, Node, Worker
from onward.actors.access import Access, to_next
from onward.actors.pipes import (
    MAX_RETIRED,
    PipeReceiver,
    PipeSender,
    PipeService,
    PipeServiceOptions,
)
from onward.actors.testing import Probe
from onward.protocol import Address, Message, route
from onward.protocol.pipes import (
    NO_EPOCH,
    Abort,
    Confirm,
    End,
    Ended,
    Gap,
    Hello,
    Missed,
    Mode,
    OpenPipe,
    Ordering,
    PipeData,
    PipeOptions,
    PipeReceiverOptions,
    Unknown,
    decode_frame,
    encode_frame,
)
from tests.support.workers import start_worker

ID = bytes(range(16))
EPOCH = b"epoch!!!"
PLAIN = Mode(Ordering.STRICT, confirm=False)


class Slow(Worker):
    """Takes one message, and then nothing until it is let go."""

    def __init__(self) -> None:
        super().__init__()
        self.go = asyncio.Event()
        self.payloads: list[bytes] = []

    async def handle_message(self, message: Message) -> None:
        await self.go.wait()
        self.payloads.append(message.payload)


def _same(sender: PipeSender) -> PipeSender:
    return sender


def data(*payloads: bytes, first: int = 1, identity: bytes = ID, mode: Mode = PLAIN) -> bytes:
    to = route("probe")
    messages = tuple(Message(to, (), payload) for payload in payloads)
    return encode_frame(PipeData(identity, NO_EPOCH, mode, first, first, messages))


async def test_what_has_no_room_is_not_confirmed_until_it_has(node: Node) -> None:
    slow = await start_worker(node, Slow(), "slow", mailbox=MailboxOptions(2))
    receiver = await start_worker(node, PipeReceiver(), "out")
    sender = await start_worker(node, PipeSender("out"), "in")
    for number in range(10):
        node.send("in => slow", b"%d" % number)
    await asyncio.sleep(2)
    found = sender.statistics()
    assert found.confirmed <= 3
    assert found.unconfirmed == 10 - found.confirmed
    assert receiver.statistics().held == found.unconfirmed
    slow.go.set()
    await asyncio.sleep(2)
    assert slow.payloads == [b"%d" % number for number in range(10)]
    assert sender.statistics().confirmed == 10
    assert dict(node.dead_letters.by_reason) == {}


async def test_a_mailbox_that_stays_full_is_given_up_and_reported(node: Node) -> None:
    slow = await start_worker(node, Slow(), "slow", mailbox=MailboxOptions(1))
    probe = await Probe.on(node, "probe")
    receiver = await start_worker(node, PipeReceiver(PipeReceiverOptions(stall_timeout=3.0)), "out")
    missed: list[Missed] = []
    sender = await start_worker(node, PipeSender("out", on_missed=missed.append), "in")
    for number in range(5):
        node.send("in => slow", b"%d" % number)
    node.send("in => probe", b"after")
    assert (await probe.next(timeout=20)).payload == b"after"
    await asyncio.sleep(1)
    lost = sum(len(each.messages) for each in missed)
    assert lost == receiver.statistics().refused
    assert sender.statistics().confirmed == 6 - lost
    assert 3 <= lost <= 4
    slow.go.set()
    await asyncio.sleep(1)
    node.send("in => slow", b"again")
    await asyncio.sleep(1)
    assert slow.payloads[-1] == b"again"


async def test_a_pipe_opened_later_takes_the_place_of_the_one_before(node: Node) -> None:
    probe = await Probe.on(node, "probe")
    back = await Probe.on(node, "back")
    over: list[bytes] = []
    gaps: list[Gap] = []
    receiver = PipeReceiver(on_closed=over.append, on_gap=gaps.append)
    await node.start(lambda: receiver, address="out")
    node.send("out", data(b"1"))
    node.send("out", data(b"3", first=3))
    node.send("out", data(b"x", identity=bytes(16)))
    await probe.count(3)
    assert probe.payloads == [b"1", b"3", b"x"]
    assert gaps == [Gap(2, 2)]
    assert over == [ID]
    node.send("out", data(b"3", first=3))  # late: it does not take the place of the other
    await asyncio.sleep(0.1)
    assert probe.payloads == [b"1", b"3", b"x"]
    node.send("out", data(b"4", first=4))  # nobody could tell its sender: it goes on
    await probe.count(4)
    assert probe.payloads[3:] == [b"4"]
    node.send("out", encode_frame(End(ID, NO_EPOCH, PLAIN, 4)), return_route="back")
    await back.count(1)
    assert decode_frame(back.payloads[0]) == Ended(ID, NO_EPOCH)
    node.send("out", encode_frame(End(ID, NO_EPOCH, PLAIN, 4)), return_route="back")
    node.send("out", data(b"4", b"5", first=4))  # over
    await asyncio.sleep(0.1)
    assert [each.message.payload for each in node.dead_letters.recent] == [b"5"]
    node.send("out", encode_frame(OpenPipe(ID, Mode())), return_route="back")
    node.send("out", encode_frame(End(ID, EPOCH, Mode(), 4)), return_route="back")
    node.send("out", encode_frame(Abort(ID, EPOCH)), return_route="back")
    node.send("out", encode_frame(Hello(ID, 1000)), return_route="back")
    await asyncio.sleep(1)
    assert [decode_frame(each) for each in back.payloads] == [
        Ended(ID, NO_EPOCH),
        Ended(ID, NO_EPOCH),
        Unknown(ID, EPOCH),
    ]
    assert receiver.statistics().strangers == 7
    for number in range(MAX_RETIRED + 1):
        node.send("out", data(b"", identity=number.to_bytes(16, "little")))
    await asyncio.sleep(1)
    assert len(receiver._pipe._retired) == MAX_RETIRED


async def test_a_gap_that_stays_is_passed_and_told(node: Node) -> None:
    probe = await Probe.on(node, "probe")
    gaps: list[Gap] = []
    receiver = PipeReceiver(PipeReceiverOptions(gap_timeout=2.0), on_gap=gaps.append)
    await node.start(lambda: receiver, address="out")
    node.send("out", data(b"2", first=2))
    assert (await probe.next()).payload == b"2"
    assert gaps == [Gap(1, 1, began=True)]


async def test_what_is_lost_for_want_of_room_is_a_dead_letter(node: Node) -> None:
    slow = await start_worker(node, Slow(), "probe", mailbox=MailboxOptions(1))
    receiver = PipeReceiver(PipeReceiverOptions(window=2, stall_timeout=1.0))
    await node.start(lambda: receiver, address="out")
    for number in range(1, 9):
        node.send("out", data(b"%d" % number, first=number))
        await asyncio.sleep(0)
    await asyncio.sleep(0.1)
    assert dict(node.dead_letters.by_reason)["mailbox full"] >= 2
    await node.stop_worker("out")
    assert dict(node.dead_letters.by_reason)["pipe closed"] == 2
    slow.go.set()


async def test_a_receiver_that_stops_tells_its_sender(node: Node) -> None:
    await Probe.on(node, "probe")
    await start_worker(node, PipeReceiver(), "out")
    sender = await start_worker(node, PipeSender("out"), "in")
    node.send("in => probe", b"1")
    await asyncio.sleep(1)
    await node.stop_worker("out")
    await asyncio.sleep(0.1)
    found = sender.statistics()
    assert (found.state, found.confirmed, found.in_doubt) == ("IDLE", 1, 0)


async def test_a_service_has_a_receiver_for_each_sender(node: Node) -> None:
    probe = await Probe.on(node, "probe")
    service = await start_worker(node, PipeService(), "pipes")
    senders = [PipeSender("pipes") for _ in range(3)]
    for number, sender in enumerate(senders):
        await node.start(partial(_same, sender), address=f"in{number}")
    for number in range(9):
        node.send(f"in{number % 3} => probe", b"%d" % number)
    await probe.count(9)
    assert len(service.receivers) == 3
    for sender in senders:
        await sender.end()
    await asyncio.sleep(1)
    assert service.receivers == {}
    assert sorted(probe.payloads) == [b"%d" % number for number in range(9)]


async def test_a_service_hands_on_only_where_it_may(node: Node) -> None:
    probe, secret = await Probe.on(node, "probe"), await Probe.on(node, "secret")
    access = Access(outgoing=to_next("probe"))
    await node.start(lambda: PipeService(access=access), address="pipes")
    missed: list[Missed] = []
    await start_worker(node, PipeSender("pipes", on_missed=missed.append), "in")
    node.send("in => secret", b"1")
    node.send("in => probe", b"2")
    assert (await probe.next()).payload == b"2"
    await asyncio.sleep(1)
    assert secret.payloads == []
    assert [each.payload for every in missed for each in every.messages] == [b"1"]


async def test_a_service_keeps_its_limit_and_lets_idle_pipes_expire(node: Node) -> None:
    await Probe.on(node, "probe")
    options = PipeServiceOptions(
        receivers=1, retired=1, receiver=PipeReceiverOptions(idle_timeout=10.0)
    )
    service = await start_worker(node, PipeService(options), "pipes")
    node.send("pipes", data(b"1"))
    node.send("pipes", data(b"1", identity=bytes(16)))
    await asyncio.sleep(1)
    assert set(service.receivers) == {ID}
    assert dict(node.dead_letters.by_reason) == {"limit reached": 1}
    (receiver,) = service.receivers.values()
    await asyncio.sleep(10)
    assert service.receivers == {}
    assert not node.has(receiver)
    node.send("pipes", data(b"1"))  # late: it opens nothing again
    node.send("pipes", data(b"1", identity=bytes(16)))
    await asyncio.sleep(11)
    assert service.receivers == {}
    assert (len(service._retired), bytes(16) in service._retired) == (1, True)
    assert dict(node.dead_letters.by_reason) == {"limit reached": 1}


async def test_a_service_answers_for_pipes_it_does_not_know(node: Node) -> None:
    back = await Probe.on(node, "back")
    await node.start(PipeService, address="pipes")
    unknown = encode_frame(PipeData(ID, EPOCH, Mode(), 1, 1, ()))
    node.send("pipes", unknown, return_route="back")
    node.send("pipes", unknown)
    node.send("pipes", encode_frame(Confirm(ID, EPOCH, 1)), return_route="back")
    node.send("pipes", b"hm", return_route="back")
    assert decode_frame((await back.next()).payload) == Unknown(ID, EPOCH)
    await asyncio.sleep(1)
    assert dict(node.dead_letters.by_reason) == {"pipe closed": 1, "pipe frame error": 1}
    assert Address(0, b"pipes") in [each.address for each in node.statistics().workers]


async def test_the_options_of_the_sender_hold_at_the_receiver(node: Node) -> None:
    probe = await Probe.on(node, "probe")
    await node.start(PipeService, address="pipes")
    sender = PipeSender("pipes", PipeOptions(Ordering.MONOTONIC, confirm=False))
    await node.start(lambda: sender, address="in")
    node.send("in => probe", b"1")
    assert (await probe.next()).payload == b"1"
    await sender.end()
