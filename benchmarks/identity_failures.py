"""The times of failures that another node may not tell apart, each beside what is good.

Nothing is sent for these failures, so their time is all that could tell them apart. It is read by
classes: within one, all failures take the same cryptographic steps, as a test counts; here the
greatest time of a class is compared with the least. Between classes the time may differ, as what
decides about the class is known to the node that sends.

- *layers*: a message for a relay, beside one that goes on to the next node.
- *frames* and *proofs*: of the link between two nodes, beside a frame that is opened and a
  handshake that goes on.
- *messages*: of engines over a link, beside one that is delivered.
- *answers* over relays, beside one that opens.

All times are CPU times of the node that refuses, as medians of rounds. The full size takes about
half a minute.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from random import Random
from statistics import median
from time import process_time

from _report import Report

from onward.actors import MailboxOptions, Node, Worker, new_event_loop
from onward.actors.identity import ROUTER
from onward.protocol import Address, Message
from onward.protocol.identity import (
    NO_REPLY,
    Destination,
    DestinationKind,
    EngineContent,
    EngineMessage,
    ExpectedAnswer,
    ExpectedAnswers,
    Hop,
    Identity,
    InnerKind,
    LayerTags,
    LinkDialler,
    LinkFailure,
    LinkListener,
    P2PMessage,
    Peeler,
    Protocol,
    RelayMessage,
    SealingKeys,
    SigningKey,
    Verifiers,
    build_onion,
    open_relay_message,
    relay_info,
    seal,
    seal_answer,
    serialize_p2p_message,
    sign_engine_message,
    sign_relay_message,
    stream_xor,
)
from onward.protocol.ockam import encode_message
from onward.transports.identity import Identities

NOW = 1_800_000_000_000
EXPIRY = NOW + 60_000
MICRO = 1e6
SAME = 1.1
"""Greatest time of a class, as a multiple of its least."""
_TURNS = 8
"""Turns of the loop after each round of a kind, in which workers handle what has come."""
ENGINE = Address(36, b"self")
END = Address(0, b"end")
ONWARD = Protocol("onward", 1)


@dataclass(frozen=True, slots=True)
class Size:
    """The number of rounds, and of tries of each kind in one."""

    rounds: int
    tries: int


FULL = Size(rounds=25, tries=60)
QUICK = Size(rounds=3, tries=5)

Work = Callable[[], object]


class Kinds:
    """The kinds of one thing that is tried, the good one first.

    Args:
        name: What the thing is.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        # Each has its name, its class, and what returns the work of one try.
        self._kinds: list[tuple[str, str, Callable[[], Work]]] = []

    def add(self, kind: str, of: str, prepare: Callable[[], Work]) -> None:
        """Add a kind.

        Args:
            kind: Its name.
            of: Its class; empty if its sender knows the outcome, and so its time.
            prepare: Returns the work of one try, which is timed.
        """
        self._kinds.append((kind, of, prepare))

    async def measure(
        self, report: Report, size: Size, between: Callable[[], object] = int
    ) -> None:
        """Measure all kinds by turns, and report them.

        Args:
            report: The report.
            size: How often.
            between: Called after each round of one kind.
        """
        times: dict[str, list[float]] = {kind: [] for kind, _, _ in self._kinds}
        for _ in range(size.rounds):
            for kind, _, prepare in self._kinds:
                work = [prepare() for _ in range(size.tries)]
                began = process_time()
                for each in work:
                    each()
                times[kind].append((process_time() - began) / size.tries)
                between()
                for _ in range(_TURNS):
                    await asyncio.sleep(0)
        medians = {kind: median(each) for kind, each in times.items()}
        good = medians[self._kinds[0][0]]
        classes: dict[str, list[float]] = {}
        for kind, of, _ in self._kinds:
            if not classes and kind == self._kinds[0][0]:
                report.figure(f"{self.name}: {kind}", good * MICRO, "µs")
                continue
            report.figure(f"{self.name}: {kind} / good", medians[kind] / good, "x")
            if of:
                classes.setdefault(of, []).append(medians[kind])
        for of, found in classes.items():
            spread = max(found) / min(found)
            report.target(f"{self.name}, {of}: most / least", spread, "x", at_most=SAME)


def key_of(number: int) -> SigningKey:
    return SigningKey(Random(number).randbytes(32))


def flipped(data: bytes, at: int) -> bytes:
    changed = bytearray(data)
    changed[at] ^= 1
    return bytes(changed)


