from __future__ import annotations

from typing import Any, cast

from onward.actors.access import Exposed
from onward.protocol import DELIVERY, Address, Route, address, route
from onward.transports import Gate

NOTHING: frozenset[Address] = frozenset()
ECHO, OTHER, PEER = route("echo"), route("other"), route("1#10.0.0.1:4000")


def worker(_: Address) -> bool:
    return False


def request(_: Address) -> bool:
    return True


def exposing(*texts: str) -> Gate:
    return Gate(frozenset(map(address, texts)))


def test_nothing_is_let_in_by_default() -> None:
    gate = Gate(NOTHING)
    assert not gate.admits(ECHO)
    assert not gate.admits(PEER)


def test_what_is_exposed_is_let_in_wherever_it_goes_from_there() -> None:
    gate = exposing("echo", "1#10.0.0.1:4000")
    assert gate.admits(ECHO)
    assert gate.admits(ECHO)
    assert gate.admits(PEER)
    assert gate.admits(ECHO + OTHER)
    assert not gate.admits(OTHER)
    assert not gate.admits(OTHER + ECHO)
    assert not gate.admits(route("1#10.0.0.1:4001"))


def test_a_type_is_exposed_by_a_star_but_never_all_workers() -> None:
    gate = exposing("32#*", "0#*")
    assert gate.admits(route("32#service=orders"))
    assert gate.admits(route("*"))  # a worker of that very name
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
    gate.note(OTHER + ECHO, request)
    gate.note(ECHO + OTHER, lambda each: each == address("other"))  # by way of a worker
    assert gate.take_waiting() == (address("echo"), address("echo"), address("other"))
    assert not gate.admits(ECHO)


def test_the_way_back_is_the_whole_route() -> None:
    # Else a forwarder that once sent something out would forward for whoever got it.
    for note in (worker, request):
        gate = Gate(NOTHING)
        gate.note(ECHO + OTHER, note)
        for another in (ECHO, OTHER, OTHER + ECHO, ECHO + OTHER + ECHO, ECHO + route("secret")):
            assert not gate.admits(another)
        assert gate.admits(ECHO + OTHER)
        gate.note(OTHER, note)
        assert not gate.admits(OTHER + route("secret"))


def test_the_way_back_is_a_local_address() -> None:
    # A return route is written by the sender: no peer is to be reached through us by it.
    gate = Gate(NOTHING)
    gate.note(PEER, worker)
    assert not gate.admits(PEER)


def test_the_way_back_unused_for_longest_is_forgotten() -> None:
    gate = Gate(NOTHING, max_returns=2)
    a, b, c = route("a"), route("b"), route("c")
    for each in (a, b, b, a, c):
        gate.note(each, worker)
    assert [gate.admits(each) for each in (a, b, c)] == [True, False, True]
    # Requests have a table of their own.
    for each in (route("q1"), route("q2"), route("q3")):
        gate.note(each, request)
    assert gate.admits(a)
    assert gate.take_waiting() == (address("q2"), address("q3"))


def test_a_way_back_takes_as_much_room_as_it_has_addresses() -> None:
    # A peer that has something relayed chooses how long the way back to it is.
    gate = Gate(NOTHING, max_returns=4)
    a, b, long = route("a"), route("b"), route(["x"] * 3)
    for each in (a, b, long):
        gate.note(each, worker)
    assert [gate.admits(each) for each in (a, b, long)] == [False, True, True]
    longest: Route = route(["y"] * 9)
    gate.note(longest, worker)  # one there always is
    assert [gate.admits(each) for each in (b, long, longest)] == [False, False, True]
    gate.note(a, worker)
    assert [gate.admits(each) for each in (longest, a)] == [False, True]


def test_answered_requests_leave_their_room() -> None:
    gate = Gate(NOTHING, max_returns=2)
    for name in ("q1", "q2", "q3"):
        gate.note(route(name), request)
        assert gate.admits(route(name))
    for name in ("q4", "q5"):
        gate.note(route(name), request)
    assert gate.take_waiting() == (address("q4"), address("q5"))
    for name in ("q6", "q7"):
        gate.note(route(name), request)
    assert gate.take_waiting() == (address("q6"), address("q7"))


def test_what_is_exposed_needs_no_place_in_the_table() -> None:
    gate = Gate(frozenset(ECHO), max_returns=1)
    gate.note(OTHER, worker)
    gate.note(ECHO, worker)
    assert gate.admits(OTHER)


def test_the_token_of_a_dispatcher_needs_no_place_in_the_table() -> None:
    gate = Gate(frozenset(ECHO), max_returns=2)
    gate.note(OTHER, worker)
    token = (*ECHO, Address(DELIVERY, b"r12345678"))
    gate.note(token, worker)
    assert gate.admits(OTHER)
    # What the peer has chosen is looked at, as in each message to what is exposed.
    assert gate.admits(token)
    assert gate.given == 1
    hidden = Gate(NOTHING)
    hidden.note(token, worker)
    assert hidden.admits(token)
    assert hidden.given == 0


LINK = address("link")


def by_link(back: Route) -> Address | None:
    return LINK if LINK in back else None


def test_behind_another_link_the_way_back_is_the_business_of_its_other_end() -> None:
    gate = exposing("relay")
    gate.note(route("relay => link => a1"), worker, by_link)
    gate.note(route("relay => link => a2"), worker, by_link)
    assert gate.admits(route("relay => link => a3 => x"))
    assert gate.given == 2  # what is behind the link
    assert gate.admits(route("relay => other"))
    assert gate.given == 1  # `relay` is exposed, and nothing more is said of `other`
    assert not gate.admits(route("link"))
    gate.note(route("link"), worker, by_link)
    assert gate.admits(route("link => a1"))


