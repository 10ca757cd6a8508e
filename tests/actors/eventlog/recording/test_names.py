"""Messages to names in an event log: flows by name, consumer and outcome, within its limit."""

from __future__ import annotations

from onward.actors import Node
from onward.actors.dispatch import Dispatcher
from onward.protocol.eventlog import Kind, Outcome
from tests.actors.eventlog.recorded import Flowed, recording
from tests.support.workers import Echo


async def test_a_dispatcher_of_a_node_with_a_log_is_recorded() -> None:
    made = recording()
    async with Node("n") as node:
        node.add_instrument(made.recorder)
        dispatcher = await Dispatcher.attach(node)
        await node.start(Echo, address="echo")
        await dispatcher.consume("orders", "echo")
        for _ in range(3):
            await node.request("34#orders", b"12345")
        node.send("34#_temp/n/0123456789abcdef0123456789abcdef", b"")
    node.remove_instrument(made.recorder)
    flows = made.flows()
    assert {key: number for key, number in flows.items() if key.kind >= Kind.NAME} == {
        Flowed(Kind.NAME, Outcome.RECEIVED, "34#orders", ""): 3,
        Flowed(Kind.NAME, Outcome.DELIVER, "34#orders", ""): 3,
        Flowed(Kind.NAME_COPY, Outcome.DELIVER, "34#orders", "n/0#echo"): 3,
        Flowed(Kind.NAME, Outcome.RECEIVED, "34#_temp/n/*", ""): 1,
        Flowed(Kind.NAME, Outcome.DROP, "34#_temp/n/*", ""): 1,
    }
    (segment,) = made.sink.segments()
    assert {flow.bytes for flow in segment.flows() if flow.frames == 3} == {15, 0}
    assert not {kind: count for kind, count in made.in_hand().items() if kind >= Kind.NAME}


def test_names_beyond_the_limit_of_a_window_are_counted_together() -> None:
    made = recording(max_flows=3)
    names = made.recorder.names
    for _ in range(2):
        for number in range(9):
            names.count(int(Kind.NAME), int(Outcome.RECEIVED), f"34#{number}", "", 1)
    assert len(names._cells) == 2  # those that had room, and no more
    assert sum(made.recorder.statistics().left_out.values()) == 12
    made.seconds += 10
    made.recorder.tick()
    assert not names._cells
    names.count(int(Kind.NAME), int(Outcome.RECEIVED), "34#8", "", 1)
    flows = made.flows()
    assert flows[Flowed(Kind.NAME, Outcome.RECEIVED, "34#8", "")] == 1
    assert made.totals() == {(Kind.NAME, Outcome.RECEIVED): 19}
