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
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from random import Random
from typing import Any, Final, NamedTuple, TypeVar

from _fuzzing import arguments_of, check_text_of, drawn, mutated, run
from cbor2 import CBORTag, dumps, loads

from onward.protocol.identity import (
    NO_REPLY,
    RESULT_OK,
    SCOPE_ANY,
    SCOPE_LOCAL,
    AdvertAddress,
    AdvertEnvelope,
    AdvertRequest,
    AdvertResponse,
    BadIdentity,
    BadRecord,
    ControlContent,
    ControlRecord,
    Destination,
    DestinationKind,
    DomainAdvert,
    DomainJoined,
    DomainJoining,
    DomainRecord,
    DomainRefusal,
    DomainRequest,
    DomainResponse,
    EngineAdvert,
    EngineContent,
    EngineMessage,
    EngineOrigin,
    Event,
    EventId,
    EventRecord,
    HandshakeMessage,
    Identity,
    IdentityError,
    IdentityRecord,
    IdentityUpdated,
    InnerKind,
    JoinRequest,
    JoinResponse,
    KeyRecord,
    LayerTags,
    LinkClaim,
    LinkDialler,
    LinkFailure,
    LinkHello,
    LinkLimits,
    LinkListener,
    LinkProof,
    LinkRefusal,
    LinkRefusalCode,
    LinkReply,
    LinkRole,
    LinkState,
    LocalMetadata,
    LookupIdentityRequest,
    LookupIdentityResponse,
    NodeAdvert,
    P2PMessage,
    Peeler,
    Protocol,
    RelayContent,
    RelayMessage,
    ReplyContent,
    ResendEvents,
    Result,
    ResultCode,
    RoutingPrefs,
    RoutingScope,
    ScopeKind,
    SealingKeys,
    Security,
    Signed,
    SignedKind,
    SigningKey,
    SubscribeTopic,
    TopicAdvert,
    TopicCreateRequest,
    TopicProgress,
    TopicRecord,
    TopicSubRequest,
    TopicSubscribed,
    TopicUnsubResponse,
    TransportPrefs,
    UpdateIdentityRequest,
    Verifiers,
    derived_engine,
    destination_text,
    identity_text,
    lock_key,
    open_advert,
    open_answer,
    open_engine_message,
    open_event,
    open_join_request,
    open_join_response,
    open_relay_message,
    pad_to,
    parse_advert_envelope,
    parse_control,
    parse_destination,
    parse_domain_advert,
    parse_domain_record,
    parse_engine_advert,
    parse_engine_message,
    parse_event,
    parse_handshake,
    parse_identity,
    parse_identity_bytes,
    parse_key_file,
    parse_link_claim,
    parse_node_advert,
    parse_p2p_message,
    parse_relay_message,
    parse_signed,
    parse_topic_advert,
    parse_topic_record,
    relay_info,
    room_for,
    seal,
    seal_answer,
    serialize_advert_envelope,
    serialize_control,
    serialize_domain_advert,
    serialize_domain_record,
    serialize_engine_advert,
    serialize_engine_message,
    serialize_event,
    serialize_handshake,
    serialize_key_file,
    serialize_link_claim,
    serialize_node_advert,
    serialize_p2p_message,
    serialize_relay_message,
    serialize_topic_advert,
    serialize_topic_record,
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

KEYS: Final = tuple(SigningKey(bytes((each,)) * 32) for each in range(3))
KEY_OF: Final = {key.identity: key for key in KEYS}
NODE, ENGINE, TOPIC = (key.identity for key in KEYS)
PRINTER: Final = derived_engine(NODE, b"printer")
HANDLE: Final = bytes(range(16))
ONION: Final = TransportPrefs(security=Security.ONION, hops=3)
NOW: Final = 1_800_000_000_000
INFO: Final = b"info"
SEALING: Final = SealingKeys(bytes(32))
REPLY_KEY: Final = bytes(range(32))
ANSWER: Final = seal_answer(REPLY_KEY, b"answer", bytes(12))
SEALED: Final = seal(SEALING.public, InnerKind.ENGINE, NO_REPLY, b"inner", room=64, info=INFO)

ENGINES: Final = [
    EngineMessage(ENGINE, Destination(kind, TOPIC), kind, Protocol("wire", 1), b"")
    for kind in DestinationKind
]
ENGINES.append(
    EngineMessage(
        PRINTER,
        Destination(DestinationKind.ENGINE, PRINTER),
        2**64 - 1,
        Protocol("é", 256),
        b"hello",
        24,
        NOW,
        RoutingPrefs(RoutingScope(ScopeKind.DOMAIN, TOPIC)),
        ONION,
        EngineOrigin(NODE, b"printer"),
    )
)
SIGNED_ENGINES: Final = [sign_engine_message(each, KEY_OF[each.signer]) for each in ENGINES]
RELAYS: Final = [
    RelayMessage(NODE, ENGINE, NOW, SEALED),
    RelayMessage(ENGINE, NODE, NOW, SEALED),
    RelayMessage(ENGINE, NODE, 0, b"s", TransportPrefs(security=Security.MIXNET)),
]
SIGNED_RELAYS: Final = [sign_relay_message(each, KEY_OF[each.src]) for each in RELAYS]
P2P: Final = [
    P2PMessage(NODE, ENGINE, content, pad)
    for content in (
        EngineContent(SIGNED_ENGINES[0]),
        RelayContent(SIGNED_RELAYS[0]),
        RelayContent(SIGNED_RELAYS[2], HANDLE),
        ReplyContent(HANDLE, b"reply"),
        ControlContent(b"\x80"),
    )
    for pad in (0, 24, 300)
]
NODE_ADVERT: Final = NodeAdvert(NODE, (AdvertAddress("1#a:4000", 200),), SEALING.public, 7, NOW)
ENGINE_ADVERTS: Final = [
    EngineAdvert(ENGINE, NODE, None, 1, 2000),
    EngineAdvert(PRINTER, NODE, b"printer", 2**32 - 1, 2**64 - 1),
]
TOPIC_ADVERTS: Final = [
    TopicAdvert(TOPIC, (), None, SCOPE_ANY, 1, 0),
    TopicAdvert(TOPIC, ("news", "é"), (ENGINE, PRINTER), SCOPE_LOCAL, 9, 3000),
]
DOMAIN_ADVERT: Final = DomainAdvert(TOPIC, (NODE, ENGINE), 0, 0)
ADVERTS: Final = [
    sign_advert(NODE_ADVERT, KEYS[0]),
    sign_advert(ENGINE_ADVERTS[0], KEYS[1]),
    sign_advert(ENGINE_ADVERTS[1], KEYS[0]),
    *(sign_advert(each, KEYS[2]) for each in TOPIC_ADVERTS),
    sign_advert(DOMAIN_ADVERT, KEYS[2]),
]
RECORD: Final = IdentityRecord(NODE, ADVERTS[0], LocalMetadata(0, ONION, None, b"worker"))
CONTROLS: Final[list[ControlRecord]] = [
    TopicCreateRequest(TOPIC, SCOPE_ANY, ADVERTS[3].envelope),
    TopicSubRequest(TOPIC, SCOPE_LOCAL),
    TopicUnsubResponse(TOPIC, Result(ResultCode.NOT_SUBSCRIBED, "no")),
    LookupIdentityRequest(PRINTER),
    LookupIdentityResponse(NODE, RECORD),
    UpdateIdentityRequest(NODE, RECORD.local, ADVERTS[0]),
    IdentityUpdated(NODE, None),
    AdvertRequest(TOPIC),
    AdvertResponse(TOPIC, tuple(ADVERTS[3:5])),
]
EVENTS: Final = [
    Event(TOPIC, ENGINE, NOW << 20, b""),
    Event(TOPIC, NODE, 1, SIGNED_ENGINES[0], (EventId(ENGINE, 1),), (EventId(TOPIC, 2),)),
]
SIGNED_EVENTS: Final = [sign_event(each, KEY_OF[each.publisher]) for each in EVENTS]
TOPIC_RECORDS: Final[list[TopicRecord]] = [
    SubscribeTopic(TOPIC, 1),
    TopicSubscribed(TOPIC, 1, RESULT_OK.code, NOW << 20),
    EventRecord(SIGNED_EVENTS[0]),
    TopicProgress(TOPIC, 1, 2),
    ResendEvents(TOPIC, 1, 256),
]
DOMAIN_RECORDS: Final[list[DomainRecord]] = [
    DomainRequest(NODE, TOPIC, 1, (NODE, ENGINE), NOW, Protocol("wire", 1), b"body"),
    DomainResponse(TOPIC, ENGINE, NODE, 1, (NODE,), RESULT_OK.code, Protocol("wire", 1), b""),
    DomainRefusal(NODE, 2**64 - 1, ResultCode.OVERFLOW),
    DomainJoining(sign_join_request(JoinRequest(NODE, TOPIC, b"auth", NOW), KEYS[0])),
    DomainJoined(
        sign_join_response(JoinResponse(TOPIC, NODE, TOPIC, NOW, 1, RESULT_OK.code), KEYS[2])
    ),
]
HANDSHAKES: Final[list[HandshakeMessage]] = [
    LinkHello((1, 2, 255), SEALING.public),
    LinkReply(1, SEALING.public, bytes(200)),
    LinkProof(bytes(200)),
    LinkRefusal(LinkRefusalCode.BUSY),
]
CLAIMS: Final = [
    LinkClaim(LinkRole.DIALS, NODE, ENGINE),
    LinkClaim(LinkRole.IS_DIALLED, ENGINE, None),
]
KEY_FILE: Final = lock_key(KeyRecord(bytes(32), bytes(32), NOW, "é", bytes(32), NOW))


class Decoder(NamedTuple):
    """Valid inputs, and what reads one and writes it again, or raises `error`."""

    seeds: list[bytes]
    again: Callable[[bytes], bytes]
    error: type[IdentityError]


def decoder(
    values: list[T],
    parse: Callable[[bytes], T],
    serialize: Callable[[T], bytes],
    error: type[IdentityError] = BadRecord,
) -> Decoder:
    def again(data: bytes) -> bytes:
        return serialize(parse(data))

    return Decoder([serialize(each) for each in values], again, error)


def write_signed(signed: Signed) -> bytes:
    written: bytes = dumps(CBORTag(18, (b"\xa1\x01\x27", {}, signed.payload, signed.signature)))
    return written


# A line for each pair of functions is all that a new record needs.
RECORDS: Final = [
    decoder(ENGINES, parse_engine_message, serialize_engine_message),
    decoder(RELAYS, parse_relay_message, serialize_relay_message),
    decoder(P2P, parse_p2p_message, serialize_p2p_message),
    decoder([NODE_ADVERT], parse_node_advert, serialize_node_advert),
    decoder(ENGINE_ADVERTS, parse_engine_advert, serialize_engine_advert),
    decoder(TOPIC_ADVERTS, parse_topic_advert, serialize_topic_advert),
    decoder([DOMAIN_ADVERT], parse_domain_advert, serialize_domain_advert),
    decoder(ADVERTS, parse_advert_envelope, serialize_advert_envelope),
    decoder(CONTROLS, parse_control, serialize_control),
    decoder(EVENTS, parse_event, serialize_event),
    decoder(TOPIC_RECORDS, parse_topic_record, serialize_topic_record),
    decoder(DOMAIN_RECORDS, parse_domain_record, serialize_domain_record),
    decoder(HANDSHAKES, parse_handshake, serialize_handshake),
    decoder(CLAIMS, parse_link_claim, serialize_link_claim),
]
OTHERS: Final = [
    decoder(
        [parse_signed(each) for each in (*SIGNED_ENGINES, *SIGNED_RELAYS, *SIGNED_EVENTS)],
        parse_signed,
        write_signed,
    ),
    decoder([KEY_FILE], parse_key_file, serialize_key_file),
    decoder([NODE, PRINTER], parse_identity_bytes, bytes, BadIdentity),
]
PIECES: Final = [
    *(b"\x00", b"\x18\xff", b"\x1a\xff\xff\xff\xff", b"\x1b" + b"\xff" * 8, b"\x40", b"\x60"),
    *(b"\x80", b"\x9b" + b"\xff" * 8, b"\x5f", b"\xf4", b"\xf6", b"\xff", b"\x58\x21", NODE),
]
ITEMS: Final[list[Any]] = [
    *(0, 1, 5, 23, 24, 2**32, 2**64 - 1, -1, b"", b"a", bytes(33), "", "é", (), (0,), (2,)),
    *(None, True, False, 1.5, NODE, PRINTER, TOPIC, HANDLE, bytes(1025), "a" * 33),
]


def check_origin(message: EngineMessage) -> None:
    """Check that the signer of a message is its engine, or the node that this is derived of."""
    origin = message.origin
    src = message.signer if origin is None else derived_engine(message.signer, origin.name)
    if src != message.src:
        raise AssertionError(f"it is signed for another: {message}")


def written(random: Random, tree: Any, wide: float) -> bytes:
    """Return the bytes of a record, in which this share of the heads is longer than need be."""
    if isinstance(tree, (list, tuple)):
        items: list[Any] = list(tree)  # pyright: ignore[reportUnknownArgumentType]
        major, number = 4, len(items)
        rest = b"".join(written(random, each, wide) for each in items)
    elif isinstance(tree, (bytes, str)):
        rest = tree if isinstance(tree, bytes) else tree.encode()
        major, number = (2 if isinstance(tree, bytes) else 3), len(rest)
    elif type(tree) is int and tree >= 0:
        major, number, rest = 0, tree, b""
    else:
        data: bytes = dumps(tree)
        return data
    width = sum(number >= least for least in (24, 2**8, 2**16, 2**32))
    if random.random() < wide:
        width = min(width + 1, 4)
    if width == 0:
        return bytes((major << 5 | number,)) + rest
    return bytes((major << 5 | 23 + width,)) + number.to_bytes(2 ** (width - 1)) + rest


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

    def may_exit(self, source: Identity, destination: Destination, size: int) -> bool:
        return size % 3 > 0 or source == destination.identity

    def is_here(self, destination: Destination) -> bool:
        return destination.identity == TOPIC


class Fuzzed:
    """The decoders, and what opens envelopes."""

    def __init__(self) -> None:
        self.decoders = [*RECORDS, *OTHERS]
        self.seeds = [seed for each in self.decoders for seed in each.seeds]
        texts = [identity_text(NODE), destination_text(Destination(DestinationKind.NODE, NODE))]
        self.seeds += [SEALED, ANSWER, *(text.encode() for text in texts)]
        self.trees: list[Any] = [loads(seed) for each in RECORDS for seed in each.seeds]
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
            tree = self.reshaped(random, tree)
        record = written(random, tree, 0.02 if random.random() < 0.2 else 0.0)
        if random.random() < 0.3:
            record = sign(random.choice(tuple(SignedKind)), record, random.choice(KEYS))
        if random.random() < 0.1:
            return sealed(random, record)
        if random.random() < 0.1:
            return sealed(random, random.choice((*SIGNED_ENGINES, *SIGNED_RELAYS)))
        return record

    def reshaped(self, random: Random, tree: Any) -> Any:
        """Return a record with one item changed, at any depth."""
        if not isinstance(tree, (list, tuple)) or not tree:
            return random.choice(ITEMS)
        items: list[Any] = list(tree)  # pyright: ignore[reportUnknownArgumentType]
        place = int(random.random() * len(items))
        kind = int(random.random() * 8)
        if kind < 4:
            items[place] = self.reshaped(random, items[place])
        elif kind == 4:
            del items[place]
        elif kind == 5:
            items.insert(place, random.choice(items))
        elif kind == 6:
            items[place] = random.choice(random.choice(self.trees))
        else:
            items[place] = random.choice(ITEMS)
        return tuple(items)

    def check(self, random: Random, data: bytes) -> bool:
        """Give bytes to everything; return whether they are anything."""
        found = [each for each in self.decoders if self.is_read(each, data)]
        taken = bool(found) or self.is_text(data) or self.is_sealed(data)
        if self.decoders[0] in found:
            check_origin(parse_engine_message(data))
        if self.decoders[2] in found:
            self.pad(random, data)
        if data.startswith(b"\xd2"):
            self.open(data)
        self.peel(random, data)
        self.link(random, data)
        if self.decoders[7] in found:
            self.open_advert(parse_advert_envelope(data))
        if len(self.verifiers) > len(KEYS):
            raise AssertionError(f"{len(self.verifiers)} keys are kept")
        return taken

    def is_read(self, decoder: Decoder, data: bytes) -> bool:
        try:
            again = decoder.again(data)
        except decoder.error as error:
            check_text_of(error)
            return False
        if again != data:
            raise AssertionError(f"it is written as {again.hex()}")
        return True

    def is_text(self, data: bytes) -> bool:
        """Whether bytes are the text of an identity or of a destination."""
        text = data.decode("latin-1")
        try:
            written = identity_text(parse_identity(text))
            if written != text.strip().lower():
                raise AssertionError(f"it is written as {written}")
        except BadIdentity as error:
            check_text_of(error)
        else:
            return True
        try:
            found = parse_destination(text)
        except BadIdentity as error:
            check_text_of(error)
            return False
        if parse_destination(destination_text(found)) != found:
            raise AssertionError(f"it is written as {destination_text(found)}")
        return True

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
    options = arguments_of(__doc__).parse_args(arguments)
    fuzzed = Fuzzed()
    held = run(
        "identity",
        options.count,
        options.seed,
        lambda random, _: fuzzed.make(random),
        fuzzed.check,
    )
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main())
