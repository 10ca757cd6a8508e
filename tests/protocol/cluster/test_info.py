"""The facts that a broker tells of itself, as bytes."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, strategies as st

from onward.protocol.broker import BrokerFrameError, BrokerInfo, Dialect, Metadata
from onward.protocol.cluster import (
    DRAINING,
    OWNERS,
    ClusterFrameError,
    PeerInfo,
    parse_infos,
    serialize_infos,
)
from tests.protocol.cluster.streams import HOME, INSTANCE
from tests.protocol.cluster.test_elements import VECTORS

INFO = PeerInfo(
    HOME,
    INSTANCE + 5,
    INSTANCE,
    "rsocket+tls://10.0.0.1:7001",
    zone="a",
    name="one",
    max_batch=16_384,
)
FULL = replace(
    INFO,
    proxy_uri="tcp://10.0.0.1:8001",
    state=DRAINING,
    owners=OWNERS,
    others=(("mood", b"\xff"), (5, None)),
)


def of(*metadata: tuple[int | str, bytes | None]) -> PeerInfo:
    return PeerInfo.of(BrokerInfo(HOME, 1, metadata))


@pytest.mark.parametrize("info", [INFO, FULL, PeerInfo(HOME, 1), PeerInfo(HOME, 1, version="")])
@pytest.mark.parametrize("dialect", Dialect)
def test_facts_are_read_as_they_were_written(info: PeerInfo, dialect: Dialect) -> None:
    if dialect is Dialect.REFERENCE and info is FULL:
        info = replace(info, others=(("mood", b"\xff"), (5, b"")))  # it has no null
    assert PeerInfo.parse(info.serialize(dialect), dialect) == info


def test_the_vector_of_the_page_is_what_it_says() -> None:
    assert VECTORS["broker-info"] == INFO.serialize()


def test_no_beginning_and_no_longer_one_are_the_same_facts() -> None:
    data = INFO.serialize()
    for size in range(len(data)):
        try:
            assert PeerInfo.parse(data[:size]) != INFO
        except ClusterFrameError:
            continue
    for extra in (b"\0", b"\xff" * 9):
        with pytest.raises(ClusterFrameError):
            PeerInfo.parse(data + extra)


def test_unknown_keys_are_passed_on_and_one_without_a_value_goes_last() -> None:
    info = of((9, None), ("onward", b"1"), ("later", b"x"))
    assert info.others == ((9, None), ("later", b"x"))
    assert PeerInfo.parse(info.serialize()).others == (("later", b"x"), (9, None))


def test_another_version_of_owners_is_passed_on() -> None:
    info = of(("owners", b"2"))
    assert info.owners == "2"
    assert PeerInfo.parse(info.serialize()) == info


def test_the_java_broker_says_two_addresses_and_no_more() -> None:
    info = of((0x21, b"tcp://a:8001"), (0x22, b"tcp://a:7001"))
    assert (info.proxy_uri, info.cluster_uri) == ("tcp://a:8001", "tcp://a:7001")
    assert (info.version, info.instance, info.max_batch) == ("", 0, None)
    assert info.frame().metadata == ((0x21, b"tcp://a:8001"), (0x22, b"tcp://a:7001"))


def test_of_a_key_that_is_there_twice_the_first_counts() -> None:
    assert of(("name", b"one"), ("name", b"two")).name == "one"


@pytest.mark.parametrize(
    ("entry", "reason"),
    [
        (("name", b"\xff"), "name: not UTF-8"),
        (("instance", b""), "instance: not a number"),
        (("instance", "²".encode()), "instance: not a number"),
        (("instance", b"-1"), "instance: not a number"),
        (("instance", b"1" * 20), "instance: not a number"),
        (("max", None), "max: not a number"),
        (("max", b"1023"), "max: less than 1024 bytes"),
    ],
)
def test_a_value_that_is_not_what_its_key_says_is_refused(
    entry: tuple[str, bytes | None], reason: str
) -> None:
    with pytest.raises(ClusterFrameError, match=reason):
        of(entry)


def test_a_text_that_is_too_long_is_not_written() -> None:
    with pytest.raises(BrokerFrameError):
        replace(INFO, name="x" * 128).serialize()


@pytest.mark.parametrize("entries", [255, 256])
def test_facts_that_are_read_can_be_told_to_others(entries: int) -> None:
    """The state is told also where it was not."""
    others = tuple((f"k{number}", b"v") for number in range(entries - 1))
    info = of(("state", b"up"), *others)
    assert PeerInfo.parse(info.serialize()) == info
    if entries == 256:
        with pytest.raises(ClusterFrameError, match="256 entries"):
            of(("onward", b"1"), *others)
        return
    info = of(("onward", b"1"), *others)
    assert PeerInfo.parse(info.serialize()) == info


def test_what_is_no_broker_info_is_refused() -> None:
    with pytest.raises(ClusterFrameError, match="BROKER_INFO, frame type"):
        PeerInfo.parse(b"\0\0\0\1\x08\0" + bytes(40))


def test_a_list_of_brokers_is_read_as_it_was_written() -> None:
    data = serialize_infos([INFO, FULL])
    assert parse_infos(data, 2) == [INFO, FULL]
    assert parse_infos(b"", 0) == []
    for size in range(1, len(data)):
        if size == len(INFO.serialize()) + 3:
            continue
        with pytest.raises(ClusterFrameError):
            parse_infos(data[:size], 2)


def test_a_list_has_a_limit() -> None:
    with pytest.raises(ClusterFrameError, match="more than 1 brokers"):
        parse_infos(serialize_infos([INFO, FULL]), 1)


@given(
    st.lists(
        st.tuples(st.sampled_from([0x21, 0x22, 5, "onward", "max", "x"]), st.binary(max_size=20)),
        max_size=6,
    )
)
def test_any_list_is_read_or_refused(entries: Metadata) -> None:
    try:
        info = of(*entries)
    except ClusterFrameError:
        return
    assert PeerInfo.parse(info.serialize()) == info


def test_keys_that_groups_lack_are_told() -> None:
    info = replace(INFO, without=("pod", 3, "a b", "région", "region"))
    assert PeerInfo.parse(info.serialize()) == info
    assert of(("without", b"pod instance")).without == ("pod", 3)
    others = (b"pod  instance", b" pod", b"%70od", b"0x03", "région".encode())
    for value in (b"%", b"a %zz", b"x" * 128, *others):
        with pytest.raises(ClusterFrameError, match="not the keys of tags"):
            of(("without", value))
