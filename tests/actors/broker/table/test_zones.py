"""Groups of other zones: which of them may take a request, and which is chosen."""

from __future__ import annotations

from itertools import count
from uuid import UUID

import pytest

from onward.actors.broker import BrokerOptions, PeerRoutes
from onward.actors.broker.table._group import GroupRoute
from onward.actors.broker.table._methods import Methods
from onward.actors.broker.table._selector import Ask, Selectors
from onward.actors.broker.table._services import Services
from onward.actors.broker.table._zones import GROUPS_FULL, ZONE_FULL, Zones
from onward.protocol import TAGS, Address
from onward.protocol.broker import (
    Dialect,
    RouteAdd,
    RouteRemove,
    Tag,
    TagList,
    WellKnownKey,
    parse_key,
    parse_tag,
)

INSTANCE = int(WellKnownKey.INSTANCE_NAME)
ROUTE_ID = int(WellKnownKey.ROUTE_ID)
SERVICE = int(WellKnownKey.SERVICE_NAME)


class Fixture:
    """Zones with a gateway each, and queries by text."""

    def __init__(self, limit: int = 100) -> None:
        self.zones = Zones(limit, Services(100))
        self.zones.random = lambda: 0.0
        self._times = count(1)
        options = BrokerOptions()
        self._selectors = Selectors(self.zones.table.queries, Methods(options.choice), 100)

    def gateway(
        self, zone: str, number: int = 1, without: frozenset[int | str] | None = None
    ) -> PeerRoutes:
        peer = PeerRoutes(zone.encode().ljust(15, b"\0") + bytes((number,)), f"{zone}{number}")
        peer.gateway, peer.zone = True, zone
        peer.connected(Address(0, f"link-{zone}{number}".encode()))
        peer.without = frozenset((ROUTE_ID, INSTANCE)) if without is None else without
        self.zones.known[peer.broker_id] = peer
        return peer

    def tell(self, peer: PeerRoutes, number: int, service: str, routes: int, *tags: Tag) -> str:
        told: TagList = ((SERVICE, service), ("onward.count", str(routes)), *tags)
        route_id = UUID(int=number).bytes
        return self.zones.add(
            peer, RouteAdd(peer.broker_id, route_id, next(self._times), service, told)
        )

    def read(self, peer: PeerRoutes, number: int, service: str, routes: int, *tags: Tag) -> str:
        """Tell a group as a gateway does: as a frame, which ends with the RouteId."""
        told: TagList = ((SERVICE, service), ("onward.count", str(routes)), *tags)
        route_id = UUID(int=number).bytes
        told = (*told, (ROUTE_ID, str(UUID(int=number))))
        route = RouteAdd(peer.broker_id, route_id, next(self._times), service, told)
        dialect = Dialect.SPECIFICATION
        return self.zones.add(peer, RouteAdd.parse(route.serialize(dialect), dialect))

    def remove(self, peer: PeerRoutes, number: int) -> bool:
        route_id = UUID(int=number).bytes
        return self.zones.remove(peer, RouteRemove(peer.broker_id, route_id, next(self._times)))

    def ask(self, text: str) -> Ask:
        return self._selectors.named(Address(TAGS, text.encode()))

    def found(self, text: str) -> list[tuple[str, int]]:
        return [(each.peer.name, int(each.weight)) for each in self.zones.find(self.ask(text))]

    def divided(self, text: str) -> list[tuple[str, int]]:
        return [(peer.name, shares) for peer, shares in self.zones.divide(self.ask(text))]


@pytest.fixture
def f() -> Fixture:
    return Fixture()


def test_a_group_is_found_by_its_tags_and_without_those_of_one_destination(f: Fixture) -> None:
    b, c = f.gateway("b"), f.gateway("c")
    assert not f.tell(b, 1, "orders", 5, parse_tag("region=eu"))
    assert not f.tell(c, 1, "orders", 3)
    assert f.found("service=orders region=eu") == [("b1", 5)]
    assert f.found("service=orders") == [("b1", 5), ("c1", 3)]
    assert f.found("service=orders instance=o7") == [("b1", 5), ("c1", 3)]
    assert f.found("service=orders region=us") == []
    assert f.found("service=orders onward.count=5") == []
    # Nothing but what groups lack: any zone may have it.
    assert [name for name, _ in f.found("instance=o7")] == ["b1", "c1"]
    assert (b.told, c.told, b.count, c.count, len(f.zones)) == (5, 3, 1, 1, 2)


