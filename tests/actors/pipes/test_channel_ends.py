"""How channels end: each direction by itself, and by themselves when nobody is there."""

from __future__ import annotations

import asyncio
from functools import partial

import pytest

from onward.actors import Node
from onward.actors.pipes import PipeChannel, PipeChannelOptions, PipeChannelService
from onward.actors.routing._given import as_route
from onward.actors.testing import Probe
from onward.protocol.pipes import (
    Hello,
    PipeBroken,
    PipeClosed,
    PipeOptions,
    PipeReceiverOptions,
    Welcome,
    decode_frame,
    encode_frame,
)
from onward.transports.simulated import Faults, SimulatedNetwork, simulate
from tests.support.workers import start_worker

OPTIONS = PipeChannelOptions()
PLAIN = PipeChannelOptions(pipe=PipeOptions(confirm=False))


def _same(worker: PipeChannel) -> PipeChannel:
    return worker


async def joined(
    network: SimulatedNetwork, options: PipeChannelOptions = OPTIONS, near_options: object = None
) -> tuple[Node, Node, PipeChannelService, PipeChannel]:
    near, far = await network.node("near"), await network.node("far")
    service = await start_worker(far, PipeChannelService(options), "channels")
    await far.listen("sim://far", expose=["channels"], allow=["*"])
    link = await near.connect("sim://far", allow=["*"])
    mine = near_options if isinstance(near_options, PipeChannelOptions) else options
    channel = await start_worker(near, PipeChannel((link, "channels"), mine), "channel")
    return near, far, service, channel


@pytest.mark.parametrize("options", [OPTIONS, PLAIN])
def test_the_end_of_one_direction_lets_the_other_finish(options: PipeChannelOptions) -> None:
    async def scenario(network: SimulatedNetwork) -> None:
        near, far, service, channel = await joined(network, options)
        probe = await Probe.on(near, "probe", limit=2000)
        (inner,) = service.channels
        for number in range(900):
            far.send((inner, "probe"), b"%d" % number)
        await asyncio.sleep(0.01)
        await channel.end()
        assert probe.payloads == [b"%d" % number for number in range(900)]
        await asyncio.sleep(1)
        assert not near.has("channel")
        assert not service.channels
        assert dict(far.dead_letters.by_reason) == {}

    simulate(scenario, faults=Faults(latency=(0.05, 0.06)))


@pytest.mark.parametrize("options", [OPTIONS, PLAIN])
@pytest.mark.parametrize("seed", range(5))
def test_an_unused_channel_ends_too(options: PipeChannelOptions, seed: int) -> None:
    async def scenario(network: SimulatedNetwork) -> None:
        near, _, service, channel = await joined(network, options)
        await channel.end()
        await asyncio.sleep(20)
        assert not near.has("channel")
        assert not service.channels

    simulate(scenario, seed=seed, faults=Faults(loss=0.1, duplicate=0.1))


def test_an_end_that_takes_too_long_breaks_the_channel() -> None:
    async def scenario(network: SimulatedNetwork) -> None:
        near, _, _, channel = await joined(network)
        network.partition({"near"}, {"far"})
        with pytest.raises(PipeBroken, match="not at its end in 3 s"):
            await channel.end(timeout=3)
        await asyncio.sleep(0.1)
        assert not near.has("channel")

    simulate(scenario)


@pytest.mark.parametrize("options", [OPTIONS, PLAIN])
def test_a_channel_that_is_silent_for_long_stays(options: PipeChannelOptions) -> None:
    async def scenario(network: SimulatedNetwork) -> None:
        near, far, service, _ = await joined(network, options)
        probe = await Probe.on(far, "probe")
        for number in range(3):
            await asyncio.sleep(1000)
            near.send("channel => probe", b"%d" % number)
        await asyncio.sleep(1000)
        assert probe.payloads == [b"0", b"1", b"2"]
        assert len(service.channels) == 1

    simulate(scenario, faults=Faults(loss=0.02))


