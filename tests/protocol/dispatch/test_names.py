"""Names as they are read, and their kinds."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from onward.protocol import MAX_ADDRESS_VALUE, NAME, Address
from onward.protocol.dispatch import (
    BadName,
    DispatchLimits,
    Name,
    NameKind,
    check_node_name,
    parse_name,
    temporary_name,
)

OWN = "node-a"


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ("orders", "orders"),
        ("_eu/prices", "_eu/prices"),
        ("/orders", "orders"),
        ("///orders/", "orders/"),
        ("amqp:/orders", "orders"),
        ("amqps:/orders", "orders"),
        ("amqp://host/orders", "orders"),
        ("amqps://host:5671/a/b", "a/b"),
        ("amqp:/amqp://host/orders", "orders"),
        ("amqp:orders", "amqp:orders"),
        ("http://host/orders", "http://host/orders"),
        ("_local.x", "_local.x"),
        ("_localx/y", "_localx/y"),
        ("a b", "a b"),
        ("préis", "préis"),
        ("*.#", "*.#"),
        (b"orders", "orders"),
        ("pr\N{LATIN SMALL LETTER E WITH ACUTE}is".encode(), "préis"),
        ("\ufffd".encode(), "\ufffd"),
    ],
)
def test_mobile(given: str | bytes, text: str) -> None:
    name = parse_name(given, OWN)
    assert name == Name(NameKind.MOBILE, text)
    assert (str(name), name.local_text) == (text, text)


@pytest.mark.parametrize(
    ("given", "kind", "text", "node", "local"),
    [
        ("_local/x", NameKind.LOCAL, "_local/x", "", "_local/x"),
        ("amqp:/_local/x/y", NameKind.LOCAL, "_local/x/y", "", "_local/x/y"),
        ("_topo/node-a/x/y", NameKind.LOCAL, "_local/x/y", "", "_local/x/y"),
        ("_topo/b/x/y", NameKind.TOPOLOGICAL, "_topo/b/x/y", "b", "_local/x/y"),
        ("/_topo/all/x", NameKind.TOPOLOGICAL, "_topo/all/x", "all", "_local/x"),
        ("_temp/node-a/00ff", NameKind.TEMPORARY, "_temp/node-a/00ff", OWN, "_temp/node-a/00ff"),
        ("_temp/b/00ff", NameKind.TEMPORARY, "_temp/b/00ff", "b", "_temp/b/00ff"),
    ],
)
def test_kinds(given: str, kind: NameKind, text: str, node: str, local: str) -> None:
    name = parse_name(given, OWN)
    assert name == Name(kind, text, node)
    assert name.local_text == local


def test_topological_name_becomes_local_at_its_node() -> None:
    name = parse_name("_topo/b/x.y", OWN)
    assert parse_name(name.text, "b").text == name.local_text


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ("", "there is no name"),
        ("/", "there is no name"),
        ("./.", "there is no name"),
        ("amqp:/", "there is no name"),
        ("amqp://host", "there is no name"),
        ("amqp://host/", "there is no name"),
        ("_local", "a local name is _local/NAME"),
        ("_local/", "a local name is _local/NAME"),
        ("_local/..", "a local name is _local/NAME"),
        ("_topo", "a topological name is _topo/NODE/NAME"),
        ("_topo/b", "a topological name is _topo/NODE/NAME"),
        ("_topo//x", "a topological name is _topo/NODE/NAME"),
        ("_topo/b/", "a topological name is _topo/NODE/NAME"),
        ("_temp/b/", "a temporary name is _temp/NODE/NAME"),
        (f"_temp/{'n' * 65}/x", "a node has a name of 1 to 64 characters"),
        ("a\nb", "a character that is not printable"),
        ("a\0", "a character that is not printable"),
        ("\ud800", "a character that is not printable"),
        (b"\xff", "not UTF-8"),
        ("é" * 257, "514 bytes are over the limit of 512"),
        (b"x" * 513, "513 bytes are over the limit of 512"),
        (".".join("x" * 65), "65 tokens are over the limit of 64"),
    ],
)
def test_refused(given: str | bytes, reason: str) -> None:
    with pytest.raises(BadName) as caught:
        parse_name(given, OWN)
    assert caught.value.reason == reason
    assert caught.value.text == given


def test_limits_are_reached() -> None:
    assert parse_name("x" * 512, OWN).text == "x" * 512
    assert parse_name(".".join("x" * 64), OWN)
    limits = DispatchLimits(max_name=4, max_tokens=2)
    assert parse_name("a.bc", OWN, limits)
    with pytest.raises(BadName, match="5 bytes are over the limit of 4"):
        parse_name("a.bcd", OWN, limits)
    with pytest.raises(BadName, match="3 tokens are over the limit of 2"):
        parse_name("a.b.", OWN, limits)


def test_a_name_of_the_most_bytes_fits_into_an_address() -> None:
    most = DispatchLimits().max_name
    assert most <= MAX_ADDRESS_VALUE
    assert Address(NAME, b"orders") == Address.parse("34#orders")
    with pytest.raises(ValueError, match="max_name"):
        DispatchLimits(max_name=513)


@given(st.text("ab_/.:lcotpmq", max_size=24) | st.text(max_size=8))
def test_reading_what_was_read_changes_nothing(text: str) -> None:
    try:
        name = parse_name(text, OWN)
    except BadName:
        return
    assert parse_name(name.text, OWN) == name
    assert parse_name(name.text.encode(), OWN) == name
    assert parse_name(f"amqp://host/{name.text}", OWN) == name


@given(st.binary(max_size=16))
def test_bytes_are_read_or_refused(value: bytes) -> None:
    try:
        name = parse_name(value, OWN)
    except BadName:
        return
    assert name.text.encode() in value or name.kind is NameKind.LOCAL


def test_temporary() -> None:
    name = temporary_name("b", b"\x00\xff")
    assert name == Name(NameKind.TEMPORARY, "_temp/b/00ff", "b")
    assert parse_name(name.text, OWN) == name


@pytest.mark.parametrize("text", ["a", "node 1", "x" * 64, "é", "_all"])
def test_names_of_nodes(text: str) -> None:
    assert check_node_name(text) == text
    assert parse_name(f"_topo/{text}/x", OWN).node == text


@pytest.mark.parametrize("text", ["", "x" * 65, "a/b", "a\n", "all"])
def test_names_of_nodes_refused(text: str) -> None:
    with pytest.raises(BadName, match="a node"):
        check_node_name(text)
