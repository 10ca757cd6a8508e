"""Unsettled deliveries of a name without I/O, as multiples of a round trip through a dictionary."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from statistics import median
from time import process_time

from _report import Report

from onward.protocol.dispatch import (
    ACCEPTED,
    Chooser,
    Deliveries,
    Delivery,
    Disposition,
    Paths,
    Transit,
    decode_disposition,
    decode_transit,
    encode_disposition,
    encode_transit,
    join_links,
    node_digest,
)

__all__ = ["add_deliveries"]

_IDENTITY = ("a", b"instance", b"12345678")


def add_deliveries(report: Report, rounds: int, messages: int) -> None:
    """Measure the parts of a delivery that each node has, and add them to a report.

    Each figure is the median of rounds in which every part has its turn.
    """
    parts: dict[str, Callable[[int], object]] = {
        "dictionary": _through_dictionary,
        "bind and settle": _bind_and_settle,
        "choose of 4 consumers and 4 nodes": _choose,
        "transit written and read": _transits,
        "disposition written and read": _dispositions,
    }
    times: dict[str, list[float]] = {name: [] for name in parts}
    for _ in range(rounds):
        for name, part in parts.items():
            began = process_time()
            part(messages)
            times[name].append(process_time() - began)
    plain = median(times.pop("dictionary"))
    for name, measured in times.items():
        report.figure(f"{name} / a dictionary", median(measured) / plain, "x")
        report.figure(name, median(measured) / messages * 1e6, "µs")


def _through_dictionary(messages: int) -> None:
    table: dict[bytes, object] = {}
    for number in range(messages):
        token = number.to_bytes(8)
        table[token] = _IDENTITY
        table.pop(token)


def _bind_and_settle(messages: int) -> None:
    numbers = count()
    deliveries = Deliveries[None](lambda: next(numbers).to_bytes(8))
    chooser = Chooser()
    chooser.add_consumer(1, 250)
    for _ in range(messages):
        target = chooser.direct("a")
        if target is None:
            raise AssertionError("no consumer")
        delivery = Delivery(None, 100, "producer", _IDENTITY)
        if not deliveries.enter(delivery, 0.0):
            raise AssertionError("the table is full")
        (token,) = deliveries.bind(delivery, (target,))
        deliveries.sent(token, 0.0)
        deliveries.disposition(token, ACCEPTED, target, 0.0)
    if deliveries.statistics().accepted != messages:
        raise AssertionError("a delivery without its outcome")


def _choose(messages: int) -> None:
    chooser = Chooser()
    for consumer in range(4):
        chooser.add_consumer(consumer, 250)
    peers = dict.fromkeys("bcde", 10)
    links = {"a": peers, **{node: {"a": 10} for node in peers}}
    chooser.set_paths(Paths(join_links(links), "a"), str)
    chooser.set_remotes(peers)
    for _ in range(messages):
        target = chooser.balanced("a")
        if target is None:
            raise AssertionError("no target")
        chooser.bound(target)


def _transits(messages: int) -> None:
    transit = Transit(
        "_eu/prices", "node-a", b"instance", b"12345678", path=(node_digest("node-a"),)
    )
    for _ in range(messages):
        decode_transit(encode_transit(transit))


def _dispositions(messages: int) -> None:
    disposition = Disposition(ACCEPTED)
    for _ in range(messages):
        decode_disposition(encode_disposition(disposition))
