from __future__ import annotations

from dataclasses import replace

from onward.actors.tracing import Trace
from onward.actors.tracing._trace import ROOT, analyse
from onward.protocol import Address, HopOutcome, HopReport, Message, format_route, route

TRACE = "ab" * 16
START = 10**18
MILLISECOND = 10**6


def hop(
    number: int,
    node: str,
    onward: str,
    back: str,
    *,
    before: int | None = None,
    at: float | None = None,
    name: str | None = None,
    handled: int | None = 100_000,
) -> HopReport:
    """Make the report of a hop: by default it follows the one with the number before."""
    steps = route(onward)
    before = number - 1 if before is None else before
    return HopReport(
        trace=TRACE,
        hop=f"{number:016x}",
        before=f"{before:016x}",
        depth=before + 1,
        node_id=node.encode().hex().zfill(16),
        node=node if name is None else name,
        worker=steps[0],
        kind="Worker",
        taken=START + int((number if at is None else at) * MILLISECOND),
        handled=handled,
        outcome=HopOutcome.AWAITS if handled is None else HopOutcome.HANDLED,
        onward_route=steps,
        return_route=route(back),
        size=2,
    )


# near ── link ══ arrival ─ relay ─ out ══ in ─ echo, and back.
THERE_AND_BACK = (
    hop(1, "near", "link => relay => out => echo", "tracer"),
    hop(2, "middle", "relay => out => echo", "arrival => tracer"),
    hop(3, "middle", "out => echo", "relay => arrival => tracer"),
    hop(4, "far", "echo", "in => relay => arrival => tracer"),
    hop(5, "far", "in => relay => arrival => tracer", "echo"),
    hop(6, "middle", "relay => arrival => tracer", "out => echo"),
    hop(7, "middle", "arrival => tracer", "relay => out => echo"),
)
ANSWER = Message(route("tracer"), route("link => relay => out => echo"), b"hi")


def traced(
    *reports: HopReport, answer: Message | None = ANSWER, after: int | None = 7, ended: float = 8.0
) -> Trace:
    return analyse(
        TRACE,
        Address(0, b"tracer"),
        route("link => relay => out => echo"),
        reports,
        START,
        START + int(ended * MILLISECOND),
        answer=answer,
        answered_after=None if after is None else f"{after:016x}",
        own_node=b"near".hex().zfill(16),
    )


def gaps(trace: Trace) -> list[tuple[int, int | None, str, str]]:
    return [
        (
            int(gap.after, 16),
            None if gap.before is None else int(gap.before, 16),
            format_route(gap.passed),
            format_route(gap.due),
        )
        for gap in trace.gaps
    ]


def order(trace: Trace) -> list[int]:
    return [int(hop.report.hop, 16) for hop in trace.hops]


def test_reports_in_any_order_come_to_the_order_of_the_hops() -> None:
    trace = traced(*THERE_AND_BACK[::-1])
    assert order(trace) == [1, 2, 3, 4, 5, 6, 7]
    assert trace.gaps == ()
    assert [clock.name for clock in trace.clocks] == ["near", "middle", "far"]
    assert (trace.took, trace.lost, trace.answered_after) == (0.008, None, f"{7:016x}")


def test_a_hop_has_waited_since_the_one_before_on_its_node() -> None:
    waits = [hop.waited for hop in traced(*THERE_AND_BACK).hops]
    assert waits == [None, None, 0.0009, None, 0.0009, None, 0.0009]
    late = replace(THERE_AND_BACK[2], taken=THERE_AND_BACK[1].taken + 1)
    waits = [hop.waited for hop in traced(*THERE_AND_BACK[:2], late, *THERE_AND_BACK[3:]).hops]
    assert waits[2] is None  # it went on before the hop before had ended
    none = replace(THERE_AND_BACK[1], handled=None)
    assert traced(none, *THERE_AND_BACK[2:]).hops[1].waited is None


