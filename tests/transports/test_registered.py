"""What was registered over a connection is registered again when that was cut."""

from __future__ import annotations

import asyncio
from functools import partial

from onward.actors import Node
from onward.actors.services import RelayClient, StaticRelayService
from onward.actors.sessions import SessionClient, SessionService
from onward.actors.workers import Echo
from tests.support.tcp import FAST, listening
from tests.support.transports import eventually
from tests.support.virtual import virtual_time


def came_up_since(client: RelayClient, ups: int) -> bool:
    return client.ups > ups


@virtual_time
async def test_a_relay_is_there_again_soon_after_a_cut() -> None:
    async with Node("hub") as hub, Node("device") as device:
        await device.start(Echo, address="echo")
        service = StaticRelayService()
        await hub.start(lambda: service, address="relays")
        listener = await listening(hub, "relays")
        link = await device.connect(listener.uri, expose=["echo"], backoff=FAST)
        client = await RelayClient.on(device, [link, "relays"], alias="device")
        await client.until_up()
        for _ in range(3):
            await asyncio.sleep(60)  # a way that held for a while is tried again at once
            ups, began = client.ups, device.loop.time()
            [accepted] = listener.statistics().links
            await hub.stop_worker(accepted.address)
            await eventually(partial(came_up_since, client, ups))
            assert device.loop.time() - began < 5
            answer = await hub.request("forward_to_device => echo", b"hi")
            assert answer.payload == b"hi"
        await client.close()


@virtual_time
async def test_a_session_is_up_again_soon_after_a_cut() -> None:
    async with Node("there") as there, Node("here") as here:
        await there.start(Echo, address="echo")
        await there.start(lambda: SessionService(expose=["echo"]), address="sessions")
        listener = await listening(there, "sessions")
        link = await here.connect(listener.uri, backoff=FAST)
        session = await SessionClient.on(here, "session", [link, "sessions"])
        await session.until_up()
        await asyncio.sleep(60)
        ups, began = session.ups, here.loop.time()
        [accepted] = listener.statistics().links
        await there.stop_worker(accepted.address)
        await eventually(lambda: session.ups > ups)
        assert here.loop.time() - began < 5
        assert (await here.request("session => echo", b"hi")).payload == b"hi"
        await session.close()
