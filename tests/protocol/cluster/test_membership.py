"""The brokers of a cluster as one of them sees it."""

from __future__ import annotations

from dataclasses import replace
from math import inf
from typing import Any

import pytest

from onward.protocol.cluster import (
    DRAINING,
    ClusterFrameError,
    ClusterLimits,
    Compare,
    Dial,
    Linked,
    LinkRefusal,
    LinkRefused,
    Membership,
    PeerInfo,
    Tell,
    parse_infos,
    serialize_infos,
)

LIMITS = ClusterLimits(jitter=0.0, max_peers=4, max_known=6)


def info(number: int, *, timestamp: int = 100, instance: int = 1, **more: Any) -> PeerInfo:
    uri: str = more.pop("cluster_uri", f"tcp://b{number}:1")
    return PeerInfo(bytes([number]) * 16, timestamp, instance, uri, **more)


def member(
    number: int = 5, *seeds: int, allowed: tuple[str, ...] = ("tcp://*",), now: float = 0.0
) -> Membership:
    return Membership(
        info(number),
        seeds=[f"tcp://b{seed}:1" for seed in seeds],
        allowed=allowed,
        limits=LIMITS,
        now=now,
        random=lambda: 0.5,
    )


def linked(made: Membership, *others: int, now: float = 0.0, version: str = "1") -> None:
    for other in others:
        found = made.connected(info(other, version=version), f"link {other}", dialled=None, now=now)
        assert found == Linked()


def tells(made: Membership, now: float = 0.0) -> list[tuple[int, int]]:
    return [
        (task.to[0], task.info.broker_id[0]) for task in made.due(now) if isinstance(task, Tell)
    ]


def dials(made: Membership, now: float = 0.0) -> list[str]:
    return [task.uri for task in made.due(now) if isinstance(task, Dial)]


def test_seeds_are_dialled_and_a_link_is_compared_at_once() -> None:
    made = member(5, 1)
    assert made.get_timer() == 0.0
    assert made.due(0.0) == [Dial("tcp://b1:1")]
    assert made.due(0.0) == []
    assert made.connected(info(1), "link", dialled="tcp://b1:1", now=1.0) == Linked()
    assert made.get_timer() == 1.0
    (compare,) = made.due(1.0)
    assert compare == Compare(info(1).broker_id, made.digest())
    assert made.due(1.0) == []
    assert made.get_timer() == 61.0
    assert [type(task) for task in made.due(61.0)] == [Compare]


def test_only_the_dialler_compares() -> None:
    made = member()
    linked(made, 1)
    assert made.due(1000.0) == []
    # One with a link is not forgotten.
    assert made.get_timer() == LIMITS.forget_after
    assert made.due(LIMITS.forget_after) == []
    assert made.get_timer() == inf
    assert made.statistics().known == 1


def test_an_attempt_that_fails_is_made_again_later() -> None:
    made = member(5, 1)
    made.due(0.0)
    made.failed("tcp://b1:1", "refused", 3.0)
    assert made.get_timer() == 4.0
    assert dials(made, 3.9) == []
    assert dials(made, 4.0) == ["tcp://b1:1"]


def test_a_lost_link_is_dialled_again() -> None:
    made = member(5, 9)
    made.due(0.0)
    made.connected(info(9), "link", dialled="tcp://b9:1", now=0.0)
    assert not made.lost(info(9).broker_id, "another link", 10.0)
    assert not made.lost(info(8).broker_id, "link", 10.0)
    assert made.linked == [info(9).broker_id]
    assert made.lost(info(9).broker_id, "link", 10.0)
    assert made.linked == []
    assert dials(made, 10.9) == []
    assert dials(made, 11.0) == ["tcp://b9:1"]


def test_news_by_a_link_are_told_to_all_others_once() -> None:
    made = member()
    linked(made, 1, 2, 3)
    assert sorted(tells(made)) == [(1, 2), (1, 3), (2, 3)]
    assert tells(made) == []
    made.lost(info(3).broker_id, "link 3", 1.0)
    linked(made, 3)
    assert tells(made) == []


