"""Addresses of other brokers: which may be dialled, and when."""

from __future__ import annotations

import pytest

from onward.protocol.cluster import ClusterLimits, PeerInfo
from onward.protocol.cluster._addresses import AddressBook

OWN = PeerInfo(bytes([5]) * 16, 1, 1, "tcp://own:1", zone="a")
SMALLER = PeerInfo(bytes([1]) * 16, 1, 1, "tcp://smaller:1", zone="a")
GREATER = PeerInfo(bytes([9]) * 16, 1, 1, "tcp://greater:1", zone="a")
LIMITS = ClusterLimits(jitter=0.0)


def book(*seeds: str, allowed: tuple[str, ...] = ("tcp://*",), draw: float = 0.5) -> AddressBook:
    made = AddressBook(OWN, allowed, LIMITS, lambda: draw)
    made.replace_seeds(seeds, 0.0)
    return made


def dialable(made: AddressBook, *linked: bytes) -> dict[str, float]:
    return dict(made.dialable(linked, ()))


@pytest.mark.parametrize(
    ("pattern", "uri", "may"),
    [
        ("rsocket+wss://*.example:1", "rsocket+wss://b.example:1", True),
        ("rsocket+wss://*.example:1", "rsocket+wss://other/.example:1", False),
        ("rsocket+wss://*.example:1", "rsocket+wss://other?.example:1", False),
        ("rsocket+wss://*.example:1", "rsocket+wss://other#.example:1", False),
        ("rsocket+tls://b.*:1", "rsocket+tls://b.@other:1", False),
        ("rsocket+tls://b:*", "rsocket+tls://b:1", True),
        ("rsocket+tls://b:*", "rsocket+tcp://b:1", False),
        ("*", "rsocket+unix:///run/broker", True),
    ],
)
def test_a_pattern_does_not_reach_past_a_part_of_a_uri(pattern: str, uri: str, may: bool) -> None:
    made = book(allowed=(pattern,))
    made.add(PeerInfo(bytes([9]) * 16, 1, 1, uri, zone="a"), 0.0, linked=False)
    assert (uri in dialable(made)) == may


def test_seeds_are_dialled_at_once_and_once() -> None:
    made = book("tcp://s:1", "tcp://s:1", "tcp://own:1")
    assert dialable(made) == {"tcp://s:1": 0.0}
    made.dial("tcp://s:1")
    assert dialable(made) == {}
    assert made.dialling == 1


def test_an_address_that_is_not_allowed_is_not_dialled() -> None:
    made = book("udp://seed:1", allowed=("tcp://*:1", "ws://10.0.*/c"))
    made.add(SMALLER, 0.0, linked=False)
    made.add(PeerInfo(bytes([7]) * 16, 1, cluster_uri="tcp://x:12", zone="a"), 0.0, linked=False)
    made.add(
        PeerInfo(bytes([8]) * 16, 1, cluster_uri="ws://10.0.3.4/c", zone="a"), 0.0, linked=True
    )
    made.add(PeerInfo(bytes([6]) * 16, 1, zone="a"), 0.0, linked=False)
    assert set(dialable(made)) == {"udp://seed:1", "tcp://smaller:1", "ws://10.0.3.4/c"}


def test_the_greater_id_waits_longer() -> None:
    made = book()
    made.add(SMALLER, 10.0, linked=False)
    made.add(GREATER, 10.0, linked=False)
    assert dialable(made) == {"tcp://smaller:1": 11.0, "tcp://greater:1": 10.0}
    for info in (SMALLER, GREATER):
        made.lost(info.broker_id, 20.0)
    assert dialable(made) == {"tcp://smaller:1": 22.0, "tcp://greater:1": 21.0}


def test_the_wait_doubles_up_to_the_longest() -> None:
    made = book("tcp://s:1")
    waits: list[float] = []
    for _ in range(40):
        made.dial("tcp://s:1")
        made.failed("tcp://s:1", "refused", 100.0)
        waits.append(dialable(made)["tcp://s:1"] - 100.0)
    assert waits[:6] == [1.0, 2.0, 4.0, 8.0, 16.0, 30.0]
    assert waits[-1] == 30.0
    address = made.get("tcp://s:1")
    assert address is not None
    assert (address.failures, address.cause) == (40, "refused")


def test_waits_are_spread() -> None:
    limits = ClusterLimits(jitter=0.5)
    found: list[float] = []
    for draw in (0.0, 0.999999):
        made = AddressBook(OWN, (), limits, lambda: draw)  # noqa: B023
        made.replace_seeds(["tcp://s:1"], 0.0)
        made.dial("tcp://s:1")
        made.failed("tcp://s:1", "x", 0.0)
        found += dialable(made).values()
    assert [round(each, 3) for each in found] == [0.5, 1.5]