def test_a_way_back_in_use_is_not_forgotten() -> None:
    gate = Gate(NOTHING, max_returns=20)
    subscription = route("link => topic-7")
    gate.note(subscription, worker, by_link)
    for number in range(1000):
        gate.note(route(f"link => request-{number}"), worker, by_link)  # as many as they like
    assert gate.admits(subscription)
    used = route("worker-used")
    gate.note(used, worker)
    for number in range(100):
        gate.note(route(f"worker-{number}"), worker)
        assert gate.admits(used)
    assert not gate.admits(route("worker-1"))
    assert gate.admits(subscription)


def first_link(back: Route) -> Address | None:
    return next((each for each in back if each.value.startswith(b"link")), None)


def test_one_link_does_not_take_the_room_of_others() -> None:
    # Through `relay`, as often as it likes in a row, a peer makes a new way back each time.
    gate = Gate(NOTHING)
    victim = route("relay => link-v")
    gate.note(victim, worker, first_link)
    for peer in range(6):
        for times in range(1, 60):
            gate.note(route(["relay"] * times + [f"link-{peer}"]), worker, first_link)
    assert gate.admits((*victim, address("asker")))
    assert gate.given == 1
    assert not gate.admits(route("relay => link-0"))  # its oldest
    assert gate.admits(route(["relay"] * 59 + ["link-5"]))


def test_the_oldest_way_of_the_link_that_has_most_is_forgotten() -> None:
    gate = Gate(NOTHING, max_returns=6)
    for text in ("b => link-2", "a => link-1", "b => link-1", "a => link-1", "c => link-1"):
        gate.note(route(text), worker, first_link)
    ways = ["b => link-2", "a => link-1", "b => link-1", "c => link-1"]
    assert [gate.admits(route(each)) for each in ways] == [True, True, False, True]
    gate.note(route("d => link-3"), worker, first_link)
    gate.note(route("e => link-3"), worker, first_link)
    ways = ["b => link-2", "a => link-1", "c => link-1", "d => link-3", "e => link-3"]
    assert [gate.admits(route(each)) for each in ways].count(True) == 3
    assert gate.admits(route("b => link-2"))
    # One there always is.
    longest = route(["x"] * 9 + ["link-1"])
    lone = Gate(NOTHING, max_returns=6)
    lone.note(longest, worker, first_link)
    assert lone.admits(longest)


def test_ways_over_links_that_have_stopped_go_first() -> None:
    alive = {address("relay"), address("link-old")}
    gate = Gate(NOTHING, max_returns=32, lives=alive.__contains__)
    for name in ("a", "b", "c"):
        alive.add(address(name))
        gate.note(route(f"{name} => link-old"), worker, first_link)
    for number in range(100):
        gate.note(route(f"relay => link-{number}"), worker, first_link)
    assert all(gate.admits(route(f"{name} => link-old")) for name in ("a", "b", "c"))


class Sliced(tuple[Address, ...]):
    """A route that counts the parts taken of it."""

    __slots__ = ()
    parts = 0

    def __getitem__(self, key: Any) -> Any:
        Sliced.parts += isinstance(key, slice)
        return cast("Any", super().__getitem__(key))


def test_a_way_back_is_looked_up_once_however_many_lengths_there_are() -> None:
    gate = Gate(NOTHING)
    for times in range(1, 60):
        gate.note(route(["relay"] * times + ["link-1"]), worker, first_link)
    Sliced.parts = 0
    for times in range(1, 60):
        assert gate.admits(Sliced(route(["relay"] * times + ["link-1", "x"])))
        assert gate.given == 1
    assert Sliced.parts <= 59
    assert not gate.admits(Sliced(route(["relay"] * 60 + ["link-1"])))
    assert not gate.admits(Sliced(route("other => link-1")))
    assert not gate.admits(Sliced(route("relay => relay")))
    assert Sliced.parts <= 61


def test_ways_of_workers_that_have_stopped_go_first() -> None:
    alive = {address("old")}
    gate = Gate(NOTHING, max_returns=100, lives=alive.__contains__)
    gate.note(route("old"), worker)
    for number in range(1000):
        gate.note(route(f"gone-{number}"), worker)
    assert gate.admits(route("old"))
    alive.clear()
    for number in range(1000):
        gate.note(route(f"gone-{number}"), worker)
    assert not gate.admits(route("old"))


def test_the_answer_to_a_request_by_way_of_a_worker_is_let_in_once() -> None:
    gate = Gate(NOTHING)
    gate.note(ECHO + OTHER, lambda each: each == address("other"))
    assert gate.admits(ECHO + OTHER)
    assert gate.given == 0
    assert not gate.admits(ECHO + OTHER)


def test_how_many_addresses_the_other_end_chose() -> None:
    gate = exposing("echo", "32#*")
    for text, given in (("echo", 0), ("echo => a => b", 2), ("32#service=x => a", 1)):
        assert gate.admits(route(text))
        assert gate.given == given
    gate.note(route("a => b"), worker)
    assert gate.admits(route("a => b"))
    assert gate.given == 0


def test_where_what_was_let_in_may_go() -> None:
    gate = Gate(Exposed(map(address, ["relay"]), map(address, ["echo-*", "1#10.0.0.*:4000"])))
    for text, may in (
        ("relay", True),
        ("echo-1", True),
        ("echo-", True),
        ("an-echo-1", False),
        ("secret", False),
        ("1#10.0.0.7:4000", True),
        ("1#10.0.0.7:4001", False),
        ("2#10.0.0.7:4000", False),
    ):
        assert gate.allows(address(text)) is may
    assert not gate.admits(route("echo-1"))
    assert not gate.admits(route("1#10.0.0.7:4000"))