def test_what_is_heard_is_dialled_and_not_passed_on() -> None:
    made = member()
    linked(made, 1, 2)
    made.due(0.0)
    made.heard(info(7), info(1).broker_id, 1.0)
    assert made.due(1.0) == [Dial("tcp://b7:1")]
    made.connected(info(7), "link", dialled="tcp://b7:1", now=1.0)
    assert tells(made, 1.0) == []


def test_a_broker_that_has_moved_is_dialled_at_its_new_address() -> None:
    made = member()
    linked(made, 1)
    made.heard(info(7), info(1).broker_id, 1.0)
    made.heard(info(7, timestamp=101, cluster_uri="tcp://moved:1"), info(1).broker_id, 1.0)
    made.heard(info(7, timestamp=100), info(1).broker_id, 1.0)
    assert dials(made, 1.0) == ["tcp://moved:1"]


def test_news_of_another_instance_do_not_change_a_link() -> None:
    made = member()
    linked(made, 1)
    made.heard(info(1, timestamp=200, instance=2), info(1).broker_id, 1.0)
    assert parse_infos(made.answer(info(1).broker_id, b""), 9)[1] == info(1)


def test_a_restarted_broker_is_believed_about_itself_whatever_its_clock_says() -> None:
    made = member()
    linked(made, 1, 2)
    (first, _) = made.brokers()
    assert made.lost(first.info.broker_id, "link 1", 1.0)
    again = replace(info(1, timestamp=50, instance=2), cluster_uri="x://elsewhere")
    # What others say of it may be of before.
    made.heard(again, info(2).broker_id, 2.0)
    assert next(made.brokers()).info == first.info
    assert made.connected(again, "link", dialled=None, now=3.0) == Linked()
    assert next(made.brokers()).info == again


def test_news_of_a_link_that_is_lost_meanwhile_are_not_told() -> None:
    made = member()
    linked(made, 1, 2)
    made.lost(info(2).broker_id, "link 2", 1.0)
    assert tells(made, 1.0) == []


def test_a_new_link_brings_others_back_before_their_time() -> None:
    made = member(5, 9)
    made.due(0.0)
    made.connected(info(9), "link", dialled="tcp://b9:1", now=0.0)
    made.heard(info(8), info(9).broker_id, 0.0)
    for _ in range(6):
        made.due(50.0)
        made.failed("tcp://b8:1", "no route to host", 50.0)
        made.due(79.0)
        made.failed("tcp://b8:1", "no route to host", 79.0)
    made.due(200.0)
    made.failed("tcp://b8:1", "no route to host", 200.0)
    made.heard(info(8), info(9).broker_id, 200.0)
    assert dials(made, 201.0) == []
    made.connected(info(7), "link 7", dialled=None, now=202.0)
    made.heard(info(8), info(7).broker_id, 202.0)
    assert dials(made, 203.0) == ["tcp://b8:1"]


def test_what_a_stranger_says_is_not_heard() -> None:
    made = member()
    made.heard(info(7), info(1).broker_id, 1.0)
    assert made.due(1.0) == []
    assert made.statistics().known == 0


def test_gossip_does_not_choose_what_a_broker_connects_to() -> None:
    made = member(allowed=("tcp://b7:*",))
    linked(made, 1)
    made.heard(info(6), info(1).broker_id, 1.0)
    made.heard(info(7), info(1).broker_id, 1.0)
    made.heard(info(8, cluster_uri="tcp://evil/b7:1"), info(1).broker_id, 1.0)
    assert dials(made, 100.0) == ["tcp://b7:1"]


