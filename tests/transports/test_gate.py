from __future__ import annotations

from onward.protocol import Address, address
from onward.transports import Gate

NOTHING: frozenset[Address] = frozenset()
ECHO, OTHER, PEER = address("echo"), address("other"), address("1#10.0.0.1:4000")


def worker(_: Address) -> bool:
    return False


def request(_: Address) -> bool:
    return True


def test_nothing_is_let_in_by_default() -> None:
    gate = Gate(NOTHING)
    assert not gate.admits(ECHO)
    assert not gate.admits(PEER)


def test_what_is_exposed_is_let_in() -> None:
    gate = Gate(frozenset({ECHO, PEER}))
    assert gate.admits(ECHO)
    assert gate.admits(ECHO)
    assert gate.admits(PEER)
    assert not gate.admits(OTHER)
    assert not gate.admits(address("1#10.0.0.1:4001"))


def test_a_type_is_exposed_by_a_star_but_never_all_workers() -> None:
    gate = Gate(frozenset({address("32#*"), address("0#*")}))
    assert gate.admits(address("32#service=orders"))
    assert gate.admits(address("*"))  # a worker of that very name
    assert not gate.admits(ECHO)
    assert not gate.admits(PEER)


def test_the_way_back_to_a_worker_stays_open() -> None:
    gate = Gate(NOTHING)
    gate.note(ECHO, worker)
    assert gate.admits(ECHO)
    assert gate.admits(ECHO)
    assert gate.take_waiting() == ()


def test_the_way_back_to_a_request_is_for_one_answer() -> None:
    gate = Gate(NOTHING)
    gate.note(ECHO, request)
    assert gate.admits(ECHO)
    assert not gate.admits(ECHO)
    gate.note(ECHO, request)
    gate.note(OTHER, request)
    assert gate.take_waiting() == (ECHO, OTHER)
    assert not gate.admits(ECHO)


def test_the_way_back_is_a_local_address() -> None:
    # A return route is written by the sender: no peer is to be reached through us by it.
    gate = Gate(NOTHING)
    gate.note(PEER, worker)
    assert not gate.admits(PEER)


def test_the_way_back_unused_for_longest_is_forgotten() -> None:
    gate = Gate(NOTHING, max_returns=2)
    a, b, c = address("a"), address("b"), address("c")
    for each in (a, b, b, a, c):
        gate.note(each, worker)
    assert [gate.admits(each) for each in (a, b, c)] == [True, False, True]
    # Requests have a table of their own.
    for each in (address("q1"), address("q2"), address("q3")):
        gate.note(each, request)
    assert gate.admits(a)
    assert gate.take_waiting() == (address("q2"), address("q3"))


def test_what_is_exposed_needs_no_place_in_the_table() -> None:
    gate = Gate(frozenset({ECHO}), max_returns=1)
    gate.note(OTHER, worker)
    gate.note(ECHO, worker)
    assert gate.admits(OTHER)
