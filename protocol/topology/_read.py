"""Reading a topology file: from text to a `TopologyPlan`, or everything that is wrong with it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ..toml import FileTable, Problems, read_toml
from . import _values as values
from ._errors import TopologyError
from ._events import check_events
from ._kinds import KindOptions
from ._links import read_link, read_request, read_simulation
from ._nodes import read_node
from ._options import TransportOptions, any_options
from ._plan import TopologyLimits, TopologyPlan
from ._references import check_references

__all__ = ["read_topology"]

_LIMITS: Final = TopologyLimits()

_OF_NODES: Final = frozenset({"workers", "listeners", "containers", "topics", "domains"})
"""What is limited for all nodes together, so that it has no place of its own in the file."""


def read_topology(
    text: str | bytes,
    file: str = "topology",
    *,
    kinds: Mapping[str, KindOptions],
    transports: TransportOptions = any_options,
    limits: TopologyLimits = _LIMITS,
) -> TopologyPlan:
    """Read a topology file.

    Args:
        text: The content of the file; bytes are UTF-8.
        file: The name of the file in errors.
        kinds: The kinds of worker there are, by name.
        transports: The options of the transport of a scheme, or `None` if they are not known. By
            default they are not, and options of listeners and links are passed on unchecked.
        limits: Limits of the file.

    Returns:
        The plan; everything it refers to is in it.

    Raises:
        TopologyError: The file has problems; the error lists all of them.
    """
    problems = Problems(file, limits.problems, TopologyError)
    document = read_toml(text, problems, size=limits.size, depth=limits.depth)
    problems.check()
    plan = _plan(file, FileTable(problems, (), document), kinds, transports)
    _check_limits(plan, problems, limits)
    check_references(plan, kinds, problems)
    check_events(plan, problems)
    problems.check()
    return plan


def _plan(
    file: str, top: FileTable, kinds: Mapping[str, KindOptions], transports: TransportOptions
) -> TopologyPlan:
    title = top.take("title", values.text, file)
    table = top.table("nodes")
    nodes = tuple(read_node(table, name, kinds, transports, file) for name in table.keys())  # noqa: SIM118
    if not nodes:
        top.add("", "there are no nodes; write [nodes.NAME]")
    links = [read_link(each, nodes, transports) for each in top.tables("links")]
    requests = [read_request(each, nodes) for each in top.tables("requests")]
    plan = TopologyPlan(
        file=file,
        title=title,
        nodes=nodes,
        links=tuple(link for link in links if link is not None),
        requests=tuple(request for request in requests if request is not None),
        simulation=read_simulation(top.table("simulation"), nodes),
    )
    top.finish()
    return plan


def _check_limits(plan: TopologyPlan, problems: Problems, limits: TopologyLimits) -> None:
    dispatchers = [node.dispatcher for node in plan.nodes if node.dispatcher is not None]
    containers = [each for dispatcher in dispatchers for each in dispatcher.containers]
    identities = [node.identity for node in plan.nodes if node.identity is not None]
    for key, number, limit in (
        ("nodes", len(plan.nodes), limits.nodes),
        ("workers", sum(len(node.workers) for node in plan.nodes), limits.workers),
        ("listeners", len(plan.listeners), limits.listeners),
        ("containers", len(containers), limits.containers),
        ("topics", sum(len(each.topics) for each in identities), limits.topics),
        ("domains", sum(len(each.domains) for each in identities), limits.domains),
        ("links", len(plan.links), limits.links),
        ("requests", len(plan.requests), limits.requests),
        ("simulation.requests", len(plan.simulation.requests), limits.requests),
        ("simulation.events", len(plan.simulation.events), limits.events),
    ):
        if number > limit:
            path = ("nodes",) if key in _OF_NODES else tuple(key.split("."))
            problems.add(path, f"{number} {key} are over the limit of {limit}")
