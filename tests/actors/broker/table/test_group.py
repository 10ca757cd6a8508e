"""A group of another zone as an entry of the table."""

from __future__ import annotations

from uuid import UUID

from onward.actors.broker.table._group import GroupRoute
from onward.actors.broker.table._remote import PeerRoutes, RemoteKind
from onward.actors.broker.table._services import Services
from onward.protocol.broker import RoutingTable

HOME = bytes(15) + b"\x01"


def test_its_tags_are_those_of_its_service_and_the_rest() -> None:
    table = RoutingTable[GroupRoute]()
    peer = PeerRoutes(HOME, "gateway")
    kind = table.kind_of_service(HOME, "orders")
    kind.shared = RemoteKind(peer, kind, Services(10).of("orders"))
    number = UUID(int=7)
    group = GroupRoute(number.bytes, kind, table.rest_of(((6, "eu"), (2, "x"))), 5000, 12)
    assert group.common == ((1, "orders"), (6, "eu"))
    assert group.tags == (*group.common, (2, str(number)))
    assert (group.weight, group.service_name, group.owner) == (12, "orders", None)
    row = group.row()
    assert (row.route_id, row.service, row.weight, row.since) == (number, "orders", 12, 5.0)
    assert dict(row.tags) == {"service": "orders", "region": "eu", "route": str(number)}
