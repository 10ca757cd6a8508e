"""The frames of the raw loads are what their specifications say, read with the library's codec."""

from __future__ import annotations

import array
from importlib import import_module
from typing import Any

import pytest

from onward.protocol.broker import (
    NO_ROUTE_KEY,
    AddressFrame,
    Dialect,
    RouteSetup,
    RoutingType,
    WellKnownKey,
    parse_frame,
    unwrap_metadata,
)
from onward.protocol.rsocket import (
    Connection,
    Frame,
    FrameType,
    Role,
    iterate_composite,
    split_frames,
)

wire: Any = import_module("_wire")

COMPOSITE = "message/x.rsocket.composite-metadata.v0"
DATA = b"0123456789"


def only_frame(written: bytes) -> Frame:
    (frame,), rest = split_frames(b"", written)
    assert rest == b""
    return frame


def test_a_setup_carries_a_route() -> None:
    (event,) = Connection(Role.SERVER, None, now=0.0).receive_data(wire.setup_frame("bench"), 0.0)
    assert isinstance(event, Frame)
    (entry,) = iterate_composite(event.metadata or b"")
    assert entry.mime == "message/x.rsocket.broker.frame.v0"
    route = parse_frame(bytes(entry.content), Dialect.REFERENCE)
    assert isinstance(route, RouteSetup)
    assert (route.service_name, route.tags) == ("bench", ())


@pytest.mark.parametrize("routing", ["UNICAST", "MULTICAST"])
@pytest.mark.parametrize(
    ("interaction", "kind"),
    [
        ("RESPONSE", FrameType.REQUEST_RESPONSE),
        ("FIRE_AND_FORGET", FrameType.REQUEST_FNF),
        ("STREAM", FrameType.REQUEST_STREAM),
        ("CHANNEL", FrameType.REQUEST_CHANNEL),
    ],
)
def test_a_request_carries_an_address(interaction: str, kind: FrameType, routing: str) -> None:
    frame = only_frame(
        wire.request_frame(
            "bench", DATA, wire.Interaction[interaction], wire.Routing[routing], elements=7
        )
    )
    assert frame.type == kind
    assert bytes(frame.data or b"") == DATA
    if kind in {FrameType.REQUEST_STREAM, FrameType.REQUEST_CHANNEL}:
        assert frame.initial_request_n == 7
    address = unwrap_metadata(bytes(frame.metadata or b""), COMPOSITE).address
    assert address is not None
    assert (address.routing, address.tags) == (
        RoutingType[routing],
        ((WellKnownKey.SERVICE_NAME, "bench"),),
    )


def test_a_shard_request_names_its_key() -> None:
    hint = wire.Hint(wire.SHARD_KEY, b"user", wire.Routing.SHARD)
    frame = only_frame(wire.hinted_frame("bench", DATA, hint, "42"))
    assert bytes(frame.data or b"") == DATA
    unwrapped = unwrap_metadata(bytes(frame.metadata or b""), COMPOSITE)
    assert unwrapped.dialect is Dialect.SPECIFICATION
    address = unwrapped.address
    assert address is not None
    assert address.routing is RoutingType.SHARD
    assert address.metadata == ((WellKnownKey.SHARD_KEY, b"user"),)
    assert address.tags == ((WellKnownKey.SERVICE_NAME, "bench"), ("user", "42"))


@pytest.mark.parametrize(
    ("key", "said"),
    [("STICKY_ROUTE_KEY", WellKnownKey.STICKY_ROUTE_KEY), ("NO_ROUTE", NO_ROUTE_KEY)],
)
def test_a_hint_is_in_the_metadata_of_a_unicast(key: str, said: int) -> None:
    frame = only_frame(wire.hinted_frame("bench", DATA, wire.Hint(getattr(wire, key), b"user")))
    assert bytes(frame.data or b"") == DATA
    address = unwrap_metadata(bytes(frame.metadata or b""), COMPOSITE).address
    assert address is not None
    assert address.routing is RoutingType.UNICAST
    assert address.metadata == ((said, b"user"),)
    assert address.tags == ((WellKnownKey.SERVICE_NAME, "bench"),)


def test_a_push_is_of_metadata_alone() -> None:
    frame = only_frame(wire.push_frame("bench", DATA, wire.Routing.MULTICAST))
    assert (frame.type, frame.stream_id) == (FrameType.METADATA_PUSH, 0)
    asked, entry = iterate_composite(frame.metadata or b"")
    address = parse_frame(bytes(asked.content), Dialect.REFERENCE)
    assert isinstance(address, AddressFrame)
    assert address.routing is RoutingType.MULTICAST
    assert bytes(entry.content) == DATA


def test_a_lease_and_the_setup_that_announces_it() -> None:
    setup = only_frame(wire.setup_frame("bench", lease=True))
    assert setup.flags & wire.WITH_LEASE
    lease = only_frame(wire.lease_frame(500, 20))
    assert (lease.type, lease.stream_id) == (FrameType.LEASE, 0)
    assert bytes(lease.buffer[lease.start + 6 : lease.end]) == bytes.fromhex("000001f400000014")


@pytest.mark.parametrize("complete", [False, True])
def test_an_element_may_be_the_last(complete: bool) -> None:
    frame = only_frame(wire.element_frame(DATA, complete=complete))
    assert frame.type == FrameType.PAYLOAD
    assert bytes(frame.data or b"") == DATA
    assert bool(frame.flags & wire.COMPLETE) is complete


def test_frames_are_taken_apart_wherever_the_bytes_end() -> None:
    first, second = wire.frame(3, 0x2820, b"abc"), wire.frame(5, 0x2400, b"")
    data = first + second
    for end in range(len(data) + 1):
        found = list(wire.frames_of(data[:end]))
        assert len(found) == (end >= len(first)) + (end == len(data))
    assert list(wire.frames_of(data)) == [
        (0x2820, 3, 9, len(first)),
        (0x2400, 5, len(data), len(data)),
    ]


def test_what_is_stamped_is_read_again() -> None:
    given = array.array("I", [1, 0x01020304, 0xFFFFFFFF])
    template = wire.element_frame(DATA, complete=True)
    frames = wire.stamp(template, wire.numbers(given).tobytes(), wire.STREAM_ID)
    assert [stream_id for _, stream_id, _, _ in wire.frames_of(bytes(frames))] == given.tolist()
    octets = wire.columns(bytes(frames), len(template), wire.STREAM_ID)
    assert wire.numbers(octets) == given