def test_the_report_of_the_end_counts() -> None:
    awaits = replace(THERE_AND_BACK[3], handled=None, outcome=HopOutcome.AWAITS)
    for reports in ((awaits, THERE_AND_BACK[3]), (THERE_AND_BACK[3], awaits)):
        (_, _, _, echo, *_) = traced(*THERE_AND_BACK[:3], *reports, *THERE_AND_BACK[4:]).hops
        assert echo.handled == 0.0001
    assert traced(awaits).hops[0].handled is None


def test_a_branch_follows_what_led_to_it() -> None:
    copies = (
        hop(10, "near", "tap => echo", "tracer", before=0),
        hop(11, "near", "echo", "tap => tracer", before=10),
        hop(12, "near", "log", "tap => tracer", before=10),
        hop(13, "near", "store", "log => tap => tracer", before=12),
    )
    assert order(traced(*copies[::-1], after=11)) == [10, 11, 12, 13]


# --- what is missing ----------------------------------------------------------------------
def test_a_node_that_is_silent_is_known_by_what_was_passed() -> None:
    trace = traced(
        THERE_AND_BACK[0],
        replace(THERE_AND_BACK[3], before=f"{1:016x}"),
        THERE_AND_BACK[4],
        after=5,
    )
    assert gaps(trace) == [(1, 4, "0#arrival => 0#relay", ""), (5, None, "0#out => 0#relay", "")]


def test_a_node_that_is_silent_at_the_end() -> None:
    trace = traced(
        *THERE_AND_BACK[:3], replace(THERE_AND_BACK[5], before=f"{3:016x}"), THERE_AND_BACK[6]
    )
    assert gaps(trace) == [(3, 6, "0#echo", "")]
    assert trace.hops[3].waited is None  # it was elsewhere in between


def test_nodes_that_are_silent_at_the_start() -> None:
    first, *others = THERE_AND_BACK[3:5]
    trace = traced(replace(first, before=ROOT), *others, after=5)
    assert gaps(trace) == [(0, 4, "0#arrival => 0#relay", ""), (5, None, "0#out => 0#relay", "")]


def test_a_hop_that_was_not_reported_on_a_node_that_reports() -> None:
    reports = (
        hop(1, "near", "a => b => c", "tracer"),
        hop(3, "near", "c", "b => a => tracer", before=1),
    )
    answer = Message(route("tracer"), route("a => b => c"), b"")
    assert gaps(traced(*reports, answer=answer, after=3)) == [
        (1, 3, "0#b", ""),
        (3, None, "0#b => 0#a", ""),
    ]


def test_a_report_that_was_lost() -> None:
    trace = traced(*THERE_AND_BACK[:3], *THERE_AND_BACK[4:])
    assert gaps(trace) == [(3, None, "", "0#echo"), (4, 5, "", "")]
    assert order(trace) == [1, 2, 3, 5, 6, 7]
    trace = traced(*THERE_AND_BACK[:6])
    assert gaps(trace) == [(6, None, "", "0#arrival => 0#tracer"), (7, None, "", "")]


def test_a_request_made_on_the_way_ends_with_its_answer() -> None:
    reports = (
        hop(1, "near", "asks", "tracer"),
        hop(2, "near", "relay => echo", "mailbox"),
        hop(3, "near", "echo", "relay => mailbox"),
        hop(4, "near", "relay => mailbox", "echo"),
    )
    answer = Message(route("tracer"), route("asks"), b"")
    assert gaps(traced(*reports, answer=answer, after=1)) == []
    # What another node did for it is not reported, and that is said.
    link = hop(2, "near", "link => echo", "mailbox")
    silent = traced(reports[0], link, answer=answer, after=1)
    assert gaps(silent) == [(2, None, "", "0#echo")]


def test_nothing_more_was_heard() -> None:
    trace = traced(*THERE_AND_BACK[:2], answer=None, after=None)
    assert gaps(trace) == [(2, None, "", "0#out => 0#echo")]
    assert trace.answer is None