def test_a_broker_with_a_link_is_believed_about_itself_and_no_other_is() -> None:
    made = member()
    linked(made, 1, 2)
    made.due(0.0)
    made.heard(info(2, timestamp=200, state=DRAINING), info(1).broker_id, 1.0)
    assert not any(each.info.draining for each in made.brokers())
    made.heard(info(2, timestamp=200, state=DRAINING), info(2).broker_id, 1.0)
    made.heard(info(2, timestamp=150), info(2).broker_id, 1.0)
    assert [each.info.draining for each in made.brokers()] == [False, True]
    made.heard(info(5, timestamp=900), info(1).broker_id, 1.0)  # about this one
    assert made.own.timestamp == 100


def test_a_broker_is_believed_about_itself_whatever_others_have_said_before() -> None:
    made = member()
    linked(made, 1)
    lie = info(2, timestamp=1 << 62, cluster_uri="tcp://evil:1", proxy_uri="tcp://evil:2")
    made.heard(lie, info(1).broker_id, 1.0)
    linked(made, 2)
    made.heard(lie, info(1).broker_id, 1.0)
    assert [each.info for each in made.brokers()] == [info(1), info(2)]
    made.heard(info(2, timestamp=101, state=DRAINING), info(2).broker_id, 2.0)
    assert [each.info.draining for each in made.brokers()] == [False, True]
    # By a second link comes what it had said when it began to dial: that is older.
    made.connected(info(2), "another link", dialled=None, now=3.0)
    assert [each.info.draining for each in made.brokers()] == [False, True]


def test_what_could_not_be_told_is_told_after_the_next_comparison() -> None:
    made, other = member(1), member(2)
    made.connected(info(2), "link 2", dialled="tcp://b2:1", now=0.0)
    linked(other, 1)
    made.due(0.0)
    linked(made, 3)
    made.update(200, state=DRAINING)
    for lost in (True, False):
        told = [
            each
            for each in made.due(0.0)
            if isinstance(each, Tell) and each.to == info(2).broker_id
        ]
        assert {each.info.broker_id for each in told} == {info(1).broker_id, info(3).broker_id}
        made.compared(info(2).broker_id, other.answer(info(1).broker_id, bytes(32)), 0.0)
        assert not any(isinstance(each, Tell) for each in made.due(0.0))
        if lost:
            for each in told:
                made.untold(each)
            made.compared(info(2).broker_id, other.answer(info(1).broker_id, bytes(32)), 0.0)
    made.untold(Tell(info(9).broker_id, info(3)))  # the link is lost meanwhile
    made.untold(Tell(info(2).broker_id, info(3, timestamp=99)))  # a later one was told since
    made.compared(info(2).broker_id, other.answer(info(1).broker_id, bytes(32)), 0.0)
    assert not any(isinstance(each, Tell) for each in made.due(0.0))


def test_a_change_of_its_own_is_told_to_all() -> None:
    made = member()
    linked(made, 1, 2)
    made.due(0.0)
    assert made.update(50, state=DRAINING).timestamp == 101
    assert made.get_timer() == -inf
    tasks = made.due(0.0)
    assert tasks == [Tell(info(other).broker_id, made.own) for other in (1, 2)]
    assert made.update(500).timestamp == 500


def test_what_is_told_to_a_lost_link_is_dropped() -> None:
    made = member()
    linked(made, 1, 2)
    made.update(500, name="x")
    made.lost(info(1).broker_id, "link 1", 1.0)
    assert tells(made, 1.0) == [(2, 5)]


def test_another_implementation_is_told_of_all_and_asked_nothing() -> None:
    made = member()
    linked(made, 1, 2)
    made.due(0.0)
    linked(made, 3, version="")
    assert sorted(tells(made)) == [(1, 3), (2, 3), (3, 1), (3, 2)]
    made.connected(info(4, version=""), "link", dialled="tcp://b4:1", now=0.0)
    assert not any(isinstance(task, Compare) for task in made.due(100.0))