# --- layers -----------------------------------------------------------------------------------

NODE, FOLLOWING, SENDER, OTHER, REFUSED = map(key_of, range(5))


class Rules:
    """Rules that allow all but one source and one next node."""

    def may_open(self, source: Identity, peer: Identity) -> bool:
        return source != REFUSED.identity

    def may_pass(self, source: Identity, following: Identity, size: int) -> bool:
        return following != REFUSED.identity

    def may_exit(
        self, source: Identity, message: EngineMessage, peer: Identity, *, is_asked: bool
    ) -> bool:
        return False

    def is_here(self, destination: Destination) -> bool:
        return True


async def add_layers(report: Report, size: Size) -> None:
    """Add messages for a relay."""
    keys, others = SealingKeys(bytes(range(32))), SealingKeys(bytes(range(1, 33)))
    made: dict[str, Peeler] = {}
    engine = sign_engine_message(
        EngineMessage(
            SENDER.identity,
            Destination(DestinationKind.ENGINE, FOLLOWING.identity),
            1,
            ONWARD,
            bytes(900),
            expiry=EXPIRY,
        ),
        SENDER,
    )

    def new() -> None:
        # The room for tags is for a few layers each time.
        made["peeler"] = Peeler(NODE.identity, keys, LayerTags(), Rules(), Verifiers())

    def peels(envelope: bytes) -> Work:
        return lambda: made["peeler"].peel(envelope, SENDER.identity, NOW)

    def layer(following: SigningKey = FOLLOWING, to: SealingKeys = keys) -> RelayMessage:
        hops = [Hop(NODE.identity, to.public), Hop(following.identity, others.public)]
        envelope = build_onion(hops, engine, expiry=EXPIRY, signers=[SENDER] * 2)
        found = open_relay_message(envelope, Verifiers())
        if found is None:
            raise AssertionError("a layer is not signed as it should be")
        return found

    def signed(found: RelayMessage, key: SigningKey = SENDER) -> bytes:
        return sign_relay_message(replace(found, src=key.identity), key)

    def holds(kind: InnerKind, inner: bytes) -> bytes:
        info = relay_info(SENDER.identity, NODE.identity, None, EXPIRY)
        sealed = seal(keys.public, kind, NO_REPLY, inner, room=2048, info=info)
        return signed(RelayMessage(SENDER.identity, NODE.identity, EXPIRY, sealed))

    seen = signed(layer())
    kinds = Kinds("layer")
    kinds.add("good, goes on", "", lambda: peels(signed(layer())))
    kinds.add("no record", "", lambda: peels(signed(layer())[:-1]))
    wrong = "a wrong signature"
    kinds.add("wrong signature", wrong, lambda: peels(flipped(signed(layer()), -40)))
    kinds.add(
        "wrong signature, unknown key", wrong, lambda: peels(flipped(signed(layer(), OTHER), -40))
    )
    kinds.add(
        "wrong signature, refused source",
        wrong,
        lambda: peels(flipped(signed(layer(), REFUSED), -40)),
    )
    kinds.add("wrong signature, replayed", wrong, lambda: peels(flipped(seen, -40)))
    kinds.add("expired", "", lambda: peels(signed(replace(layer(), expiry=NOW - 60_000))))
    kinds.add("replayed", "", lambda: peels(seen))
    kinds.add("refused source", "", lambda: peels(signed(layer(), REFUSED)))
    closed = "it does not open"

    def damaged(at: int) -> Work:
        found = layer()
        return peels(signed(replace(found, sealed=flipped(found.sealed, at))))

    kinds.add("damaged tag", closed, lambda: damaged(-1))
    kinds.add("damaged text", closed, lambda: damaged(200))
    kinds.add("damaged key", closed, lambda: damaged(10))
    kinds.add("key that is gone", closed, lambda: damaged(0))
    kinds.add("sealed for another", closed, lambda: peels(signed(layer(to=others))))
    kinds.add("other expiry", closed, lambda: peels(signed(replace(layer(), expiry=EXPIRY + 1))))
    opened = "what is in it"
    kinds.add("no record in it", opened, lambda: peels(holds(InnerKind.RELAY, b"x")))
    kinds.add("refused next node", opened, lambda: peels(signed(layer(REFUSED))))
    kinds.add(
        "wrong signature in it", "", lambda: peels(holds(InnerKind.ENGINE, flipped(engine, -40)))
    )

    def between() -> None:
        new()
        made["peeler"].peel(seen, SENDER.identity, NOW)

    between()
    await kinds.measure(report, size, between)


