"""The recorder: what cannot be packed, and what is lost."""

from __future__ import annotations

from itertools import pairwise

import pytest

from onward.actors.eventlog.recording._messages import codes_of
from onward.actors.eventlog.storage._dictionary import MAX_BYTES, PIECE
from onward.actors.eventlog.storage._output import BEHIND, BROKEN
from onward.protocol.eventlog import Asked, EventName, Kind, Outcome
from tests.actors.eventlog.recorded import A_BLOCK, Recording, a_hop, an_event, lost, recording

RECEIVED, DELIVER = int(Outcome.RECEIVED), int(Outcome.DELIVER)
MESSAGE = int(Kind.MESSAGE)


# --- what cannot be packed --------------------------------------------------------------------


def huge(number: int) -> Asked:
    """Return a tag set of just under the limit, nearly all of it outside ASCII."""
    tags = tuple((chr(0x1F300 + each), "\U0001f600" * 30) for each in range(28))
    return Asked((*tags, ("u", str(number))))


def test_tag_sets_of_strangers_fill_no_block_and_take_no_long_turn() -> None:
    made = recording()
    blocks = made.sink.blocks
    for number in range(1500):
        made.recorder.flows.cell(MESSAGE, DELIVER, asked=huge(number)).add(1)
    for number in range(A_BLOCK):
        a_hop(made.recorder, number + 1)
        made.recorder.naming.tagset(huge(10_000 + number))
    made.seconds += 10
    made.recorder.tick()
    turns: list[int] = []
    while made.recorder.write_flows():
        turns.append(sum(blocks))
    assert max(blocks) < 2 * PIECE
    assert max(after - before for before, after in pairwise(turns)) < 512 * 1024
    assert sum(made.flows().values()) == 1500
    assert len(made.hops()) == A_BLOCK
    assert made.recorder.statistics().dropped == {}


def test_definitions_are_bounded_by_bytes() -> None:
    made = recording()
    numbers = [made.recorder.naming.tagset(huge(number)) for number in range(5000)]
    assert 0 in numbers
    assert sum(map(bool, numbers)) * 3500 < MAX_BYTES
    assert made.recorder.statistics().left_out == {"names": numbers.count(0)}
    assert len(made.read()) == 1


def test_what_utf_8_cannot_write_is_cleaned() -> None:
    made = recording()
    recorder = made.recorder
    asked = Asked((("k\ud800", "v\udfff"), (5, None)), method="m\ud800")
    ends = recorder.naming.learn("key", "n\ud800", "", None, asked)
    recorder.hop(1, 0, codes_of(MESSAGE, DELIVER), ends, 1, 1, 1)
    recorder.event(EventName.UP, None, "n\ud800", asked.tags, "r\ud800" * 1000)
    recorder.flows.cell(MESSAGE, DELIVER, origin="o\ud800", asked=asked).add(1)
    (hop,) = made.hops()
    assert (hop.origin, hop.asked) == ("n?", Asked((("k?", "v?"), (5, None)), method="m?"))
    (event,) = made.events()
    assert (event.node, event.tags) == ("n?", (("k?", "v?"), (5, None)))
    assert len(event.reason) == 1024
    assert [flow.origin for flow in made.flows()] == ["o?"]


def test_an_event_with_too_many_tags_is_told_without_them() -> None:
    made = recording()
    made.recorder.event(EventName.UP, tags=(("k", "v" * 2_000_000),), reason="why")
    (event,) = made.events()
    assert event.tags == ()
    assert event.reason.startswith("why (2")


@pytest.mark.parametrize(
    "what", ["names_body", "recording._events.events_body", "recording._flows._pack_flow"]
)
def test_a_failure_in_packing_is_counted_and_never_reaches_who_routes(
    what: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: object) -> bytes:
        raise RuntimeError("a defect")

    made = recording()
    recorder = made.recorder
    a_hop(recorder)
    recorder.event(EventName.UP)
    recorder.flows.cell(MESSAGE, DELIVER, dest="there").add(1)
    recorder.tick()
    with monkeypatch.context() as patched:
        if what == "names_body":
            patched.setattr(recorder.naming._names, "body_of", broken)
        else:
            patched.setattr(f"onward.actors.eventlog.{what}", broken)
        for number in range(2 * A_BLOCK):
            a_hop(recorder, dest=f"new {number}")
        recorder.event(EventName.DOWN)
        made.seconds += 10
        recorder.tick()
        recorder.write_flows()
        recorder.tick()
    made.seconds += 1
    recorder.tick()
    a_hop(recorder, 77, dest="after")
    recorder.event(EventName.RETAG)
    assert [hop.dest for hop in made.hops() if hop.raw.trace_id == 77] == ["after"]
    names = [event.name for event in made.events()]
    assert {EventName.UP, EventName.LOST, EventName.RETAG} <= set(names)
    assert recorder.statistics().dropped[BROKEN] > 0
    lines = [record for record in caplog.records if "could not pack" in record.message]
    assert len(lines) == 1


