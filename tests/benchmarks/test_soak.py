"""What the soak looks at, it sees: leaks, losses and what should not come."""

from __future__ import annotations

import asyncio
import random
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from tests.support.compiled import interpreted
from tests.support.counts import UNMEASURED

check: Any = import_module("_soakcheck")
destinations: Any = import_module("_soakdestination")
load: Any = import_module("_soakload")
peers: Any = import_module("_soakpeer")
rivals: Any = import_module("_rivals")
wire: Any = import_module("_wire")
soak: Any = import_module("soak")

BENCHMARKS = Path(soak.__file__).parent

LEAKY = """
from onward.cli import main
from onward.protocol.rsocket import FrameType
from onward.transports.rsocket._exchange import StreamExchange

relay = StreamExchange.on_request

def forget(self, link, stream, frame):
    if frame.type != FrameType.CANCEL:
        relay(self, link, stream, frame)
    else:
        self.end()
        self.unlink()

StreamExchange.on_request = forget
main()
"""
"""A broker that does not tell the destination of a CANCEL, and keeps its stream."""


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[int, tuple[str, ...]]]:
    unix = tmp_path_factory.mktemp("soak") / "unix"
    wanted = ("tcp://127.0.0.1:0", "ws://127.0.0.1:0", f"unix://{unix}")
    with rivals.onward_at(*(f"rsocket+{each}" for each in wanted)) as found:
        yield found


async def cancelled_request(uri: str, patience: float) -> tuple[list[str], list[str]]:
    """Cancel a request that nobody answers; return what is held, and that when all have left."""
    tally = load.Tally()
    question = await peers.dial(uri, check.Question())
    asked = asyncio.Event()

    class Destination(destinations.Destination):  # type: ignore[misc]
        def on_frame(self, *frame: Any) -> None:
            destinations.Destination.on_frame(self, *frame)
            asked.set()

    destination = Destination(load.SERVICE, random.Random(1), lease=False)
    await peers.dial(uri, destination)
    requester = await peers.dial(uri, load.Requester("asks", tally, random.Random(1)))
    written = bytearray(wire.request_frame(load.SERVICE, bytes([peers.Fate.FORGET, 1])))
    written[wire.STREAM_ID.start : wire.STREAM_ID.stop] = (1).to_bytes(4)
    requester.send(bytes(written))
    await asked.wait()
    requester.send(wire.frame(1, wire.CANCEL, b""))
    while_there = await check.held_by_requests(question, patience)
    requester.leave()
    destination.transport.close()
    assert await check.routes_of_the_gone(question) == []
    when_gone = await check.held_by_requests(question)
    question.transport.close()
    return while_there, when_gone