# --- links ------------------------------------------------------------------------------------


class Forger(SigningKey):
    """The identity of a key, with signatures of another one."""

    def __init__(self, shown: SigningKey) -> None:
        super().__init__(bytes(32))
        self.identity = shown.identity


async def add_links(report: Report, size: Size) -> None:
    """Add handshakes and frames."""
    seeds = count(1)

    def ends(
        dialled: SigningKey, expected: SigningKey | None, verifiers: Verifiers
    ) -> tuple[LinkDialler, bytes]:
        one, two = (Random(next(seeds)).randbytes(32) for _ in range(2))
        dials = LinkDialler(
            NODE,
            one,
            verifiers,
            0.0,
            expected=None if expected is None else expected.identity,
            admits=lambda identity: identity != REFUSED.identity,
        )
        reply = LinkListener(dialled, two, Verifiers(), 0.0).receive(dials.begin(0.0), 0.0)
        if reply is None:
            raise AssertionError("a node that is dialled has not replied")
        return dials, reply

    known = Verifiers()
    for each in (OTHER, REFUSED):
        known.is_signed_by(each.identity, each.sign(b"before"), b"before")

    def takes(
        dialled: SigningKey = OTHER,
        expected: SigningKey | None = OTHER,
        at: int | None = None,
        verifiers: Verifiers = known,
    ) -> Work:
        dials, reply = ends(dialled, expected, verifiers)
        return partial(dials.receive, reply if at is None else flipped(reply, at), 0.0)

    kinds = Kinds("proof")
    kinds.add("good, with the own one", "", takes)
    kinds.add("damaged tag", "it does not open", lambda: takes(at=-1))
    kinds.add("damaged text", "it does not open", lambda: takes(at=60))
    forged = "a wrong signature"
    kinds.add("of the expected node", forged, lambda: takes(Forger(OTHER)))
    kinds.add("of another node", forged, lambda: takes(Forger(OTHER), SENDER))
    kinds.add("of a banned node", forged, lambda: takes(Forger(REFUSED), None))
    kinds.add("of an unknown node", forged, lambda: takes(Forger(OTHER), verifiers=Verifiers()))
    right = "a node that may not be there"
    kinds.add("another node", right, lambda: takes(OTHER, SENDER))
    kinds.add("banned node", right, lambda: takes(REFUSED, None))
    await kinds.measure(report, size)

    def frames(at: int | None = None) -> Work:
        one, two = (Random(next(seeds)).randbytes(32) for _ in range(2))
        dials = LinkDialler(NODE, one, known, 0.0)
        listens = LinkListener(OTHER, two, Verifiers(), 0.0)
        reply = listens.receive(dials.begin(0.0), 0.0)
        proof = None if reply is None else dials.receive(reply, 0.0)
        if proof is None or dials.channel is None:
            raise AssertionError("a handshake has failed")
        listens.receive(proof, 0.0)
        channel, frame = listens.channel, dials.channel.seal(bytes(400))
        if channel is None:
            raise AssertionError("a handshake has failed")
        return partial(channel.open, frame if at is None else flipped(frame, at))

    kinds = Kinds("frame")
    kinds.add("good", "", frames)
    for at, name in ((-1, "tag"), (-17, "last byte"), (8, "first byte")):
        kinds.add(f"damaged {name}", "it does not open", partial(frames, at))
    await kinds.measure(report, size)
    failure = frames(-1)()
    if failure is not LinkFailure.FORGED:
        raise AssertionError(f"a damaged frame was {failure}")


# --- messages ---------------------------------------------------------------------------------


class End(Worker):
    """The worker of an engine."""

    def handle_message(self, message: Message) -> None:
        del message