def test_nobody_reported() -> None:
    assert gaps(traced(answer=None, after=None)) == [
        (0, None, "", "0#link => 0#relay => 0#out => 0#echo")
    ]
    # An answer that came without its mark.
    assert gaps(traced(after=None)) == [(0, None, "0#echo => 0#out => 0#relay", "")]


def test_an_answer_without_its_mark_follows_the_only_end() -> None:
    trace = traced(*THERE_AND_BACK[:2], after=None)
    assert trace.answered_after == f"{2:016x}"
    assert gaps(trace) == [(2, None, "0#echo => 0#out => 0#relay", "")]
    branches = (
        hop(1, "near", "tap => echo", "tracer"),
        hop(2, "near", "echo", "tap => tracer", before=1),
        hop(3, "near", "log", "tap => tracer", before=1),
    )
    trace = traced(*branches, after=None)
    assert (trace.answered_after, trace.gaps) == (None, ())


# --- clocks -------------------------------------------------------------------------------
def shifted(milliseconds: float, *nodes: str) -> list[HopReport]:
    return [
        replace(report, taken=report.taken + int(milliseconds * MILLISECOND))
        if report.node in nodes
        else report
        for report in THERE_AND_BACK
    ]


def test_clocks_that_may_be_one_are_taken_for_one() -> None:
    near, middle, far = traced(*THERE_AND_BACK).clocks
    assert (near.offset, near.error) == (0.0, 0.0)
    assert (middle.offset, middle.error) == (0.0, 0.001)
    # It was sent at 1 ms and had come at 4 ms; it had gone at 5 ms and the answer came at 8 ms.
    assert (far.offset, far.error) == (0.0, 0.003)


def test_a_clock_that_is_ahead_or_behind_is_set_by_the_round_trip() -> None:
    for ahead in (1000.0, -1000.0):
        _, middle, far = traced(*shifted(ahead, "far")).clocks
        assert (middle.offset, far.offset, far.error) == (0.0, ahead / 1000, 0.003)
        trace = traced(*shifted(ahead, "far"))
        times = [round(hop.at * 1000, 6) for hop in trace.hops]
        assert times == [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]


def test_a_clock_is_not_compared_without_an_answer() -> None:
    reports = shifted(1000.0, "middle")[:3]
    _, middle = traced(*reports, answer=None, after=None).clocks
    assert (middle.offset, middle.error) == (0.0, None)
    # But nothing can have come before it was sent.
    reports = shifted(-1000.0, "middle")[:3]
    _, middle = traced(*reports, answer=None, after=None).clocks
    assert (middle.offset, middle.error) == (-0.999, None)


def test_nodes_of_one_name_are_told_apart() -> None:
    reports = [replace(report, node="node") for report in THERE_AND_BACK]
    trace = traced(*reports)
    assert [clock.name for clock in trace.clocks] == ["node", "node (2)", "node (3)"]
    assert [hop.node for hop in trace.hops][:4] == ["node", "node (2)", "node (2)", "node (3)"]
    assert trace.own_node == trace.clocks[0].node_id
    # Also from one whose name is what another is called, and ours keeps its own.
    reports = [replace(report, node="node") for report in THERE_AND_BACK]
    reports[3] = replace(reports[3], node="node (2)")
    assert [clock.name for clock in traced(*reports).clocks] == ["node", "node (2)", "node (2) (2)"]
    later = [replace(report, before=f"{9:016x}") for report in reports[:1]]
    named = {hop.report.hop: hop.node for hop in traced(*reports[1:], *later).hops}
    assert named[reports[0].hop] == "node"


def test_reports_that_point_at_each_other_end() -> None:
    # Anyone can send a report; a circle of them is no reason to go on for ever.
    circle = (hop(1, "far", "a", "tracer", before=2), hop(2, "far", "b", "tracer", before=1))
    trace = traced(*circle, after=2)
    assert trace.hops == ()
