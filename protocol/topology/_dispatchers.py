"""Reading `[nodes.NAME.dispatcher]`: the dispatcher of a node, its provisions and its consumers."""

from __future__ import annotations

from typing import Final

from ..broker import parse_key
from ..dispatch import BadName, DeliveryLimits, DispatchLimits, check_node_name, parse_name
from ..dispatch._provisions_file import read_names
from ..toml import FileTable
from . import _values as values
from ._containers import read_containers
from ._plan import ConsumerPlan, DispatcherPlan

__all__ = ["name_of", "read_dispatcher"]

ACCEPTS: Final = ("reply", "handed")

_LIMITS: Final = DispatchLimits()
_DELIVERIES: Final = DeliveryLimits()


def name_of(value: object) -> str:
    """Return a name, as it is written."""
    written = values.text(value)
    try:
        parse_name(written, "node")
    except BadName as error:
        raise ValueError(error.reason) from None
    return written


def read_dispatcher(node: FileTable, file: str, name: str) -> DispatcherPlan | None:
    """Read the dispatcher of a node; `None` if it has none.

    Args:
        node: The table of the node.
        file: The name of the file, which is the source of the provisions.
        name: The name of the node.
    """
    if "dispatcher" not in node.keys():  # noqa: SIM118 - a table of the file is no mapping
        return None
    table = node.table("dispatcher")
    try:
        check_node_name(name)
    except BadName as error:
        table.add("", f"a node with a dispatcher cannot be called {name!r}: {error.reason}")
    consumers = table.table("consumers")
    found = [_consumer(consumers, key) for key in consumers.keys()]  # noqa: SIM118
    read = read_names(table, file, _LIMITS)
    plan = DispatcherPlan(
        place=table.place,
        provisions=read.provisions,
        default=read.default,
        consumers=tuple(each for each in found if each is not None),
        hold_file=table.take("hold_file", values.text, ""),
        consume_key=table.take("consume_key", _key, ""),
        neighbour_roles=table.take("neighbour_roles", values.texts, ()),
        settle_time=table.take("settle_time", values.positive_seconds, _DELIVERIES.settle_time),
        name_slice=table.take("name_slice", values.count, 200),
        containers=read_containers(table),
    )
    table.finish()
    return plan


def _key(value: object) -> str:
    written = values.text(value)
    parse_key(written)
    return written


def _names(value: object) -> tuple[str, ...]:
    return tuple(map(name_of, values.texts([value] if isinstance(value, str) else value)))


def _consumer(consumers: FileTable, key: str) -> ConsumerPlan | None:
    try:
        worker = values.local_address(key)
    except ValueError as error:
        consumers.add(key, str(error))
        return None
    # `echo = "orders"` is short for `echo = { name = "orders" }`.
    table = consumers.table(key, short="name")
    plan = ConsumerPlan(
        place=table.place,
        worker=worker,
        names=table.need("name", _names) or (),
        window=table.take("window", values.count, 250),
        accept=table.take("accept", values.one_of(*ACCEPTS), ACCEPTS[0]),
    )
    table.finish()
    return plan
