from __future__ import annotations

from onward.actors.tracing._marked_routes import MarkedRoutes, ReportOrigin
from onward.protocol import Route, TraceMark, address, route

TRACE = "ab" * 16
TRACER = address("tracer")
WORKER = address("worker")
LONG: Route = route("a => b => c => tracer")


def mark(hop: str) -> TraceMark:
    return TraceMark(TRACE, hop, 1, TRACER)


def test_only_the_way_that_a_message_came_leads_back() -> None:
    routes = MarkedRoutes(100)
    routes.note(TRACE, WORKER, LONG)
    assert routes.is_return(TRACE, WORKER, LONG)
    assert not routes.is_return(TRACE, WORKER, LONG[1:])
    assert not routes.is_return(TRACE, TRACER, LONG)
    assert not routes.is_return("cd" * 16, WORKER, LONG)


def test_the_oldest_ways_are_forgotten() -> None:
    routes = MarkedRoutes(10)
    others = [route(f"{name} => x => y => tracer") for name in "abc"]
    routes.note(TRACE, WORKER, others[0])
    routes.note(TRACE, WORKER, others[1])
    routes.note(TRACE, WORKER, others[0])  # the newest again, and counted once
    routes.note(TRACE, WORKER, others[2])
    assert [routes.is_return(TRACE, WORKER, each) for each in others] == [True, False, True]


def test_one_way_is_remembered_however_long() -> None:
    routes = MarkedRoutes(1)
    routes.note(TRACE, WORKER, LONG)
    assert routes.is_return(TRACE, WORKER, LONG)


def test_a_hop_is_known_by_its_mark() -> None:
    routes = MarkedRoutes(5)
    origin = ReportOrigin(TRACE, TRACER, WORKER, address("alias"), LONG)
    routes.note_origin("1" * 16, origin)
    assert routes.origin(mark("1" * 16)) == origin
    assert routes.origin(mark("2" * 16)) is None
    assert routes.origin(TraceMark("cd" * 16, "1" * 16, 1, TRACER)) is None
    assert routes.origin(TraceMark(TRACE, "1" * 16, 1, WORKER)) is None
    routes.note_origin("2" * 16, origin)
    assert routes.origin(mark("1" * 16)) is None
