"""Event logs of made-up traffic, seeded, and the truth of what is in them."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from uuid import UUID

from onward.protocol.broker import RoutingType, Tag, WellKnownKey
from onward.protocol.eventlog import (
    Asked,
    EventName,
    Flag,
    Flow,
    Hop,
    Kind,
    Outcome,
    RouteEvent,
    SegmentFooter,
    SegmentHeader,
    events_block,
    flows_block,
    hops_block,
    names_block,
    routes_block,
    segment_name,
    tagsets_block,
)

__all__ = ["DAY_US", "START_US", "Truth", "Written", "log_id_of", "write_log", "write_segment"]

START_US = 1_763_596_800_000_000
"""2025-11-20 00:00:00 UTC, in microseconds."""

DAY_US = 86_400_000_000
BLOCK = 1_000


@dataclass(frozen=True, slots=True)
class Written:
    """One segment and what is in it, with the numbers that it gives to names and the like."""

    broker: str
    path: Path
    epoch: int
    first_seq: int
    last_seq: int
    names: tuple[str, ...]
    routes: tuple[bytes, ...]
    tagsets: tuple[Asked, ...]
    hops: tuple[Hop, ...]
    flows: tuple[Flow, ...]
    events: tuple[RouteEvent, ...]


@dataclass(slots=True)
class Truth:
    """What was written, segment by segment."""

    broker: str
    log_id: bytes
    segments: list[Written] = field(default_factory=list[Written])

    @property
    def hops(self) -> list[Hop]:
        return [hop for segment in self.segments for hop in segment.hops]

    @property
    def flows(self) -> list[Flow]:
        return [flow for segment in self.segments for flow in segment.flows]

    @property
    def events(self) -> list[RouteEvent]:
        return [event for segment in self.segments for event in segment.events]

    @property
    def keys(self) -> set[tuple[str, int, int]]:
        """Broker, epoch and number of everything."""
        return {
            (self.broker, segment.epoch, seq)
            for segment in self.segments
            for seq in _seqs(segment.hops, segment.flows, segment.events)
        }


def _seqs(hops: Sequence[Hop], flows: Sequence[Flow], events: Sequence[RouteEvent]) -> list[int]:
    return [*(hop.seq for hop in hops), *(flow.seq for flow in flows), *(e.seq for e in events)]


def log_id_of(broker: str, seed: int = 0) -> bytes:
    """An identity that the same broker and seed have again."""
    return hashlib.blake2b(f"{broker}/{seed}".encode(), digest_size=16).digest()


def write_segment(
    directory: Path,
    header: SegmentHeader,
    *,
    names: Sequence[str] = (),
    routes: Sequence[bytes] = (),
    tagsets: Sequence[Asked] = (),
    hops: Sequence[Hop] = (),
    flows: Sequence[Flow] = (),
    events: Sequence[RouteEvent] = (),
    last_seq: int | None = None,
    ended_us: int | None = None,
) -> Written:
    """Write one sealed segment into `<directory>/<broker>/`."""
    seqs = _seqs(hops, flows, events)
    last = max(seqs, default=header.first_seq - 1) if last_seq is None else last_seq
    footer = SegmentFooter(
        len(hops),
        len(flows),
        len(events),
        last,
        header.started_us if ended_us is None else ended_us,
    )
    blocks = [
        header.serialize(),
        *([names_block(list(names))] if names else ()),
        *([routes_block(list(routes))] if routes else ()),
        *([tagsets_block(list(tagsets))] if tagsets else ()),
        *(hops_block(hops[at : at + BLOCK]) for at in range(0, len(hops), BLOCK)),
        *(flows_block(flows[at : at + BLOCK]) for at in range(0, len(flows), BLOCK)),
        *([events_block(list(events))] if events else ()),
        footer.serialize(),
    ]
    folder = directory / header.broker
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / segment_name(header.epoch, header.first_seq)
    path.write_bytes(b"".join(blocks))
    return Written(
        header.broker,
        path,
        header.epoch,
        header.first_seq,
        last,
        tuple(names),
        tuple(routes),
        tuple(tagsets),
        tuple(hops),
        tuple(flows),
        tuple(events),
    )


def write_log(
    directory: Path,
    *,
    broker: str = "b1",
    seed: int = 0,
    hops: int = 100,
    flows: int = 20,
    events: int = 10,
    segments: int = 2,
    epoch: int = 1,
    first_seq: int = 1,
    start_us: int = START_US,
    span_us: int = 3_600_000_000,
    log_id: bytes | None = None,
    services: int = 4,
    brokers_names: Sequence[str] | None = None,
) -> Truth:
    """Write the log of a broker, seeded.

    Args:
        directory: The directory of logs; the broker's folder is made in it.
        broker: The log's name.
        seed: What decides everything that is random.
        hops: How many hops in all segments together.
        flows: How many flows in all.
        events: How many route events in all.
        segments: How many segments, each with its part.
        epoch: The epoch of all of them.
        first_seq: The number of the first event.
        start_us: When the first segment begins.
        span_us: How long all of it takes.
        log_id: The log's identity; by default one of the broker's name.
        services: Between how many services the traffic goes.
        brokers_names: Names of the services instead of those.
    """
    made = random.Random(f"{broker}/{seed}/{epoch}/{first_seq}")
    truth = Truth(broker, log_id or log_id_of(broker))
    pool = list(brokers_names or (f"service-{number}" for number in range(services)))
    seq, now, step = first_seq, start_us, span_us // max(1, segments)
    for number in range(segments):
        parts = [_part(total, number, segments) for total in (hops, flows, events)]
        header = SegmentHeader(broker, truth.log_id, epoch, seq, now, 1.0)
        written = _made_up(directory, header, made, pool, parts, step)
        truth.segments.append(written)
        seq, now = written.last_seq + 1, now + step
    return truth


def _part(total: int, number: int, parts: int) -> int:
    return total * (number + 1) // parts - total * number // parts


def _made_up(
    directory: Path,
    header: SegmentHeader,
    made: random.Random,
    pool: Sequence[str],
    parts: Sequence[int],
    step: int,
) -> Written:
    names = made.sample(list(pool), len(pool))
    routes = [UUID(int=made.getrandbits(128)).bytes for _ in range(3)]
    tagsets = [_asked(made, name) for name in names]
    kinds = ["hop"] * parts[0] + ["flow"] * parts[1] + ["event"] * parts[2]
    made.shuffle(kinds)
    hops: list[Hop] = []
    flows: list[Flow] = []
    events: list[RouteEvent] = []
    for place, kind in enumerate(kinds):
        seq = header.first_seq + place
        when = header.started_us + step * place // max(1, len(kinds))
        if kind == "hop":
            hops.append(_hop(made, seq, when, len(names), len(routes), len(tagsets)))
        elif kind == "flow":
            flows.append(_flow(made, seq, when, len(names), len(routes), len(tagsets)))
        else:
            events.append(_event(made, seq, when, names, routes, tagsets))
    return write_segment(
        directory,
        header,
        names=names,
        routes=routes,
        tagsets=tagsets,
        hops=hops,
        flows=flows,
        events=events,
        ended_us=header.started_us + step,
    )


def _asked(made: random.Random, service: str) -> Asked:
    tags: list[Tag] = [(WellKnownKey.SERVICE_NAME, service)]
    tags.append(("rack", made.choice(["a", "b", "ünï", None])))
    routing = made.choice([RoutingType.UNICAST, RoutingType.MULTICAST, RoutingType.SHARD])
    return Asked(tuple(tags), routing, made.choice(["", "jump"]))


def _hop(made: random.Random, seq: int, when: int, names: int, routes: int, tagsets: int) -> Hop:
    return Hop(
        seq,
        when,
        made.getrandbits(64),
        made.getrandbits(64),
        made.choice([Kind.MESSAGE, Kind.RESPONSE, Kind.STREAM]),
        made.choice([Outcome.FORWARD, Outcome.DELIVER, Outcome.UNROUTABLE, Outcome.FAILED]),
        made.randrange(256),
        made.choice([0, Flag.MULTICAST, Flag.SHARD | Flag.FOREIGN, 255]),
        made.randrange(names + 1),
        made.randrange(names + 1),
        made.randrange(routes + 1),
        made.randrange(tagsets + 1),
        made.choice([0, 150, 2_000, 2**32 - 1]),
        made.randrange(2**32),
        made.choice([1, 100]),
    )


def _flow(made: random.Random, seq: int, when: int, names: int, routes: int, tagsets: int) -> Flow:
    return Flow(
        seq,
        when - when % 10_000_000,
        10_000,
        made.randrange(names + 1),
        made.randrange(names + 1),
        made.randrange(routes + 1),
        made.randrange(tagsets + 1),
        made.choice([Kind.RESPONSE, Kind.LINK]),
        made.choice([Outcome.RECEIVED, Outcome.FORWARD, Outcome.DELIVER, Outcome.DROP]),
        made.randrange(1, 10_000),
        made.randrange(2**40),
    )


def _event(
    made: random.Random,
    seq: int,
    when: int,
    names: Sequence[str],
    routes: Sequence[bytes],
    tagsets: Sequence[Asked],
) -> RouteEvent:
    asked = made.choice(tagsets)
    event = RouteEvent(
        seq,
        when,
        made.choice([EventName.UP, EventName.DOWN, EventName.RETAG]),
        made.choice(routes),
        made.choice(names),
        asked.tags,
        made.choice(["", "connection lost"]),
    )
    if made.random() < 0.2:
        return replace(event, name=EventName.REJECT, route_id=None, node="")
    return event
