"""Reading `[nodes.NAME.broker]`: the broker of a node, its cluster and its destinations."""

from __future__ import annotations

from typing import Final

from ..toml import FileTable
from . import _values as values
from ._plan import BrokerPlan, DestinationPlan

__all__ = ["read_broker"]

LOCALITIES: Final = ("prefer", "even")


def read_broker(node: FileTable) -> BrokerPlan | None:
    """Read the broker of a node; `None` if it has none."""
    if "broker" not in node.keys():  # noqa: SIM118 - a table of the file is no mapping
        return None
    table = node.table("broker")
    destinations = table.table("destinations")
    found = [
        _destination(destinations, key)
        for key in destinations.keys()  # noqa: SIM118
    ]
    plan = BrokerPlan(
        place=table.place,
        cluster=table.take("cluster", values.text, ""),
        zone=table.take("zone", values.text, ""),
        locality=table.take("locality", values.one_of(*LOCALITIES), LOCALITIES[0]),
        seeds=table.take("seeds", values.texts, ()),
        destinations=tuple(each for each in found if each is not None),
    )
    if not plan.cluster:
        for key, value in (("zone", plan.zone), ("seeds", plan.seeds)):
            if value:
                table.add(key, "it goes with cluster")
    table.finish()
    return plan


def _destination(destinations: FileTable, key: str) -> DestinationPlan | None:
    try:
        worker = values.local_address(key)
    except ValueError as error:
        destinations.add(key, str(error))
        return None
    # `echo = "greeter"` is short for `echo = { service = "greeter" }`.
    table = destinations.table(key, short="service")
    service = table.need("service", values.text) or ""
    tags = table.table("tags")
    plan = DestinationPlan(
        place=table.place,
        worker=worker,
        service=service,
        tags={name: tags.take(name, values.text, "") for name in tags.keys()},  # noqa: SIM118
    )
    tags.finish()
    table.finish()
    return plan
