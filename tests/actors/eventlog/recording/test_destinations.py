"""Destinations that come and go faster than a log has room for: what is true is told in the end."""

from __future__ import annotations

import random
from collections.abc import Iterable

import pytest

from onward.actors.eventlog.recording._events import size_of_event
from onward.protocol.broker import TagList
from onward.protocol.eventlog import EventName, RouteEvent
from tests.actors.eventlog.recorded import OPTIONS, Recording, recording
from tests.support.counts import times

UP, DOWN, RETAG, LOST = EventName.UP, EventName.DOWN, EventName.RETAG, EventName.LOST
SIZE = size_of_event("a", (), "")
"""Of an event without tags and reason."""


def tight(events: int) -> Recording:
    """A log with room for so many events, and for one more each second."""
    return recording(max_event_bytes_per_second=SIZE, max_event_burst=SIZE * events)


def happen(made: Recording, *names: EventName, route: int = 1, tags: TagList = ()) -> None:
    for name in names:
        made.recorder.requests.destinations.add(name, route.to_bytes(16), "a", tags)


def told(made: Recording) -> list[tuple[EventName, int]]:
    return [
        (event.name, int.from_bytes(event.route_id or b""))
        for event in made.events()
        if event.name is not EventName.IDLE
    ]


def left(made: Recording) -> list[str]:
    return [event.reason for event in made.events() if event.name is LOST]


def there(events: Iterable[RouteEvent]) -> dict[bytes, TagList]:
    """Who is there with which tags, as a reader of the log has it."""
    found: dict[bytes, TagList] = {}
    for event in events:
        route_id = event.route_id
        if route_id is None:
            continue
        if event.name is UP:
            assert route_id not in found, "it has come twice"
            found[route_id] = event.tags
        elif event.name is RETAG:
            assert route_id in found, "it was not there"
            found[route_id] = event.tags
        elif event.name is DOWN:
            del found[route_id]
    return found


def test_what_there_is_room_for_is_told_as_it_happens() -> None:
    made = tight(4)
    happen(made, UP, RETAG, RETAG, DOWN)
    assert told(made) == [(UP, 1), (RETAG, 1), (RETAG, 1), (DOWN, 1)]
    assert not made.recorder.statistics().left_out


@pytest.mark.parametrize(
    ("before", "names", "last"),
    [
        ([], [UP], [UP]),
        ([], [UP, RETAG], [UP]),
        ([], [UP, DOWN], []),
        ([], [UP, DOWN, UP, RETAG], [UP]),
        ([UP], [RETAG, RETAG], [RETAG]),
        ([UP], [DOWN], [DOWN]),
        ([UP], [DOWN, UP], [RETAG]),
        ([UP], [RETAG, DOWN, UP, DOWN], [DOWN]),
        ([UP, DOWN], [UP, DOWN, UP], [UP]),
    ],
)
def test_beyond_that_the_last_state_of_each_is_told_when_there_is_room(
    before: list[EventName], names: list[EventName], last: list[EventName]
) -> None:
    made = tight(len(before) + 1)
    happen(made, *before)
    happen(made, UP, route=9)
    happen(made, *names)
    missed = len(names) - len(last)
    made.recorder.tick()
    assert made.recorder.statistics().events == len(before) + 1 + (not last)
    assert made.recorder.statistics().left_out.get("changes", 0) == missed
    made.seconds += 1.5
    made.recorder.tick()
    assert [name for name, route in told(made) if route == 1] == before + last
    reason = f"{missed} events: destinations changed faster than {SIZE} bytes a second"
    assert left(made) == ([reason] if missed else [])


def test_nobody_is_told_of_before_those_that_wait() -> None:
    made = tight(1)
    happen(made, UP, route=1)
    for route in (2, 3):
        happen(made, UP, route=route)
    made.seconds += 1.5
    happen(made, UP, route=4)
    for _ in range(3):
        made.recorder.tick()
        made.seconds += 1.0
    made.recorder.tick()
    assert [route for name, route in told(made) if name is UP] == [1, 2, 3, 4]


