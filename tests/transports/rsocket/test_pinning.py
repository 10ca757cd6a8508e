"""The frames of a request for a peer broker: all but the ADDRESS stays byte for byte the same."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, strategies as st

from onward.actors.broker import BrokerOptions, TagIndexWorker
from onward.protocol import TAGS, Address
from onward.protocol.broker import (
    AddressFrame,
    BrokerFrameError,
    Dialect,
    RoutingType,
    brokers_passed,
    pin_address,
    query_of_address,
    unwrap_metadata,
)
from onward.protocol.rsocket import (
    COMPOSITE_MIME,
    Connection,
    ConnectionLimits,
    Frame,
    Role,
    Setup,
    iterate_composite,
    metadata_push_frame,
    request_frames,
)
from onward.transports.rsocket._metadata import FORMS, Form
from onward.transports.rsocket._pinning import REMEMBERED_SIZE, named_address, pinned
from tests.support.rsocket_peer import *

BROKER = bytes(range(32, 48))
PIN = ((2, "00112233-4455-6677-8899-aabbccddeeff"), ("tenant", "a"))
KINDS = [RR, FNF, STREAM, CHANNEL]


def frames_of(raws: list[bytes]) -> list[Frame]:
    """Return the frames of a request as another connection accepts them."""
    core = Connection(Role.SERVER, ConnectionLimits(), now=0.0)
    core.receive_data(Setup().serialize(), 0.0)
    found = core.receive_data(b"".join(raws), 0.0)
    assert all(isinstance(each, Frame) for each in found)
    return [each for each in found if isinstance(each, Frame)]


def raw_of(made: Frame) -> bytes:
    return made.buffer[made.start - 3 : made.end]


def address_for(form: Form, wrapped: bytes, flags: int = UNICAST) -> bytes:
    specified = form.dialect is Dialect.SPECIFICATION
    return address("a", flags, mime=form.mime, wrapped=wrapped if specified else b"")


ENTRIES = st.lists(
    st.tuples(st.sampled_from([b"text/plain", b"a/b", b"x" * 128]), st.binary(max_size=40)),
    max_size=3,
)


@given(
    st.sampled_from(list(FORMS.values())),
    st.sampled_from(KINDS),
    ENTRIES,
    ENTRIES,
    st.binary(max_size=300),
    st.binary(max_size=30),
    st.sampled_from([None, 64, 100, 1000]),
    st.integers(0, 3),
)
def test_everything_else_stays_byte_for_byte(
    form: Form,
    kind: int,
    before: list[tuple[bytes, bytes]],
    after: list[tuple[bytes, bytes]],
    data: bytes,
    wrapped: bytes,
    mtu: int | None,
    missing: int,
) -> None:
    asked = address_for(form, wrapped)
    metadata = composite(*before, (form.mime, asked), *after) if form.composite else asked
    raws = list(request_frames(kind, 1, data, metadata, initial_n=7, complete=True, mtu=mtu))
    frames = frames_of(raws)
    # Of a request in fragments, those without metadata may be missing.
    while missing and len(frames) > 1 and not frames[-1].metadata:
        frames.pop()
        missing -= 1
    there = b"".join(bytes(each.data or b"") for each in frames)
    made = pinned(frames, form, PIN, BROKER)
    wanted = pin_address(asked, form.dialect, PIN, BROKER)
    got = b"".join(bytes(each.metadata or b"") for each in made)
    if form.composite:
        assert got == composite(*before, (form.mime, wanted), *after)
    else:
        assert got == composite((form.mime, wanted))
    assert b"".join(bytes(each.data or b"") for each in made) == there
    assert made[0].type == frames[0].type
    assert [each.word & 0x080 for each in made[:-1]] == [0x080] * (len(made) - 1)
    assert made[-1].word & 0x080 == frames[-1].word & 0x080
    if kind in {STREAM, CHANNEL}:
        assert made[0].initial_request_n == 7
    if len(raws) == 1:
        (one,) = made
        assert one.word == frames[0].word
    assert all(len(raw_of(each)) - 3 == each.end - each.start for each in made)


@pytest.mark.parametrize("form", FORMS.values())
def test_a_push(form: Form) -> None:
    asked = address_for(form, b"")
    metadata = composite((form.mime, asked)) if form.composite else asked
    (frame,) = frames_of([metadata_push_frame(metadata)])
    (made,) = pinned([frame], form, PIN, BROKER)
    assert made.buffer[made.start + 6 : made.end] == composite(
        (form.mime, pin_address(asked, form.dialect, PIN, BROKER))
    )


@pytest.mark.parametrize("size", [0, REMEMBERED_SIZE, 5000])
def test_the_last_address_counts(size: int) -> None:
    form = FORMS[True, FORWARDING]
    first, last = address("a", mime=FORWARDING), address("b", mime=FORWARDING)
    more = (b"text/plain", bytes(size))
    metadata = composite((FORWARDING, first), more, (FORWARDING, last))
    for _ in range(2):  # the second time it may be remembered
        (frame,) = frames_of([request(RR, 1, metadata, b"data")])
        (made,) = pinned([frame], form, PIN[:1], BROKER)
        wanted = pin_address(last, Dialect.SPECIFICATION, PIN[:1], BROKER)
        assert raw_of(made) == request(
            RR, 1, composite((FORWARDING, first), more, (FORWARDING, wanted)), b"data"
        )


def test_a_frame_that_becomes_too_long_is_sent_in_fragments() -> None:
    form, most = FORMS[True, BROKER_FRAME], 2**24 - 1
    metadata = composite((BROKER_FRAME, address("a")))
    data = bytes(most - 6 - 3 - len(metadata))
    (frame,) = frames_of([request(RR, 1, metadata, data)])
    made = pinned([frame], form, PIN, BROKER)
    assert len(made) > 1
    assert b"".join(bytes(each.data or b"") for each in made) == data
    assert all(one.word & 0x080 for one, _ in pairwise(made))


def test_a_broken_address_is_refused() -> None:
    form = FORMS[True, BROKER_FRAME]
    (frame,) = frames_of([request(RR, 1, composite((BROKER_FRAME, address("a") + b"!")))])
    with pytest.raises(BrokerFrameError):
        pinned([frame], form, PIN, BROKER)


@pytest.mark.parametrize(
    ("text", "routing"),
    [
        ("service=a region=eu", RoutingType.UNICAST),
        ("@multicast service=a", RoutingType.MULTICAST),
        ("@shard=user @method=jump service=a user=42", RoutingType.SHARD),
        ("@sticky=user @no-route=reject @encrypted service=a user=42", RoutingType.UNICAST),
    ],
)
def test_a_request_that_names_a_route_gets_an_address(text: str, routing: RoutingType) -> None:
    index = TagIndexWorker(BrokerOptions(), BROKER)
    ask = index.asked(Address(TAGS, text.encode()))
    metadata = composite((b"message/x.onward.route.v0", b"32#" + text.encode()))
    (frame,) = frames_of([request(RR, 1, metadata, b"data")])
    (made,) = pinned([frame], FORMS[True, FORWARDING], PIN, BROKER, named_address(ask))
    found = bytes(made.metadata or b"")
    assert found.startswith(metadata)
    asked = unwrap_metadata(found, COMPOSITE_MIME).address
    assert asked is not None
    assert asked.routing is routing
    assert asked.tags[: len(PIN)] == PIN
    found_query = query_of_address(asked)
    assert found_query == ask.asked._replace(query=ask.query.union(PIN))
    *_, (_, last) = iterate_composite(found)
    assert AddressFrame.parse(last, Dialect.SPECIFICATION) == asked
    assert brokers_passed(bytes(last), Dialect.SPECIFICATION) == (BROKER,)