def test_a_hop_that_does_not_fit_is_dropped_alone() -> None:
    made = recording()
    a_hop(made.recorder, 1 << 64)
    made.recorder.tick()
    a_hop(made.recorder, 5)
    assert [hop.raw.trace_id for hop in made.hops()] == [5]
    assert lost(made) == [f"1 events: {BROKEN}"]


def test_flows_of_a_block_that_cannot_be_packed_take_numbers_that_are_told_to_be_missing() -> None:
    made = recording()
    made.recorder.event(EventName.UP)
    for frames in (1 << 64, 1):
        made.recorder.flows.cell(MESSAGE, DELIVER + (frames == 1)).add(0, frames)
    made.seconds += 20
    made.recorder.tick()
    while made.recorder.write_flows():
        pass
    made.recorder.tick()
    dropped = made.recorder.statistics().dropped[BROKEN]
    assert 1 <= dropped <= 2
    assert sum(segment.missing for segment in made.read()) == dropped


def test_the_end_comes_whatever_goes_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> None:
        raise RuntimeError("a defect")

    made = recording()
    a_hop(made.recorder)
    made.recorder.flows.before_window.append(broken)
    made.seconds += 10
    made.recorder.tick()
    made.recorder.close()
    assert len(made.sink.sealed) >= 1


# --- what is lost -----------------------------------------------------------------------------


def test_what_is_lost_is_counted_and_told_as_soon_as_there_is_room() -> None:
    made = recording()
    made.sink.room = False
    for _ in range(A_BLOCK):
        a_hop(made.recorder)
    made.recorder.tick()
    dropped = made.recorder.statistics().dropped[BEHIND]
    assert dropped > A_BLOCK
    made.sink.room = True
    made.recorder.tick()
    assert made.hops() == []
    assert sum(int(reason.removesuffix(f" events: {BEHIND}")) for reason in lost(made)) == dropped


def test_the_disk_says_why() -> None:
    made = recording()
    made.sink.room, made.sink.why = False, "no space left on device"
    made.recorder.event(EventName.UP)
    made.recorder.tick()
    made.sink.room, made.sink.why = True, None
    assert made.recorder.statistics().dropped == {"no space left on device": 1}
    assert lost(made) == ["1 events: no space left on device"]


def test_after_names_that_there_is_no_room_for_the_segment_takes_nothing_more() -> None:
    made = recording()
    made.sink.room = False
    a_hop(made.recorder, dest="b")
    made.recorder.tick()
    made.sink.room = True
    an_event(made.recorder)
    made.recorder._events.write()
    assert made.recorder.statistics().dropped == {BEHIND: 2}
    made.recorder.tick()
    a_hop(made.recorder, dest="c")
    assert [(hop.origin, hop.dest) for hop in made.hops()] == [("a", "c")]
    assert made.recorder.statistics().segments == 2


def test_while_the_disk_fails_segments_are_short() -> None:
    made = recording(retry_seconds=5, seal_seconds=600)
    made.sink.why = "no space left on device"
    for seconds, segments in ((4, 1), (1, 2), (60, 3)):
        made.seconds += seconds
        made.recorder.tick()
        assert made.recorder.statistics().segments == segments
    made.sink.why = None
    made.seconds += 60
    made.recorder.tick()
    assert made.recorder.statistics().segments == 3


def missing(made: Recording) -> int:
    return sum(segment.missing for segment in made.read())


def test_what_is_told_as_lost_is_what_is_missing() -> None:
    made = recording()
    made.sink.room = False
    for number in range(5):
        a_hop(made.recorder)
        an_event(made.recorder)
        made.seconds += 1
        made.recorder.tick()
        made.sink.room = number % 2 == 1
    made.sink.room = True
    made.recorder.tick()
    told = [int(reason.split()[0]) for reason in lost(made)]
    assert sum(told) == missing(made) == sum(made.recorder.statistics().dropped.values())


def test_flows_that_there_is_no_room_for_are_dropped_and_counted() -> None:
    made = recording()
    flows = made.recorder.flows
    for window in range(4):
        flows.cell(MESSAGE, DELIVER, dest="b").add(1)
        made.sink.room = window % 2 == 1
        made.seconds += 10
        made.recorder.tick()
        made.recorder.write_flows()
        assert not made.recorder.write_flows()
    made.sink.room = True
    made.recorder.tick()
    assert made.totals() == {(Kind.MESSAGE, Outcome.DELIVER): 2}
    assert missing(made) == sum(made.recorder.statistics().dropped.values()) >= 2


def test_flows_that_there_is_no_room_for_at_the_end_are_counted() -> None:
    made = recording()
    made.recorder.flows.cell(MESSAGE, DELIVER, dest="b").add(1)
    made.sink.room = False
    made.recorder.close()
    assert made.recorder.statistics().dropped[BEHIND] >= 1
    assert not made.recorder.write_flows()


def test_what_the_disk_took_and_lost_is_told_once_when_it_works() -> None:
    made = recording()
    made.sink.gone = 7
    made.recorder.tick()
    made.sink.gone, made.sink.why = 9, "no space left on device"
    made.recorder.tick()
    made.sink.why = None
    made.recorder.tick()
    made.recorder.tick()
    assert lost(made) == ["7 events: the disk failed", "2 events: no space left on device"]
