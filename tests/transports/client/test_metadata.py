"""What a client writes into metadata, and what a handler sees of what comes."""

from __future__ import annotations

from uuid import UUID

import pytest

from onward.actors.broker import Request
from onward.protocol import route
from onward.protocol.broker import (
    MIME_FORWARDING,
    AddressFrame,
    BrokerFrameError,
    Dialect,
    Query,
    RouteSetup,
    make_tags,
    multicast,
    parse_address_query,
    shard,
    unicast,
    unwrap_metadata,
)
from onward.protocol.broker._hints import query_of_address
from onward.protocol.rsocket import COMPOSITE_MIME, build_composite
from onward.transports.client import ClientOptions
from onward.transports.client._metadata import (
    Destination,
    address_metadata,
    request_of,
    says_no_route,
    setup_metadata,
)

ORIGIN = UUID(int=7)
OPTIONS = ClientOptions()


def written(destination: Destination, metadata: bytes | None = None) -> AddressFrame:
    data = address_metadata(destination, ORIGIN.bytes, metadata, "", (), OPTIONS)
    found = unwrap_metadata(data, COMPOSITE_MIME).address
    assert found is not None
    return found


@pytest.mark.parametrize(
    "text",
    [
        "service=orders",
        "service=orders region=eu empty=",
        "@multicast service=orders",
        "@encrypted service=orders",
        "@shard=user service=orders user=42",
        "@shard=user @shard=service @method=jump service=orders user=42",
        "@sticky=user @method=random @no-route=reject service=orders user=42",
        "@no-route=2.5 service=orders",
        "@multicast @no-route=wait service=orders",
        "zone=a zone=b",
    ],
)
def test_a_text_asks_for_what_it_says(text: str) -> None:
    frame = written(text)
    assert frame.origin_route_id == ORIGIN.bytes
    assert query_of_address(frame) == parse_address_query(text)


def test_in_the_reference_dialect_a_tag_carries_the_hints() -> None:
    options = ClientOptions(dialect=Dialect.REFERENCE)
    text = "service=orders user=42 0x1f=@sticky=user%20@no-route=2.5"
    data = address_metadata(text, bytes(16), None, "", (), options)
    found = unwrap_metadata(data, COMPOSITE_MIME).address
    assert found is not None
    asked = query_of_address(found, Dialect.REFERENCE)
    assert asked == parse_address_query("@sticky=user @no-route=2.5 service=orders user=42")
    # What a Java broker would ignore is refused, as it would send the request elsewhere.
    with pytest.raises(BrokerFrameError, match="not in the reference dialect"):
        address_metadata("@sticky=user service=a user=42", bytes(16), None, "", (), options)


def test_an_address_keeps_what_it_has() -> None:
    own = UUID(int=9).bytes
    assert written(unicast("a", origin=own)).origin_route_id == own
    assert written(multicast("a")).origin_route_id == ORIGIN.bytes
    frame = shard("a", tags={"user": "1"}, by="user")
    assert written(frame, b"wrapped").wrapped == b"wrapped"
    already = AddressFrame(own, frame.routing, frame.tags, False, frame.metadata, b"mine")
    assert written(already) == already


def test_a_handler_sees_what_was_written() -> None:
    entries = [("text/plain", b"note"), ("#80", b"odd")]
    data = address_metadata("service=a k=v", ORIGIN.bytes, b"meta", "r", entries, OPTIONS)
    request = request_of(b"data", data)
    assert (request.data, request.metadata, request.route) == (b"data", b"meta", "r")
    assert request.origin == ORIGIN
    assert set(request.tags) == set(make_tags({"service": "a", "k": "v"}))
    assert request.entries[1:] == tuple(entries)
    assert not request.encrypted


def test_metadata_without_an_address_have_entries() -> None:
    request = request_of(b"", build_composite([("text/plain", b"note")]))
    assert request == Request(b"", entries=(("text/plain", b"note"),))
    assert request_of(b"x", None) == Request(b"x")


@pytest.mark.parametrize(
    "metadata", [b"\x00", build_composite([(MIME_FORWARDING.decode(), b"")]), b"\xff\xff\xff\xff"]
)
def test_metadata_that_are_broken_are_none(metadata: bytes) -> None:
    assert request_of(b"x", metadata) == Request(b"x")


def test_a_route_is_an_entry_in_place_of_an_address() -> None:
    named = route("1#10.0.0.7:4000 => echo")
    entries = [("text/plain", b"note")]
    metadata = address_metadata(named, ORIGIN.bytes, None, "say", entries, OPTIONS)
    assert metadata == build_composite(
        [
            ("message/x.onward.route.v0", b"1#10.0.0.7:4000 => 0#echo"),
            ("message/x.rsocket.routing.v0", b"\3say"),
            *entries,
        ]
    )
    assert not says_no_route(named)


@pytest.mark.parametrize(
    ("destination", "metadata", "error"),
    [
        (route("a" * 1024), None, ValueError),
        ((), None, ValueError),
        (route("echo"), b"x", ValueError),
        (7, None, TypeError),
    ],
)
def test_a_destination_that_cannot_be_written(
    destination: Destination, metadata: bytes | None, error: type[Exception]
) -> None:
    with pytest.raises(error):
        address_metadata(destination, ORIGIN.bytes, metadata, "", (), OPTIONS)


def test_a_setup_has_one_entry() -> None:
    setup = RouteSetup(ORIGIN.bytes, "a", make_tags({"k": "v"}))
    assert setup_metadata(setup, OPTIONS) == build_composite(
        [(MIME_FORWARDING.decode(), setup.serialize(Dialect.SPECIFICATION))]
    )


@pytest.mark.parametrize("dialect", list(Dialect))
@pytest.mark.parametrize("text", ["service=shop region", "region service=shop", "region zone=a"])
def test_a_tag_without_a_value_is_written_last(dialect: Dialect, text: str) -> None:
    options = ClientOptions(dialect=dialect)
    metadata = address_metadata(text, bytes(16), None, "", (), options)
    address = unwrap_metadata(metadata, COMPOSITE_MIME).address
    assert address is not None
    empty = None if dialect is Dialect.SPECIFICATION else ""  # that dialect has no null
    asked = {(key, value if value is not None else empty) for key, value in _query(text)}
    assert frozenset(address.tags) == asked


def _query(text: str) -> Query:
    return parse_address_query(text).query


def test_tags_of_a_service_may_have_no_value() -> None:
    setup = RouteSetup(bytes(range(16)), "shop", make_tags({"region": None, "colour": "blue"}))
    read = RouteSetup.parse(setup.serialize(Dialect.SPECIFICATION), Dialect.SPECIFICATION)
    assert dict(read.tags) == {6: None, "colour": "blue"}
