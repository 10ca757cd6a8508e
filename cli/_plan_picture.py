"""A topology as a picture: nodes as boxes with their workers, links as arrows with names."""

from __future__ import annotations

from ..protocol.drawing import Arrow, Box, Picture, Row, lay_out, shortened
from ..protocol.topology import BrokerPlan, LinkPlan, NodePlan, TopologyPlan

__all__ = ["picture_of"]


def picture_of(plan: TopologyPlan) -> Picture:
    """Return the picture of a topology. The same plan gives the same picture."""
    boxes = {node.name: _box(node) for node in plan.nodes}
    arrows: list[Arrow] = []
    for link in plan.links:
        if link.to_node == link.node:
            # A link of a node to itself needs no arrow.
            continue
        # A URI has a colon and slashes, which no name of a node has.
        if link.uri and link.uri not in boxes:
            boxes[link.uri] = Box(link.uri, outside=True)
        arrows.append(Arrow(link.node, link.to_node or link.uri, _link_text(plan, link)))
    for node in plan.nodes:
        # Each pair once: brokers of a cluster have one link, whichever has dialled it.
        arrows.extend(
            Arrow(node.name, peer.name, "brokers")
            for peer in plan.peers_of(node.name)
            if peer.place.line > node.place.line
        )
    return lay_out(plan.title, boxes.values(), arrows)


def _box(node: NodePlan) -> Box:
    exposed = {address for listener in node.listeners for address in listener.expose}
    rows = [
        Row(
            _name(str(worker.address)),
            worker.kind or worker.class_path.partition(":")[2],
            not exposed.isdisjoint((*worker.addresses, *worker.makes)),
        )
        for worker in node.workers
    ]
    if node.broker is not None:
        rows += _broker_rows(node.broker)
    uris = [Row(listener.name, shortened(listener.uri)) for listener in node.listeners]
    return Box(node.name, rows, uris)


def _broker_rows(broker: BrokerPlan) -> list[Row]:
    """Return the rows of a broker: its place in a cluster, and its destinations."""
    place = " ".join(
        f"{key} {value}"
        for key, value in (("cluster", broker.cluster), ("zone", broker.zone))
        if value
    )
    served = [
        Row(shortened(f"service={each.service}"), _name(str(each.worker)), True)
        for each in broker.destinations
    ]
    return [Row("broker", shortened(place)), *served]


def _link_text(plan: TopologyPlan, link: LinkPlan) -> str:
    uri = link.uri or next(each.uri for each in plan.listeners if each.id == link.to_listener)
    return f"{_name(str(link.address))} · {uri.partition('://')[0]}"


def _name(address: str) -> str:
    return shortened(address.removeprefix("0#"))
