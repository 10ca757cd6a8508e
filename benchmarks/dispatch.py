"""Names: 100,000 at one node, their provisions, and messages to them beside plain ones.

A third of the provisions are names without `*` and `#`, a third prefixes (`P/#`), and a third have
a `*` or a `#` in them. Names are those of addresses of type 34, as bytes, and each is looked up
once, so nothing is kept from one to the next.

- *look-up*: from a name that has been read to its semantics, by `Provisions`. *no match*: of names
  that only the default is for. *read*: from the bytes of an address to the name.
- The comparison is a dictionary of as many names as are looked up, which knows no pattern.
- *bind and settle*, *choose*, *transit*, *disposition*: the parts of an unsettled delivery,
  without I/O, beside a round trip of its token through a dictionary.
- *memory*: of a provision with its pattern and semantics of its own, as `tracemalloc` counts.
- 100,000 names with a consumer each: see `_dispatch_names.py`.
- Messages to a balanced name on one node and over three, beside plain ones: see
  `_dispatch_native.py`.
- The AMQP edge beside a bare server of Proton: see `_dispatch_edge.py`.

Targets: 5 µs cold and 2 KiB each; a pre-settled message costs at most 2 times a plain one, an
unsettled one 4 times; the edge has at least 0.8 of the rate of the bare server. All other times are
CPU times, so other programs have only a small effect, through the caches. The full size takes about
three minutes and 600 MiB.
"""

from __future__ import annotations

import argparse
import gc
import tracemalloc
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from random import Random
from statistics import median
from time import process_time

from _dispatch_deliveries import add_deliveries
from _dispatch_edge import add_edge
from _dispatch_names import add_names
from _dispatch_native import add_native
from _report import Report

from onward.protocol.dispatch import (
    Hold,
    Last,
    Name,
    NamePattern,
    Provision,
    Provisions,
    Retry,
    Semantics,
    parse_name,
)

NODE = "node-a"


@dataclass(frozen=True, slots=True)
class Size:
    """The number of provisions, of rounds, of look-ups in a round, and of messages in one."""

    provisions: int
    rounds: int
    names: int
    messages: int


FULL = Size(provisions=100_000, rounds=9, names=10_000, messages=10_000)
QUICK = Size(provisions=3_000, rounds=3, names=500, messages=200)


def made_provisions(number: int) -> Provisions:
    """Return provisions, each with semantics of its own."""
    provisions = Provisions("node")
    for each in range(number):
        region, service, kind = f"region-{each % 16}", f"service-{each}", each % 3
        if kind == 0:
            pattern = NamePattern.parse(f"{region}/{service}/orders")
        elif kind == 1:
            pattern = NamePattern.of_prefix(f"{region}/{service}")
        else:
            middle = "*" if each % 2 else "#"
            pattern = NamePattern.parse(f"{middle}/{service}/orders.*")
        chain = (Retry(hold=Hold(messages=each + 1)), Last.RELEASE)
        provisions.add(Provision(pattern, Semantics(window=each + 1, undeliverable=chain)))
    return provisions


def made_names(random: Random, provisions: int, number: int) -> list[bytes]:
    """Return names that a provision matches, each once."""
    return [
        f"region-{each % 16}/service-{each}/orders{'/eu' if each % 3 else ''}".encode()
        for each in random.sample(range(provisions), number)
    ]


def timed(work: Callable[[], object]) -> float:
    began = process_time()
    work()
    return process_time() - began


def noise(rounds: Sequence[float]) -> float:
    return (max(rounds) - min(rounds)) / 2 / median(rounds)


def look_up(provisions: Provisions, names: Sequence[Name]) -> None:
    for name in names:
        provisions.semantics_of(name)


def read(values: Sequence[bytes]) -> list[Name]:
    return [parse_name(value, NODE) for value in values]


def get(plain: dict[str, Semantics], names: Sequence[Name], default: Semantics) -> None:
    for name in names:
        plain.get(name.text, default)


def memory_each(number: int) -> float:
    """Return the bytes of a provision."""
    gc.collect()
    tracemalloc.start()
    provisions = made_provisions(number)
    gc.collect()
    taken = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    return taken / len(provisions)


def measure(size: Size) -> Report:
    """Measure everything once and report it."""
    report = Report("dispatch")
    random = Random(7)
    provisions = made_provisions(size.provisions)
    default = provisions.default
    found: list[float] = []
    missed: list[float] = []
    reading: list[float] = []
    plain: list[float] = []
    for _ in range(size.rounds):
        values = made_names(random, size.provisions, size.names)
        reading.append(timed(partial(read, values)) / size.names)
        names = read(values)
        if any(provisions.semantics_of(name) is default for name in names[:100]):
            raise AssertionError("a name without its provision")
        names = read(values)
        found.append(timed(partial(look_up, provisions, names)) / size.names)
        table = {
            name.text: default for name in read(made_names(random, size.provisions, size.names))
        }
        plain.append(timed(partial(get, table, names, default)) / size.names)
        others = [Name(name.kind, f"x/{name.text}/y") for name in names]
        missed.append(timed(partial(look_up, provisions, others)) / size.names)
    micro = 1e6
    report.target("look-up, cold", median(found) * micro, "µs", at_most=5.0, noise=noise(found))
    report.target(
        "look-up, no match", median(missed) * micro, "µs", at_most=5.0, noise=noise(missed)
    )
    report.figure("look-up / a dictionary of names", median(found) / median(plain), "x")
    report.figure("read a name", median(reading) * micro, "µs", noise(reading))
    add_deliveries(report, size.rounds, size.names)
    report.target("memory of a provision", memory_each(size.provisions), "bytes", at_most=2048.0)
    del provisions
    add_names(report, size.provisions, size.rounds, size.names)
    add_native(report, size.rounds, size.messages)
    add_edge(report, min(size.rounds, 5), size.messages // 4)
    return report


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", action="store_true", help="end with one JSON object")
    parser.add_argument("--quick", action="store_true", help="only show that it works")
    options = parser.parse_args()
    measure(QUICK if options.quick else FULL).print(as_json=options.json)


if __name__ == "__main__":
    main()
