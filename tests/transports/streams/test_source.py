"""What connections of one peer have in common."""

from __future__ import annotations

import pytest

from onward.transports.streams._source import Places, Proxies, source_of


@pytest.mark.parametrize(
    ("peername", "source"),
    [
        (("10.0.0.1", 5000), "10.0.0.1"),
        (("::ffff:10.0.0.1", 5000, 0, 0), "10.0.0.1"),
        (("2001:db8:1:2:3:4:5:6", 5000, 0, 0), "2001:db8:1:2::/64"),
        (("2001:db8:1:2:ffff::1", 1, 0, 0), "2001:db8:1:2::/64"),
        (("fe80::1%eth0", 1, 0, 2), "fe80::/64"),
        (("::1", 1, 0, 0), "::/64"),
        (("a name", 1), "a name"),
        ("", ""),
        (b"\0abstract", ""),
        (None, ""),
    ],
)
def test_source(peername: object, source: str) -> None:
    assert source_of(peername) == source


@pytest.mark.parametrize(
    ("peername", "known"),
    [
        (("10.1.2.3", 5000), True),
        (("::ffff:10.1.2.3", 5000, 0, 0), True),
        (("192.0.2.7", 5000), True),
        (("192.0.2.8", 5000), False),
        (("2001:db8::1", 5000, 0, 0), True),
        (("2001:db9::1", 5000, 0, 0), False),
        (("a name", 1), False),
        ("", False),
    ],
)
def test_proxies(peername: object, known: bool) -> None:
    assert (peername in Proxies(("10.0.0.0/8", "192.0.2.7", "2001:db8::/32"))) is known
    assert ("" in Proxies(("unix",))) is True


@pytest.mark.parametrize(
    ("network", "host", "known"),
    [
        ("::ffff:10.0.0.0/104", "10.1.2.3", True),
        ("::ffff:10.0.0.0/104", "::ffff:10.1.2.3", True),
        ("::ffff:10.0.0.0/104", "11.0.0.1", False),
        ("::ffff:192.0.2.7", "192.0.2.7", True),
        ("::ffff:0:0/96", "192.0.2.7", True),
        ("::ffff:0:0/96", "2001:db8::1", False),
        ("::/0", "2001:db8::1", True),
    ],
)
def test_proxies_mapped_into_ipv6(network: str, host: str, known: bool) -> None:
    assert ((host, 5000) in Proxies((network,))) is known


def test_connections_of_a_proxy_have_nothing_in_common() -> None:
    proxies = Proxies(("10.0.0.5",))
    made = [proxies.source((host, 1), host) for host in ("10.0.0.5", "10.0.0.6", "10.0.0.5")]
    assert made == ["10.0.0.5 #1", "10.0.0.6", "10.0.0.5 #2"]


def test_places_are_shared_by_source() -> None:
    places = Places(10, None)
    taken = [source for source in 20 * ["hog"] + 20 * ["other"] if taken_by(places, source)]
    assert (taken.count("hog"), taken.count("other")) == (6, 3)
    assert places.refusal("hog") == "6 connections of hog already"
    assert taken_by(places, "")  # of a source that the system does not tell
    assert places.refusal("") == "10 connections already"
    for source in (*taken, ""):
        places.give_up(source)
    assert (places.taken, places._by_source) == (0, {})


def taken_by(places: Places, source: str) -> bool:
    free = not places.refusal(source)
    if free:
        places.take(source)
    return free
