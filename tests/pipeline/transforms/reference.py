"""The reports, said as simply as they can be: in plain Python, of the facts and not of the rows."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from datetime import datetime
from itertools import groupby
from math import ceil
from statistics import median
from typing import cast

from onward.pipeline.transforms import Objective, bucket_of
from onward.protocol.eventlog import EventName, Outcome, name_id
from tests.support.traffic import (
    HOUR,
    MINUTE,
    SECOND,
    WINDOW,
    Life,
    Row,
    Sent,
    Sought,
    Traffic,
    Trip,
    time_of,
)

BAD = {Outcome.UNROUTABLE, Outcome.REJECTED, Outcome.INVALID, Outcome.DROP, Outcome.FAILED}
Plain = tuple[str, int, int, int, str, int, int]
"""Of a route event: broker, epoch, seq, microseconds, event, route, node."""

UP, DOWN = (name.name.lower() for name in (EventName.UP, EventName.DOWN))


def start(at: int, unit: int) -> int:
    return at - at % unit


def windowed(at: int, unit: int) -> int:
    """Return the unit that the flow of a time is in: its window may begin in the one before."""
    return start(start(at, WINDOW), unit)


def end_of(sent: Sent) -> tuple[int, int]:
    """Return the service and the route that a request's end names."""
    return (name_id(sent.chosen.service), sent.chosen.route) if sent.chosen else (0, 0)


def traffic_matrix(traffic: Traffic) -> Iterator[Row]:
    cells: defaultdict[tuple[int, int, int, int], list[int]] = defaultdict(lambda: [0, 0, 0])
    for sent in traffic.requests:
        origin, tagset = name_id(sent.origin), sent.sought.id
        for life in sent.takers:
            cell = cells[windowed(sent.received, MINUTE), origin, name_id(life.service), tagset]
            cell[0] += 1
            cell[1] += sent.size
        if sent.outcome in BAD and sent.ends:
            cell = cells[windowed(sent.ended, MINUTE), origin, end_of(sent)[0], tagset]
            cell[2] += sent.ends
    for (worker, window), count in traffic.handled.items():
        cells[start(window, MINUTE), 0, name_id(worker), 0][0] += count
    for (minute, *ids), counts in cells.items():
        yield (time_of(minute), *ids, *counts)


def latencies(traffic: Traffic) -> Iterator[tuple[tuple[int, int, int], int, int]]:
    """Yield (minute, dest, tag set), latency and weight of what ended well and was recorded."""
    for sent in traffic.requests:
        if sent.outcome == Outcome.DELIVER and sent.weight and sent.ends:
            key = start(sent.ended, MINUTE), end_of(sent)[0], sent.sought.id
            yield key, sent.ended - sent.received, sent.weight
    for trip in traffic.trips:
        for now, (_, _, worker, outcome, took) in timed(trip):
            if outcome in {Outcome.DELIVER, Outcome.FORWARD, Outcome.RETURN}:
                yield (start(now, MINUTE), name_id(worker), 0), took, trip.weight


def timed(trip: Trip) -> Iterator[tuple[int, tuple[int, str, str, Outcome, int]]]:
    now = trip.began
    for hop in trip.hops:
        now += hop[4]
        yield now, hop


def latency_histogram(traffic: Traffic) -> Iterator[Row]:
    counts = Counter[tuple[int, int, int, int]]()
    for key, latency, weight in latencies(traffic):
        counts[*key, bucket_of(latency)] += weight
    for (minute, dest, tagset, bucket), n in counts.items():
        yield time_of(minute), dest, tagset, bucket, n


def quantile(values: Iterable[int], share: float) -> int:
    """Return the least value that at least a share of them is not above."""
    ordered = sorted(values)
    return ordered[max(0, ceil(share * len(ordered)) - 1)]


def shard_load(traffic: Traffic) -> Iterator[Row]:
    loads: defaultdict[tuple[int, int], Counter[int]] = defaultdict(Counter[int])
    for sent in traffic.requests:
        for life in sent.takers:
            loads[windowed(sent.received, HOUR), sent.sought.id][life.route] += 1
    for (hour, tagset), counts in loads.items():
        total = counts.total()
        skew = max(counts.values()) / (total / len(counts))
        for route, frames in counts.items():
            yield time_of(hour), tagset, route, frames, frames / total, skew


def hot_keys(traffic: Traffic, top: int) -> Iterator[Row]:
    keys: defaultdict[tuple[int, int], Counter[int]] = defaultdict(Counter[int])
    for sent in traffic.requests:
        if sent.shard_hash and sent.weight and sent.ends:
            keys[start(sent.ended, HOUR), sent.sought.id][sent.shard_hash] += sent.weight
    for (hour, tagset), counts in keys.items():
        hottest = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
        for key, frames in hottest[:top]:
            yield time_of(hour), tagset, key, frames, frames / counts.total()


