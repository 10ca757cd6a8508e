from __future__ import annotations

from onward.actors.sessions._return_routes import ReturnRoutes
from onward.protocol import Address, address, route


def ways(*expose: str, limit: int = 3) -> ReturnRoutes:
    return ReturnRoutes(frozenset(map(address, expose)), limit)


def is_request(given: Address) -> bool:
    return given.value.startswith(b"mailbox")


def test_what_is_exposed_can_be_reached_and_what_is_behind_it() -> None:
    gate = ways("echo", "33#*", "0#*")
    assert gate.admits(route("echo"))
    assert gate.admits(route("echo => more"))
    assert gate.admits(route("33#anything"))
    assert not gate.admits(route("other"))


def test_a_way_back_is_admitted_whole() -> None:
    gate = ways()
    gate.note((), is_request)
    gate.note(route("a => b"), is_request)
    assert gate.admits(route("a => b"))
    assert gate.admits(route("a => b"))
    assert not gate.admits(route("a"))
    assert not gate.admits(route("a => b => c"))


def test_the_way_back_unused_for_longest_is_forgotten() -> None:
    gate = ways(limit=2)
    for name in ("a", "b"):
        gate.note(route(name), is_request)
    assert gate.admits(route("a"))
    gate.note(route("c"), is_request)
    assert [gate.admits(route(name)) for name in "abc"] == [True, False, True]


def test_the_requests_that_wait_are_known() -> None:
    gate = ways()
    for name in ("mailbox1", "worker", "hop => mailbox2"):
        gate.note(route(name), is_request)
    assert gate.admits(route("mailbox1"))
    assert gate.take_waiting() == (address("mailbox2"),)
    assert gate.take_waiting() == ()
