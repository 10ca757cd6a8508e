"""The brokers of other zones: which one is dialled, and what is told over the link to it."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from onward.protocol.cluster import (
    DRAINING,
    ClusterLimits,
    Compare,
    Dial,
    Linked,
    LinkRefusal,
    LinkRefused,
    LinkRole,
    Membership,
    PeerInfo,
    Tell,
    parse_infos,
)

LIMITS = ClusterLimits(jitter=0.0, max_peers=4, max_gateways=3)
TO, FROM = LinkRole.TO_ZONE, LinkRole.FROM_ZONE


def info(name: str, *, timestamp: int = 100, instance: int = 1, **more: Any) -> PeerInfo:
    """Return the facts of a broker that is named by its zone and a digit, as `b2`."""
    more.setdefault("zone", name[0])
    uri: str = more.pop("cluster_uri", f"tcp://{name}:1")
    return PeerInfo(name.encode().ljust(16, b"."), timestamp, instance, uri, **more)


def key(name: str) -> bytes:
    return info(name).broker_id


def names(ids: list[bytes]) -> list[str]:
    return [each.decode().rstrip(".") for each in ids]


def member(name: str = "a1", *seeds: str, limits: ClusterLimits = LIMITS) -> Membership:
    return Membership(
        info(name),
        seeds=[f"tcp://{seed}:1" for seed in seeds],
        allowed=("tcp://*",),
        limits=limits,
        now=0.0,
        random=lambda: 0.5,
    )


def dial(made: Membership, name: str, now: float = 0.0, **more: Any) -> Linked | LinkRefused:
    """Let a link be made that this broker has dialled."""
    return made.connected(info(name, **more), f"to {name}", dialled=f"tcp://{name}:1", now=now)


def accept(made: Membership, name: str, now: float = 0.0, **more: Any) -> Linked | LinkRefused:
    """Let a link be made that the other broker has dialled."""
    return made.connected(info(name, **more), f"from {name}", dialled=None, now=now)


def dials(made: Membership, now: float = 0.0) -> list[str]:
    return [task.uri[6:-2] for task in made.due(now) if isinstance(task, Dial)]


def compared(made: Membership, name: str, *listed: str, now: float = 0.0) -> None:
    """Let a broker of another zone answer with its list."""
    other = member(name)
    for each in listed:
        accept(other, each)
    (task,) = (task for task in made.due(now) if isinstance(task, Compare) and task.to == key(name))
    made.compared(key(name), other.answer(made.own.broker_id, task.digest), now)


def ranked(own: str, *others: str) -> list[str]:
    """Return brokers of one zone in the order in which a broker dials them."""
    made, found = member(own), list[str]()
    accept(made, f"{own[0]}~")
    for each in others:
        made.heard(info(each), key(f"{own[0]}~"), 0.0)
    for _ in others:
        (name,) = dials(made, LIMITS.retry)
        made.failed(f"tcp://{name}:1", "refused", 0.0)
        found.append(name)
    return found


def test_one_broker_of_a_zone_is_dialled_and_if_it_fails_the_next() -> None:
    order = ranked("a1", "b1", "b2", "b3")
    assert sorted(order) == ["b1", "b2", "b3"]
    made = member()
    accept(made, "a2")
    for name in ("b2", "b3", "b1"):
        made.heard(info(name), key("a2"), 0.0)
    assert dials(made) == order[:1]
    assert dials(made) == []
    assert made.get_timer() > 0.0
    made.failed(f"tcp://{order[0]}:1", "refused", 0.0)
    assert made.get_timer() == 0.0
    assert dials(made) == order[1:2]
    assert dial(made, order[1]) == Linked(None, TO)
    assert made.gateway("b") == key(order[1])
    assert made.zones() == ["b"]
    # The first is not tried again as long as the link holds.
    assert dials(made, 1000.0) == []
    assert made.lost(key(order[1]), f"to {order[1]}", 2000.0)
    assert made.gateway("b") is None
    assert dials(made, 2000.0) == order[:1]


def test_each_broker_is_tried_before_one_is_tried_again() -> None:
    order = ranked("a1", "b1", "b2", "b3", "b4")
    made = member()
    accept(made, "a2")
    for name in order:
        made.heard(info(name), key("a2"), 0.0)
    # An attempt takes longer than the wait for the next one.
    for turn, name in enumerate([*order, order[0]]):
        assert dials(made, 3.0 * turn) == [name]
        made.failed(f"tcp://{name}:1", "no answer", 3.0 * turn + 3.0)
    # What has failed long ago does not count.
    assert dials(made, 1000.0) == order[:1]


def test_brokers_spread_over_those_of_another_zone() -> None:
    others = [f"b{number}" for number in range(8)]
    first = Counter(ranked(f"a{chr(number)}", *others)[0] for number in range(48, 112))
    assert len(first) == 8
    assert max(first.values()) <= 20


def test_each_zone_has_a_link_of_its_own_and_both_directions_may_be() -> None:
    made = member()
    assert accept(made, "b1") == Linked(None, FROM)
    assert made.gateway("b") is None
    assert dials(made) == ["b1"]
    assert dial(made, "b1") == Linked(None, TO)
    assert accept(made, "b2") == Linked(None, FROM)
    assert dial(made, "c1") == Linked(None, TO)
    assert accept(made, "a2") == Linked(None, LinkRole.MESH)
    figures = made.statistics()
    assert (figures.links, figures.to_zones, figures.from_zones) == (1, 2, 2)
    assert sorted(names(made.linked)) == ["a2", "b1", "b2", "c1"]
    shown = {each.info.broker_id: each for each in made.brokers()}
    assert (shown[key("b1")].linked, shown[key("b1")].dialled) == (True, True)
    assert (shown[key("b2")].linked, shown[key("b2")].dialled) == (True, False)
    # The loss of one link leaves the other.
    assert made.lost(key("b1"), "from b1", 1.0)
    assert made.gateway("b") == key("b1")
    assert made.lost(key("b1"), "to b1", 1.0)
    assert not made.lost(key("b1"), "to b1", 1.0)
    assert key("b1") not in made.linked


def test_a_broker_that_has_dialled_is_dialled_before_its_time() -> None:
    made = member()
    accept(made, "a2")
    made.heard(info("b1"), key("a2"), 0.0)
    for _ in range(7):
        dials(made, 100.0)
        made.failed("tcp://b1:1", "no answer", 100.0)
        made.due(129.0)
    accept(made, "b1", 129.0)
    assert dials(made, 129.9) == []
    assert dials(made, 130.0) == ["b1"]


def test_a_newer_link_of_the_same_dialler_replaces_the_older_one() -> None:
    made = member()
    accept(made, "b1")
    found = made.connected(info("b1"), "newer", dialled=None, now=1.0)
    assert found == Linked("from b1", FROM)
    assert not made.lost(key("b1"), "from b1", 1.0)
    assert accept(made, "b1", instance=2) == LinkRefused(LinkRefusal.TWIN, info("b1", instance=2))


def test_zones_are_joined_by_their_names_only() -> None:
    made = member()
    nameless = info("b1", zone="")
    assert made.connected(nameless, "x", dialled=None, now=0.0) == LinkRefused(
        LinkRefusal.ZONE, nameless
    )
    made.heard(nameless, key("a2"), 0.0)
    accept(made, "a2")
    made.heard(nameless, key("a2"), 0.0)
    assert dials(made) == []
    other = Membership(info("a1", zone=""), now=0.0, random=lambda: 0.5)
    assert other.refusal(info("b1"), 0.0) is LinkRefusal.ZONE
    # Another implementation knows no zones.
    assert accept(made, "j1", version="", zone="") == Linked(None, LinkRole.MESH)


def test_links_of_other_zones_are_bounded_in_each_direction() -> None:
    made = member()
    for name in ("b1", "b2", "b3"):
        accept(made, name)
    assert made.refusal(info("b4"), 0.0) is LinkRefusal.FULL
    assert accept(made, "b4") == LinkRefused(LinkRefusal.FULL, info("b4"))
    for zone in "cdef":
        made.heard(info(f"{zone}1"), key("b1"), 0.0)
    assert len(dials(made)) == 3
    assert dials(made) == []
    for zone in "bcd":
        dial(made, f"{zone}1")
    for task in made.due(0.0):
        assert isinstance(task, Compare | Tell)
    assert dials(made, 0.0) == []
    assert made.get_timer() == 60.0  # the next comparisons, and no address
    assert dial(made, "e1") == LinkRefused(LinkRefusal.FULL, info("e1"))


def test_a_seed_of_a_zone_that_has_a_link_is_not_kept() -> None:
    order = ranked("a1", "b1", "b2", "b3")
    made = member("a1", *order)
    assert len(dials(made)) == 3
    assert dial(made, order[1]) == Linked(None, TO)
    assert dial(made, order[2]) == LinkRefused(LinkRefusal.GATEWAY, info(order[2]))
    assert dial(made, order[0]) == Linked(f"to {order[1]}", TO)
    assert not made.lost(key(order[1]), f"to {order[1]}", 0.0)
    assert dials(made, 1000.0) == []
    assert list(made.unreached()) == []
    made.lost(key(order[0]), f"to {order[0]}", 2000.0)
    assert dials(made, 2000.0) == order[1:2]


def test_the_first_broker_by_the_hash_is_tried_once_when_the_list_has_come() -> None:
    order = ranked("a1", "b1", "b2", "b3")
    made = member()
    accept(made, "a2")
    made.due(0.0)
    made.heard(info(order[1]), key("a2"), 0.0)
    dials(made)
    dial(made, order[1])
    compared(made, order[1], *order)
    assert made.get_timer() == 0.0
    assert dials(made) == order[:1]
    made.failed(f"tcp://{order[0]}:1", "refused", 0.0)
    assert dials(made, 1000.0) == []
    made.lost(key(order[1]), f"to {order[1]}", 1000.0)
    dials(made, 1000.0)
    assert dial(made, order[0], 1000.0) == Linked(None, TO)
    # It is the first: none is better.
    compared(made, order[0], *order, now=1000.0)
    assert dials(made, 1000.0) == []


def test_a_better_broker_is_not_tried_if_it_cannot_be_or_the_link_is_gone() -> None:
    order = ranked("a1", "b1", "b2", "b3")

    def joined() -> Membership:
        made = member("a1", order[1])
        dials(made)
        dial(made, order[1])
        return made

    made = joined()
    other = member(order[1])
    accept(other, order[0], state=DRAINING)
    made.compared(key(order[1]), other.answer(key("a1"), b""), 0.0)
    assert dials(made) == []  # the second is the best of those that stay

    made = joined()
    made.heard(info(order[0]), key(order[1]), 0.0)
    made.pause(key(order[0]), 60.0)
    compared(made, order[1], order[0])
    assert dials(made) == []

    made = joined()
    made.heard(info(order[0], cluster_uri=""), key(order[1]), 0.0)
    compared(made, order[1], order[2])
    assert dials(made) == []

    made = joined()
    compared(made, order[1], order[0])
    made.lost(key(order[1]), f"to {order[1]}", 1.0)
    assert dials(made, 1.0) == order[:1]


def test_a_better_broker_is_tried_whichever_id_it_has() -> None:
    """One with a smaller id is dialled a second after it became known."""
    order = ranked("c1", "b1", "b2", "b3")
    made = member("c1", order[1])
    dials(made)
    dial(made, order[1])
    compared(made, order[1], order[0])
    assert dials(made) == []
    assert made.get_timer() == LIMITS.retry
    assert dials(made, LIMITS.retry) == order[:1]
    assert dial(made, order[0], LIMITS.retry) == Linked(f"to {order[1]}", TO)


def test_a_better_broker_that_may_not_be_dialled_any_more_is_not_tried() -> None:
    order = ranked("a1", "b1", "b2", "b3")
    limits = replace(LIMITS, max_gateways=2)
    made = member("a1", order[1], "c1", limits=limits)
    dials(made)
    dial(made, order[1])
    dial(made, "c1")
    compared(made, order[1], order[0])
    assert dials(made) == []  # there are as many links as there may be
    made.heard(info(order[0], timestamp=101, cluster_uri=""), key(order[1]), 0.0)
    made.lost(key("c1"), "to c1", 0.0)
    assert dials(made, 10.0) == ["c1"]
    assert made.get_timer() > 10.0


def test_a_better_broker_that_is_forgotten_is_not_tried() -> None:
    order = ranked("a1", "b1", "b2", "b3")
    made = member("a1", order[1])
    dials(made)
    dial(made, order[1])
    compared(made, order[1], order[0])
    made.heard(info(order[0], timestamp=101, zone="c"), key(order[1]), 0.0)
    made.heard(info(order[2]), key(order[1]), 0.0)
    assert dials(made) == [order[0]]  # as one of the zone c
    assert made.zones() == ["b", "c"]


def test_a_broker_that_drains_keeps_its_link_while_the_next_is_dialled() -> None:
    order = ranked("a1", "b1", "b2")
    made = member()
    accept(made, "a2")
    for name in order:
        made.heard(info(name), key("a2"), 0.0)
    dials(made)
    dial(made, order[0])
    compared(made, order[0], order[1])
    made.heard(info(order[0], timestamp=200, state=DRAINING), key(order[0]), 1.0)
    assert made.gateway("b") == key(order[0])
    assert dials(made, 1.0) == order[1:]
    assert dial(made, order[1], 1.0) == Linked(None, TO)
    assert made.gateway("b") == key(order[1])
    assert set(made.linked) == {key("a2"), key(order[0]), key(order[1])}
    # It may stay after all: then there are two.
    made.heard(info(order[0], timestamp=300), key(order[0]), 1.0)
    assert made.gateway("b") == key(order[0])
    assert dials(made, 1.0) == []
    assert made.lost(key(order[0]), f"to {order[0]}", 2.0)
    assert made.gateway("b") == key(order[1])


def test_a_broker_that_drains_is_dialled_if_there_is_no_other() -> None:
    made = member()
    accept(made, "a2")
    made.heard(info("b1", state=DRAINING), key("a2"), 0.0)
    assert dials(made) == ["b1"]
    assert dial(made, "b1", state=DRAINING) == Linked(None, TO)
    assert dials(made, 1000.0) == []
    made.heard(info("b2"), key("a2"), 1000.0)
    assert dials(made, 1000.0) == ["b2"]


def test_a_broker_may_change_its_zone() -> None:
    made = member()
    accept(made, "a2")
    made.heard(info("b1"), key("a2"), 0.0)
    made.heard(info("b1", timestamp=101, zone="c"), key("a2"), 0.0)
    assert made.zones() == ["c"]
    made.heard(info("b1", timestamp=102, zone="a"), key("a2"), 0.0)
    assert made.zones() == []
    assert dials(made, 1.0) == ["b1"]
    # One with a link does not, before it has another link.
    dial(made, "d1")
    made.heard(info("d1", timestamp=101, zone="e"), key("d1"), 1.0)
    compared(made, "d1", "d2", now=1.0)
    assert made.zones() == ["e", "d"]
    assert made.gateway("d") == key("d1")
    accept(made, "c1")
    made.heard(info("c1", timestamp=101, zone="a"), key("c1"), 1.0)
    assert made.statistics().from_zones == 1
    assert parse_infos(made.answer(key("a2"), b""), 9)[1:] == [info("a2")]


# --- what is told ---------------------------------------------------------------------------


def tells(made: Membership, now: float = 0.0) -> list[tuple[str, str]]:
    tasks = [task for task in made.due(now) if isinstance(task, Tell)]
    return [(names([task.to])[0], names([task.info.broker_id])[0]) for task in tasks]


def test_a_zone_that_is_new_is_told_to_the_own_one() -> None:
    made = member()
    for name in ("a2", "a3"):
        accept(made, name)
    made.due(0.0)
    dial(made, "b1")
    assert tells(made) == [("a2", "b1"), ("a3", "b1")]
    accept(made, "b2")  # the others find it by the list of the zone
    assert tells(made) == []
    # Those that have dialled this broker learn of further zones by it, and of each other.
    accept(made, "c1")
    assert tells(made) == [("a2", "c1"), ("a3", "c1"), ("b2", "c1")]
    accept(made, "c2")
    assert tells(made) == [("a2", "c2"), ("a3", "c2"), ("c1", "c2")]
    accept(made, "a4")
    assert tells(made) == [("a4", "b1"), ("a2", "a4"), ("a3", "a4")]


def test_the_dialler_learns_the_brokers_of_the_other_zone_and_of_further_ones() -> None:
    made, other = member("a1", "b1"), member("b1")
    made.due(0.0)
    dial(made, "b1")
    accept(other, "a1")
    for name in ("b2", "c2"):
        accept(other, name)
    dial(other, "c1")
    dial(other, "a7")
    accept(other, "a8")
    (compare,) = (task for task in made.due(0.0) if isinstance(task, Compare))
    assert compare == Compare(key("b1"), bytes(32))
    answer = other.answer(key("a1"), compare.digest)
    assert names([each.broker_id for each in parse_infos(answer, 9)]) == [
        "b1", "b2", "c1", "a7", "a8",
    ]  # fmt: skip
    made.compared(key("b1"), answer, 0.0)
    assert set(dials(made)) >= {"c1"}
    assert made.zones() == ["b", "c"]
    # It is asked again whether the list has changed, and nothing is told back.
    assert tells(made) == []
    (compare,) = (task for task in made.due(60.0) if isinstance(task, Compare))
    assert other.answer(key("a1"), compare.digest) == b""
    accept(other, "b3")
    assert other.answer(key("a1"), compare.digest) != b""


def test_brokers_of_one_zone_compare_that_zone_only() -> None:
    one, two = member("a1"), member("a2")
    accept(one, "a2")
    accept(two, "a1")
    dial(one, "b1")
    accept(two, "c1")
    assert one.digest() == two.digest()
    assert two.answer(key("a1"), one.digest()) == b""


def test_a_change_of_its_own_is_told_over_all_links() -> None:
    made = member()
    accept(made, "a2")
    accept(made, "b1")
    dial(made, "c1")
    made.due(0.0)
    made.update(500, state=DRAINING)
    assert sorted(tells(made)) == [("a2", "a1"), ("b1", "a1"), ("c1", "a1")]


def test_addresses_of_other_zones_are_allowed_later() -> None:
    made = Membership(info("a1"), limits=LIMITS, now=0.0, random=lambda: 0.5)
    accept(made, "a2")
    made.heard(info("b1"), key("a2"), 0.0)
    assert dials(made) == []
    made.replace_allowed(["tcp://b*"], 0.0)
    assert dials(made) == ["b1"]


def test_a_broker_of_another_zone_is_forgotten() -> None:
    made = member()
    accept(made, "a2")
    made.heard(info("b1"), key("a2"), 0.0)
    made.due(LIMITS.forget_after)
    assert made.zones() == []
    assert dials(made, LIMITS.forget_after) == []


def test_a_broker_whose_link_was_replaced_is_forgotten_no_sooner_than_others() -> None:
    order = ranked("a1", "b1", "b2")
    made = member("a1", order[1])
    dials(made)
    dial(made, order[1])
    later = 2 * LIMITS.forget_after
    dials(made, later)
    assert dial(made, order[0], later) == Linked(f"to {order[1]}", TO)
    dials(made, later + LIMITS.forget_after - 1.0)
    assert {each.info.broker_id for each in made.brokers()} == {key(each) for each in order}
    dials(made, later + LIMITS.forget_after)
    assert [each.info.broker_id for each in made.brokers()] == [key(order[0])]


def test_a_broker_that_another_zone_has_still_is_not_forgotten() -> None:
    made, other = member("a1", "b1"), member("b1")
    made.due(0.0)
    dial(made, "b1")
    accept(other, "a1")
    accept(other, "b2")
    for hour in range(30):
        for task in made.due(3600.0 * hour):
            if isinstance(task, Compare):
                answer = other.answer(key("a1"), task.digest)
                assert bool(answer) == (hour == 0)
                made.compared(key("b1"), answer, 3600.0 * hour)
    assert made.statistics().known == 2
    made.pause(key("b2"), 1.0)
    made.due(3600.0 * 29 + LIMITS.forget_after)
    assert made.statistics().known == 1
    made.compared(key("b1"), b"", 3600.0 * 60)
    assert made.statistics().known == 1


@settings(max_examples=200)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["hear", "lose", "fail", "drain", "wait", "accept", "compare"]),
            st.sampled_from(["b1", "b2", "b3", "c1", "c2"]),
        ),
        max_size=50,
    )
)
def test_there_is_one_link_to_each_zone_that_can_be_reached(
    steps: list[tuple[str, str]],
) -> None:
    """Whatever happens, one broker of each zone is dialled at a time, and one link is kept."""
    made = member()
    accept(made, "a2")
    now, stamp = 0.0, 100
    under_way: set[str] = set()
    for step, name in steps:
        stamp += 1
        draining = {each.info.broker_id for each in made.brokers() if each.info.draining}
        if step == "hear":
            made.heard(info(name, timestamp=stamp), key("a2"), now)
        elif step == "lose":
            made.lost(key(name), f"to {name}", now)
        elif step == "fail" and name in under_way:
            under_way.discard(name)
            made.failed(f"tcp://{name}:1", "refused", now)
        elif step == "drain":
            made.heard(info(name, timestamp=stamp, state=DRAINING), key(name), now)
        elif step == "accept":
            accept(made, name, now)
        elif step == "compare" and key(name) in made.linked:
            other = member(name)
            accept(other, f"{name[0]}1")
            made.compared(key(name), other.answer(key("a1"), b""), now)
        else:
            now += 5.0
            for each in under_way:
                state = DRAINING if key(each) in draining else "up"
                dial(made, each, now, timestamp=stamp, state=state)
            under_way.clear()
        began = dials(made, now)
        assert not under_way & set(began)
        under_way |= set(began)
        for zone in "bc":
            held = [
                each
                for each in made.brokers()
                if each.info.zone == zone and each.dialled and not each.info.draining
            ]
            assert len(held) <= 1
            gateway = made.gateway(zone)
            assert not held or gateway == held[0].info.broker_id
            assert len([each for each in under_way if each[0] == zone]) <= 1
    # At rest each zone of which a broker is known has a link.
    for _ in range(4):
        now += 200.0
        for each in under_way:
            dial(made, each, now, timestamp=stamp)
        under_way = set(dials(made, now))
    assert all(made.gateway(zone) is not None for zone in made.zones())


@pytest.mark.parametrize("count", [1, 5])
def test_zones_that_meet_come_to_rest(count: int) -> None:
    """Three zones with one seed: each broker gets a link to each other zone, and talk ends."""
    limits = ClusterLimits(jitter=0.0)
    members = {
        f"{zone}{number}": member(f"{zone}{number}", "a0", limits=limits)
        for zone in "abc"
        for number in range(count)
    }
    told = 0
    for second in range(200):
        now = float(second)
        told = 0
        for name, made in members.items():
            for task in made.due(now):
                if isinstance(task, Dial):
                    other = members[task.uri[6:-2]]
                    link = f"{name} {other.own.cluster_uri} {second}"
                    found = other.connected(made.own, link, dialled=None, now=now)
                    if isinstance(found, LinkRefused):
                        made.failed(task.uri, "refused", now)
                        continue
                    verdict = made.connected(other.own, link, dialled=task.uri, now=now)
                    if isinstance(verdict, LinkRefused):
                        other.lost(made.own.broker_id, link, now)
                    elif verdict.replaces is not None:
                        for each in members.values():
                            each.lost(made.own.broker_id, verdict.replaces, now)
                elif isinstance(task, Tell):
                    told += 1
                    members[names([task.to])[0]].heard(task.info, made.own.broker_id, now)
                else:
                    other = members[names([task.to])[0]]
                    answer = other.answer(made.own.broker_id, task.digest)
                    told += bool(answer)
                    made.compared(task.to, answer, now)
    assert told == 0
    for name, made in members.items():
        figures = made.statistics()
        assert (figures.links, figures.to_zones) == (count - 1, 2)
        assert sorted(made.zones()) == sorted({"a", "b", "c"} - {name[0]})
        assert figures.known == 3 * count - 1
    incoming = [made.statistics().from_zones for made in members.values()]
    assert sum(incoming) == 6 * count
