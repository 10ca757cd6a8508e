"""The question to a worker that authenticates peers, and its answer."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, strategies as st

from onward.protocol.broker import make_tags, tag_set
from onward.protocol.payloads import CBOR, PayloadError
from onward.protocol.security import (
    BearerToken,
    Credentials,
    CustomCredentials,
    PeerIdentity,
    Principal,
    UserPassword,
    format_callout,
    format_callout_answer,
    parse_callout,
    parse_callout_answer,
)

PEER = PeerIdentity(
    "rsocket+tls://[::]:8001",
    "2001:db8::/64",
    ("DNS:a.example", "URI:spiffe://example/a"),
    b"\x01" * 32,
    2e9,
    1000,
    "[2001:db8::1]:4711",
)
TAGS = tag_set(make_tags({"tenant": "a", "service": "x"}))


@pytest.mark.parametrize("peer", [PEER, PeerIdentity()], ids=["whole", "empty"])
@pytest.mark.parametrize(
    "credentials",
    [
        None,
        UserPassword("ann", "pässwörd"),
        BearerToken(b"onw_\xff"),
        CustomCredentials("key", b"\x00\xff"),
    ],
    ids=lambda each: type(each).__name__,
)
def test_a_question(credentials: Credentials | None, peer: PeerIdentity) -> None:
    assert parse_callout(format_callout(credentials, peer)) == (credentials, peer)


def test_what_is_kept_of_a_dead_letter_has_no_secret() -> None:
    from onward.actors.routing._dead_letters import KEPT_PAYLOAD

    question = format_callout(BearerToken(b"onw_secret"), PeerIdentity())
    assert question.index(b"onw_secret") >= KEPT_PAYLOAD


@pytest.mark.parametrize(
    "principal",
    [
        None,
        Principal("ann", "callout"),
        Principal("ann", "callout", frozenset({"a", "b"}), TAGS, 2e9),
    ],
)
def test_an_answer(principal: Principal | None) -> None:
    assert parse_callout_answer(format_callout_answer(principal)) == principal


def test_an_answer_may_leave_out_all_but_the_name() -> None:
    assert parse_callout_answer(CBOR.encode({"name": "ann"})) == Principal("ann", "callout")


@pytest.mark.parametrize(
    ("answer", "field"),
    [
        (None, "the answer"),
        ({1: "ann"}, "the answer"),
        ({}, "name"),
        ({"refused": False}, "name"),
        ({"refused": 1, "name": "ann"}, "refused"),
        ({"refused": "yes", "name": "ann"}, "refused"),
        ({"refused": None, "name": "ann"}, "refused"),
        ({"refuse": True, "name": "ann"}, "refuse"),
        ({"name": "ann", "tag": {"tenant": "a"}}, "tag"),
        ({"name": "ann", "x" * 100: 1}, "x" * 64),
        ({"name": b"ann"}, "name"),
        ({"name": ""}, "name"),
        ({"name": "a\n"}, "name"),
        ({"name": "x" * 256}, "name"),
        ({"name": "ann", "roles": "a"}, "roles"),
        ({"name": "ann", "roles": [1]}, "roles"),
        ({"name": "ann", "roles": ["x"] * 65}, "roles"),
        ({"name": "ann", "roles": [""]}, "name"),
        ({"name": "ann", "tags": ["a"]}, "tags"),
        ({"name": "ann", "tags": {"a": 1}}, "a"),
        ({"name": "ann", "tags": {"": "1"}}, "tags"),
        ({"name": "ann", "tags": {"a": "x" * 128}}, "tags"),
        ({"name": "ann", "expires": "soon"}, "expires"),
        ({"name": "ann", "expires": True}, "expires"),
        ({"name": "ann", "expires": -1}, "expires"),
        ({"name": "ann", "refu\x10ed": True}, "'refu\\x10ed'"),
    ],
)
def test_a_wrong_answer(answer: object, field: str) -> None:
    with pytest.raises(PayloadError) as caught:
        parse_callout_answer(CBOR.encode(answer))
    assert caught.value.field == field


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"kind": "other"}, "kind"),
        ({"kind": 1}, "kind"),
        ({"secret": "text"}, "secret"),
        ({"kind": "simple", "secret": b"\xff"}, "secret"),
        ({"peer": None}, "peer"),
    ],
)
def test_a_wrong_question(change: dict[str, Any], field: str) -> None:
    asked = CBOR.decode(format_callout(BearerToken(b"x"), PEER))
    with pytest.raises(PayloadError) as caught:
        parse_callout(CBOR.encode({**asked, **change}))
    assert caught.value.field == field


@given(st.binary(max_size=100))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    for read in (parse_callout, parse_callout_answer):
        try:
            read(data)
        except PayloadError:
            continue