def route_churn(traffic: Traffic, flap: int) -> Iterator[Row]:
    changes = sorted(row for row in plain(traffic.events) if row[4] in {UP, DOWN})
    counts: defaultdict[tuple[int, int, int], list[int]] = defaultdict(lambda: [0, 0, 0])
    lived: defaultdict[tuple[int, int, int], list[float]] = defaultdict(list[float])
    for _, events in groupby(sorted(changes, key=broker_and_route), broker_and_route):
        before, since = "", 0
        for _, _, _, ts, event, route, node, *_ in events:
            key = start(ts, HOUR), node, route
            counts[key][event == DOWN] += 1
            if event == UP and before == DOWN and ts - since <= flap * SECOND:
                counts[key][2] += 1
            if event == DOWN and before == UP:
                lived[key].append((ts - since) / 1e6)
            before, since = event, ts
    for key, (ups, downs, flaps) in counts.items():
        life = median(lived[key]) if lived[key] else None
        yield (time_of(key[0]), *key[1:], ups, downs, flaps, life)


def broker_and_route(event: Plain) -> tuple[str, int]:
    return event[0], event[5]


def plain(events: Iterable[Row]) -> Iterator[Plain]:
    """Yield the events' columns up to the node, times as microseconds."""
    for broker, epoch, seq, ts, event, route, node, *_ in events:
        micros = (cast("datetime", ts) - time_of(0)) // (time_of(1) - time_of(0))
        yield cast("Plain", (broker, epoch, seq, micros, event, route, node))


def unroutable(traffic: Traffic) -> Iterator[Row]:
    found: defaultdict[tuple[int, Sought], list[int]] = defaultdict(list[int])
    for sent in traffic.requests:
        if sent.outcome == Outcome.UNROUTABLE and sent.ends:
            found[windowed(sent.ended, HOUR), sent.sought] += [
                start(sent.ended, WINDOW)
            ] * sent.ends
    for (hour, sought), windows in found.items():
        near = nearest(sought, (life for life in traffic.lives if was_there(life, hour)))
        first, last = time_of(min(windows)), time_of(max(windows))
        yield time_of(hour), sought.id, len(windows), first, last, dict(near)


def was_there(life: Life, hour: int) -> bool:
    return life.since < hour + HOUR and (life.until is None or life.until > hour)


def nearest(sought: Sought, lives: Iterable[Life]) -> list[tuple[str, str]]:
    common = [sorted(set(sought.tags) & set(life.tags)) for life in lives]
    return min(common, key=lambda tags: (-len(tags), tags), default=[])


def slo_burn(traffic: Traffic, objectives: Iterable[Objective]) -> Iterator[Row]:
    """Tell it of objectives that have no limit of time."""
    step = 5 * MINUTE
    for objective in objectives:
        good, total = Counter[int](), Counter[int]()
        for sent in traffic.requests:
            if sent.outcome in {Outcome.INVALID, Outcome.CANCELED} or not sent.ends:
                continue
            asked = sent.chosen.service if sent.chosen else dict(sent.sought.tags)["service"]
            if objective.service in {None, asked}:
                total[windowed(sent.ended, step)] += sent.ends
                good[windowed(sent.ended, step)] += sent.ends * (sent.outcome == Outcome.DELIVER)
        for window in total:
            burns: list[float] = []
            for steps in (1, 12, 72):
                past = [each for each in total if window - steps * step < each <= window]
                share = sum(good[each] for each in past) / sum(total[each] for each in past)
                burns.append((1 - share) / (1 - objective.target))
            yield time_of(window), objective.name, good[window], total[window], *burns


def paths(traffic: Traffic) -> dict[tuple[int, ...], tuple[int, list[int]]]:
    """Return of each path how many traces took it, and how long it took them, once for each."""
    taken: dict[tuple[int, ...], tuple[int, list[int]]] = {}
    for trip in traffic.trips:
        places = path_of(trip)
        took = sum(hop[4] for hop in trip.hops)
        count, times = taken.get(places, (0, []))
        taken[places] = count + trip.weight, times + [took] * trip.weight
    return taken


def path_of(trip: Trip) -> tuple[int, ...]:
    return tuple(dest for _, dest in sorted({(hop[0], name_id(hop[2])) for hop in trip.hops}))


def path_anomalies(traffic: Traffic) -> Iterator[Row]:
    for trip in traffic.trips:
        for kind in trip.wrong:
            yield trip.trace, kind, list(path_of(trip))


def audit_totals(traffic: Traffic) -> Iterator[Row]:
    """Yield the verdict; what is open of each run and kind does not make up for another."""
    counts: defaultdict[str, list[int]] = defaultdict(lambda: [0] * 5)
    opened = Counter[tuple[str, int, int]]()
    for sent in traffic.requests:
        place = {Outcome.DELIVER: 2, Outcome.UNROUTABLE: 4}.get(sent.outcome, 3)
        row = counts[sent.broker]
        row[0] += 1
        row[1] += len(sent.takers)
        row[place] += sent.ends
        opened[sent.broker, sent.epoch, int(sent.kind)] += 1 - sent.ends
    for broker, row in counts.items():
        mine = [count for (name, *_), count in opened.items() if name == broker]
        missing, duplicated = (sum(max(0, sign * each) for each in mine) for sign in (1, -1))
        yield broker, "", *row, missing, duplicated
    for link in traffic.links:
        known = link.sent is not None and link.received is not None
        rest = (link.sent or 0) - (link.received or 0) - link.dropped if known else 0
        if link.sent is not None or link.received is not None:
            ends = link.sent, link.received
            yield link.sender, link.name, *ends, 0, link.dropped, 0, max(0, rest), max(0, -rest)
