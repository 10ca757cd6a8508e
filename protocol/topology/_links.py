"""Reading `[[links]]`, `[[requests]]` and `[simulation]`: what is between nodes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ..dispatch import MAX_COST
from ..toml import FileTable, suggestion
from . import _values as values
from ._dispatchers import name_of
from ._events import read_event, read_faults
from ._identities import join_of
from ._nodes import check_node
from ._options import TransportOptions, read_transport_options
from ._plan import LinkPlan, ListenerPlan, NodePlan
from ._simulation import RequestPlan, SimulationPlan

__all__ = ["read_link", "read_request", "read_simulation"]

OUTCOMES: Final = ("accepted", "rejected", "released", "modified", "any", "refused")
"""What must come of each message of a producer; the last is of the producer itself."""


def read_link(
    table: FileTable, nodes: Sequence[NodePlan], transports: TransportOptions
) -> LinkPlan | None:
    """Read one link; `None` if it does not say from where to where."""
    node = table.need("from", values.text)
    to = table.need("to", values.text)
    check_node(table, "from", node, nodes)
    listener, uri = _target(table, to, nodes)
    default = listener.node if listener is not None else ""
    written = table.take("as", values.text, default)
    address = None
    if written:
        try:
            address = values.local_address(written)
        except ValueError as error:
            table.add("as", str(error))
    elif uri:
        table.add("", "as is missing: a link to outside has to be given a name")
    expose = table.maybe("expose", values.addresses) or ()
    allow = table.maybe("allow", values.addresses) or ()
    goes_to = uri if listener is None else listener.uri
    options = read_transport_options(table, goes_to, transports)
    faults = read_faults(table.table("simulation"))
    cost = table.maybe("cost", _cost)
    join = table.maybe("join", join_of)
    table.finish()
    if node is None or address is None:
        return None
    return LinkPlan(
        place=table.place,
        node=node,
        address=address,
        to_node=listener.node if listener is not None else "",
        to_listener=listener.id if listener is not None else "",
        uri=uri,
        expose=expose,
        allow=allow,
        options=options,
        faults=faults,
        cost=cost,
        join=join,
    )


def _cost(value: object) -> int:
    """Return the cost of a link between dispatchers."""
    made = values.count(value)
    if made > MAX_COST:
        raise ValueError(f"{made} is over the highest cost, {MAX_COST}")
    return made


def _target(
    table: FileTable, to: str | None, nodes: Sequence[NodePlan]
) -> tuple[ListenerPlan | None, str]:
    """Return the listener that a text names, or the URI that it is."""
    listeners = {each.id: each for node in nodes for each in node.listeners}
    if to is None:
        return None, ""
    if "://" in to:
        for each in listeners.values():
            if each.uri == to:
                return each, ""
        return None, to
    if to in listeners:
        return listeners[to], ""
    node = next((each for each in nodes if each.name == to), None)
    if node is not None and len(node.listeners) == 1:
        return node.listeners[0], ""
    if node is not None:
        names = ", ".join(each.id for each in node.listeners)
        table.add(
            "to",
            f"the node {to!r} has several listeners; write one of {names}"
            if names
            else f"the node {to!r} has no listener",
        )
        return None, ""
    near = suggestion(to, [*listeners, *(each.name for each in nodes)])
    names = ", ".join(listeners) or "none"
    table.add("to", f"no listener {to!r}; there are: {names}{near}")
    return None, ""


def read_request(
    table: FileTable, nodes: Sequence[NodePlan], *, timed: bool = False
) -> RequestPlan | None:
    """Read one request; `None` if it does not say from where to where.

    Args:
        table: Its table.
        nodes: The nodes.
        timed: Whether it may say when it is made.
    """
    node = table.need("from", values.text)
    has_name = table.peek("name") is not None
    name = table.take("name", name_of, "")
    route = table.maybe("route", values.route) if has_name else table.need("route", values.route)
    check_node(table, "from", node, nodes)
    expect = table.maybe("expect", values.text)
    error = table.take("error", values.text, "")
    payload = table.take("payload", values.text, "").encode()
    timeout = table.take("timeout", values.seconds, 5.0)
    within = table.take("within", values.seconds, 0.0)
    at = table.take("at", values.seconds, 0.0) if timed else 0.0
    if expect is not None and error:
        table.add("", "it has both expect and error")
    messages = table.take("messages", values.count, 1)
    every = table.take("every", values.seconds, 0.0)
    outcome = table.take("outcome", values.one_of(*OUTCOMES), OUTCOMES[0])
    if name and (route or error or expect is not None):
        table.add("", "a producer of a name has an outcome, and no route, expect or error")
    elif not name and (messages, every, outcome) != (1, 0.0, OUTCOMES[0]):
        table.add("", "messages, every and outcome go with name")
    table.finish()
    if node is None or (route is None and not name):
        return None
    return RequestPlan(
        place=table.place,
        node=node,
        route=route or (),
        payload=payload,
        expect=None if expect is None else expect.encode(),
        error=error,
        timeout=timeout,
        within=within,
        at=at,
        name=name,
        messages=messages,
        every=every,
        outcome=outcome,
    )


def read_simulation(table: FileTable, nodes: Sequence[NodePlan]) -> SimulationPlan:
    """Read what a simulated run is made of."""
    seed = table.take("seed", values.seed, 1)
    events = [read_event(each, nodes) for each in table.tables("events")]
    requests = [read_request(each, nodes, timed=True) for each in table.tables("requests")]
    return SimulationPlan(
        seed,
        read_faults(table),
        events=tuple(event for event in events if event is not None),
        requests=tuple(request for request in requests if request is not None),
    )
