from __future__ import annotations

from onward.actors.tracing._ways import ReportOrigin, Ways
from onward.protocol import Route, TraceMark, address, route

TRACE = "ab" * 16
TRACER = address("tracer")
WORKER = address("worker")
LONG: Route = route("a => b => c => tracer")


def mark(hop: str) -> TraceMark:
    return TraceMark(TRACE, hop, 1, TRACER)


def test_only_the_way_that_a_message_came_leads_back() -> None:
    ways = Ways(100)
    ways.note(TRACE, WORKER, LONG)
    assert ways.leads_back(TRACE, WORKER, LONG)
    assert not ways.leads_back(TRACE, WORKER, LONG[1:])
    assert not ways.leads_back(TRACE, TRACER, LONG)
    assert not ways.leads_back("cd" * 16, WORKER, LONG)


def test_the_oldest_ways_are_forgotten() -> None:
    ways = Ways(10)
    others = [route(f"{name} => x => y => tracer") for name in "abc"]
    ways.note(TRACE, WORKER, others[0])
    ways.note(TRACE, WORKER, others[1])
    ways.note(TRACE, WORKER, others[0])  # the newest again, and counted once
    ways.note(TRACE, WORKER, others[2])
    assert [ways.leads_back(TRACE, WORKER, each) for each in others] == [True, False, True]


def test_one_way_is_remembered_however_long() -> None:
    ways = Ways(1)
    ways.note(TRACE, WORKER, LONG)
    assert ways.leads_back(TRACE, WORKER, LONG)


def test_a_hop_is_known_by_its_mark() -> None:
    ways = Ways(5)
    origin = ReportOrigin(TRACE, TRACER, WORKER, address("alias"), LONG)
    ways.note_origin("1" * 16, origin)
    assert ways.origin(mark("1" * 16)) == origin
    assert ways.origin(mark("2" * 16)) is None
    assert ways.origin(TraceMark("cd" * 16, "1" * 16, 1, TRACER)) is None
    assert ways.origin(TraceMark(TRACE, "1" * 16, 1, WORKER)) is None
    ways.note_origin("2" * 16, origin)
    assert ways.origin(mark("1" * 16)) is None
