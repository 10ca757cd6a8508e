"""The brokers that a client knows: which one is chosen, when connections move, what is learned."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any
from uuid import uuid4

import pytest
from hypothesis import given, settings, strategies as st

from onward.protocol.cluster import DRAINING, UP, PeerInfo
from onward.transports import Backoff
from onward.transports.client import BrokersOptions, ClientOptions
from onward.transports.client._brokers import Brokers, KnownBroker
from onward.transports.client._dial import parse_place

A, B, C = (f"rsocket+tcp://{name}:1" for name in "abc")


class Numbers:
    """The random numbers of a test, the last one again and again."""

    def __init__(self, *numbers: float) -> None:
        self.numbers = list(numbers)

    def __call__(self) -> float:
        return self.numbers.pop(0) if len(self.numbers) > 1 else self.numbers[0]


def known(*uris: str, random: Callable[[], float] | None = None, **limits: Any) -> Brokers:
    backoff = Backoff(first=1.0, longest=8.0, random=random or Numbers(0.0))
    options = ClientOptions(backoff=backoff, brokers=BrokersOptions(**limits))
    return Brokers([parse_place(uri, options) for uri in uris], options)


def of(brokers: Brokers, uri: str) -> KnownBroker:
    return next(each for each in brokers if each.uri == uri)


def connect(brokers: Brokers, now: float = 0.0) -> str:
    broker = brokers.choose(now)
    broker.connections += 1
    return broker.uri


def info(uri: str, broker_id: bytes | None = None, *, at: int = 1, state: str = UP) -> PeerInfo:
    return PeerInfo(broker_id or uri.encode()[-16:].rjust(16), at, proxy_uri=uri, state=state)


def allowed(_uri: str) -> str:
    return ""


# --- choosing ---------------------------------------------------------------------------------


def test_connections_go_to_different_brokers() -> None:
    brokers = known(A, B, C)
    assert {connect(brokers), connect(brokers), connect(brokers)} == {A, B, C}
    assert connect(brokers) in {A, B, C}
    assert max(each.connections for each in brokers) == 2


def test_a_broker_given_twice_is_one() -> None:
    assert len(known(A, A)) == 1


def test_equal_ones_are_taken_at_random() -> None:
    assert connect(known(A, B, random=Numbers(0.9, 0.1))) == B
    assert connect(known(A, B, random=Numbers(0.1, 0.9))) == A


def test_one_that_failed_comes_after_one_that_did_not() -> None:
    brokers = known(A, B)
    brokers.failed(of(brokers, A), 0.0)
    assert [connect(brokers), connect(brokers)] == [B, B]
    # Also when its time is over: it has not shown yet that it is there.
    assert connect(brokers, 100.0) == B


def test_of_those_that_all_failed_the_one_that_is_due_first_is_next() -> None:
    brokers = known(A, B, C)
    for now, uri in enumerate((A, B, C)):
        for _ in range(4):
            brokers.failed(of(brokers, uri), float(now))
    assert not brokers.any_fit(2.0)
    assert brokers.choose(2.0).uri == A
    brokers.failed(of(brokers, A), 2.0)
    assert brokers.choose(2.0).uri == B


def test_the_pause_of_a_broker_is_bounded_and_ends_with_a_success() -> None:
    brokers = known(A, random=Numbers(0.5))
    broker = of(brokers, A)
    pauses: list[float] = []
    for _ in range(200):
        brokers.failed(broker, 0.0)
        pauses.append(broker.at)
    assert pauses[:5] == [0.75, 1.5, 3.0, 6.0, 6.0]
    assert max(pauses) == 6.0
    brokers.connected(broker)
    assert brokers.any_fit(0.0)


def test_one_that_was_lost_or_drains_is_avoided_for_a_while() -> None:
    brokers = known(A, B)
    brokers.lost(of(brokers, A), 0.0)
    assert brokers.choose(0.4).uri == B
    assert brokers.choose(0.6).uri == A
    brokers.drains(of(brokers, A), 0.6)
    assert brokers.choose(4.0).uri == B
    assert brokers.choose(5.0).uri == A


# --- moving -----------------------------------------------------------------------------------


def test_connections_move_to_one_that_has_two_less() -> None:
    brokers = known(A, B)
    a, b = of(brokers, A), of(brokers, B)
    a.connections = 3
    assert brokers.wanted_move([a], 0.0) == (a, b)
    a.connections, b.connections = 2, 1
    assert brokers.wanted_move([a, b], 0.0) is None
    a.connections = 4
    brokers.failed(b, 0.0)
    assert brokers.wanted_move([a, b], 0.0) is None
    assert brokers.wanted_move([a, b], 10.0) == (a, b)
    assert brokers.wanted_move([], 10.0) is None


def test_two_names_of_one_broker_are_one_place() -> None:
    brokers = known(A, B)
    a, b = of(brokers, A), of(brokers, B)
    a.connections = 2
    for each in (a, b):
        each.broker_id = b"x" * 16
    assert brokers.load(b) == 2
    assert brokers.wanted_move([a], 0.0) is None


def test_a_broker_that_drains_is_left_first() -> None:
    brokers = known(A, B)
    a, b = of(brokers, A), of(brokers, B)
    a.connections = 1
    a.broker_id = info(A).broker_id
    brokers.learn([info(A, state=DRAINING), info(B)], 0.0, allowed)
    assert brokers.wanted_move([a], 0.0) == (a, b)
    brokers.failed(b, 0.0)
    assert brokers.wanted_move([a], 0.0) is None  # to where?


def test_a_broker_that_comes_back_gets_its_share_of_clients() -> None:
    """Each client decides for itself, with one connection; none knows of the others."""
    random, clients, moved = Random(1).random, 4000, 0
    for _ in range(clients):
        brokers = known(A, B, random=random)
        a = of(brokers, A)
        a.connections = 1
        brokers.learn([info(C)], 0.0, allowed)
        move = brokers.wanted_move([a], 0.0)
        moved += move is not None
        assert brokers.wanted_move([a], 1.0) is None  # decided once
        if move is not None:
            assert (move[0], move[1].uri) == (a, C)
    assert moved / clients == pytest.approx(1 / 3, abs=0.03)


# --- learning ---------------------------------------------------------------------------------


def test_what_is_learned_is_dialled_only_if_it_is_allowed() -> None:
    brokers = known(A)
    brokers.learn([info(B), info(C), info("")], 0.0, lambda uri: "no" if uri == C else "")
    assert brokers.uris == {A, B}
    assert brokers.learned.refused == {"no": 1}


def test_a_named_broker_is_found_under_its_other_name() -> None:
    brokers = known(A)
    of(brokers, A).broker_id = info(B).broker_id
    brokers.learn([info(B)], 0.0, allowed)
    assert brokers.uris == {A}
    assert of(brokers, A).listed


def test_a_broker_that_restarts_is_known_by_its_uri() -> None:
    brokers = known(A)
    brokers.learn([info(B, b"1" * 16, at=9)], 0.0, allowed)
    brokers.failed(of(brokers, B), 0.0)
    brokers.learn([info(B, b"2" * 16, at=8)], 0.1, allowed)
    b = of(brokers, B)
    assert (len(brokers), b.broker_id, b.misses(0.1)) == (2, b"2" * 16, 0)
    assert b.fresh


def test_a_broker_that_moves_is_known_by_its_new_uri() -> None:
    brokers = known(A)
    brokers.learn([info(B, b"1" * 16)], 0.0, allowed)
    brokers.learn([info(C, b"1" * 16, at=2)], 0.0, allowed)
    assert brokers.choose(0.0).uri in {A, C}
    assert of(brokers, B).misses(0.0)


def test_one_that_is_in_no_list_is_the_last_choice_and_is_forgotten() -> None:
    brokers = known(A, forget_after=100)
    brokers.learn([info(B)], 0.0, allowed)
    brokers.learn([], 1.0, allowed)
    brokers.failed(of(brokers, A), 1.0)
    assert of(brokers, B).misses(1.0) == 1
    brokers.learn([], 100.0, allowed)
    assert brokers.uris == {A, B}
    of(brokers, B).connections = 1
    brokers.learn([], 102.0, allowed)
    assert brokers.uris == {A, B}
    of(brokers, B).connections = 0
    brokers.learn([], 102.0, allowed)
    assert brokers.uris == {A}


def test_no_more_are_known_than_the_limit() -> None:
    brokers = known(A, max_brokers=3)
    many = [info(f"rsocket+tcp://x:{port}", uuid4().bytes) for port in range(1, 50)]
    brokers.learn(many, 0.0, allowed)
    assert len(brokers) == 3
    assert brokers.learned.ignored == 47
    # Those that have gone make room.
    brokers.learn(many[10:12], 1.0, allowed)
    brokers.learn(many[10:12], 2.0, allowed)
    assert {each.uri for each in brokers if each.listed} == {each.proxy_uri for each in many[10:12]}


def test_a_list_that_is_older_changes_nothing() -> None:
    brokers = known(A)
    brokers.learn([info(B, at=5, state=DRAINING)], 0.0, allowed)
    brokers.learn([info(B, at=4)], 0.0, allowed)
    assert of(brokers, B).draining
    brokers.learn([info(B, at=6)], 0.0, allowed)
    assert not of(brokers, B).draining


def test_one_that_is_back_with_its_id_counts_whatever_its_clock_says() -> None:
    brokers = known(A)
    brokers.learn([info(B, at=500, state=DRAINING)], 0.0, allowed)
    brokers.learn([], 1.0, allowed)
    brokers.learn([info(B, at=4)], 2.0, allowed)
    b = of(brokers, B)
    assert (b.listed, b.draining, b.misses(2.0), b.fresh) == (True, False, 0, True)


@settings(max_examples=200)
@given(
    st.integers(1, 5),
    st.lists(st.tuples(st.integers(0, 4), st.booleans()), max_size=30),
    st.integers(1, 8),
)
def test_moves_end_with_an_even_spread(
    count: int, events: list[tuple[int, bool]], connections: int
) -> None:
    """However brokers failed and came back, moves lead to an even spread, and then end."""
    uris = [f"rsocket+tcp://b{number}:1" for number in range(count)]
    brokers = known(*uris)
    for _ in range(connections):
        connect(brokers)
    for number, fails in events:
        broker = of(brokers, uris[number % count])
        if fails:
            brokers.failed(broker, 0.0)
            lost, broker.connections = broker.connections, 0
            for _ in range(lost):
                connect(brokers)
        else:
            brokers.connected(broker)
    moves = 0
    while (move := brokers.wanted_move([b for b in brokers if b.connections], 100.0)) is not None:
        moves += 1
        assert moves <= connections + count
        move[0].connections -= 1
        move[1].connections += 1
    loads = [each.connections for each in brokers]
    assert sum(loads) == connections
    assert max(loads) - min(loads) <= 1
