"""Send random and mutated bytes to what a peer broker of a cluster may send.

The invariant: an element, a position, a BROKER_INFO, a list of brokers, a filter, or the places of
routes are read, or refused with `ClusterFrameError` with a short printable text; no other error is
raised. What was read is written, and read again as the same. Elements are then given to a
subscription, with later ones of a real log in between: each is refused and changes nothing, or its
events are in an order that a table can follow. The filter of a zone is given them as well, and
has what it was told. What a membership remembers does not grow. The process does not grow.

    python fuzz/cluster.py --count 1000000 --seed 1
"""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import replace
from random import Random
from typing import Final

from _fuzzing import arguments_of, check_text_of, mutated, run

from onward.protocol.broker import RouteAdd, RouteRemove
from onward.protocol.cluster import (
    MAX_ELEMENT,
    CaughtUp,
    ClusterFrameError,
    ClusterLimits,
    DuplicateRequest,
    DuplicateSearch,
    Element,
    FilterFeed,
    FilterLog,
    Membership,
    PeerInfo,
    Position,
    RoundBegan,
    RoundEnded,
    RouteFeed,
    RouteFilter,
    RouteLog,
    RoutePlace,
    RouteSubscription,
    SubscribeAgain,
    SubscriptionEvent,
    SubscriptionState,
    ZoneFilter,
    answer_owned_places,
    answer_places,
    serialize_infos,
)

HOME: Final = bytes(range(16))
CLOCK: Final = 1_760_000_000_000
KNOWN: Final = 8

PIECES: Final = [
    *(bytes.fromhex(text) for text in ("00", "01", "02", "03", "04", "ff", "000022", "ffffff")),
    *(
        HOME,
        bytes(16),
        bytes(8),
        CLOCK.to_bytes(8),
        b"\x78\x01",
        b"\x06onward\x811",
        b"\x03max\x01",
    ),
]


def log_of(random: Random) -> RouteLog:
    log = RouteLog(HOME, CLOCK, ClusterLimits(log_changes=10, max_batch=2048))
    for _ in range(random.randrange(60)):
        number = random.randrange(30).to_bytes(16)
        if random.random() < 0.7:
            log.add(RouteAdd(HOME, number, CLOCK, "orders", ((6, "eu"), ("a", "b" * 20))))
        else:
            log.add(RouteRemove(HOME, number, CLOCK))
    return log


def elements_of(log: RouteLog, position: Position, *, compress: bool = True) -> list[bytes]:
    feed, found = RouteFeed(log, position, compress=compress), list[bytes]()
    while (data := feed.next(0.0)) is not None:
        found.append(data)
    return found


def filter_elements(random: Random) -> list[bytes]:
    """Return the stream of a filter: its parts, and ids that have joined since."""
    log = FilterLog(HOME, CLOCK, lambda: random.randbytes(16), ClusterLimits(max_batch=1024))
    log.begin(0)
    log.finish(0.0)
    feed, found = FilterFeed(log), list[bytes]()
    for now in (0.0, 0.0, 0.0, 2.0, 4.0):
        for _ in range(random.randrange(4)):
            log.joined(random.randbytes(16))
        while (data := feed.next(now)) is not None:
            found.append(data)
    return found


def info(number: int) -> PeerInfo:
    return PeerInfo(bytes([number]) * 16, CLOCK, 1, f"tcp://b{number}:1", name="x", max_batch=4096)


def seeds() -> list[bytes]:
    random = Random(1)
    found = [Position(CLOCK, 5).serialize(), Position().serialize()]
    for compress in (True, False):
        for _ in range(10):
            log = log_of(random)
            for position in (Position(), Position(CLOCK, max(0, log.sequence - 5))):
                found += elements_of(log, position, compress=compress)
        found += filter_elements(random)
    found.append(RouteFilter.for_ids(3, HOME, 1024).serialize())
    places = {bytes(16): RoutePlace(CLOCK, HOME, "x")}
    found += [
        answer_places(bytes(48), places.get),
        answer_owned_places(HOME + bytes(32), places.get, HOME),
    ]
    infos = [info(number) for number in range(4)]
    infos.append(replace(infos[0], zone="b", without=("pod", 3, "a b")))
    return [*found, *(each.serialize() for each in infos), serialize_infos(infos)]


SEEDS: Final = seeds()