def test_zones_may_leave_different_keys_out(f: Fixture) -> None:
    b = f.gateway("b", without=frozenset((ROUTE_ID, INSTANCE, parse_key("user"))))
    c = f.gateway("c")
    f.tell(b, 1, "chat", 4)
    f.tell(c, 2, "chat", 2, parse_tag("user=ann"))
    assert f.found("service=chat user=ann") in ([("b1", 4), ("c1", 2)], [("c1", 2), ("b1", 4)])
    assert f.found("service=chat user=bob") == [("b1", 4)]


def test_a_count_changes_and_a_group_leaves(f: Fixture) -> None:
    b = f.gateway("b")
    f.tell(b, 1, "orders", 5)
    f.tell(b, 1, "orders", 10)
    assert (f.found("service=orders"), b.told, b.count) == ([("b1", 10)], 10, 1)
    assert f.remove(b, 1)
    assert not f.remove(b, 1)
    assert (f.found("service=orders"), b.told, b.count) == ([], 0, 0)


def test_a_folded_group_matches_whatever_tags_are_asked_for(f: Fixture) -> None:
    b = f.gateway("b")
    f.tell(b, 1, "orders", 7, ("onward.folded", "1"))
    f.tell(b, 2, "mail", 1)
    assert f.found("service=orders region=eu") == [("b1", 7)]
    assert f.found("service=orders") == [("b1", 7)]
    assert f.found("service=mail region=eu") == []
    assert f.found("region=eu") == [("b1", 7)]
    f.remove(b, 1)
    assert f.found("service=orders region=eu") == []


@pytest.mark.parametrize("told", ["", "0", "-1", "x", "2147483648", "99999999999", "٣"])
def test_a_group_without_a_count_is_refused(f: Fixture, told: str) -> None:
    b = f.gateway("b")
    route = RouteAdd(b.broker_id, bytes(16), 1, "a", ((SERVICE, "a"), ("onward.count", told)))
    assert f.zones.add(b, route) == "it does not say for how many routes it stands"
    assert not len(f.zones)


def test_what_a_gateway_may_not_tell(f: Fixture) -> None:
    b, c = f.gateway("b"), f.gateway("c")
    assert f.tell(b, 1, "onward.management", 1) == "its service name is reserved"
    route = RouteAdd(c.broker_id, bytes(16), 1, "a", ((SERVICE, "a"), ("onward.count", "1")))
    assert f.zones.add(b, route) == "another broker has told it"
    assert not len(f.zones)


def test_more_groups_than_the_limit_are_counted() -> None:
    f = Fixture(limit=2)
    b = f.gateway("b")
    assert not f.tell(b, 1, "a", 1)
    assert not f.tell(b, 2, "b", 1)
    assert f.tell(b, 3, "c", 1) == GROUPS_FULL
    assert not f.tell(b, 2, "b", 4)  # it is there
    assert (len(f.zones), f.zones.refused) == (2, 1)


def test_one_zone_cannot_take_the_room_of_all(f: Fixture) -> None:
    b, c = f.gateway("b"), f.gateway("c")
    b.most = 2
    assert [f.tell(b, number, "a", 1) for number in range(4)] == ["", "", ZONE_FULL, ZONE_FULL]
    assert not f.tell(b, 1, "a", 5)
    assert not f.tell(c, 1, "a", 1)
    assert (b.count, c.count, f.zones.refused) == (2, 1, 2)
    assert f.remove(b, 0)
    assert not f.tell(b, 2, "a", 1)


def test_a_gateway_cannot_hide_the_groups_of_another_zone(f: Fixture) -> None:
    """It may choose the ids of its groups, and knows the ids of both brokers."""
    b, c = f.gateway("b"), f.gateway("c")
    f.tell(b, 1, "orders", 5)
    for other in (1, 1 ^ int.from_bytes(b.broker_id) ^ int.from_bytes(c.broker_id)):
        f.tell(c, other, "orders", 1)
    assert sorted(f.found("service=orders")) == [("b1", 5), ("c1", 1), ("c1", 1)]
    assert (b.count, b.told, c.count, c.told) == (1, 5, 2, 2)