def test_a_list_of_more_brokers_than_are_remembered_is_no_mistake() -> None:
    made = member()
    linked(made, 1)
    made.compared(info(1).broker_id, serialize_infos(map(info, range(10, 20))), 0.0)
    figures = made.statistics()
    assert (figures.known, figures.ignored) == (LIMITS.max_known, 5)


def test_brokers_with_equal_lists_have_nothing_to_say() -> None:
    one, two = member(1), member(2)
    linked(one, 2, 3)
    linked(two, 1, 3)
    assert one.digest() == two.digest()
    assert two.answer(info(1).broker_id, one.digest()) == b""
    one.compared(info(2).broker_id, b"", 0.0)
    assert one.due(0.0)  # the news of the links
    assert one.due(0.0) == []


def test_brokers_with_other_lists_tell_each_other_what_is_missing() -> None:
    one, two = member(1), member(2)
    linked(one, 2, 3)
    linked(two, 1, 4)
    for each in (one, two):
        each.due(0.0)
    answer = two.answer(info(1).broker_id, one.digest())
    assert [each.broker_id[0] for each in parse_infos(answer, 9)] == [2, 1, 4]
    one.compared(info(2).broker_id, answer, 0.0)
    assert one.due(0.0) == [Dial("tcp://b4:1")]  # of 3 it was told when that came
    del one._links.mesh[info(2).broker_id].told[info(3).broker_id]
    one.compared(info(2).broker_id, answer, 0.0)
    assert tells(one) == [(2, 3)]


def test_a_broker_with_an_old_list_of_this_one_is_told() -> None:
    one, two = member(1), member(2)
    linked(one, 2)
    linked(two, 1)
    one.own = replace(one.own, timestamp=700)
    one.compared(info(2).broker_id, two.answer(info(1).broker_id, one.digest()), 0.0)
    assert tells(one) == [(2, 1)]


def test_a_stranger_is_answered_and_nothing_is_noted() -> None:
    made = member()
    assert parse_infos(made.answer(info(1).broker_id, b""), 9) == [made.own]


@pytest.mark.parametrize("answer", [b"\0\0", serialize_infos([info(2)] * 4097)])
def test_an_answer_that_is_none_is_refused(answer: bytes) -> None:
    made = member()
    linked(made, 1)
    with pytest.raises(ClusterFrameError):
        made.compared(info(1).broker_id, answer, 0.0)
    assert made.statistics().known == 1


@pytest.mark.parametrize(
    ("other", "reason"),
    [
        (info(5), LinkRefusal.SELF),
        (info(5, instance=2), LinkRefusal.OWN_ID),
        (info(1, instance=2), LinkRefusal.TWIN),
        (info(7, version="2"), LinkRefusal.VERSION),
        (info(7, zone="b"), LinkRefusal.ZONE),
        (info(8), LinkRefusal.PAUSED),
    ],
)
def test_links_that_are_refused(other: PeerInfo, reason: LinkRefusal) -> None:
    made = member()
    linked(made, 1)
    made.heard(info(8), info(1).broker_id, 0.0)
    made.pause(info(8).broker_id, 60.0)
    made.pause(info(9).broker_id, 60.0)
    found = made.connected(other, "new", dialled=None, now=59.0)
    assert found == LinkRefused(reason, other)
    assert made.linked == [info(1).broker_id]
    assert made.statistics().refused == {reason: 1}
    assert made.connected(info(8), "new", dialled=None, now=60.0) == Linked()


