"""Requests that are traced hop by hop, and the reports that their requester gets."""

from __future__ import annotations

import pytest

from onward.actors.tracing import HopTracer
from onward.protocol import (
    Address,
    HopReport,
    TraceMark,
    decode_hop_report,
    encode_hop_report,
    with_trace_mark,
)
from tests.support.rsocket_peer import *

TRACE = "5" * 32
TRACING = b"message/x.onward.tracing.v0"
REPORT = b"message/x.onward.hop-report.v0"
TO_ONE = ["ConnectionWorker", "TagIndexWorker", "Unicast", "RouteWorker", "ConnectionWorker"]


def marked(tracer: str = "peer") -> bytes:
    text = with_trace_mark({}, TraceMark(TRACE, "0" * 16, 0, Address(0, tracer.encode())))
    assert text is not None
    return text.encode()


def asked(text: bytes, flags: int = UNICAST) -> bytes:
    return composite((BROKER_FRAME, address("a", flags)), (TRACING, text))


def reports_in(frames: list[bytes]) -> list[HopReport]:
    """Return the reports in METADATA_PUSH frames, which are composite metadata of one entry."""
    found: list[HopReport] = []
    for each in frames:
        assert kind_of(each) == PUSH
        entry = each[9:]
        assert entry[1 : 1 + len(REPORT)] == REPORT
        content = entry[1 + len(REPORT) + 3 :]
        assert entry == composite((REPORT, content))
        found.append(decode_hop_report(content))
    return found


async def reported(peer: Peer, *frames: bytes) -> list[HopReport]:
    return reports_in(await peer.ask(*frames))


@in_world()
async def test_a_request_is_reported_hop_by_hop(w: World) -> None:
    w.node.add_instrument(HopTracer(w.node))
    requester, destination = await w.pair()
    sent = request(RR, 1, asked(marked()), b"data")
    reports = await reported(requester, sent)
    assert [each.kind for each in reports] == TO_ONE
    assert {each.trace for each in reports} == {TRACE}
    connection = requester.link.worker.address
    onward = [each.onward_route for each in reports]
    assert [len(route) for route in onward] == [3, 2, 2, 1, 1]
    assert onward[0][0] == connection
    assert onward[0][2] == onward[1][1] == onward[2][1] == Address(32, b"service=a")
    backs = {each.return_route for each in reports[1:]}
    ((first, _),) = backs
    assert first == connection
    assert await destination.received() == [request(RR, 2, asked(marked()), b"data")]
    assert await destination.ask(payload(2, b"done", N | C)) == []


@in_world()
async def test_a_request_in_fragments_and_one_for_several_are_reported(w: World) -> None:
    w.node.add_instrument(HopTracer(w.node))
    requester = await w.requester()
    for _ in range(2):
        await w.destination()
    parts = request(FNF, 1, asked(marked()), flags=F), payload(1, b"data")
    assert [each.kind for each in await reported(requester, *parts)] == TO_ONE
    reports = await reported(requester, request(FNF, 3, asked(marked(), MULTICAST)))
    kinds = [each.kind for each in reports]
    assert kinds[:3] == [*TO_ONE[:2], "Multicast"]
    assert sorted(kinds[3:]) == sorted(TO_ONE[3:] * 2)


@pytest.mark.parametrize(
    "text", [b"", b"{", b"\xff", b"[]", b'{"a": 1}', b'{"onward": "x"}', b'{"a":"' + b"b" * 4096]
)
@in_world()
async def test_a_text_that_cannot_be_read_is_ignored(w: World, text: bytes) -> None:
    w.node.add_instrument(HopTracer(w.node))
    requester, destination = await w.pair()
    assert await requester.ask(request(FNF, 1, asked(text))) == []
    assert len(await destination.received()) == 1


@in_world()
async def test_a_node_without_a_tracer_reports_nothing(w: World) -> None:
    requester, destination = await w.pair()
    assert await requester.ask(request(FNF, 1, asked(marked()))) == []
    assert len(await destination.received()) == 1


@in_world()
async def test_reports_for_a_peer_that_does_not_read_are_dropped(w: World) -> None:
    w.node.add_instrument(HopTracer(w.node))
    requester, destination = await w.pair()
    reports = await reported(requester, request(FNF, 1, asked(marked())))
    to = reports[1].return_route[-1]
    requester.link.write_paused = True
    w.node.send(to, encode_hop_report(reports[0]))
    w.node.send(to, b"no report")
    await w.loop.idle()
    reasons = w.node.dead_letters.by_reason
    assert reasons == {"the peer does not read": 1, "unhandled": 1}
    requester.link.write_paused = False
    await destination.received()
    requester.die()
    await w.loop.idle()
    assert not w.node.has(to)
