"""The figures of several processes as those of one program. Pure: answers in, answer out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, cast

from ...actors.broker.table._services import ServiceStatistics, together
from ...actors.monitoring._surroundings import Surroundings, Traffic

__all__ = [
    "overviews",
    "problems",
    "queries",
    "services",
    "statuses",
    "summed",
    "surroundings",
]

_LARGEST: Final = frozenset(
    {"oldest_wait", "peer_routes", "reloads", "failed_reloads", "reloads_failed"}
)
"""The figures of which the largest counts: a time, or what all processes know or do alike."""

_SMALLEST: Final = frozenset({"not_after"})
"""The figures of which the smallest counts."""

_SEVERITIES: Final = {"critical": 0, "warning": 1}


# --- status -------------------------------------------------------------------------------------


def summed(values: Sequence[Any], name: str = "") -> Any:
    """Return figures together: numbers are added up, a text is the first there is.

    Args:
        values: The figures of each process: numbers, texts, or objects and lists of them. In a list
            the elements with the same `uri` belong together.
        name: The name of the figure.
    """
    given = [each for each in values if each is not None]
    if not given:
        return None
    first = given[0]
    if isinstance(first, Mapping):
        objects = cast("list[Mapping[str, Any]]", given)
        names = dict.fromkeys(each for found in objects for each in found)
        return {each: summed([found.get(each) for found in objects], each) for each in names}
    if isinstance(first, list):
        return _lists(cast("list[list[Any]]", given))
    if isinstance(first, bool) or name in _LARGEST:
        return max(given)
    if name in _SMALLEST:
        return min(given)
    if isinstance(first, int | float):
        return sum(given)
    return next((each for each in given if each), first)


def _lists(lists: list[list[Any]]) -> list[Any]:
    """Return lists together: elements with the same `uri`, and all others as they are."""
    by_uri: dict[str, list[Any]] = {}
    others: list[Any] = []
    for each in (each for found in lists for each in found):
        if isinstance(each, Mapping) and "uri" in each:
            by_uri.setdefault(str(cast("Mapping[str, object]", each)["uri"]), []).append(each)
        else:
            others.append(each)
    return [*(summed(found) for found in by_uri.values()), *others]


def statuses(found: Mapping[int, Mapping[str, Any]]) -> dict[str, Any]:
    """Return the figures of several brokers as those of one."""
    return dict(summed(list(found.values())) or {})


# --- what is wrong ------------------------------------------------------------------------------


def problems(found: Mapping[int, Sequence[Mapping[str, Any]]]) -> list[dict[str, Any]]:
    """Return the problems of all processes, the worst first, each with its process."""
    rows = [{**row, "process": number} for number, part in found.items() for row in part]
    return sorted(rows, key=lambda row: _SEVERITIES.get(str(row["severity"]), len(_SEVERITIES)))


def overviews(found: Mapping[int, Mapping[str, Any]]) -> dict[str, Any]:
    """Return the last five minutes of all processes together.

    They are read at nearly the same time, so the last points belong together. Rates, connections
    and waiting requests are added up. A duration is that of the slowest process, and the share of
    success is weighted by the rates.
    """
    parts = list(found.values())
    series = [cast("Mapping[str, Sequence[Any]]", each["points"]) for each in parts]
    length = max((len(each["at"]) for each in series), default=0)
    columns: dict[str, list[Any]] = {name: [] for name in (series[0] if series else ())}
    for back in range(length, 0, -1):
        points = [
            {name: values[-back] for name, values in each.items()}
            for each in series
            if len(each["at"]) >= back
        ]
        for name, value in _point(points).items():
            columns[name].append(value)
    brokers = {number: each["broker"] for number, each in found.items() if each["broker"]}
    return {
        "at": max((each["at"] for each in parts), default=0.0),
        "problems": problems({number: each["problems"] for number, each in found.items()}),
        "interval": max((each["interval"] for each in parts), default=0.0),
        "points": columns,
        "node": summed([each["node"] for each in parts]),
        "broker": statuses(brokers) if brokers else None,
    }


def _point(points: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    return {
        name: _success(points)
        if name == "success"
        else sum(point[name] for point in points)
        if name in ("rate", "connections", "waiting")
        else max((point[name] for point in points if point[name] is not None), default=None)
        for name in points[0]
    }


def _success(points: Sequence[Mapping[str, Any]]) -> float | None:
    known = [point for point in points if point["success"] is not None]
    weight = sum(point["rate"] for point in known)
    if not weight:
        return min((point["success"] for point in known), default=None)
    return float(sum(point["success"] * point["rate"] for point in known) / weight)


# --- tables -------------------------------------------------------------------------------------


def services(found: Mapping[int, Iterable[ServiceStatistics]]) -> list[ServiceStatistics]:
    """Return the figures of each service of all processes together.

    The destinations of other processes are no destinations elsewhere. A request that one process
    has handed to another counts at both: the metrics tell how many those are.
    """
    by_name: dict[str, dict[int, ServiceStatistics]] = {}
    for number, part in found.items():
        for each in part:
            by_name.setdefault(each.service, {})[number] = each
    return [_service(name, list(parts.values())) for name, parts in by_name.items()]


def _service(name: str, parts: list[ServiceStatistics]) -> ServiceStatistics:
    whole = together(parts)
    elsewhere = max(each.elsewhere + each.destinations for each in parts) - whole.destinations
    return replace(whole, service=name, elsewhere=max(0, elsewhere))


def queries(rows: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the queries that requests wait for, those of several processes together."""
    found: dict[str, dict[str, Any]] = {}
    for row in rows:
        known = found.get(row["query"])
        if known is None:
            found[row["query"]] = {name: row[name] for name in row if name != "process"}
            continue
        for name in ("requests", "bytes", "sources"):
            known[name] += row[name]
        known["oldest"] = max(known["oldest"], row["oldest"])
    return list(found.values())


# --- the picture --------------------------------------------------------------------------------


def surroundings(node: str, parts: Iterable[Surroundings]) -> Surroundings:
    """Return what surrounds several processes as what surrounds one."""
    listeners: dict[str, int] = {}
    requesters: dict[str, Traffic] = {}
    destinations: dict[str, Traffic] = {}
    peers: set[tuple[str, str]] = set()
    for part in parts:
        for uri, count in part.listeners.items():
            listeners[uri] = listeners.get(uri, 0) + count
        for traffic, whole in ((part.requesters, requesters), (part.services, destinations)):
            for name, each in traffic.items():
                whole.setdefault(name, Traffic()).add(each.requests, each.peers)
        peers.update(part.peers)
    return Surroundings(node, listeners, requesters, destinations, sorted(peers))