async def add_messages(report: Report, size: Size) -> None:
    """Add messages of engines over a link."""
    async with Node("near") as near, Node("far") as far:
        ours = await Identities.attach(near, SENDER)
        theirs = await Identities.attach(far, NODE)
        limit = MailboxOptions(limit=2 * size.tries)
        await far.start(End, address=END, mailbox=limit)
        here, nowhere = theirs.engine(END), FOLLOWING.identity
        listener = await far.listen("memory://identity-failures", expose=[ROUTER])
        await ours.join(listener.uri, identity=theirs.own)
        router = theirs._router  # pyright: ignore[reportPrivateUsage]
        for each in (OTHER, REFUSED):
            router.verifiers.is_signed_by(each.identity, each.sign(b"before"), b"before")
        router.standing.ban(REFUSED.identity)
        session, numbers = router.peers.sessions[ours.own], count()
        body = encode_message(Message((ENGINE,), (), b"x" * 64, None, None))
        started = router.milliseconds() + 20_000

        def envelope(
            key: SigningKey = SENDER,
            to: Identity = here,
            expires: int = 60_000,
            protocol: Protocol = ONWARD,
        ) -> bytes:
            message = EngineMessage(
                key.identity,
                Destination(DestinationKind.ENGINE, to),
                (started << 20) + next(numbers),
                protocol,
                body,
                expiry=router.milliseconds() + expires,
            )
            return sign_engine_message(message, key)

        def receives(written: bytes) -> Work:
            message = P2PMessage(ours.own, theirs.own, EngineContent(written))
            return partial(router.incoming.receive, session, serialize_p2p_message(message))

        def wrong(key: SigningKey = SENDER, to: Identity = here) -> Work:
            return receives(flipped(envelope(key, to), -40))

        seen = envelope()
        receives(seen)()
        kinds = Kinds("message")
        kinds.add("good, is delivered", "", lambda: receives(envelope()))
        forged = "a wrong signature"
        kinds.add("wrong signature", forged, wrong)
        kinds.add("wrong signature, known key", forged, lambda: wrong(OTHER))
        kinds.add("wrong signature, unknown key", forged, lambda: wrong(FOLLOWING))
        kinds.add("wrong signature, banned source", forged, lambda: wrong(REFUSED))
        kinds.add("wrong signature, unknown engine", forged, lambda: wrong(SENDER, nowhere))
        kinds.add("wrong signature, replayed", forged, lambda: receives(flipped(seen, -40)))
        kinds.add("replayed", "", lambda: receives(seen))
        kinds.add("expired", "", lambda: receives(envelope(expires=-60_000)))
        kinds.add("other protocol", "", lambda: receives(envelope(protocol=Protocol("other", 1))))
        kinds.add("banned destination", "", lambda: receives(envelope(to=REFUSED.identity)))
        kinds.add("no record", "", lambda: receives(envelope()[:-1]))

        await kinds.measure(report, size)


# --- answers ----------------------------------------------------------------------------------


async def add_answers(report: Report, size: Size) -> None:
    """Add answers over relays."""
    keys = tuple(Random(each).randbytes(32) for each in range(3))
    answers, numbers = ExpectedAnswers(), count()

    def opens(at: int | None = None) -> Work:
        handle = next(numbers).to_bytes(16)
        expected = ExpectedAnswer(
            NODE.identity, keys, asker=SENDER.identity, asked=OTHER.identity, expiry=EXPIRY
        )
        answers.expect(handle, expected, NOW)
        reply = seal_answer(keys[-1], bytes(400), bytes(12))
        for key in keys[:-1]:
            reply = stream_xor(key, reply)
        reply = reply if at is None else flipped(reply, at)
        return partial(answers.open, handle, NODE.identity, reply, NOW)

    def unknown(handle: bytes, peer: SigningKey) -> Work:
        return partial(answers.open, handle, peer.identity, bytes(1052), NOW)

    kinds = Kinds("answer")
    kinds.add("good", "", opens)
    for at, name in ((-1, "tag"), (0, "nonce"), (300, "text")):
        kinds.add(f"damaged {name}", "it does not open", partial(opens, at))
    waits = b"w" * 16
    refused = "a handle that is refused"
    kinds.add("unknown handle", refused, lambda: unknown(bytes(16), NODE))
    kinds.add("handle of another node", refused, lambda: unknown(waits, OTHER))
    expected = ExpectedAnswer(
        NODE.identity, keys, asker=SENDER.identity, asked=OTHER.identity, expiry=EXPIRY
    )
    answers.expect(waits, expected, NOW)
    await kinds.measure(report, size)


async def measure(size: Size) -> Report:
    """Measure everything once and report it."""
    report = Report("identity_failures")
    await add_layers(report, size)
    await add_links(report, size)
    await add_messages(report, size)
    await add_answers(report, size)
    return report


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", action="store_true", help="end with one JSON object")
    parser.add_argument("--quick", action="store_true", help="only show that it works")
    options = parser.parse_args()
    logging.disable(logging.WARNING)  # a ban is worth a warning, but not here
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        report = runner.run(measure(QUICK if options.quick else FULL))
    report.print(as_json=options.json)


if __name__ == "__main__":
    main()
