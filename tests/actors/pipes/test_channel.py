"""`PipeChannel`: requests and answers through two pipes, over a bad network."""

from __future__ import annotations

import asyncio

import pytest

from onward.actors import Node, Worker
from onward.actors.pipes import PipeChannel, PipeChannelOptions, PipeChannelService
from onward.actors.testing import Probe
from onward.protocol import Address, Message
from onward.protocol.pipes import (
    Broken,
    Hello,
    PipeBroken,
    PipeClosed,
    PipeOptions,
    PipeRefusal,
    PipeRefused,
    Welcome,
    encode_frame,
)
from onward.transports.simulated import Faults, SimulatedNetwork, simulate
from tests.support.counts import times
from tests.support.workers import start_worker

QUICK = PipeChannelOptions(pipe=PipeOptions(give_up=5.0, window=4, queue=4))
PATIENT = PipeChannelOptions(pipe=PipeOptions(give_up=60.0))


class Echo(Worker):
    """Answers."""

    def handle_message(self, message: Message) -> None:
        self.reply(message, message.payload)


async def joined(
    network: SimulatedNetwork, options: PipeChannelOptions = QUICK
) -> tuple[Node, Node, PipeChannelService, PipeChannel]:
    near, far = await network.node("near"), await network.node("far")
    service = await start_worker(far, PipeChannelService(options), "channels")
    await far.start(Echo, address="echo")
    await far.listen("sim://far", expose=["channels"], allow=["*"])
    link = await near.connect("sim://far", allow=["*"])
    channel = await start_worker(near, PipeChannel((link, "channels"), options), "channel")
    return near, far, service, channel


@pytest.mark.parametrize("seed", range(times(3, 10)))
def test_requests_and_answers_go_through(seed: int) -> None:
    async def scenario(network: SimulatedNetwork) -> None:
        near, far, service, channel = await joined(network, PATIENT)
        for number in range(20):
            answer = await near.request("channel => echo", b"%d" % number)
            assert answer.payload == b"%d" % number
            # The way back is the channel's own inner address.
            assert answer.return_route == (Address(0, b"channel"), Address(0, b"echo"))
        assert len(service.channels) == 1
        await channel.end()
        await asyncio.sleep(60)  # the answer to the end may be lost, and then nobody is there
        assert not near.has("channel")
        assert not service.channels
        assert far.statistics().worker_count == 4

    faults = Faults(latency=(0.001, 0.03), loss=0.2, duplicate=0.2, reorder=0.3)
    simulate(scenario, seed=seed, faults=faults)


def test_the_far_end_can_speak_first() -> None:
    async def scenario(network: SimulatedNetwork) -> None:
        near, far, service, _ = await joined(network)
        probe = await Probe.on(near, "probe")
        (inner,) = service.channels
        for number in range(30):
            far.send((inner, "probe"), b"%d" % number)
        await probe.count(30)
        assert probe.payloads == [b"%d" % number for number in range(30)]

    simulate(scenario, faults=Faults(loss=0.1))


def test_an_end_whose_other_end_is_gone_reports_and_stops() -> None:
    async def scenario(network: SimulatedNetwork) -> None:
        broken: list[Broken] = []
        near, _, _, channel = await joined(network)
        channel._told_broken = broken.append
        await near.request("channel => echo", b"1")
        await asyncio.sleep(1)
        await network.crash("far")
        near.send("channel => echo", b"2")
        await asyncio.sleep(10)
        assert [[each.payload for each in every.in_doubt] for every in broken] == [[b"2"]]
        assert not near.has("channel")
        assert dict(near.dead_letters.by_reason)[PipeBroken.reason] == 1

    simulate(scenario)


def test_an_end_that_stops_takes_the_other_with_it() -> None:
    async def scenario(network: SimulatedNetwork) -> None:
        near, far, service, _ = await joined(network)
        await near.request("channel => echo", b"1")
        (inner,) = service.channels
        await far.stop_worker(inner)
        await asyncio.sleep(10)
        assert not service.channels
        assert not near.has("channel")

    simulate(scenario)


async def test_nobody_answers(node: Node) -> None:
    channel = PipeChannel("nobody", QUICK)
    with pytest.raises(PipeClosed, match="no answer in 5 s"):
        await node.start(lambda: channel, address="channel")
    await asyncio.sleep(1)
    assert not node.has("channel")


async def test_a_service_answers_once_more_and_keeps_its_limit(node: Node) -> None:
    back = await Probe.on(node, "back")
    made: list[Address] = []
    service = PipeChannelService(PipeChannelOptions(channels=1), on_channel=made.append)
    await node.start(lambda: service, address="channels")
    hello = encode_frame(Hello(bytes(16), 1000))
    node.send("channels", hello, return_route="back")
    await asyncio.sleep(0.1)
    node.send("channels", hello, return_route="back")
    node.send("channels", encode_frame(Hello(b"x" * 16, 1000)), return_route="back")
    node.send("channels", hello)
    node.send("channels", encode_frame(Welcome(bytes(16), 1000)), return_route="back")
    node.send("channels", b"hm", return_route="back")
    await back.count(3)
    assert back.payloads == [
        *[encode_frame(Welcome(bytes(16), 300_000))] * 2,
        encode_frame(PipeRefused(b"x" * 16, PipeRefusal.FULL)),
    ]
    assert made == list(service.channels)
    await asyncio.sleep(1)
    assert dict(node.dead_letters.by_reason) == {
        "limit reached": 1,
        "no channel": 2,
        "pipe frame error": 1,
    }


async def test_a_full_channel_lets_its_senders_wait(node: Node) -> None:
    probe = await Probe.on(node, "probe")
    await node.start(lambda: PipeChannelService(QUICK), address="channels")
    channel = await start_worker(node, PipeChannel("channels", QUICK), "channel")
    for number in range(100):
        node.send("channel => probe", b"%d" % number)
    node.send("channel", b"nowhere")
    await probe.count(100)
    assert probe.payloads == [b"%d" % number for number in range(100)]
    await asyncio.sleep(1)
    assert dict(node.dead_letters.by_reason) == {"empty route": 1}
    node.send(channel._pipes.sending.back, encode_frame(Welcome(bytes(16), 1000)))
    node.send(channel._pipes.sending.back, b"hm")
    await asyncio.sleep(1)
    assert dict(node.dead_letters.by_reason) == {"empty route": 1, "pipe frame error": 1}
    channel.on_failure(ValueError, ValueError(), None)


def test_before_it_has_started_a_channel_has_nothing() -> None:
    channel = PipeChannel("channels")
    channel.on_stop()
    with pytest.raises(RuntimeError, match="has not started yet"):
        channel._pipes  # noqa: B018