@pytest.mark.parametrize(
    ("other", "reason"),
    [
        (info(5, instance=2), LinkRefusal.OWN_ID),
        (info(7, version="2"), LinkRefusal.VERSION),
        (info(7, zone="b"), LinkRefusal.ZONE),
    ],
)
def test_a_broker_that_cannot_be_a_peer_is_dialled_more_and_more_rarely(
    other: PeerInfo, reason: LinkRefusal
) -> None:
    made, now, waits = member(5, 1), 0.0, list[float]()
    for _ in range(7):
        assert dials(made, now) == ["tcp://b1:1"]
        found = made.connected(other, "new", dialled="tcp://b1:1", now=now)
        assert found == LinkRefused(reason, other)
        assert list(made.unreached()) == [("tcp://b1:1", reason.value)]
        # As the attempt ends with the refusal, it has not failed once more.
        made.failed("tcp://b1:1", "refused", now)
        waits.append(made.get_timer() - now)
        now = made.get_timer()
    assert waits == [1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0]
    # Another broker is there now.
    assert dials(made, now) == ["tcp://b1:1"]
    assert made.connected(info(1), "link 1", dialled="tcp://b1:1", now=now) == Linked()


def test_this_broker_behind_a_seed_is_dialled_once() -> None:
    made = member(5, 1)
    assert dials(made) == ["tcp://b1:1"]
    assert isinstance(made.connected(made.own, "x", dialled="tcp://b1:1", now=0.0), LinkRefused)
    assert dials(made, 1000.0) == []
    assert list(made.unreached()) == []


def test_of_two_links_the_one_of_the_smaller_id_stays() -> None:
    made = member(5)
    linked(made, 1)
    found = made.connected(info(1), "own", dialled="tcp://b1:1", now=0.0)
    assert found == LinkRefused(LinkRefusal.DUPLICATE, info(1))
    assert made.connected(info(1), "newer", dialled=None, now=0.0) == Linked("link 1")
    linked(made, 9)
    assert made.connected(info(9), "own", dialled="tcp://b9:1", now=0.0) == Linked("link 9")
    assert not made.lost(info(9).broker_id, "link 9", 0.0)


def test_there_are_no_more_links_than_the_limit() -> None:
    made = member(5, 1, 2, 3, 4, 6, 7)
    assert len(dials(made)) == 4
    for other in (1, 2, 3, 4):
        made.connected(info(other), other, dialled=f"tcp://b{other}:1", now=0.0)
    assert dials(made, 1000.0) == []
    assert made.get_timer() == 1060.0  # the next comparison, and no address
    found = made.connected(info(8), "new", dialled=None, now=0.0)
    assert found == LinkRefused(LinkRefusal.FULL, info(8))
    made.lost(info(1).broker_id, 1, 1000.0)
    assert len(dials(made, 1000.0)) == 1


def test_no_more_brokers_are_remembered_than_the_limit() -> None:
    made = member(allowed=())
    linked(made, 1)
    for other in range(10, 20):
        made.heard(info(other), info(1).broker_id, float(other))
    assert made.statistics().known == LIMITS.max_known
    assert made.statistics().ignored == 5
    linked(made, 2)  # takes the place of the one that was heard of longest ago
    assert sorted(each.info.broker_id[0] for each in made.brokers()) == [1, 2, 11, 12, 13, 14]


def test_a_pause_is_remembered_as_long_as_another_broker_can_be_forgotten() -> None:
    made = member(allowed=())
    linked(made, 1)
    for other in range(10, 15):
        made.heard(info(other), info(1).broker_id, 0.0)
    for other, until in ((10, 60.0), (11, 50.0), (12, 5.0)):
        made.pause(info(other).broker_id, until)
    found: list[set[int]] = []
    before = {each.info.broker_id[0] for each in made.brokers()}
    for other in range(20, 25):
        made.connected(info(other), f"link {other}", dialled=None, now=10.0)
        made.lost(info(other).broker_id, f"link {other}", 10.0)
        made.pause(info(other).broker_id, 70.0)
        after = {each.info.broker_id[0] for each in made.brokers()}
        found.append(before - after)
        before = after
    # First those without a pause and the one whose pause is over, then those that end first.
    assert found == [{12}, {13}, {14}, {11}, {10}]
    refused = made.connected(info(24), "again", dialled=None, now=69.0)
    assert refused == LinkRefused(LinkRefusal.PAUSED, info(24))