def test_what_waits_at_the_end_is_told_without_room() -> None:
    made = tight(1)
    for route in range(50):
        happen(made, UP, route=route)
    for route in range(0, 50, 2):
        happen(made, DOWN, route=route)
    assert set(there(made.events())) == {each.to_bytes(16) for each in range(1, 50, 2)}
    assert told(made)[-1] == (LOST, 0)


def test_one_connection_cannot_fill_a_log_by_changing_its_tags() -> None:
    made = recording(max_event_burst=100_000)
    many: TagList = tuple((f"key {number}", "v" * 100) for number in range(200))
    happen(made, UP)
    for _ in range(60):
        for _ in range(50):
            happen(made, RETAG, tags=many)
        made.seconds += 1.0
        made.recorder.tick()
    happen(made, RETAG, tags=(("the", "last"),))
    made.recorder.close()
    written = sum(map(len, made.sink.sealed))
    assert written < 100_000 + 60 * 4096 + 2 * size_of_event("a", many, "")
    assert there(made.events()) == {(1).to_bytes(16): (("the", "last"),)}


@pytest.mark.parametrize("length", [0, 20, 240, 400])
@pytest.mark.parametrize("many", [1, 30])
def test_what_strangers_cause_is_charged_as_it_is_written_even_if_every_name_is_new(
    many: int, length: int
) -> None:
    rate, burst, seconds = 4096, 10_000, 60
    made = recording(max_event_bytes_per_second=rate, max_event_burst=burst, seal_seconds=3600)
    largest = 0
    for number in range(many * seconds):
        name = f"{number:08}" + "s" * length
        tags: TagList = ((1, name), (9, number.to_bytes(16).hex()), ("com", name[:1]))
        made.recorder.requests.destinations.add(UP, number.to_bytes(16), name, tags)
        asked = (("key", f"{number:08}" + "v" * 2000),)
        made.recorder.reject(asked, "nobody carries the tags")
        largest = max(size_of_event(name, tags, ""), size_of_event("", asked, "n" * 23), largest)
        if number % many == 0:
            made.seconds += 1.0
            made.recorder.tick()
    made.recorder.requests.destinations._late.clear()
    made.recorder.close()
    (written,) = map(len, made.sink.sealed)
    most = 2 * (rate * seconds + burst + largest)
    a_segment = 1000  # without anything in it
    assert written < most + a_segment
    if many > 1:
        assert written > most * 0.6


def test_events_that_strangers_cause_are_less_than_half_of_what_is_kept_of_a_week() -> None:
    each = OPTIONS.max_event_bytes_per_second * 7 * 24 * 3600 + OPTIONS.max_event_burst
    assert 2 * each < OPTIONS.max_bytes / 2
    assert OPTIONS.max_age_seconds == 7 * 24 * 3600


@pytest.mark.parametrize("number", range(times(4, 20)))
def test_however_it_goes_the_log_says_what_is_true_in_the_end(number: int) -> None:
    chance = random.Random(number)
    made = tight(chance.randrange(1, 20))
    truth: dict[bytes, TagList] = {}
    routes = 12
    for step in range(600):
        if chance.random() < 0.2:
            made.seconds += chance.random() * 4
            made.recorder.tick()
        route = chance.randrange(40)
        route_id, tags = route.to_bytes(16), (("step", str(step)),)
        if route_id in truth and chance.random() < 0.6:
            del truth[route_id]
            happen(made, DOWN, route=route)
        elif route_id in truth or len(truth) < routes:
            happen(made, RETAG if route_id in truth else UP, route=route, tags=tags)
            truth[route_id] = tags
        assert len(made.recorder.requests.destinations._late) <= 3 * routes
    if number % 2:
        for _ in range(1000):
            made.seconds += 1.0
            made.recorder.tick()
        assert not made.recorder.requests.destinations._late
    assert there(made.events()) == truth


def test_requests_that_nobody_could_take_have_room_of_their_own_and_are_counted_beyond() -> None:
    made = recording(max_event_bytes_per_second=1, max_event_burst=5000)
    for _ in range(20):
        made.recorder.reject((("key", "v" * 1000),), "no route")
    happen(made, UP)
    assert made.recorder.statistics().left_out == {"rejects": 15}
    assert [name for name, _ in told(made)] == [EventName.REJECT] * 5 + [UP]
