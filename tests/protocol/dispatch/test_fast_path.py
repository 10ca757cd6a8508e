"""The fast path of a name: it does what the full way does, and each change closes it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import inf
from random import Random
from typing import TypeAlias

import pytest

from onward.protocol.dispatch import (
    ACCEPTED,
    MODIFIED,
    RECEIVED,
    RELEASED,
    Ages,
    ConsumerTarget,
    CopyEnded,
    Delivery,
    DeliveryLimits,
    DeliveryState,
    Dropped,
    FastDelivery,
    FastPath,
    FastTarget,
    Gate,
    Hand,
    Hold,
    Last,
    LinkTarget,
    NameState,
    NodeTotals,
    Paths,
    Rejected,
    Reliability,
    Retry,
    RoutingPattern,
    Semantics,
    SendOn,
    Settlement,
    Share,
    Target,
    Told,
    Weigh,
    join_links,
    node_digest,
)
from tests.support.counts import times

State: TypeAlias = NameState[str]

TIME = 30.0
HOLD = Retry(first=1.0, longest=4.0, hold=Hold(messages=3, age=20.0))
IDENTITY = ("a", b"instance", b"12345678")
LINKS = {"a": {"x": 1, "y": 1}, "x": {"a": 1}, "y": {"a": 1}}


class Name:
    """A name of which messages go the fast path, or none does.

    Args:
        fast: Whether they do.
        semantics: The semantics.
        limits: The limits.
    """

    def __init__(
        self,
        *,
        fast: bool,
        semantics: Semantics | None = None,
        limits: DeliveryLimits | None = None,
    ) -> None:
        self.totals = NodeTotals(limits or DeliveryLimits())
        tokens = Random(1)
        draw: Callable[[], bytes] = lambda: tokens.randbytes(8)  # noqa: E731
        self.state = State("a", semantics or Semantics(window=3), draw, self.totals)
        self.state.set_paths(Paths(join_links(LINKS), "a"), str, 0.0)
        self.fast = fast
        self.now = 0.0
        self.taken = 0
        self.draw = draw
        self.at: dict[str, tuple[bytes, Target]] = {}
        self.log: list[object] = []
        self.perform()

    def path(self) -> FastPath[str] | None:
        return self.state.plan_fast_path(self.promoted) if self.fast else None

    def promoted(self, token: bytes, entry: FastDelivery[str]) -> Delivery[str]:
        del token
        _, size, _, limit, message, share = entry
        return self.delivery(message, size, None if limit == inf else limit, share)

    def delivery(
        self, message: str, size: int, deadline: float | None, share: Share | None
    ) -> Delivery[str]:
        """Return the full record of a message, which has come over link y if it has a share."""
        if share is None:
            return Delivery(message, size, "plain", IDENTITY, deadline=deadline)
        token, identity = message.encode(), ("y", *IDENTITY[1:])
        return Delivery(message, size, "y", identity, token=token, deadline=deadline, share=share)

    def send(
        self, message: str, size: int = 10, *, over_link: bool = False, limit: float = TIME
    ) -> bool:
        """Send an unsettled message, or receive one over link y; return whether it went fast."""
        path, end = self.path(), self.now + limit
        share = self.totals.share_of("y", neighbour=True) if over_link else None
        if path is not None:
            token = self.draw()
            target = path.only or path.choose()
            link = None if target else path.link("y" if over_link else "a", ())
            rest = size, self.now, end, message, share
            began = False
            to: Target | None = None
            if target is not None:
                began, to = path.begin(token, (target, *rest)), target.target
            elif link is not None:
                at = path.link_target(link)
                began, to = path.begin_on(token, (at, *rest)), at.target
            if began and to is not None:
                self.taken += 1
                self.at[message] = token, to
                self.log.append(("hand", to, message))
                return True
        deadline = None if end == inf else end
        self.state.bind(self.delivery(message, size, deadline, share), self.now)
        self.perform()
        return False

    def recall(self, message: str) -> None:
        """Make the full record of a message, as before its source tells something of it."""
        self.state.deliveries.promote(self.at[message][0])

    def tell(self, message: str, state: DeliveryState) -> None:
        token, at = self.at[message]
        path = self.state.deliveries.fast
        if state == ACCEPTED and path is not None and token in path.entries:
            target = path.accept(token)[0]
            self.log.append(("told", message, ACCEPTED))
            if isinstance(target, FastTarget) and target.queue.waiting:
                self.state.serve(target.number, self.now)
        else:
            self.state.disposition(token, state, at, self.now)
        self.perform()

    def perform(self) -> None:
        handled: list[int] = []
        for event in self.state.events():
            match event:
                case Hand(number, None, delivery):
                    # Its source has settled it as it was on hold.
                    self.log.append(("hand settled", number, delivery.message))
                    handled.append(number)
                case Hand(number, token, delivery):
                    assert token is not None
                    self.at[delivery.message] = token, ConsumerTarget(number)
                    self.log.append(("hand", ConsumerTarget(number), delivery.message))
                case SendOn(link, None, delivery):
                    self.log.append(("hand settled", link, delivery.message))
                case SendOn(link, token, delivery):
                    assert token is not None
                    self.at[delivery.message] = token, LinkTarget(link)
                    self.log.append(("hand", LinkTarget(link), delivery.message))
                case Told(delivery, outcome):
                    self.log.append(("told", delivery.message, outcome))
                case CopyEnded(_, target, end, sent, _, outcome):
                    if outcome != ACCEPTED:
                        self.log.append((target, end, sent, outcome))
                case Dropped(delivery, reason):
                    self.log.append((delivery.message, reason))
                case _:
                    self.log.append(type(event))
        for each in handled:
            self.state.handled(each, self.now)
        if handled:
            self.perform()

    def seen(self) -> object:
        log, self.log = sorted(map(str, self.log)), []
        timer = self.state.get_timer()
        loads = [self.state.load(ConsumerTarget(each)) for each in range(12)]
        loads += [self.state.load(LinkTarget(each)) for each in "xy"]
        share = self.totals.share_of("y", neighbour=True)
        told = self.state.deliveries.statistics()
        # The tokens of messages that were accepted on the fast path are not kept.
        told = replace(told, repeated=told.repeated + told.unknown, unknown=0)
        figures = told, len(self.state.deliveries)
        size = self.totals.size, share.size, share.unsettled, self.state.busy, self.state.idle
        return log, loads, figures, size, timer is None or timer > self.now


def step(random: Random, names: list[Name], number: int) -> None:
    """Do the same to each name."""
    kind, seed = random.randrange(20), random.random()
    now = names[0].now + random.choice((0.0, 0.1, 3.0))
    known = sorted(names[0].at)
    message = random.choice(known) if known else ""
    end = random.choice((ACCEPTED, ACCEPTED, RELEASED, MODIFIED, RECEIVED, Rejected("no")))
    semantics = random.choice(
        (
            Semantics(window=3),
            Semantics(window=2, undeliverable=(HOLD, Last.RELEASE)),
            Semantics(window=3, pattern=RoutingPattern.CLOSEST),
            Semantics(window=3, weigh=Weigh.TIME),
            Semantics(window=3, pattern=RoutingPattern.DIRECT),
        )
    )
    for each in names:
        each.now = now
        each.state.due(now)
        match kind:
            case 0:
                each.state.add_consumer(number % 12, 2, now, by_credit=seed < 0.3)
            case 1:
                each.state.remove_consumer(int(seed * 12), now)
            case 2:
                each.state.update(semantics, now)
            case 3:
                each.state.set_nodes({"x": 0} if seed < 0.6 else {}, now)
            case 4:
                each.state.credit(int(seed * 12), 2, now)
            case 5 | 6 | 7 | 8 | 9:
                if message:
                    each.tell(message, end)
            case 10:
                each.state.link_lost("x" if seed < 0.5 else "y", now)
                each.perform()
                each.state.set_paths(Paths(join_links(LINKS), "a"), str, now)
            case 11:
                if message:
                    each.recall(message)
                    each.state.source_ended("y", message.encode(), now, settled=seed < 0.5)
            case _:
                each.send(f"{number}", over_link=seed < 0.5, limit=TIME if seed < 0.9 else inf)
        each.perform()


@pytest.mark.parametrize("seed", range(times(40, 400)))
def test_a_name_does_the_same_with_and_without_the_fast_path(seed: int) -> None:
    random = Random(seed)
    names = [Name(fast=True), Name(fast=False)]
    for number in range(150):
        step(random, names, number)
        assert names[0].seen() == names[1].seen()
    assert not names[1].taken
    for each in names:
        each.state.deliveries.left()
    assert names[0].seen() == names[1].seen()


def one(semantics: Semantics | None = None, limits: DeliveryLimits | None = None) -> Name:
    """Return a name with a consumer."""
    name = Name(fast=True, semantics=semantics, limits=limits)
    name.state.add_consumer(1, 2, 0.0)
    name.perform()
    return name


def test_messages_go_the_fast_path_while_there_is_credit() -> None:
    name = one()
    assert [name.send(each) for each in "abc"] == [True, True, False]
    name.tell("a", ACCEPTED)
    assert ("hand", ConsumerTarget(1), "c") in name.log
    assert not name.send("d")


@pytest.mark.parametrize(
    "semantics",
    [
        Semantics(pattern=RoutingPattern.MULTICAST),
        Semantics(pattern=RoutingPattern.UNAVAILABLE),
        Semantics(gate=Gate.CREDIT),
        Semantics(weigh=Weigh.TIME),
        Semantics(reliability=Reliability(deduplicate=1.0)),
        Semantics(reliability=Reliability(settle=Settlement.AT_ONCE)),
    ],
    ids=str,
)
def test_what_weighs_copies_or_remembers_messages_has_no_fast_path(semantics: Semantics) -> None:
    assert one(semantics).path() is None


def test_a_name_without_a_consumer_has_no_fast_path() -> None:
    assert Name(fast=True).path() is None


CHANGES: dict[str, Callable[[State], object]] = {
    "semantics": lambda state: state.update(Semantics(window=9), 0.0),
    "a consumer more": lambda state: state.add_consumer(2, 2, 0.0),
    "a consumer less": lambda state: state.remove_consumer(1, 0.0),
    "nodes": lambda state: state.set_nodes({"x": 0}, 0.0),
    "paths": lambda state: state.set_paths(Paths(join_links(LINKS), "a"), str, 0.0),
    "a link": lambda state: state.link_lost("x", 0.0),
    "the end": lambda state: state.deliveries.left(),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_each_change_closes_it_and_makes_full_records(change: Callable[[State], object]) -> None:
    name = one()
    assert name.send("a")
    path = name.path()
    assert path is not None
    changes = name.state.deliveries.changes
    change(name.state)
    assert not path.is_open
    assert not path.entries
    assert name.state.deliveries.changes > changes


def test_it_is_opened_again_by_the_next_plan() -> None:
    name = one()
    name.state.add_consumer(2, 2, 0.0)
    assert name.send("a")
    assert name.send("b")
    assert {at for _, at in name.at.values()} == {ConsumerTarget(1), ConsumerTarget(2)}
    assert name.path() is name.path()


def test_a_lost_consumer_leaves_its_message_in_doubt() -> None:
    name = one()
    name.send("a")
    name.state.remove_consumer(1, 0.0)
    name.perform()
    assert ("told", "a", MODIFIED) in name.log


def test_a_message_has_its_outcome_when_its_time_is_over() -> None:
    name = one()
    name.send("a")
    assert name.state.get_timer() == TIME
    name.state.due(TIME - 1)
    name.perform()
    assert ("told", "a", MODIFIED) not in name.log
    name.state.due(TIME)
    name.perform()
    assert ("told", "a", MODIFIED) in name.log
    assert name.state.get_timer() is None


def test_what_a_consumer_has_for_long_is_seen_on_it() -> None:
    made = one()
    assert made.send("1")
    assert made.state.get_ages(25.0) == Ages(oldest=25.0, stuck=1)
    assert made.taken == 1
    made.tell("1", ACCEPTED)
    assert made.state.get_ages(25.0) == Ages()


def test_the_earliest_time_counts() -> None:
    name = one()
    path = name.path()
    assert path is not None
    assert path.only is not None
    assert path.begin(b"1", (path.only, 1, 0.0, 9.0, "a", None))
    assert path.begin(b"2", (path.only, 1, 0.0, 5.0, "b", None))
    assert path.get_timer() == 5.0
    assert [token for token, _ in path.due(5.0)] == [b"2"]
    assert path.get_timer() == 9.0
    assert path.due(5.0) == []


def test_limits_hold_for_both_together() -> None:
    for limits in (DeliveryLimits(max_unsettled=1), DeliveryLimits(max_unsettled_size=10)):
        name = one(limits=limits)
        assert name.send("a")
        assert not name.send("b")
        assert ("told", "b", RELEASED) in name.log
        assert name.state.deliveries.statistics().refused == 1


def behind_a_link(limits: DeliveryLimits | None = None) -> Name:
    """Return a name with a consumer at node x."""
    name = Name(fast=True, limits=limits)
    name.state.set_nodes({"x": 0}, 0.0)
    name.perform()
    name.log.clear()
    return name


def test_limits_hold_for_messages_over_a_link() -> None:
    for limits in (DeliveryLimits(max_unsettled=1), DeliveryLimits(max_unsettled_size=10)):
        name = behind_a_link(limits)
        assert name.send("a")
        assert not name.send("b")
        assert ("told", "b", RELEASED) in name.log
        assert name.state.deliveries.statistics().refused == 1


@pytest.mark.parametrize("make", [one, behind_a_link], ids=["consumer", "link"])
def test_a_neighbour_has_its_share_of_the_limits(make: Callable[..., Name]) -> None:
    for limits in (
        DeliveryLimits(max_unsettled=2, max_neighbour_share=50),
        DeliveryLimits(max_unsettled_size=20, max_neighbour_share=50),
    ):
        name = make(limits=limits)
        assert name.send("a", over_link=True)
        assert not name.send("b", over_link=True)
        assert ("told", "b", RELEASED) in name.log
        assert name.send("c")
        name.tell("a", ACCEPTED)
        assert name.send("d", over_link=True)


def test_what_all_sources_of_a_kind_have_counts_each_of_them() -> None:
    name = behind_a_link()
    share = name.totals.share_of("z", anonymous=True)
    path = name.path()
    assert path is not None
    entry = path.link_target("x"), 10, 0.0, inf, "a", share
    assert path.begin_on(b"1", entry)
    assert path.begin_on(b"2", entry)
    assert share.whole is not None
    assert (share.whole.unsettled, share.whole.size) == (2, 20)
    share.whole.size = name.totals.limits.max_unsettled_size
    assert not path.begin_on(b"3", entry)
    share.whole.size = 20
    path.accept(b"1")
    path.take(b"2")
    assert share.is_idle
    assert share.whole.is_idle


def test_a_lost_link_leaves_its_message_in_doubt() -> None:
    name = behind_a_link()
    assert name.send("a")
    assert name.state.load(LinkTarget("x")) == 1
    name.state.link_lost("x", 0.0)
    name.perform()
    assert ("told", "a", MODIFIED) in name.log


def test_a_message_without_a_limit_of_time_waits_on() -> None:
    name = behind_a_link()
    assert name.send("a", limit=inf)
    assert name.state.get_timer() is None
    name.recall("a")
    assert name.state.get_timer() is None
    name.tell("a", ACCEPTED)
    assert ("told", "a", ACCEPTED) in name.log


def test_the_record_of_an_open_copy_is_made_when_it_is_asked_for() -> None:
    name = one()
    name.send("a")
    token, _ = name.at["a"]
    delivery = name.state.deliveries.of_token(token)
    assert delivery is not None
    assert (delivery.message, delivery.copies) == ("a", {token: ConsumerTarget(1)})
    name.state.deliveries.promote(token)
    assert name.state.deliveries.statistics().copies == 1


def test_with_others_at_the_same_cost_the_full_choice_has_to_say() -> None:
    name = one()
    name.state.set_nodes({"x": 0}, 0.0)
    assert name.send("a")
    assert not name.send("b")


def test_serving_a_consumer_that_has_gone_does_nothing() -> None:
    name = one()
    name.state.serve(7, 0.0)
    assert name.state.events() == []


def test_credit_that_comes_by_calls_does_not_come_back_by_itself() -> None:
    name = Name(fast=True)
    name.state.add_consumer(1, 2, 0.0, by_credit=True)
    assert not name.send("a")
    name.state.credit(1, 2, 0.0)
    name.perform()
    assert name.send("b")
    name.tell("b", ACCEPTED)
    assert not name.send("c")


def test_the_one_link_to_all_consumers_is_known() -> None:
    name = Name(fast=True)
    assert name.path() is None
    name.state.set_nodes({"x": 0}, 0.0)
    path = name.path()
    assert path is not None
    assert path.choose() is None
    assert path.link("a", ()) == "x"
    assert path.link("a", (node_digest("x"),)) is None
    plans = path.plans
    name.state.add_consumer(1, 2, 0.0)
    assert path.plans > plans
    assert name.path() is path
    assert path.link("a", ()) is None


def test_a_message_goes_on_no_further_than_the_radius() -> None:
    name = Name(fast=True)
    assert [name.state.is_near(passed) for passed in range(4)] == [True, True, True, False]
