"""Send random and mutated bytes to the decoders of transit addresses, bundles and dispositions.

The invariant: an input is read, or refused with `BadTransit` or `LaterVersion` with a short
printable text; no other error is raised. What was read is written as the same bytes. What was read
is then given to the state of a name, as from a neighbour: it has at most as many deliveries as its
limits say, no message has two outcomes, and nothing is left once all is lost. The process does not
grow.

    python fuzz/transit.py --count 1000000 --seed 1
"""

from __future__ import annotations

import sys
from random import Random
from typing import Final

from _fuzzing import arguments_of, check_text_of, drawn, run

from onward.protocol.dispatch import (
    ACCEPTED,
    ANSWERS,
    MESSAGES,
    MODIFIED,
    RECEIVED,
    RELEASED,
    SETTLED,
    BadTransit,
    ConsumerTarget,
    Delivery,
    DeliveryLimits,
    Disposition,
    Hand,
    LaterVersion,
    LinkTarget,
    NameState,
    NodeTotals,
    Paths,
    Rejected,
    Reliability,
    RoutingPattern,
    Semantics,
    SendOn,
    Tally,
    Target,
    Told,
    Transit,
    decode_disposition,
    decode_transit,
    disposition_address,
    encode_bundle,
    encode_disposition,
    encode_transit,
    ended_address,
    join_links,
    read_bundle,
    read_end,
    read_token,
    read_tokens,
    return_address,
)

ID: Final = bytes(range(8))
TOKENS: Final = (b"11111111", b"22222222")
TRANSITS: Final = [
    Transit("orders", "b", ID, ID),
    Transit("orders", "b", ID, ID[::-1], settled=True, ttl=1),
    Transit("_eu/prices", "c", ID, b"12345678", redirected=True, ttl=500, wait=27_000),
    Transit("é" * 200, "b", ID, ID, path=(b"1234", b"5678") * 24),
]
DISPOSITIONS: Final = [
    *(Disposition(state) for state in (ACCEPTED, RELEASED, MODIFIED, RECEIVED)),
    Disposition(Rejected("amqp:not-found", "no such name"), settled=False),
    Disposition(ACCEPTED, tally=Tally(accepted=2, released=1)),
]
PIECES: Final = [
    bytes.fromhex(text)
    for text in ("00", "01", "18ff", "1affffffff", "1bffffffffffffffff", "40", "60", "80", "f4")
]
LIMITS: Final = DeliveryLimits(max_unsettled=16, finished_tokens=8, duplicate_ids=8)
LINKS: Final = {"a": {"b": 1, "c": 1}, "b": {"a": 1}, "c": {"a": 1}}
SEMANTICS: Final = (
    Semantics(reliability=Reliability(deduplicate=5.0)),
    Semantics(pattern=RoutingPattern.MULTICAST),
)


