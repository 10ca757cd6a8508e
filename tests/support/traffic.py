"""Random traffic of which everything is known: facts, and the rows of a lake that tell of them.

Brokers with destinations that come, flap, change their tags and go; requests that end in every way
or not at all, across windows; messages over nodes that arrive, go round, vanish, or are answered by
another way; links that lose. Each seed has names of its own, so that the traffic of many seeds
is one table and one run of Spark.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from random import Random

from onward.protocol.eventlog import EventName, Flag, Kind, Outcome, name_id, route_key
from tests.support.traffic_facts import (
    HOUR,
    MINUTE,
    SECOND,
    START,
    WINDOW,
    Life,
    Link,
    Row,
    Sent,
    Sought,
    Traffic,
    Trip,
    time_of,
)

__all__ = [
    "HOUR",
    "MINUTE",
    "SECOND",
    "START",
    "WINDOW",
    "Life",
    "Link",
    "Row",
    "Sent",
    "Sought",
    "Traffic",
    "Trip",
    "make_traffic",
    "time_of",
]

Happened = tuple[int, EventName, bytes, str, tuple[tuple[str, str], ...]]
"""When, what, to which route, its service and its tags."""

HOURS = 3
REQUESTS = 60
ENDS = (
    *(Outcome.DELIVER,) * 8,
    Outcome.REJECTED,
    Outcome.INVALID,
    Outcome.DROP,
    Outcome.CANCELED,
    Outcome.FAILED,
)


def make_traffic(seeds: Iterable[int]) -> Traffic:
    """Make the traffic of some seeds, in one; its rows are in no order."""
    traffic = Traffic()
    for seed in seeds:
        _Maker(traffic, seed).make()
    shuffle = Random(0).shuffle
    for rows in (traffic.hops, traffic.flows, traffic.events):
        shuffle(rows)
    return traffic


class _Maker:
    def __init__(self, traffic: Traffic, seed: int) -> None:
        self.traffic = traffic
        self.seed = seed
        self.random = Random(seed)
        self.seqs: Counter[tuple[str, int]] = Counter()
        self.cells: Counter[tuple[str, int, int, int, int, int, int, int, int]] = Counter()
        self.sizes: Counter[tuple[str, int, int, int, int, int, int, int, int]] = Counter()
        self.services = [self.name(f"svc{i}") for i in range(self.random.randint(2, 3))]
        self.requesters = [self.name("app"), self.name("web")]
        self.sought = self.queries()

    def name(self, text: str) -> str:
        made = f"c{self.seed}-{text}"
        self.traffic.names.add(made)
        return made

    def make(self) -> None:
        for number in range(self.random.randint(1, 2)):
            broker = self.name(f"broker{number}")
            lives = self.destinations(broker)
            self.traffic.lives += lives
            for _ in range(REQUESTS):
                self.request(broker, lives)
        self.traffic.sought += self.sought
        for number in range(10):
            self.trip(number)
        for number in range(3):
            self.link(number)
        for cell, frames in self.cells.items():
            log, epoch, window, *ids, kind, outcome = cell
            where = (log, epoch, self.seq(log, epoch), time_of(window), WINDOW // 1000, *ids)
            self.traffic.flows.append((*where, kind, outcome, frames, self.sizes[cell]))

    def queries(self) -> list[Sought]:
        """Return tag sets that are asked for: some that nobody carries all of."""
        made: list[Sought] = []
        for service in self.services:
            for routing in ("unicast", "shard", "multicast"):
                tags = (("service", service),)
                made.append(Sought(f"{service} {routing}", tags, routing))
            far = (("service", service), ("tier", f"t{self.seed}"), ("zone", f"z{self.seed}-9"))
            made.append(Sought(f"{service} far", far))
        nowhere = (("service", f"c{self.seed}-nobody"),)
        return [*made, Sought(f"c{self.seed} nowhere", nowhere)]

    def seq(self, log: str, epoch: int) -> int:
        self.seqs[log, epoch] += 1
        return self.seqs[log, epoch]

    # Destinations.

    def destinations(self, broker: str) -> list[Life]:
        """Make lives of destinations over the hours; some brokers are restarted in between."""
        restart = (
            START + self.random.randint(HOUR, 2 * HOUR) if self.random.random() < 0.5 else None
        )
        happened: list[Happened] = []
        lives: list[Life] = []
        end = START + HOURS * HOUR
        for service in self.services:
            for _ in range(self.random.randint(1, 3)):
                route = self.random.randbytes(16)
                for since, until in ((START, restart or end), (restart or end, end)):
                    if since < until:
                        self.lives_of(
                            broker, route, service, since, until, restart, happened, lives
                        )
        happened.sort(key=lambda event: event[0])
        for ts, event, route, service, tags in happened:
            epoch = 1 + (restart is not None and ts >= restart)
            key, node, text = route_key(route), name_id(service), event.name.lower()
            seen = broker, epoch, self.seq(broker, epoch), time_of(ts)
            self.traffic.events.append((*seen, text, key, node, dict(tags), ""))
        return lives

    def lives_of(
        self,
        broker: str,
        route: bytes,
        service: str,
        since: int,
        until: int,
        restart: int | None,
        happened: list[Happened],
        lives: list[Life],
    ) -> None:
        """Have one destination come and go within one run of a broker."""
        epoch = 1 + (since == restart)
        now = since + self.random.randint(0, 10 * MINUTE)
        up = False
        while now < until:
            zone = self.random.choice(["a", "b"])
            tags: tuple[tuple[str, str], ...] = (
                ("service", service),
                ("tier", f"t{self.seed}"),
                ("zone", f"z{self.seed}-{zone}"),
            )
            if self.random.random() < 0.5:
                tags = tags[:1]
            happened.append((now, EventName.RETAG if up else EventName.UP, route, service, tags))
            ended = now + self.random.randint(1, 100 * MINUTE)
            # What is still there at the broker's death has no end in the log.
            crashed = until == restart
            lives.append(
                Life(
                    broker,
                    epoch,
                    route_key(route),
                    service,
                    tags,
                    now,
                    ended if ended < until else (until if crashed else None),
                )
            )
            up = self.random.random() < 0.3
            if ended < until and not up:
                happened.append((ended, EventName.DOWN, route, service, tags))
                ended += self.random.choice([20 * SECOND, 60 * SECOND, 61 * SECOND, 30 * MINUTE])
            now = ended
        if until == restart and since == START:
            # So that the broker's next run is there from its start.
            happened.append((until, EventName.CLOCK, b"", "", ()))

    # Requests.

    def request(self, broker: str, lives: list[Life]) -> None:
        random = self.random
        received = START + random.randint(0, HOURS * HOUR - MINUTE)
        sought = random.choice(self.sought)
        there = [
            life
            for life in lives
            if life.since <= received
            and (life.until is None or received < life.until)
            and set(sought.tags) <= set(life.tags)
        ]
        takers = tuple(
            there if sought.routing == "multicast" else random.sample(there, min(1, len(there)))
        )
        key = random.choice([1, 1, 1, 2, 3, random.randint(4, 9)])
        sent = Sent(
            broker,
            takers[0].epoch if takers else 1,
            random.choice(self.requesters),
            sought,
            random.choice([Kind.RESPONSE, Kind.STREAM, Kind.FIRE_AND_FORGET]),
            received,
            random.randint(0, 2000),
            takers,
            random.choice(ENDS) if takers else Outcome.UNROUTABLE,
            received + random.choice([random.randint(1, 200), random.randint(1, 30 * SECOND)]),
            random.choice([1] * 30 + [0, 2]),
            name_id(f"{self.seed} {key}") if sought.routing == "shard" else 0,
            random.choice([0, 1, 1, 4]),
        )
        self.traffic.requests.append(sent)
        self.count_request(sent)
        if sent.weight and sent.ends:
            self.record_request(sent)

    def count_request(self, sent: Sent) -> None:
        size = sent.size
        origin, tagset = name_id(sent.origin), sent.sought.id
        log = sent.broker, sent.epoch
        self.count(*log, sent.received, origin, 0, 0, tagset, sent.kind, Outcome.RECEIVED, size)
        for life in sent.takers:
            where = origin, name_id(life.service), life.route, tagset
            self.count(*log, sent.received, *where, sent.kind, Outcome.FORWARD, size)
        for _ in range(sent.ends):
            chosen = sent.chosen
            to = (name_id(chosen.service), chosen.route) if chosen else (0, 0)
            self.count(*log, sent.ended, origin, *to, tagset, sent.kind, sent.outcome, size)

    def count(
        self,
        log: str,
        epoch: int,
        at: int,
        origin: int,
        dest: int,
        route: int,
        tagset: int,
        kind: Kind,
        outcome: Outcome,
        size: int,
        frames: int = 1,
    ) -> None:
        window = at - at % WINDOW
        cell = (log, epoch, window, origin, dest, route, tagset, int(kind), int(outcome))
        self.cells[cell] += frames
        self.sizes[cell] += size

    def record_request(self, sent: Sent) -> None:
        trace = self.random.getrandbits(63)
        flags = Flag.SHARD if sent.shard_hash else Flag(0)
        dest, route = (name_id(sent.chosen.service), sent.chosen.route) if sent.chosen else (0, 0)
        log = sent.broker, sent.epoch
        if len(sent.takers) > 1:
            for life in sent.takers:
                to = (name_id(sent.origin), name_id(life.service), life.route, sent.sought.id)
                seen = self.seq(*log), time_of(sent.received), trace, int(sent.kind)
                what = (int(Outcome.FORWARD), 1, int(Flag.MULTICAST))
                self.traffic.hops.append((*log, *seen, *what, *to, 0, 7, sent.size, sent.weight))
        took = sent.ended - sent.received
        seen = self.seq(*log), time_of(sent.ended), trace, int(sent.kind)
        to = (name_id(sent.origin), dest, route, sent.sought.id)
        what = (int(sent.outcome), 0, int(flags))
        ended = (sent.shard_hash, took, sent.size, sent.weight)
        self.traffic.hops.append((*log, *seen, *what, *to, *ended))

    # Messages.

    def trip(self, number: int) -> None:
        """Make a message go its way over nodes, and record each of its hops."""
        nodes = [self.name(f"n{i}") for i in range(4)]
        way = [(node, f"{node}/w") for node in nodes[: self.random.randint(2, 4)]]
        self.traffic.names.update(worker for _, worker in way)
        wrong: set[str] = set()
        outcomes = [*[Outcome.FORWARD] * (len(way) - 1), Outcome.DELIVER]
        back = [(node, f"{node}/link") for node, _ in reversed(way[:-1])]
        kind = number % 6
        if kind == 0:
            wrong.add("loop")
            way, outcomes = self.loop(way)
        elif kind == 1:
            wrong.add("black_hole")
            way, outcomes = way[:-1], outcomes[:-1]
        elif kind == 2:
            wrong.add("return_asymmetry")
            detour = nodes[3] if len(way) < 4 else nodes[1]
            back = [(detour, f"{detour}/link"), (nodes[0], nodes[0])] if len(way) < 4 else back[1:]
        if kind in (2, 3):
            back[-1] = (nodes[0], nodes[0])
            way += back
            outcomes += [*[Outcome.FORWARD] * (len(back) - 1), Outcome.RETURN]
        if kind == 4:
            outcomes[-1] = Outcome.DROP
        began = START + self.random.randint(0, HOURS * HOUR - MINUTE)
        hops = [
            (depth, node, worker, outcome, self.random.randint(0, 5000))
            for depth, ((node, worker), outcome) in enumerate(zip(way, outcomes, strict=True))
        ]
        if kind == 5:
            # Copies: several of one depth, each with an end of its own.
            node = nodes[3]
            hops += [(len(way) - 1, node, f"{node}/c{i}", Outcome.DELIVER, 10) for i in range(2)]
        made = Trip(
            name_id(f"{self.seed} trip {number}"),
            tuple(hops),
            began,
            self.random.choice([1, 3]),
            frozenset(wrong),
        )
        self.traffic.trips.append(made)
        self.record_trip(made)

    def loop(self, way: list[tuple[str, str]]) -> tuple[list[tuple[str, str]], list[Outcome]]:
        if self.random.random() < 0.5:
            # Each forwards to the next, and what forwards was the end each time.
            round_and_round = way * 3
            return round_and_round, [Outcome.DELIVER] * len(round_and_round)
        twice = [*way, way[0]]
        return twice, [*[Outcome.FORWARD] * len(way), Outcome.DROP]

    def record_trip(self, trip: Trip) -> None:
        now = trip.began
        for depth, node, worker, outcome, took in trip.hops:
            now += took
            for counted in (Outcome.RECEIVED, Outcome.DELIVER):
                self.count(node, 1, now, 0, name_id(worker), 0, 0, Kind.MESSAGE, counted, 0)
            self.traffic.handled[worker, now - now % WINDOW] += 1
            what = time_of(now), trip.trace, int(Kind.MESSAGE), int(outcome), depth, 0
            to = (name_id(node), name_id(worker), 0, 0, 0)
            self.traffic.hops.append(
                (node, 1, self.seq(node, 1), *what, *to, took, 10, trip.weight)
            )

    # Links.

    def link(self, number: int) -> None:
        """Count at both ends of a link, whose clocks differ; it may lose or double what it took."""
        random = self.random
        sender, receiver = self.name("n0"), self.name(f"n{number + 1}")
        name = self.name(f"tcp 10.{self.seed % 256}.0.1:{number}>10.0.0.2:4000")
        sent, dropped = random.randint(1, 50), random.randint(0, 3)
        received = max(0, sent - dropped + random.choice([0, 0, -1, 2]))
        logs = random.choice([(True, True), (True, True), (True, False), (False, True)])
        link = Link(
            sender if logs[0] else "",
            receiver,
            name,
            sent if logs[0] else None,
            received if logs[1] and (received or not logs[0]) else None,
            dropped if logs[0] else 0,
        )
        self.traffic.links.append(link)
        skew = random.choice([0, -15 * SECOND, 90 * SECOND])
        for log, outcome, frames, late in (
            (sender, Outcome.FORWARD, link.sent, 0),
            (sender, Outcome.DROP, link.dropped, 0),
            (receiver, Outcome.RECEIVED, link.received, skew),
        ):
            for _ in range(frames or 0):
                at = START + HOUR + random.randint(0, 5 * MINUTE) + late
                origin = name_id(log)
                self.count(log, 1, at, origin, name_id(name), 0, 0, Kind.LINK, outcome, 9)