def test_a_success_ends_the_waits_and_names_the_broker() -> None:
    made = book("tcp://s:1")
    made.dial("tcp://s:1")
    made.failed("tcp://s:1", "x", 0.0)
    made.dial("tcp://s:1")
    made.reached("tcp://s:1", GREATER.broker_id, 10.0)
    assert dialable(made, GREATER.broker_id) == {}
    assert dialable(made) == {"tcp://s:1": 11.0}  # as if it was refused
    made.reached("tcp://unknown:1", GREATER.broker_id, 10.0)
    made.failed("tcp://unknown:1", "x", 10.0)
    made.failed("tcp://s:1", "nothing is under way", 10.0)
    assert dialable(made) == {"tcp://s:1": 11.0}


def test_this_broker_behind_another_address_is_not_dialled_again() -> None:
    made = book("tcp://s:1")
    made.dial("tcp://s:1")
    made.reached("tcp://s:1", OWN.broker_id, 0.0)
    assert dialable(made) == {}


def test_a_broker_has_one_address_beside_seeds() -> None:
    made = book("tcp://s:1")
    made.add(GREATER, 0.0, linked=True)
    made.dial("tcp://s:1")
    made.reached("tcp://s:1", GREATER.broker_id, 0.0)
    moved = PeerInfo(GREATER.broker_id, 2, 1, "tcp://moved:1", zone="a")
    made.add(moved, 0.0, linked=True)
    assert set(dialable(made)) == {"tcp://s:1", "tcp://moved:1"}


def test_only_the_broker_itself_is_believed_about_a_known_address() -> None:
    made = book("tcp://greater:1")
    made.add(GREATER, 0.0, linked=False)
    assert set(dialable(made, GREATER.broker_id)) == {"tcp://greater:1"}
    made.add(GREATER, 0.0, linked=True)
    assert dialable(made, GREATER.broker_id) == {}


def test_a_broker_may_be_dialled_before_its_time() -> None:
    made = book()
    made.add(GREATER, 0.0, linked=False)
    for _ in range(5):
        made.dial("tcp://greater:1")
        made.failed("tcp://greater:1", "x", 0.0)
    assert dialable(made) == {"tcp://greater:1": 16.0}
    made.hasten(SMALLER.broker_id, 2.0)
    made.hasten(GREATER.broker_id, 2.0)
    made.hasten(GREATER.broker_id, 3.0)
    assert dialable(made) == {"tcp://greater:1": 3.0}


def test_seeds_are_replaced() -> None:
    made = book("tcp://s:1", "tcp://t:1")
    made.dial("tcp://t:1")
    made.replace_seeds(["tcp://u:1", "tcp://t:1"], 5.0)
    assert dialable(made) == {"tcp://u:1": 5.0}
    assert made.dialling == 1
    made.drop("tcp://u:1")
    assert "tcp://u:1" in dialable(made)


def test_attempts_are_counted_until_they_end() -> None:
    made = book("tcp://s:1", "tcp://t:1")
    made.add(GREATER, 0.0, linked=False)
    made.dial("tcp://s:1")
    made.dial("tcp://t:1")
    made.dial("tcp://greater:1")
    made.dial("tcp://greater:1")
    assert made.dialling == 3
    made.failed("tcp://s:1", "refused", 0.0)
    made.failed("tcp://s:1", "refused", 0.0)
    assert made.dialling == 2
    made.reached("tcp://t:1", SMALLER.broker_id, 0.0)
    made.reached("tcp://t:1", SMALLER.broker_id, 0.0)
    assert made.dialling == 1
    # What becomes of the attempt at an address that was forgotten does not count again.
    made.drop("tcp://greater:1")
    assert made.dialling == 0
    made.add(GREATER, 0.0, linked=False)
    made.reached("tcp://greater:1", GREATER.broker_id, 0.0)
    made.failed("tcp://greater:1", "refused", 0.0)
    assert made.dialling == 0


def test_brokers_that_are_not_meant_are_not_dialled() -> None:
    made = book()
    made.add(GREATER, 0.0, linked=False)
    made.add(SMALLER, 0.0, linked=False)
    assert [uri for uri, _ in made.dialable({}, {GREATER.broker_id: "b"})] == ["tcp://smaller:1"]


def test_a_pause_is_waited_for() -> None:
    made = book()
    made.add(GREATER, 0.0, linked=False)
    made.pause(GREATER.broker_id, 60.0)
    made.pause(SMALLER.broker_id, 60.0)
    assert dialable(made) == {"tcp://greater:1": 60.0}