def test_the_ends_ask_as_often_as_the_other_needs_it() -> None:
    async def scenario(network: SimulatedNetwork) -> None:
        short = PipeChannelOptions(receiver=PipeReceiverOptions(idle_timeout=20.0))
        near, _, service, _ = await joined(network, short, OPTIONS)
        await asyncio.sleep(1000)
        assert near.has("channel")
        assert len(service.channels) == 1

    simulate(scenario)


@pytest.mark.parametrize("gone", ["near", "far"])
def test_an_end_whose_other_end_is_gone_in_silence_stops(gone: str) -> None:
    async def scenario(network: SimulatedNetwork) -> None:
        near, _, service, _ = await joined(network)
        await asyncio.sleep(10)
        await network.crash(gone)
        await asyncio.sleep(600)
        if gone == "near":
            assert not service.channels
        else:
            assert not near.has("channel")

    simulate(scenario)


async def test_who_asks_for_a_channel_and_does_not_come_frees_its_place(node: Node) -> None:
    service = PipeChannelService(PipeChannelOptions(channels=3, channels_per_peer=2, retired=1))
    await node.start(lambda: service, address="channels")
    back = await Probe.on(node, "back")
    for number in range(3):
        hello = encode_frame(Hello(bytes([number]) * 16, 300_000))
        node.send("channels", hello, return_route="back")
    await asyncio.sleep(1)
    assert len(service.channels) == 2
    assert dict(node.dead_letters.by_reason) == {"limit reached": 1}
    await asyncio.sleep(61)
    assert not service.channels
    assert len(service._retired) == 1
    # What asked for a channel that is over, and comes late, makes none again.
    late = encode_frame(Hello(next(iter(service._retired)), 300_000))
    node.send("channels", late, return_route="back")
    await asyncio.sleep(1)
    assert not service.channels
    assert sum(isinstance(decode_frame(each), Welcome) for each in back.payloads) == 2
    await node.start(lambda: PipeChannel("channels"), address="channel")


def test_copies_of_what_asks_for_a_channel_take_no_places() -> None:
    async def scenario(network: SimulatedNetwork) -> None:
        near, far, service, channel = await joined(network)
        probe = await Probe.on(far, "probe")
        for number in range(20):
            near.send("channel => probe", b"%d" % number)
            await asyncio.sleep(0.1)
            await channel.end()
            await asyncio.sleep(1)
            channel = PipeChannel(channel._route)
            await near.start(partial(_same, channel), address="channel")
        await channel.end()
        await asyncio.sleep(400)
        assert len(probe.payloads) == 20
        assert not service.channels

    faults = Faults(latency=(0.001, 0.01), duplicate=0.3, reorder=0.3, reorder_by=1.0)
    simulate(scenario, seed=3, faults=faults)


async def test_who_asks_a_full_service_hears_it_at_once(node: Node) -> None:
    service = PipeChannelService(PipeChannelOptions(channels=1))
    await node.start(lambda: service, address="channels")
    await node.start(lambda: PipeChannel("channels"), address="one")
    before = node.loop.time()
    with pytest.raises(PipeClosed, match="refused: full"):
        await node.start(lambda: PipeChannel("channels"), address="two")
    assert node.loop.time() - before < 1


async def test_a_full_channel_stops_at_once(node: Node) -> None:
    options = PipeChannelOptions(pipe=PipeOptions(window=2, queue=2))
    await node.start(lambda: PipeChannelService(options), address="channels")
    channel = await start_worker(node, PipeChannel("channels", options), "channel")
    channel._pipes.sending.route = as_route("nobody")
    for number in range(10):
        node.send("channel => probe", b"%d" % number)
    await asyncio.sleep(1)
    before = node.loop.time()
    await node.stop_worker("channel")
    assert node.loop.time() - before < 0.5
    assert dict(node.dead_letters.by_reason)["pipe closed"] == 10