def test_a_pause_that_is_longer_than_brokers_are_remembered() -> None:
    limits = replace(LIMITS, forget_after=20.0)
    made = Membership(info(5), limits=limits, now=0.0, random=lambda: 0.5)
    linked(made, 1)
    made.pause(info(1).broker_id, 60.0)
    made.lost(info(1).broker_id, "link 1", 0.0)
    for now, known in ((20.0, 1), (59.0, 1), (60.0, 0)):
        made.due(now)
        assert made.statistics().known == known
        assert now < made.get_timer()


def test_brokers_with_links_are_remembered_whatever_the_limit() -> None:
    limits = replace(LIMITS, max_known=1)
    made = Membership(info(5), limits=limits, now=0.0, random=lambda: 0.5)
    linked(made, 1, 2)
    assert made.statistics().known == 2


def test_a_broker_that_is_gone_is_forgotten_by_all() -> None:
    one, two = member(1), member(2)
    linked(one, 2, 3)
    linked(two, 1)
    two.heard(info(3), info(1).broker_id, 0.0)
    two.failed("tcp://b3:1", "nothing is under way", 0.0)
    one.lost(info(3).broker_id, "link 3", 10.0)
    day = LIMITS.forget_after
    for hour in range(24):
        answer = one.answer(info(2).broker_id, two.digest())
        two.compared(info(1).broker_id, answer, 10.0 + 3600 * hour)
    two.due(day - 1)
    assert two.statistics().known == 2
    two.due(day)
    one.due(day + 10.0)
    assert one.statistics().known == two.statistics().known == 1


def test_what_an_operator_is_shown() -> None:
    made = member(5, 1)
    made.due(0.0)
    made.connected(info(1), "link", dialled="tcp://b1:1", now=0.0)
    made.heard(info(7), info(1).broker_id, 0.0)
    made.due(0.0)
    made.failed("tcp://b7:1", "no route to host", 0.0)
    linked(made, 2)
    made.heard(info(8, cluster_uri=""), info(1).broker_id, 0.0)
    one, seven, two, eight = made.brokers()
    assert (one.linked, one.dialled, one.dials_at) == (True, True, None)
    assert (seven.linked, seven.reported_by, seven.failures) == (False, info(1).broker_id, 1)
    assert (seven.cause, seven.dials_at) == ("no route to host", 1.0)
    assert (two.linked, two.dialled, two.cause) == (True, False, "")
    assert (eight.dials_at, eight.failures) == (None, 0)
    assert made.statistics().dialling == 0


def test_seeds_are_replaced() -> None:
    made = member(5, 1)
    made.replace_seeds(["tcp://b2:1"], 3.0)
    assert dials(made, 3.0) == ["tcp://b2:1"]


def test_what_is_told_ends() -> None:
    """Ten brokers that all meet one after the other: nothing is left to say after a while."""
    members = [
        Membership(info(n), allowed=("*",), now=0.0, random=lambda: 0.5) for n in range(1, 11)
    ]
    messages = 0
    for index, made in enumerate(members):
        for other in members[:index]:
            made.connected(other.own, (index, other), dialled="x", now=0.0)
            other.connected(made.own, (index, other), dialled=None, now=0.0)
    for _ in range(5):
        for made in members:
            for task in made.due(0.0):
                to = next(
                    each
                    for each in members
                    if not isinstance(task, Dial) and each.own.broker_id == task.to
                )
                messages += 1
                if isinstance(task, Tell):
                    to.heard(task.info, made.own.broker_id, 0.0)
                elif isinstance(task, Compare):
                    made.compared(task.to, to.answer(made.own.broker_id, task.digest), 0.0)
    assert all(made.due(0.0) == [] for made in members)
    assert len({made.digest() for made in members}) == 1
    assert messages < 10**3


