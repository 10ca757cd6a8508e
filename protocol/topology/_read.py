"""Reading a topology file: from text to a `TopologyPlan`, or everything that is wrong with it."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from typing import Final

from . import _values as values
from ._fields import FileTable, Problems
from ._kinds import KindOptions
from ._links import read_link, read_request, read_simulation
from ._locate import deep_key, deep_path
from ._nodes import read_node
from ._options import TransportOptions, any_options
from ._plan import TopologyLimits, TopologyPlan
from ._references import check_references

__all__ = ["read_topology"]

_LIMITS: Final = TopologyLimits()
_DECODE_LINE: Final = re.compile(r"\(at line (\d+), column \d+\)$")


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
    problems = Problems(file, limits.problems)
    document = _parse(text, problems, limits)
    problems.check()
    plan = _plan(file, FileTable(problems, (), document), kinds, transports)
    _check_limits(plan, problems, limits)
    check_references(plan, kinds, problems)
    problems.check()
    return plan


def _parse(text: str | bytes, problems: Problems, limits: TopologyLimits) -> dict[str, object]:
    raw = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
    if len(raw) > limits.size:
        problems.add((), f"{len(raw)} bytes are over the limit of {limits.size}")
        return {}
    try:
        written = raw.decode("utf-8")
        if (deep := deep_key(written, limits.depth)) is not None:
            line = written.count("\n", 0, deep) + 1
            problems.add_at(line, "", f"a key of more than {limits.depth} parts")
            return {}
        document: dict[str, object] = tomllib.loads(written)
        problems.locate(written, limits.depth)
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        problems.add_at(line, "", "not UTF-8")
    except tomllib.TOMLDecodeError as error:
        line, told = _where(str(error), raw)
        problems.add_at(line, "", f"not TOML: {told}")
    except RecursionError:
        problems.add((), "not TOML that can be read: lists or tables are nested too deeply")
    else:
        path = deep_path(document, limits.depth)
        if path is None:
            return document
        problems.add(path, f"nested more than {limits.depth} deep")
    return {}


def _where(told: str, raw: bytes) -> tuple[int, str]:
    """Return the line of an error of `tomllib`, and its text as we write it."""
    match = _DECODE_LINE.search(told)
    line = int(match[1]) if match else raw.count(b"\n") + 1
    return line, told[:1].lower() + told[1:]


def _plan(
    file: str, top: FileTable, kinds: Mapping[str, KindOptions], transports: TransportOptions
) -> TopologyPlan:
    title = top.take("title", values.text, file)
    table = top.table("nodes")
    nodes = tuple(read_node(table, name, kinds, transports) for name in table.keys())  # noqa: SIM118
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
        simulation=read_simulation(top.table("simulation")),
    )
    top.finish()
    return plan


def _check_limits(plan: TopologyPlan, problems: Problems, limits: TopologyLimits) -> None:
    for key, number, limit in (
        ("nodes", len(plan.nodes), limits.nodes),
        ("workers", sum(len(node.workers) for node in plan.nodes), limits.workers),
        ("listeners", len(plan.listeners), limits.listeners),
        ("links", len(plan.links), limits.links),
        ("requests", len(plan.requests), limits.requests),
    ):
        if number > limit:
            path = (key,) if key not in ("workers", "listeners") else ("nodes",)
            problems.add(path, f"{number} {key} are over the limit of {limit}")
