"""Send random and mutated bytes to the decoders of identities, records, envelopes and key files.

Most inputs are records with items changed, left out, repeated or taken from another record, as
bytes that are changed at random are seldom in the one spelling. Some of these are signed again, and
some are sealed, to other bytes each time. The invariant: each decoder reads an input or refuses it
with the error of its kind, with a short printable text; no other error is raised. What was read is
written as the same bytes. What is opened is what its signer has signed, byte for byte, and no
signature that is wrong takes a place among the keys that are kept. A relay has one of its outcomes
for each input. A link comes about by what its two ends have said to each other alone, whatever else
they hear, and opens the frames of its ends alone. The process does not grow.

    python fuzz/identity.py --count 1000000 --seed 1

With `--decoder NAME`, or `each`, a decoder alone reads inputs that are near to its own records: ten
times as many in the same time.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from random import Random
from typing import Any, TypeVar

from _fuzzing import arguments_of, check_text_of, drawn, mutated, noise, nudged, run
from _identity_records import (
    ANSWER,
    DECODERS,
    ENGINE,
    INFO,
    KEY_OF,
    KEYS,
    NODE,
    NOW,
    PIECES,
    REPLY_KEY,
    SEALED,
    SEALING,
    SIGNED_ENGINES,
    SIGNED_RELAYS,
    TOPIC,
    TREES,
    Decoder,
    reshaped,
    written,
)

from onward.protocol.identity import (
    NO_REPLY,
    AdvertEnvelope,
    BadRecord,
    Destination,
    EngineMessage,
    Identity,
    InnerKind,
    LayerTags,
    LinkDialler,
    LinkFailure,
    LinkLimits,
    LinkListener,
    LinkState,
    Peeler,
    RelayMessage,
    SignedKind,
    Verifiers,
    derived_engine,
    open_advert,
    open_answer,
    open_engine_message,
    open_event,
    open_join_request,
    open_join_response,
    open_relay_message,
    pad_to,
    parse_advert_envelope,
    parse_engine_message,
    parse_p2p_message,
    relay_info,
    room_for,
    seal,
    serialize_p2p_message,
    sign,
    sign_advert,
    sign_engine_message,
    sign_event,
    sign_join_request,
    sign_join_response,
    sign_relay_message,
    signer_of,
)

T = TypeVar("T")


def check_origin(message: EngineMessage) -> None:
    """Check that the signer of a message is its engine, or the node that this is derived of."""
    origin = message.origin
    src = message.signer if origin is None else derived_engine(message.signer, origin.name)
    if src != message.src:
        raise AssertionError(f"it is signed for another: {message}")


def sealed(random: Random, inner: bytes) -> bytes:
    """Return a signed message for a relay with these bytes in it."""
    key = random.choice(KEYS)
    info = relay_info(key.identity, NODE, None, NOW)
    room = room_for(inner) + int(random.random() * 3)
    kind = random.choice(tuple(InnerKind))
    layer = seal(SEALING.public, kind, NO_REPLY, inner, room=room, info=info)
    return sign_relay_message(RelayMessage(key.identity, NODE, NOW, layer), key)


class Rules:
    """Rules of a relay that depend on the size alone."""

    def may_open(self, source: Identity, peer: Identity) -> bool:
        return source != peer

    def may_pass(self, source: Identity, following: Identity, size: int) -> bool:
        return size % 3 > 0 or source == following

    def may_exit(
        self, source: Identity, message: EngineMessage, peer: Identity, *, is_asked: bool
    ) -> bool:
        return is_asked and (len(message.body) % 3 > 0 or source == message.dst.identity)

    def is_here(self, destination: Destination) -> bool:
        return destination.identity == TOPIC


def is_read(decoder: Decoder, data: bytes) -> bool:
    """Whether a decoder reads bytes; it writes the same ones, or refuses them as it should."""
    try:
        again = decoder.again(data)
    except decoder.error as error:
        check_text_of(error)
        return False
    if again != data:
        raise AssertionError(f"it is written as {again.hex()}")
    return True


class Near:
    """Inputs that are near to the records of one decoder: many small changes of a few large ones.

    Args:
        name: The name of the decoder.
    """

    def __init__(self, name: str) -> None:
        self.decoder = DECODERS[name]
        self.trees = TREES.get(name, [])
        self.others = [each for trees in TREES.values() for each in trees]
        self.base = b""

    def make(self, random: Random, number: int) -> bytes:
        if number % 16 == 0:
            self.base = self.near(random)
        return nudged(random, self.base, PIECES)

    def near(self, random: Random) -> bytes:
        chance = random.random()
        if chance < 0.05:
            return noise(random)
        if chance < 0.4 or not self.trees:
            return mutated(random, self.decoder.seeds, PIECES)
        if chance < 0.45:
            return written(random, random.choice(self.others), 0.0)
        tree = random.choice(self.trees)
        for _ in range(1 + int(random.expovariate(0.7))):
            tree = reshaped(random, tree, self.others)
        return written(random, tree, 0.02 if chance > 0.9 else 0.0)

    def check(self, _: Random, data: bytes) -> bool:
        return is_read(self.decoder, data)


class Fuzzed:
    """The decoders, and what opens envelopes."""

    def __init__(self) -> None:
        self.seeds = [seed for each in DECODERS.values() for seed in each.seeds]
        self.seeds += [SEALED, ANSWER]
        self.trees: list[Any] = [each for trees in TREES.values() for each in trees]
        self.verifiers = Verifiers()
        self.begin()
        self.dial()

    def dial(self) -> None:
        """Begin a link over a route that repeats and reorders, where wrong messages are ignored."""
        limits = LinkLimits(window=64)
        self.dialler = LinkDialler(KEYS[0], bytes(32), self.verifiers, 0.0, limits=limits)
        self.listener = LinkListener(KEYS[1], REPLY_KEY, self.verifiers, 0.0, limits=limits)
        self.hello = self.dialler.begin(0.0)
        self.reply = self.listener.receive(self.hello, 0.0) or b""
        self.heard = 0

    def begin(self) -> None:
        tags = LayerTags(limit=64, share=48)
        self.peeler = Peeler(NODE, SEALING, tags, Rules(), self.verifiers)
        self.peeled = 0

    def make(self, random: Random) -> bytes:
        if random.random() < 0.4:
            return drawn(random, self.seeds, PIECES, 0.2)
        tree = random.choice(self.trees)
        for _ in range(int(random.expovariate(0.4))):
            tree = reshaped(random, tree, self.trees)
        record = written(random, tree, 0.02 if random.random() < 0.2 else 0.0)
        if random.random() < 0.3:
            record = sign(random.choice(tuple(SignedKind)), record, random.choice(KEYS))
        if random.random() < 0.1:
            return sealed(random, record)
        if random.random() < 0.1:
            return sealed(random, random.choice((*SIGNED_ENGINES, *SIGNED_RELAYS)))
        return record

    def check(self, random: Random, data: bytes) -> bool:
        """Give bytes to everything; return whether they are anything."""
        found = {name for name, each in DECODERS.items() if is_read(each, data)}
        taken = bool(found) or self.is_sealed(data)
        if "engine message" in found:
            check_origin(parse_engine_message(data))
        if "message of nodes" in found:
            self.pad(random, data)
        if data.startswith(b"\xd2"):
            self.open(data)
        self.peel(random, data)
        self.link(random, data)
        if "advert envelope" in found:
            self.open_advert(parse_advert_envelope(data))
        if len(self.verifiers) > len(KEYS):
            raise AssertionError(f"{len(self.verifiers)} keys are kept")
        return taken

    def is_sealed(self, data: bytes) -> bool:
        opened = SEALING.open(data, INFO, NOW)
        if opened is not None and data != SEALED:
            raise AssertionError(f"it is opened: {opened}")
        answer = open_answer([REPLY_KEY], data)
        if answer is not None and data != ANSWER:
            raise AssertionError(f"the answer is {answer!r}")
        return opened is not None or answer is not None

    def peel(self, random: Random, data: bytes) -> None:
        """Give bytes to a relay."""
        if random.random() < 0.001:
            self.begin()
        peeled = self.peeler.peel(data, random.choice((ENGINE, TOPIC)), NOW)
        self.peeled += 1
        if sum(self.peeler.outcomes.values()) != self.peeled:
            raise AssertionError(f"{self.peeled} inputs, and {self.peeler.outcomes}")
        if peeled.outcome.is_drop is not (not peeled.envelope):
            raise AssertionError(f"{peeled}")

    def pad(self, random: Random, data: bytes) -> None:
        message = parse_p2p_message(data)
        size = len(data) + int(random.random() * 400) - message.pad
        padded = serialize_p2p_message(pad_to(message, size))
        if len(padded) != size or parse_p2p_message(padded).content != message.content:
            raise AssertionError(f"it is padded to {padded.hex()}")

    def link(self, random: Random, data: bytes) -> None:
        """Give bytes to both ends of a link, and now and then what they have said."""
        said = (self.hello, self.reply)
        wrong = mutated(random, said, PIECES) if random.random() < 0.5 else data
        if wrong not in said:
            self.dialler.receive(wrong, 0.0)
            self.listener.receive(wrong, 0.0)
        if LinkState.UP in (self.dialler.state, self.listener.state):
            raise AssertionError(f"{wrong.hex()} makes a link")
        self.heard += 1
        ended = LinkState.FAILED in (self.dialler.state, self.listener.state)
        if ended or self.heard < 12:
            if ended:
                self.dial()
            return
        proof = self.dialler.receive(self.reply, 0.0)
        self.listener.receive(mutated(random, [proof or b""], PIECES, changes=1), 0.0)
        self.listener.receive(proof or b"", 0.0)
        if (one := self.dialler.channel) is None or (other := self.listener.channel) is None:
            raise AssertionError(f"no link after {self.heard} wrong messages")
        frame = one.seal(data)
        wrong = mutated(random, [frame], PIECES)
        if wrong != frame and not isinstance(other.open(wrong), LinkFailure):
            raise AssertionError(f"{wrong.hex()} is opened, for {frame.hex()}")
        if other.open(frame) != data or other.open(frame) is not LinkFailure.REPEATED:
            raise AssertionError(f"{frame.hex()} is not opened once")
        self.dial()

    def open(self, data: bytes) -> None:
        """Open an envelope as each record; what opens is what its signer writes."""
        engine = self.opened(open_engine_message, data)
        if engine and sign_engine_message(engine, KEY_OF[engine.signer]) != data:
            raise AssertionError(f"it is opened: {engine}")
        relay = self.opened(open_relay_message, data)
        if relay and sign_relay_message(relay, KEY_OF[relay.src]) != data:
            raise AssertionError(f"it is opened: {relay}")
        event = self.opened(open_event, data)
        if event and sign_event(event, KEY_OF[event.publisher]) != data:
            raise AssertionError(f"it is opened: {event}")

        asked = self.opened(open_join_request, data)
        if asked and sign_join_request(asked, KEY_OF[asked.requestor]) != data:
            raise AssertionError(f"it is opened: {asked}")
        joined = self.opened(open_join_response, data)
        if joined and sign_join_response(joined, KEY_OF[joined.approver]) != data:
            raise AssertionError(f"it is opened: {joined}")

    def opened(self, open_it: Callable[[bytes, Verifiers], T | None], data: bytes) -> T | None:
        try:
            return open_it(data, self.verifiers)
        except BadRecord as error:
            check_text_of(error)
            return None

    def open_advert(self, envelope: AdvertEnvelope) -> None:
        try:
            advert = open_advert(envelope, self.verifiers)
        except BadRecord as error:
            check_text_of(error)
            return
        if advert and sign_advert(advert, KEY_OF[signer_of(advert)]) != envelope:
            raise AssertionError(f"it is opened: {advert}")


def main(arguments: list[str] | None = None) -> int:
    parser = arguments_of(__doc__)
    parser.add_argument("--decoder", choices=["each", *DECODERS], help="only this one")
    options = parser.parse_args(arguments)
    count, seed = options.count, options.seed
    if options.decoder is not None:
        names = list(DECODERS) if options.decoder == "each" else [options.decoder]
        held = [
            run(name, count, seed, near.make, near.check) for name in names for near in [Near(name)]
        ]
        return 0 if all(held) else 1
    fuzzed = Fuzzed()
    held = [run("identity", count, seed, lambda random, _: fuzzed.make(random), fuzzed.check)]
    return 0 if all(held) else 1


if __name__ == "__main__":
    sys.exit(main())