def test_a_broker_that_dials_may_be_refused_before_it_has_a_link() -> None:
    made = member(5)
    linked(made, 1, 2, 3, 4)
    assert made.refusal(info(6), 0.0) is LinkRefusal.FULL
    assert made.refusal(info(1, instance=2), 0.0) is LinkRefusal.TWIN
    assert made.refusal(info(9, version="2"), 0.0) is LinkRefusal.VERSION
    assert made.statistics().refused == {
        LinkRefusal.FULL: 1,
        LinkRefusal.TWIN: 1,
        LinkRefusal.VERSION: 1,
    }
    assert len(made.linked) == 4
    # It learns from the handshake that it has dialled itself.
    assert made.refusal(made.own, 0.0) is None


def test_other_addresses_are_allowed_later() -> None:
    made = member(5, allowed=())
    linked(made, 1)
    made.heard(info(6), bytes([1]) * 16, 0.0)
    assert dials(made) == []
    made.replace_allowed(["tcp://b6:*", "tcp://b7:*"], 0.0)
    made.heard(info(7), bytes([1]) * 16, 0.0)
    assert dials(made) == ["tcp://b6:1", "tcp://b7:1"]


def test_seeds_at_which_no_broker_was_found() -> None:
    made = member(5, 1, 2, 5)
    assert dials(made) == ["tcp://b1:1", "tcp://b2:1"]
    made.failed("tcp://b1:1", "refused", 1.0)
    made.connected(info(2), "link 2", dialled="tcp://b2:1", now=1.0)
    assert list(made.unreached()) == [("tcp://b1:1", "refused")]


def test_an_address_that_becomes_the_own_one_is_not_dialled() -> None:
    made = member(5, 1)
    made.update(1, cluster_uri="tcp://b1:1")
    assert dials(made) == []


def test_a_seed_of_a_broker_that_was_heard_of_and_has_dialled_is_not_dialled_again() -> None:
    made = member(5, 1)
    linked(made, 2)
    made.heard(info(1), bytes([2]) * 16, 0.0)
    linked(made, 1)
    assert dials(made) == []
    assert list(made.unreached()) == []


def test_a_seed_of_a_broker_that_says_later_where_it_is_is_not_dialled_again() -> None:
    # It has dialled before its listeners were open, and one that dials twice keeps one link.
    made = member(5, 1)
    assert dials(made) == ["tcp://b1:1"]
    linked(made, 2)
    assert made.connected(info(1, cluster_uri=""), "link 1", dialled=None, now=0.0) == Linked()
    made.failed("tcp://b1:1", "there is another link", 1.0)
    assert list(made.unreached()) == [("tcp://b1:1", "there is another link")]
    made.heard(info(1, timestamp=101), info(2).broker_id, 2.0)
    assert [uri for uri, _ in made.unreached()] == ["tcp://b1:1"]
    made.heard(info(1, timestamp=101), info(1).broker_id, 2.0)
    assert list(made.unreached()) == []
    assert dials(made, 60.0) == []


def test_what_a_comparison_says_of_the_other_broker_itself_is_known() -> None:
    made = member(5, 1)
    made.due(0.0)
    early = info(1, cluster_uri="")
    assert made.connected(early, "link", dialled="tcp://b1:1", now=0.0) == Linked()
    assert made.info_of(early.broker_id) == early
    made.compared(early.broker_id, serialize_infos([info(1, timestamp=101)]), 1.0)
    assert made.info_of(early.broker_id) == info(1, timestamp=101)
    assert made.info_of(info(2).broker_id) is None


def test_a_seed_that_is_given_later_is_that_of_the_broker_that_there_is_a_link_with() -> None:
    made = member(5, allowed=())
    linked(made, 1)
    made.heard(info(2), info(1).broker_id, 0.0)
    made.replace_seeds(["tcp://b1:1", "tcp://b2:1"], 1.0)
    assert [uri for uri, _ in made.unreached()] == ["tcp://b2:1"]
    assert dials(made, 1.0) == ["tcp://b2:1"]