@interpreted
@pytest.mark.slow
def test_a_stream_left_open_is_detected(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    leaky = tmp_path / "leaky.py"
    leaky.write_text(LEAKY)
    monkeypatch.setenv("ONWARD", f"{sys.executable} {leaky}")
    with rivals.onward_at("rsocket+tcp://127.0.0.1:0") as (_, (uri,)):
        while_there, when_gone = asyncio.run(cancelled_request(uri, 0.5))
    assert while_there == ["1 streams in the tables"]
    assert when_gone == []  # too late to ask


def test_a_broker_that_cancels_legs_holds_nothing(broker: tuple[int, tuple[str, ...]]) -> None:
    assert asyncio.run(cancelled_request(broker[1][0], 10.0)) == ([], [])


@pytest.mark.parametrize(
    ("came", "said"),
    [
        ({"counted push": 3}, []),
        ({"counted push": 2}, ["2 of 3 x counted push came"]),
        ({"counted push": 3, "push": 8}, ["8 x push came of 7 sent"]),
        ({"counted push": 3, "multicast push": 28}, []),
        ({"counted push": 3, "multicast push": 29}, ["29 x multicast push came of 7 sent"]),
    ],
)
def test_lost_and_repeated(
    monkeypatch: pytest.MonkeyPatch, came: dict[str, int], said: list[str]
) -> None:
    monkeypatch.setattr(soak, "PATIENCE", 0.0)
    monkeypatch.setattr(soak, "TICK", 0.0)
    monkeypatch.setattr(soak, "COUNTED", 3)
    run = soak.Soak([1], ["uri"], random.Random(1))

    class Requester:
        def tell_counted(self) -> None:
            run.tally.told["counted push"] += 1

    run._requesters.append(Requester())
    run.tally.told.update({"push": 7, "multicast push": 7})
    run.received.update({**came, "wrong: something": 2})
    assert asyncio.run(run.count_what_is_not_answered()) == said
    assert run.tally.wrong == {"wrong: something": 2}


@pytest.mark.parametrize("which", [0, 1, 2])
def test_peers_come_by_each_transport(broker: tuple[int, tuple[str, ...]], which: int) -> None:
    async def ask() -> Any:
        question = await peers.dial(broker[1][which], check.Question())
        rows = await question.ask("routes")
        question.transport.close()
        return [row["service"] for row in rows]

    assert sorted(asyncio.run(ask())) == [check.MANAGEMENT, "soak-observer"]


@pytest.mark.parametrize("size", [0, 1, 125, 126, 65_535, 65_536, 70_000])
def test_a_websocket_message_is_a_frame(size: int) -> None:
    written: list[bytes] = []
    got: list[bytes] = []

    class Transport:
        def write(self, data: bytes) -> None:
            written.append(data)

    class Inner(asyncio.Protocol):
        def data_received(self, data: bytes) -> None:
            got.append(data)

    web = import_module("_soakws").WebSocket(Inner(), "host")
    web.connection_made(Transport())
    web.data_received(b"HTTP/1.1 101 Switching Protocols\r\n\r\n")
    frame = wire.frame(1, wire.PAYLOAD_NEXT, bytes(size))
    web.write(frame * 2)
    # What a server sends is not masked.
    unmasked = b""
    for message in written[1:]:
        head = 2 + {126: 2, 127: 8}.get(message[1] & 0x7F, 0)
        unmasked += message[:1] + bytes([message[1] & 0x7F]) + message[2:head] + message[head + 4 :]
    for each in range(0, len(unmasked), 1000):
        web.data_received(unmasked[each : each + 1000])
    assert b"".join(got) == frame * 2


def test_no_websocket_no_connection() -> None:
    web = import_module("_soakws").WebSocket(asyncio.Protocol(), "host")
    with pytest.raises(ConnectionError, match="403"):
        web.data_received(b"HTTP/1.1 403 Forbidden\r\n\r\n")


async def test_a_late_request_is_counted_once() -> None:
    requester = load.Requester("asks", load.Tally(), random.Random(1))
    for stream_id, began in ((1, 10.0), (3, 20.0)):
        requester._calls[stream_id] = load._Call("response", b"", began, began, merged=False)
    found = [requester.late(now) for now in (29.0, 31.0, 32.0, 41.0, 42.0)]
    assert [[late.kind for late in each] for each in found] == [
        [],
        ["response"],
        [],
        ["response"],
        [],
    ]
    assert found[1][0].stuck
    assert found[1][0].text == "response, 21.0 s old, last frame 21.0 s ago"
    assert not requester.waits()


async def test_a_late_stream_is_slow_as_long_as_elements_come_and_then_stuck() -> None:
    requester = load.Requester("asks", load.Tally(), random.Random(1))
    call = load._Call("multicast channel", bytes((0, 60)), 10.0, 10.0, merged=True, flows=True)
    call.open, call.to_send, call.credit = True, 42, 5
    requester._calls[1] = call
    assert requester.late(29.0) == []
    call.came.update({7: 18, 8: 3})
    call.last = 30.0
    ((kind, stuck, text, pids),) = requester.late(31.0)
    assert (kind, stuck, pids) == ("multicast channel", False, (7, 8))
    assert text == (
        "multicast channel, 21.0 s old, last frame 1.0 s ago; elements: 18 from 7, 3 from 8"
        " of 60 each, credit for 5; to send: 42, credit for 0"
    )
    assert requester.late(49.0) == []
    assert requester.waits()
    ((_, stuck, _, _),) = requester.late(51.0)
    assert stuck
    assert requester.late(99.0) == []
    assert not requester.waits()


async def test_elements_out_of_order_are_counted() -> None:
    tally = load.Tally()
    requester = load.Requester("asks", tally, random.Random(1))
    call = load._Call("stream", b"a9", 0.0, 0.0, merged=False, credit=9, left=9, flows=True)
    requester._calls[1] = call
    for data, pid, number in ((b"a9", 7, 1), (b"a9", 7, 2), (b"a9", 7, 4), (b"a8", 7, 5)):
        element = data + peers.MARK.pack(pid, number)
        requester.on_frame(wire.PAYLOAD, wire.PAYLOAD | wire.NEXT, 1, element)
    assert tally.wrong == {"stream: an element out of order": 1, "stream: other data than sent": 1}
    assert call.last > 0


def test_growth_is_the_slope_after_the_warm_up() -> None:
    mebibyte = 1 << 20
    warm = [(float(at), at * mebibyte) for at in range(95)]
    flat = [(float(at), 95 * mebibyte) for at in range(95, 401)]
    rising = [(float(at), (at - 95) * 1024 + 95 * mebibyte) for at in range(95, 401)]
    assert check.growth([], 90.0) == check.growth(warm[:3], 90.0) == 0.0
    assert check.growth([*warm[:80], *flat], 90.0) == pytest.approx(0.0, abs=1e-6)
    assert check.growth([*warm[:80], *rising], 90.0) == pytest.approx(60.0)
    late = [(at, held if at > 300 else 0) for at, held in rising]
    assert check.growth([*warm[:80], *late], 360.0) == pytest.approx(60.0)


@UNMEASURED
@pytest.mark.slow
def test_a_short_soak_ends_well() -> None:
    done = subprocess.run(
        [sys.executable, str(BENCHMARKS / "soak.py"), "--minutes", "0.02", "--seed", "7"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
