"""Reading `[[simulation.events]]`: what happens to a simulated network, and when."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, cast

from ..toml import FileTable, Problems
from . import _values as values
from ._nodes import check_node
from ._plan import NodePlan, TopologyPlan
from ._simulation import EventKind, EventPlan, FaultsPlan

__all__ = ["check_events", "read_event", "read_faults"]

_SIDES: Final = (EventKind.CUT, EventKind.SLOW, EventKind.HEAL)
"""The events between two sides; the others are of one node."""


def read_event(table: FileTable, nodes: Sequence[NodePlan]) -> EventPlan | None:
    """Read one event; `None` if something is wrong with it."""
    at = table.take("at", values.seconds, 0.0)
    given = [kind for kind in EventKind if kind.value in table.keys()]  # noqa: SIM118
    if len(given) != 1:
        names = ", ".join(EventKind)
        table.add("", f"it has to have one of {names}")
        table.rest()
        return None
    (kind,) = given
    sides: tuple[tuple[str, ...], tuple[str, ...]] = ((), ())
    node = ""
    if kind in _SIDES:
        sides = table.take(kind.value, _sides_or_all if kind is EventKind.HEAL else _sides, sides)
        for name in (*sides[0], *sides[1]):
            check_node(table, kind.value, name, nodes)
    else:
        node = table.take(kind.value, values.text, "")
        if not table.has_problem:
            check_node(table, kind.value, node, nodes)
    faults = FaultsPlan()
    if kind is EventKind.SLOW:
        faults = read_faults(table)
        if not faults.given() and not table.has_problem:
            table.add("", "it has no faults: latency, loss, duplicate, reorder or reorder_by")
    else:
        table.finish()
    if table.has_problem:
        return None
    return EventPlan(table.place, at, kind, node=node, sides=sides, faults=faults)


def read_faults(table: FileTable) -> FaultsPlan:
    """Read the rest of a table, which is faults."""
    plan = FaultsPlan(
        latency=table.maybe("latency", values.latency),
        loss=table.maybe("loss", values.probability),
        duplicate=table.maybe("duplicate", values.probability),
        reorder=table.maybe("reorder", values.probability),
        reorder_by=table.maybe("reorder_by", values.seconds),
    )
    table.finish()
    return plan


def _sides(value: object) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return two sides, each of one node or of several."""
    given = value
    both = cast("list[object]", value) if isinstance(value, list) else []
    if len(both) != 2:
        raise ValueError(f"{values.shown(given)} is not two sides, each a node or a list of nodes")
    one, other = (_side(each) for each in both)
    if shared := sorted(set(one) & set(other)):
        raise ValueError(f"on both sides: {', '.join(shared)}")
    return one, other


def _sides_or_all(value: object) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return two sides, or two empty ones for all of the network."""
    return ((), ()) if value == "all" else _sides(value)


def _side(value: object) -> tuple[str, ...]:
    names = (value,) if isinstance(value, str) else values.texts(value)
    if not names:
        raise ValueError("a side is empty")
    return names


def check_events(plan: TopologyPlan, problems: Problems) -> None:
    """Report nodes that are killed twice, or are started again and have not been killed."""
    killed: set[str] = set()
    joined = {link.to_node: link for link in plan.links if link.to_node}
    for event in plan.simulation.in_order():
        path = (*event.place.path, event.kind.value)
        if event.kind is EventKind.KILL:
            if event.node in killed:
                problems.add(path, f"{event.node!r} has been killed by then")
            killed.add(event.node)
        elif event.kind is EventKind.RESTART:
            if event.node not in killed:
                problems.add(path, f"{event.node!r} has not been killed by then")
            killed.discard(event.node)
            link = joined.get(event.node)
            if link is not None:
                text = f"{link.place.key} (line {link.place.line}) does not come up again"
                problems.add(path, f"a link of nodes is opened once: {text}")