class Fuzzed:
    """The decoders, and the state of a name."""

    def __init__(self) -> None:
        self.seeds = [encode_transit(each) for each in TRANSITS]
        self.seeds += [encode_disposition(each) for each in DISPOSITIONS]
        self.seeds += [return_address(ID), disposition_address(return_address(ID))]
        self.seeds += [ended_address(ID, settled=settled) for settled in (True, False)]
        self.seeds += [b"\0\1" + ID + end for end in (b"\0\3yes", ID + b"\0\3yes")]
        self.now = 0.0
        self.begin(Random(1))

    def begin(self, random: Random) -> None:
        self.totals = NodeTotals(LIMITS)
        semantics = random.choice(SEMANTICS)
        token = Random(random.random())
        self.state = NameState[bytes]("a", semantics, lambda: token.randbytes(8), self.totals)
        self.state.set_paths(Paths(join_links(LINKS), "a"), str, self.now)
        self.state.add_consumer(1, 3, self.now)
        self.state.set_nodes({"c": 0}, self.now)
        self.open: list[tuple[bytes, Target]] = []
        self.told: set[int] = set()
        self.kept: list[Delivery[bytes]] = []

    def check(self, random: Random, data: bytes) -> bool:
        """Give bytes to everything; return whether they are anything."""
        self.now += random.choice((0.0, 0.1, 3.0))
        if random.random() < 0.02:
            self.end()
            self.begin(random)
        found = [self.transit(data), self.disposition(random, data), self.tokens(data)]
        found.append(self.bundle(data))
        self.state.due(self.now)
        self.perform()
        if self.state.deliveries.statistics().unsettled > LIMITS.max_unsettled:
            raise AssertionError(f"{self.state.deliveries.statistics()}")
        return any(found)

    def transit(self, data: bytes) -> bool:
        try:
            transit = decode_transit(data)
        except (BadTransit, LaterVersion) as error:
            check_text_of(error)
            return False
        if encode_transit(transit) != data:
            raise AssertionError(f"{transit} is written otherwise")
        token = None if transit.settled else TOKENS[len(data) % 2]
        until = self.now + transit.ttl / 1000 if transit.ttl else None
        delivery = Delivery(
            data,
            len(data),
            "b",
            transit.identity,
            settled=transit.settled,
            path=transit.path,
            token=token,
            until=until,
            deadline=self.now + transit.wait / 1000 if transit.wait else until,
            redirected=transit.redirected,
        )
        self.kept.append(delivery)
        self.state.bind(delivery, self.now)
        return True

    def disposition(self, random: Random, data: bytes) -> bool:
        try:
            told = decode_disposition(data)
        except (BadTransit, LaterVersion) as error:
            check_text_of(error)
            return False
        if encode_disposition(told) != data:
            raise AssertionError(f"{told} is written otherwise")
        if self.open:
            token, target = random.choice(self.open)
            if random.random() < 0.2:
                target = LinkTarget("b")
            self.state.disposition(token, told.state, target, self.now, told.tally)
        return True

    def bundle(self, data: bytes) -> bool:
        """Read a bundle of each shape, and tokens; return whether the bytes are one."""
        found = False
        for shape in (MESSAGES, SETTLED, ANSWERS):
            try:
                records, at = read_bundle(data, shape)
            except BadTransit as error:
                check_text_of(error)
                continue
            payloads: list[bytes] = []
            for *_, size in records:
                payloads.append(data[at : at + size])
                at += size
            if encode_bundle([shape.pack(*each) for each in records], payloads) != data:
                raise AssertionError(f"{records} are written otherwise")
            found = True
        try:
            found = b"".join(read_tokens(data)) == data or found
        except BadTransit as error:
            check_text_of(error)
        return found

    def tokens(self, data: bytes) -> bool:
        """Read all kinds of tokens; return whether the bytes are one."""
        found = 0
        for kind in (b"r", b"d"):
            try:
                read_token(data, kind)
                found += 1
            except BadTransit as error:
                check_text_of(error)
        try:
            ended = read_end(data)
        except BadTransit as error:
            check_text_of(error)
            return False
        if ended is not None:
            found += 1
            self.state.source_ended("b", TOKENS[data[-1] % 2], self.now, settled=ended[1])
        return found == 1

    def perform(self) -> None:
        for event in self.state.events():
            if isinstance(event, Hand) and event.token is not None:
                self.open.append((event.token, ConsumerTarget(event.consumer)))
            elif isinstance(event, Hand):
                self.state.handled(event.consumer, self.now)
            elif isinstance(event, SendOn) and event.token is not None:
                self.open.append((event.token, LinkTarget(event.link)))
            elif isinstance(event, Told):
                if id(event.delivery) in self.told:
                    raise AssertionError("a message with two outcomes")
                self.told.add(id(event.delivery))
        del self.open[:-64]

    def end(self) -> None:
        """Lose everything, and see that nothing is left."""
        self.state.remove_consumer(1, self.now)
        self.state.set_nodes({}, self.now)
        for link in "bc":
            self.state.link_lost(link, self.now)
        self.now += 10.0
        self.state.due(self.now)
        self.perform()
        if not self.state.idle or self.totals.size:
            raise AssertionError(f"{self.state.deliveries.statistics()} at the end")


def main(arguments: list[str] | None = None) -> int:
    options = arguments_of(__doc__).parse_args(arguments)
    fuzzed = Fuzzed()
    held = run(
        "transit",
        options.count,
        options.seed,
        lambda random, _: drawn(random, fuzzed.seeds, PIECES, 0.5),
        fuzzed.check,
    )
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main())
