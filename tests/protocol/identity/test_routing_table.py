"""The decision for each destination, scope and origin, and what changes it."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from onward.protocol.identity import (
    CONTROL_PROTOCOLS,
    SCOPE_ANY,
    SCOPE_LOCAL,
    AtNode,
    DeliverLocally,
    Destination,
    DestinationKind,
    Dialable,
    Disconnect,
    FanOut,
    HasMembers,
    Identity,
    LookUp,
    Protocol,
    RefusalReason,
    Refuse,
    RouteChanged,
    RoutingDecision,
    RoutingLimits,
    RoutingScope,
    RoutingTable,
    ScopeKind,
    ToDomain,
    ToPeer,
    ViaNode,
    ViaRelay,
    identity_of_key,
)

ENGINE, NODE, TOPIC, RELAY, DOMAIN = DestinationKind


def identity(number: int) -> Identity:
    return identity_of_key(bytes(31) + bytes((number,)))


ME, PEER, FAR, HELPER, LOST = (identity(number) for number in range(1, 6))
HERE, THERE, BEHIND, NOWHERE = (identity(number) for number in range(11, 15))
OPEN, CLOSED, SHARED, AWAY, GONE = (identity(number) for number in range(21, 26))
CLUB, CLAN = identity(31), identity(32)
SOURCE = identity(41)
WORDS = Protocol("words", 1)
IN_CLUB = RoutingScope(ScopeKind.DOMAIN, CLUB)
IN_CLAN = RoutingScope(ScopeKind.DOMAIN, CLAN)
SCOPES = (SCOPE_LOCAL, IN_CLUB, SCOPE_ANY)


def refuse(reason: RefusalReason) -> Refuse:
    return Refuse(reason)


OUT = refuse(RefusalReason.SCOPE)
ABSENT = refuse(RefusalReason.NOT_HERE)
UNKNOWN = refuse(RefusalReason.UNKNOWN)


def full_table() -> RoutingTable:
    """Return a table in which `PEER` is in the club, and `FAR` and `HELPER` are not."""
    table = RoutingTable(ME)
    assert table.add_engine(HERE, b"worker")
    for topic, scope in ((OPEN, SCOPE_ANY), (CLOSED, SCOPE_LOCAL), (SHARED, IN_CLUB)):
        assert table.add_topic(topic, scope)
    assert table.open_link(PEER, 7) == [RouteChanged(Destination(NODE, PEER))]
    table.update(Destination(NODE, HELPER), Dialable())
    table.update(Destination(NODE, FAR), ViaNode(PEER))
    table.update(Destination(ENGINE, THERE), AtNode(PEER))
    table.update(Destination(ENGINE, BEHIND), AtNode(FAR))
    table.update(Destination(TOPIC, AWAY), AtNode(PEER))
    table.update(Destination(TOPIC, GONE), AtNode(ME))
    table.update(Destination(DOMAIN, CLUB), HasMembers(frozenset({PEER, ME})))
    return table


@pytest.mark.parametrize(
    ("kind", "to", "local", "club", "anywhere"),
    [
        (ENGINE, HERE, *[DeliverLocally(b"worker")] * 3),
        (ENGINE, THERE, OUT, ToPeer(PEER, 7), ToPeer(PEER, 7)),
        (ENGINE, BEHIND, OUT, OUT, ViaRelay(PEER, 7, FAR)),
        (ENGINE, NOWHERE, OUT, *[LookUp(Destination(ENGINE, NOWHERE))] * 2),
        (NODE, ME, *[DeliverLocally(None)] * 3),
        (NODE, PEER, OUT, ToPeer(PEER, 7), ToPeer(PEER, 7)),
        (NODE, FAR, OUT, OUT, ViaRelay(PEER, 7, FAR)),
        (NODE, HELPER, OUT, OUT, ToPeer(HELPER, None)),
        (NODE, LOST, OUT, OUT, LookUp(Destination(NODE, LOST))),
        (TOPIC, OPEN, FanOut(OPEN, SCOPE_LOCAL), FanOut(OPEN, IN_CLUB), FanOut(OPEN, SCOPE_ANY)),
        (TOPIC, CLOSED, *[FanOut(CLOSED, SCOPE_LOCAL)] * 3),
        (
            TOPIC,
            SHARED,
            FanOut(SHARED, SCOPE_LOCAL),
            FanOut(SHARED, IN_CLUB),
            FanOut(SHARED, IN_CLUB),
        ),
        (TOPIC, AWAY, UNKNOWN, ToPeer(PEER, 7), ToPeer(PEER, 7)),
        (TOPIC, GONE, UNKNOWN, UNKNOWN, UNKNOWN),
        (TOPIC, NOWHERE, UNKNOWN, *[LookUp(Destination(TOPIC, NOWHERE))] * 2),
        (RELAY, ME, *[DeliverLocally(None)] * 3),
        (RELAY, PEER, OUT, ViaRelay(PEER, 7, None), ViaRelay(PEER, 7, None)),
        (RELAY, HELPER, OUT, OUT, ViaRelay(HELPER, None, None)),
        (RELAY, FAR, OUT, OUT, refuse(RefusalReason.LOOP)),
        (RELAY, LOST, OUT, OUT, LookUp(Destination(NODE, LOST))),
        (DOMAIN, CLUB, OUT, ToDomain(CLUB), ToDomain(CLUB)),
        (DOMAIN, CLAN, OUT, OUT, LookUp(Destination(DOMAIN, CLAN))),
    ],
)
def test_scopes_bound_where_an_engine_of_this_node_reaches(
    kind: DestinationKind,
    to: Identity,
    local: RoutingDecision,
    club: RoutingDecision,
    anywhere: RoutingDecision,
) -> None:
    table = full_table()
    for scope, expected in zip(SCOPES, (local, club, anywhere), strict=True):
        assert table.decide(Destination(kind, to), SOURCE, WORDS, scope) == expected


def test_a_scope_of_a_domain_that_is_not_known_is_looked_up() -> None:
    table = full_table()
    asked = LookUp(Destination(DOMAIN, CLAN))
    assert table.decide(Destination(NODE, PEER), SOURCE, WORDS, IN_CLAN) == asked
    # A message for one domain does not go to the subscribers in another.
    topic = Destination(TOPIC, SHARED)
    assert table.decide(topic, SOURCE, WORDS, IN_CLAN) == FanOut(SHARED, SCOPE_LOCAL)


@pytest.mark.parametrize("peer", [PEER, FAR])
@pytest.mark.parametrize("scope", [IN_CLUB, SCOPE_ANY])
@pytest.mark.parametrize("kind", DestinationKind)
@pytest.mark.parametrize("to", [ME, PEER, FAR, HERE, THERE, NOWHERE, OPEN, CLOSED, SHARED, CLUB])
def test_threat_14_what_the_network_brings_never_leaves_again(
    kind: DestinationKind, to: Identity, scope: RoutingScope, peer: Identity
) -> None:
    expected: dict[tuple[DestinationKind, Identity], RoutingDecision] = {
        (ENGINE, HERE): DeliverLocally(b"worker"),
        (NODE, ME): DeliverLocally(None),
        (TOPIC, OPEN): FanOut(OPEN, SCOPE_LOCAL),
    }
    if peer == PEER:
        expected[TOPIC, SHARED] = FanOut(SHARED, SCOPE_LOCAL)
    decision = full_table().decide(Destination(kind, to), SOURCE, WORDS, scope, peer)
    assert decision == expected.get((kind, to), ABSENT)


def test_threat_14_a_topic_of_a_domain_that_is_not_known_is_closed_to_peers() -> None:
    table = RoutingTable(ME)
    assert table.add_topic(SHARED, IN_CLAN)
    assert table.decide(Destination(TOPIC, SHARED), SOURCE, WORDS, peer=PEER) == ABSENT


def test_threat_17_a_local_scope_from_the_network_is_refused() -> None:
    to = Destination(ENGINE, HERE)
    assert full_table().decide(to, SOURCE, WORDS, SCOPE_LOCAL, PEER) == OUT


@pytest.mark.parametrize("name", sorted(CONTROL_PROTOCOLS))
def test_threat_16_a_control_protocol_from_the_network_is_refused(name: str) -> None:
    table, to = full_table(), Destination(ENGINE, HERE)
    control = Protocol(name, 1)
    assert table.decide(to, SOURCE, control, peer=PEER) == refuse(RefusalReason.CONTROL)
    assert table.decide(to, SOURCE, control) == DeliverLocally(b"worker")


def test_threat_14_two_tables_that_relay_through_each_other_send_one_frame() -> None:
    tables = {ME: RoutingTable(ME), PEER: RoutingTable(PEER)}
    for node, other in ((ME, PEER), (PEER, ME)):
        tables[node].open_link(other, 1)
        tables[node].update(Destination(NODE, FAR), ViaNode(other))
    to = Destination(NODE, FAR)
    assert tables[ME].decide(to, SOURCE, WORDS) == ViaRelay(PEER, 1, FAR)
    # What the relay opens is the message of a peer, and goes no further.
    assert tables[PEER].decide(to, SOURCE, WORDS, peer=ME) == ABSENT


def test_a_relay_that_is_this_node_is_a_loop() -> None:
    table = RoutingTable(ME)
    table.update(Destination(NODE, FAR), ViaNode(ME))
    to = Destination(NODE, FAR)
    assert table.decide(to, SOURCE, WORDS) == refuse(RefusalReason.LOOP)


def test_threat_21_an_engine_that_moved_is_sent_to_its_new_node() -> None:
    table = full_table()
    to = Destination(ENGINE, THERE)
    assert table.update(to, AtNode(HELPER)) == [RouteChanged(to)]
    assert table.update(to, AtNode(HELPER)) == []
    assert table.decide(to, SOURCE, WORDS) == ToPeer(HELPER, None)
    assert table.update(to, None) == [RouteChanged(to)]
    assert table.decide(to, SOURCE, WORDS) == LookUp(to)


def test_an_engine_that_the_directory_has_here_and_that_has_ended_is_unknown() -> None:
    table = full_table()
    table.update(Destination(ENGINE, NOWHERE), AtNode(ME))
    assert table.decide(Destination(ENGINE, NOWHERE), SOURCE, WORDS) == UNKNOWN


def test_the_network_does_not_replace_what_is_here() -> None:
    table = full_table()
    for to, route in ((Destination(ENGINE, HERE), AtNode(PEER)), (Destination(NODE, ME), None)):
        assert table.update(to, route) == []
        assert table.update(to, route, trust=0) == []
    assert table.counters.ignored == 4
    assert table.decide(Destination(ENGINE, HERE), SOURCE, WORDS) == DeliverLocally(b"worker")


def test_an_engine_that_comes_here_replaces_its_route() -> None:
    table = full_table()
    assert table.add_engine(THERE, b"new")
    assert table.route(Destination(ENGINE, THERE)) is None
    assert table.decide(Destination(ENGINE, THERE), SOURCE, WORDS) == DeliverLocally(b"new")


def test_a_route_of_another_kind_is_a_mistake() -> None:
    with pytest.raises(ValueError, match="is no route to NODE"):
        RoutingTable(ME).update(Destination(NODE, FAR), AtNode(PEER))


def test_threat_21_an_identity_without_trust_is_purged_disconnected_and_refused() -> None:
    table = full_table()
    banned = refuse(RefusalReason.BANNED)
    to_peer = Destination(NODE, PEER)
    assert table.update(to_peer, None, trust=0) == [
        RouteChanged(to_peer),
        RouteChanged(Destination(NODE, FAR)),
        RouteChanged(Destination(ENGINE, THERE)),
        RouteChanged(Destination(TOPIC, AWAY)),
        Disconnect(PEER, 7),
    ]
    assert table.is_banned(PEER)
    assert table.decide(to_peer, SOURCE, WORDS) == banned
    assert table.decide(Destination(ENGINE, HERE), SOURCE, WORDS, peer=PEER) == banned
    assert table.decide(Destination(ENGINE, HERE), PEER, WORDS) == banned
    assert table.open_link(PEER, 8) == [Disconnect(PEER, 8)]
    # A newer record leads through it all the same.
    table.update(Destination(ENGINE, THERE), AtNode(PEER))
    assert table.decide(Destination(ENGINE, THERE), SOURCE, WORDS) == banned
    table.update(Destination(NODE, FAR), ViaNode(PEER))
    assert table.decide(Destination(NODE, FAR), SOURCE, WORDS) == banned
    assert table.update(to_peer, None) == [RouteChanged(to_peer)]
    assert table.decide(to_peer, SOURCE, WORDS) == LookUp(to_peer)


def test_a_ban_of_an_engine_that_has_come_here_ends_as_any() -> None:
    table = full_table()
    there = Destination(ENGINE, THERE)
    table.update(there, None, trust=0)
    assert table.add_engine(THERE, b"moved")
    assert table.decide(Destination(ENGINE, HERE), THERE, WORDS) == refuse(RefusalReason.BANNED)
    # A ban of what is here changes nothing, and is the end of none.
    assert table.update(there, None, trust=0) == []
    assert table.is_banned(THERE)
    assert table.update(there, None) == []
    assert not table.is_banned(THERE)
    assert table.decide(there, SOURCE, WORDS) == DeliverLocally(b"moved")


def test_a_topic_of_this_node_is_never_elsewhere() -> None:
    table = full_table()
    away = Destination(TOPIC, AWAY)
    assert table.add_topic(AWAY, SCOPE_ANY)
    assert table.route(away) is None
    assert table.update(away, AtNode(PEER)) == []
    assert table.counters.ignored == 1
    assert table.decide(away, SOURCE, WORDS) == FanOut(AWAY, SCOPE_ANY)
    table.remove_topic(AWAY)
    assert table.update(away, AtNode(PEER)) == [RouteChanged(away)]
    assert table.decide(away, SOURCE, WORDS) == ToPeer(PEER, 7)


def test_bans_have_a_limit() -> None:
    table = RoutingTable(ME, RoutingLimits(banned=1))
    table.update(Destination(NODE, PEER), None, trust=0)
    table.update(Destination(NODE, FAR), None, trust=0)
    assert not table.is_banned(PEER)
    assert table.is_banned(FAR)
    assert table.counters.unbanned == 1


def test_the_oldest_of_too_many_routes_through_a_node_is_known() -> None:
    table = RoutingTable(ME)
    first, second = Destination(ENGINE, THERE), Destination(ENGINE, BEHIND)
    assert table.beyond(PEER, 0) is None
    table.update(first, AtNode(PEER))
    table.update(second, AtNode(PEER))
    assert table.beyond(PEER, 1) == first
    assert table.beyond(PEER, 2) is None
    assert table.beyond(FAR, 0) is None
    table.update(first, None)
    assert table.beyond(PEER, 0) == second


def test_a_link_that_ends_late_does_not_end_the_newer_one() -> None:
    table = RoutingTable(ME)
    table.open_link(PEER, 1)
    table.open_link(PEER, 2)
    assert table.close_link(PEER, 1) == []
    to = Destination(NODE, PEER)
    assert table.decide(to, SOURCE, WORDS) == ToPeer(PEER, 2)
    assert table.close_link(PEER, 2) == [RouteChanged(to)]
    assert table.close_link(PEER, 2) == []


def test_a_worker_that_ends_is_removed_with_all_its_engines() -> None:
    table = full_table()
    assert table.add_engine(NOWHERE, b"worker")
    assert table.add_engine(SOURCE, b"other")
    assert table.end_worker(b"worker") == (HERE, NOWHERE)
    assert table.end_worker(b"worker") == ()
    to = Destination(ENGINE, HERE)
    assert table.decide(to, SOURCE, WORDS) == LookUp(to)
    assert table.decide(Destination(ENGINE, SOURCE), SOURCE, WORDS) == DeliverLocally(b"other")
    table.remove_engine(SOURCE)
    table.remove_engine(SOURCE)
    assert table.end_worker(b"other") == ()


def test_an_engine_moves_between_workers() -> None:
    table = full_table()
    assert table.add_engine(THERE, b"worker")
    assert table.add_engine(HERE, b"other")
    assert table.end_worker(b"worker") == (THERE,)
    assert table.end_worker(b"other") == (HERE,)


def test_what_is_here_is_refused_at_its_limit() -> None:
    table = RoutingTable(ME, RoutingLimits(engines=1, topics=1, links=1))
    assert table.add_engine(HERE, b"worker")
    assert table.add_engine(HERE, b"again")
    assert not table.add_engine(THERE, b"worker")
    assert table.add_topic(OPEN, SCOPE_ANY)
    assert table.add_topic(OPEN, SCOPE_LOCAL)
    assert not table.add_topic(SHARED, SCOPE_ANY)
    table.remove_topic(OPEN)
    table.remove_topic(OPEN)
    assert table.add_topic(SHARED, SCOPE_ANY)
    assert table.open_link(PEER, 1) is not None
    assert table.open_link(PEER, 2) is not None
    assert table.open_link(FAR, 3) is None


def test_routes_to_what_is_elsewhere_give_way_and_those_here_do_not() -> None:
    table = RoutingTable(ME, RoutingLimits(remote=2))
    assert table.add_engine(HERE, b"worker")
    first, second, third = (Destination(NODE, each) for each in (PEER, FAR, HELPER))
    table.update(first, Dialable())
    table.update(second, Dialable())
    assert table.decide(first, SOURCE, WORDS) == ToPeer(PEER, None)
    table.update(third, Dialable())
    assert [table.route(each) for each in (first, second, third)] == [Dialable(), None, Dialable()]
    assert (len(table), table.counters.evicted) == (2, 1)
    assert table.destinations() == (first, third)
    assert table.decide(Destination(ENGINE, HERE), SOURCE, WORDS) == DeliverLocally(b"worker")


NODES = st.sampled_from([PEER, FAR, HELPER, LOST])
FAR_ENGINES = st.sampled_from([THERE, BEHIND, NOWHERE])
STEPS = st.one_of(
    st.tuples(st.just("at"), FAR_ENGINES, NODES),
    st.tuples(st.just("via"), NODES, NODES),
    st.tuples(st.just("dial"), NODES, NODES),
    st.tuples(st.just("drop"), NODES, NODES),
    st.tuples(st.just("ban"), NODES, NODES),
    st.tuples(st.just("use"), FAR_ENGINES, NODES),
)


Way = AtNode | ViaNode | Dialable


class NaiveRoutes:
    """Routes in a list that is searched whole, the last used one at its end."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.routes: list[tuple[Destination, Way]] = []
        self.banned: set[Identity] = set()

    def drop(self, to: Destination) -> None:
        self.routes = [each for each in self.routes if each[0] != to]
        self.banned.discard(to.identity)

    def learn(self, to: Destination, way: Way) -> None:
        if to.identity not in self.banned and (to, way) in self.routes:
            return
        self.drop(to)
        self.routes = [*self.routes, (to, way)][-self.limit :]

    def ban(self, node: Identity) -> None:
        self.drop(Destination(NODE, node))
        gone = (AtNode(node), ViaNode(node))
        self.routes = [each for each in self.routes if each[1] not in gone]
        self.banned.add(node)

    def find(self, to: Destination) -> Way | None:
        for each in self.routes:
            if each[0] == to:
                self.routes.remove(each)
                self.routes.append(each)
                return each[1]
        return None

    def decide(self, to: Destination) -> RoutingDecision:
        found = self.find(to)
        if not isinstance(found, AtNode):
            return LookUp(to)
        if found.node in self.banned:
            return refuse(RefusalReason.BANNED)
        way = self.find(Destination(NODE, found.node))
        if isinstance(way, ViaNode):
            return self.relay(found.node, way.relay)
        return LookUp(Destination(NODE, found.node)) if way is None else ToPeer(found.node, None)

    def relay(self, node: Identity, relay: Identity) -> RoutingDecision:
        if relay in self.banned:
            return refuse(RefusalReason.BANNED)
        way = self.find(Destination(NODE, relay))
        if isinstance(way, ViaNode):
            return refuse(RefusalReason.LOOP)
        return LookUp(Destination(NODE, relay)) if way is None else ViaRelay(relay, None, node)


@given(st.lists(STEPS, max_size=60), st.integers(1, 5))
def test_routes_are_those_of_a_list(
    steps: list[tuple[str, Identity, Identity]], limit: int
) -> None:
    table, naive = RoutingTable(ME, RoutingLimits(remote=limit)), NaiveRoutes(limit)
    for what, one, two in steps:
        engine, node = Destination(ENGINE, one), Destination(NODE, one)
        if what == "use":
            assert table.decide(engine, SOURCE, WORDS) == naive.decide(engine)
        elif what == "ban":
            table.update(node, None, trust=0)
            naive.ban(one)
        elif what == "drop":
            table.update(node, None)
            naive.drop(node)
        else:
            ways: dict[str, Way] = {"at": AtNode(two), "via": ViaNode(two), "dial": Dialable()}
            way = ways[what]
            to = engine if what == "at" else node
            table.update(to, way)
            naive.learn(to, way)
        assert len(table) == len(naive.routes) <= limit
        assert all(table.route(to) == way for to, way in naive.routes)
