"""What the event log says of connections and destinations: that they come, change and go."""

from __future__ import annotations

from onward.actors.eventlog._differences import Differences
from onward.protocol.eventlog import Kind
from tests.actors.eventlog.recording import NEVER, recorded_world
from tests.support.rsocket_peer import RR, C, N, asked_for, in_memory, payload, request
from tests.support.workers import Echo

ASKED = asked_for("a")


@in_memory
async def test_requests_of_a_connection_that_lives_shortly_are_not_messages_as_well() -> None:
    async with recorded_world(NEVER) as (w, log):
        log.recorder.links = Differences(log.recorder, w.node)
        await w.node.start(Echo, address="echo")
        w.broker.register("echo", service="a")
        destination = await w.destination("b")
        log.recorder.flows.end_window(0, 10_000)
        requester = await w.requester()
        await requester.ask(request(RR, 1, asked_for("b"), b"ping"))
        await destination.ask(payload(2, b"pong", N | C))
        await requester.ask(request(RR, 3, ASKED, b"ping"))
        requester.die()
        destination.die()
        await w.settled()
        log.recorder.flows.end_window(0, 10_000)
        mine = requester.link.worker.address, destination.link.worker.address
    flows = log.flows()
    assert sum(flows.values()) > 0
    assert not [key for key in flows if any(key.dest == f"edge/{each}" for each in mine)]
    # The one message there was is the request to the worker, which its stand-in handled as well.
    messages = {key.dest for key in flows if key.kind == Kind.MESSAGE}
    assert "edge" not in messages