class Cluster:
    """The decoders, a subscription, and a membership."""

    def __init__(self) -> None:
        self.limits = ClusterLimits(max_known=KNOWN)
        self.in_round = False
        self.subscription = self.subscribed()
        self.members = self.membership()
        self.filter = ZoneFilter(HOME, self.limits)

    def subscribed(self) -> RouteSubscription:
        subscription = RouteSubscription(HOME, self.limits)
        subscription.request(0.0)
        self.in_round = False
        return subscription

    def membership(self) -> Membership:
        made = Membership(
            info(200), allowed=("*",), limits=self.limits, now=0.0, random=lambda: 0.5
        )
        made.connected(info(0), "link", dialled="tcp://b0:1", now=0.0)
        return made

    def check(self, random: Random, data: bytes) -> bool:
        self.check_infos(data)
        self.check_position(data)
        self.check_filter(data)
        self.check_places(data)
        if random.random() < 0.05:
            self.subscription, self.members = self.subscribed(), self.membership()
        elif random.random() < 0.3:
            for whole in elements_of(log_of(random), self.subscription.position):
                self.receive(random, whole)
        return self.receive(random, data)

    def receive(self, random: Random, data: bytes) -> bool:
        try:
            element = Element.parse(data)
        except ClusterFrameError as error:
            check_text_of(error)
            return False
        if Element.parse(element.serialize(compress=random.random() < 0.5)) != element:
            raise AssertionError(f"{element} is written otherwise")
        if sum(map(len, element.frames)) > MAX_ELEMENT:
            raise AssertionError("an element that is too long")
        self.take_filter(random, element)
        subscription = self.subscription
        before = subscription.statistics()
        try:
            events = subscription.receive(element, 0.0, CLOCK)
        except ClusterFrameError as error:
            check_text_of(error)
            if subscription.statistics() != before:
                raise AssertionError("a bad element has changed something") from error
            return False
        for event in events:
            self.follow(event)
        return True

    def follow(self, event: SubscriptionEvent) -> None:
        match event:
            case RoundBegan():
                self.in_round = True
            case RoundEnded():
                if not self.in_round:
                    raise AssertionError("a round has ended that did not begin")
                self.in_round = False
            case SubscribeAgain():
                self.in_round = False
                if self.subscription.state is not SubscriptionState.STALE:
                    raise AssertionError(f"{self.subscription.state}")
                self.subscription.request(0.0)
            case CaughtUp() if self.in_round or self.subscription.position.instance == 0:
                raise AssertionError("in step with nothing")
            case _:
                pass

    def take_filter(self, random: Random, element: Element) -> None:
        if random.random() < 0.2:
            self.filter.lost()
        try:
            news = self.filter.receive(element, 0.0)
        except ClusterFrameError as error:
            check_text_of(error)
            return
        if not all(map(self.filter.may_have, news.ids)):
            raise AssertionError("a filter misses an id")

    def check_filter(self, data: bytes) -> None:
        try:
            found = RouteFilter.parse(data, MAX_ELEMENT)
        except ClusterFrameError as error:
            check_text_of(error)
            return
        if found.serialize() != data:
            raise AssertionError("a filter is written otherwise")
        found.add([HOME])
        if not found.may_have(HOME):
            raise AssertionError("a filter misses an id")

    def check_places(self, data: bytes) -> None:
        search = DuplicateSearch(self.limits)
        requests: list[DuplicateRequest] = []
        for zone, salt in (("b", b""), ("c", HOME)):
            search.suspect(zone, [HOME, bytes(16)])
            request = search.next(zone, salt)
            if request is None:
                raise AssertionError("nothing is asked for")
            requests.append(request)
        plain, owned = requests
        place = RoutePlace(CLOCK, HOME, "x")
        for read in (
            lambda: answer_places(data, lambda _: place),
            lambda: answer_owned_places(data, lambda _: place, HOME),
            lambda: search.answered(plain, data, lambda _: place, CLOCK),
            lambda: search.answered(owned, data, lambda _: place, CLOCK),
        ):
            try:
                read()
            except ClusterFrameError as error:
                check_text_of(error)

    def check_position(self, data: bytes) -> None:
        try:
            position = Position.parse(data)
        except ClusterFrameError as error:
            check_text_of(error)
            return
        if position.serialize() != data:
            raise AssertionError(f"{position} is written otherwise")
        elements_of(RouteLog(HOME, CLOCK), position)

    def check_infos(self, data: bytes) -> None:
        try:
            found = PeerInfo.parse(data)
        except ClusterFrameError as error:
            check_text_of(error)
        else:
            again = PeerInfo.parse(found.serialize())
            # An entry without a value has come to the end.
            moved = Counter(again.others) == Counter(found.others)
            if not moved or replace(again, others=()) != replace(found, others=()):
                raise AssertionError(f"{found} is written otherwise")
            self.members.heard(found, info(0).broker_id, 0.0)
            self.members.connected(found, "other", dialled=None, now=0.0)
        try:
            self.members.compared(info(0).broker_id, data, 0.0)
        except ClusterFrameError as error:
            check_text_of(error)
        self.members.due(0.0)
        if self.members.statistics().known > max(KNOWN, self.limits.max_peers):
            raise AssertionError(f"{self.members.statistics()}")


def main(arguments: list[str] | None = None) -> int:
    options = arguments_of(__doc__).parse_args(arguments)
    cluster = Cluster()
    held = run(
        "cluster",
        options.count,
        options.seed,
        lambda random, _: mutated(random, SEEDS, PIECES),
        cluster.check,
    )
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main())