def test_groups_that_differ_in_their_ids_only_are_counted_each(f: Fixture) -> None:
    b = f.gateway("b")
    f.tell(b, 1, "orders", 5)
    f.tell(b, 2, "orders", 3)
    assert f.found("service=orders") == [("b1", 5), ("b1", 3)]
    assert f.remove(b, 1)
    assert (b.told, b.count) == (3, 1)
    assert f.remove(b, 2)
    assert (b.told, b.count, b.services) == (0, 0, {})


def test_the_groups_of_a_service_in_a_zone_are_measured_together(f: Fixture) -> None:
    b = f.gateway("b")
    f.tell(b, 1, "orders", 5)
    f.tell(b, 2, "orders", 3, parse_tag("region=eu"))
    one, other = f.zones.find(f.ask("service=orders"))
    one.choose(None)
    one.ended(0.5)
    assert (one.latency, other.latency) == (0.5, 0.5)
    assert [each.requests for each in (one, other)] == [1, 0]
    f.tell(b, 1, "orders", 10)
    assert f.zones.find(f.ask("service=orders"))[0].latency == 0.5
    assert b.services["orders"].requests == 0  # those of groups that are there


def test_two_gateways_of_a_zone_are_one_zone(f: Fixture) -> None:
    first, second, c = f.gateway("b", 1), f.gateway("b", 2), f.gateway("c")
    f.tell(first, 1, "orders", 5)
    f.tell(second, 1, "orders", 6)
    f.tell(c, 1, "orders", 3)
    assert f.divided("service=orders") == [("b1", 5), ("c1", 3)]
    first.draining = True
    assert f.divided("service=orders") == [("b2", 6), ("c1", 3)]
    assert [each.name for each in f.zones.zones().values()] == ["b2", "c1"]
    # One is lost: its groups are hidden, and then swept.
    first.suspended = True
    f.zones.table.suspend(first.broker_id)
    assert f.found("service=orders") == [("b2", 6), ("c1", 3)]
    assert f.zones.drop(first, 10) == 1
    assert (first.count, first.told) == (0, 0)
    assert f.found("service=orders") == [("b2", 6), ("c1", 3)]


def test_the_room_of_a_gateway_is_that_of_its_zone_and_of_all() -> None:
    f = Fixture(limit=3)
    b, c = f.gateway("b"), f.gateway("c")
    b.most = 2
    assert (f.zones.room_for(b), f.zones.room_for(c)) == (2, 3)
    assert (f.zones.most_of(b), f.zones.most_of(c)) == (2, 3)
    for number in (1, 2):
        assert not f.tell(b, number, f"s{number}", 1)
    assert f.tell(b, 3, "s3", 1) == ZONE_FULL
    assert (f.zones.room_for(b), f.zones.room_for(c)) == (0, 1)
    assert not f.tell(c, 1, "s1", 1)
    assert f.tell(c, 2, "s2", 1) == GROUPS_FULL
    assert f.zones.room_for(c) == 0
    assert f.remove(b, 1)
    assert (f.zones.room_for(b), f.zones.room_for(c)) == (1, 1)


def test_a_round_sweeps_what_was_not_told_again(f: Fixture) -> None:
    b = f.gateway("b")
    f.tell(b, 1, "a", 1)
    f.tell(b, 2, "b", 1)
    f.zones.table.begin_round(b.broker_id)
    f.tell(b, 2, "b", 1)
    assert f.zones.sweep(b, 10) == 1
    assert (f.found("service=a"), f.found("service=b")) == ([], [("b1", 1)])


