"""The names of ids, looked up for the few rows that are shown, never for whole tables."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from pyspark.sql import DataFrame, functions as sf

__all__ = ["MAX_LOOKED_UP", "NONE", "Names"]

MAX_LOOKED_UP: Final = 2_000
"""Ids that are looked up at once; further ids are shown as numbers."""

NONE: Final = "(none)"
"""Shown where there is no destination."""

_HIDDEN: Final = frozenset({"route", "service"})
"""Tags that repeat the service name or the route id of a destination."""

_TEMPORARY: Final = re.compile(r"/[0-9a-f]{32,}$")
"""The end of a name made by `random_address`: of a single request, or a child without a name."""


class Names:
    """The names of ids in the dimensions of the lake.

    Args:
        nodes: The table `dim_node`.
        tagsets: The table `dim_tagset`.
        routes: The table `dim_route`.
        events: The table `route_events`, which has the tags of routes.
    """

    def __init__(
        self, nodes: DataFrame, tagsets: DataFrame, routes: DataFrame, events: DataFrame
    ) -> None:
        self._nodes = nodes
        self._tagsets = tagsets
        self._routes = routes
        self._events = events

    def nodes(self, ids: Iterable[int], *, none: str = NONE) -> dict[int, str]:
        """Return the names of services, workers and links; `none` is shown for 0."""
        found = _looked_up(self._nodes, "node", "name", ids)
        return {each: none if each == 0 else _told(found.get(each, _number(each))) for each in ids}

    def tagsets(self, ids: Iterable[int]) -> dict[int, str]:
        """Return the tag sets as text."""
        found = _looked_up(self._tagsets, "tagset_id", "text", ids)
        return {each: "(no tags)" if each == 0 else found.get(each, _number(each)) for each in ids}

    def of_routing(self, routing: str) -> DataFrame:
        """Return the ids of the tag sets with a kind of routing, as `tagset_id`."""
        return self._tagsets.filter(sf.lower("routing") == routing).select("tagset_id")

    def routes(self, ids: Iterable[int]) -> dict[int, str]:
        """Return the service, the tags and the beginning of the id of each route, as known."""
        wanted = _bounded(ids)
        uuids = _looked_up(self._routes, "route_id", "uuid", wanted)
        rows = (
            self._events.filter(sf.col("route_id").isin(wanted) & (sf.size("tags") > 0))
            .groupBy("route_id")
            .agg(sf.max_by("node", "ts").alias("node"), sf.max_by("tags", "ts").alias("tags"))
            .collect()
            if wanted
            else []
        )
        told = {row.route_id: _route_text(row.node_name, row.tags) for row in self._named(rows)}
        return {
            each: " ".join(filter(None, (told.get(each, ""), uuids.get(each, _number(each))[:8])))
            for each in ids
        }

    def _named(self, rows: list[Any]) -> list[_Route]:
        services = self.nodes({row.node for row in rows}, none="")
        return [_Route(row.route_id, services[row.node], row.tags or {}) for row in rows]


class _Route:
    def __init__(self, route_id: int, node_name: str, tags: Mapping[str, str]) -> None:
        self.route_id = route_id
        self.node_name = node_name
        self.tags = tags


def _told(name: str) -> str:
    """Return a name without the type of local addresses and without random digits."""
    return _TEMPORARY.sub("/*", name.replace("/0#", "/"))


def _route_text(service: str, tags: Mapping[str, str]) -> str:
    shown = [f"{key}={value}" for key, value in sorted(tags.items()) if key not in _HIDDEN]
    return " ".join(filter(None, (service, *shown[:3])))


def _bounded(ids: Iterable[int]) -> list[int]:
    return sorted({each for each in ids if each})[:MAX_LOOKED_UP]


def _looked_up(table: DataFrame, key: str, value: str, ids: Iterable[int]) -> dict[int, str]:
    wanted = _bounded(ids)
    if not wanted:
        return {}
    rows = table.filter(sf.col(key).isin(wanted)).select(key, value).collect()
    return {row[0]: row[1] for row in rows}


def _number(identity: int) -> str:
    return f"{identity & 0xFFFF_FFFF_FFFF_FFFF:016x}"