def test_a_route_id_is_asked_of_zones_that_may_have_it(f: Fixture) -> None:
    b, c = f.gateway("b"), f.gateway("c")
    wanted = UUID(int=77)
    assert f.found(f"route={wanted}") == []
    c.may_have = lambda route_id: route_id == wanted.bytes
    assert [name for name, _ in f.found(f"route={wanted} service=orders")] == ["c1"]
    assert f.found(f"route={UUID(int=78)}") == []
    assert f.found("route=nonsense") == []
    b.may_have = lambda _: True
    c.every.ended(0.1)
    assert [name for name, _ in f.found(f"route={wanted}")] == ["b1", "c1"]  # the nearest first
    route = f.zones.pick(f.ask(f"route={wanted}"), refused=(b.every,))
    assert route is c.every


def test_the_choice_is_by_count_then_by_latency(f: Fixture) -> None:
    b, c = f.gateway("b"), f.gateway("c")
    f.tell(b, 1, "orders", 90)
    f.tell(c, 1, "orders", 10)
    ask = f.ask("service=orders")
    turns = iter([0.89, 0.5, 0.95, 0.91, 0.1, 0.95])
    f.zones.random = lambda: next(turns)
    picked = [f.zones.pick(ask) for _ in range(2)]
    assert [each.peer.name for each in picked if each] == ["b1", "c1"]
    near, far = f.zones.find(ask)
    near.outstanding = far.outstanding = 1
    near.ended(9.0)
    far.ended(0.1)
    assert f.zones.pick(ask) is far
    f.zones.random = lambda: 0.0
    c.draining = True
    assert f.zones.pick(ask) is near
    c.draining, b.draining = False, True
    assert f.zones.pick(ask) is far  # another one than it would have been


def test_a_zone_that_has_rejected_a_request_is_left_out(f: Fixture) -> None:
    b, c = f.gateway("b"), f.gateway("c")
    f.tell(b, 1, "orders", 90)
    f.tell(c, 1, "orders", 10)
    ask = f.ask("service=orders")
    first, second = f.zones.find(ask)
    assert f.zones.pick(ask, (first,)) is second
    assert f.zones.pick(ask, (first, second)) is None


def test_a_shard_key_belongs_to_one_zone_whatever_the_counts(f: Fixture) -> None:
    b, c = f.gateway("b"), f.gateway("c")
    f.tell(b, 1, "orders", 1)
    f.tell(c, 1, "orders", 1)
    texts = [f"@shard=user service=orders user=u{number}" for number in range(40)]
    first = [f.zones.pick(f.ask(text)) for text in texts]
    f.tell(b, 1, "orders", 1000)
    f.zones.random = lambda: 0.99
    again = [f.zones.pick(f.ask(text)) for text in texts]
    names = [each.peer.zone for each in first if each]
    assert names == [each.peer.zone for each in again if each]
    assert {"b", "c"} == set(names)


def test_a_zone_out_of_reach_takes_nothing(f: Fixture) -> None:
    b = f.gateway("b")
    f.tell(b, 1, "orders", 1)
    assert f.zones.takes(f.ask("service=orders"))
    b.suspended = True
    f.zones.table.suspend(b.broker_id)
    assert not f.zones.takes(f.ask("service=orders"))
    assert not f.zones.takes(f.ask(f"route={UUID(int=1)}"))


def test_groups_have_their_tags_in_common_with_others(f: Fixture) -> None:
    b, c = f.gateway("b"), f.gateway("c")
    eu, version = parse_tag("region=eu"), parse_tag("version=1")
    for peer in (b, c):
        for number, service in enumerate(("orders", "mail")):
            assert not f.read(peer, number, service, 3, eu, version)
    found = [*f.zones.find(f.ask("region=eu"))]
    rests = {id(each.rest) for each in found if isinstance(each, GroupRoute)}
    assert (len(found), len(rests)) == (4, 1)
    assert len({id(each.kind) for each in found}) == 4
    assert not f.read(b, 2, "orders", 1, version)
    assert [each.kind for each in f.zones.find(f.ask("service=orders"))].count(found[0].kind) == 2


def test_a_group_is_of_one_service_whatever_its_tags_say(f: Fixture) -> None:
    b = f.gateway("b")
    assert not f.read(b, 1, "orders", 3, (SERVICE, "mail"), parse_tag("region=eu"))
    assert f.found("service=orders region=eu") == [("b1", 3)]
    assert f.found("service=mail") == []
