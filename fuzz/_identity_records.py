"""Records of identities that are valid, the functions that read them, and changes of items."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any, Final, NamedTuple, TypeVar

from cbor2 import CBORTag, dumps, loads
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

from onward.protocol.identity import (
    NO_REPLY,
    RESULT_OK,
    SCOPE_ANY,
    SCOPE_LOCAL,
    AdvertAddress,
    AdvertEnvelope,
    AdvertKind,
    AdvertRequest,
    AdvertResponse,
    BadIdentity,
    BadRecord,
    ControlContent,
    ControlRecord,
    Destination,
    DestinationKind,
    DirectoryRow,
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
    Greeting,
    HandshakeMessage,
    IdentityError,
    IdentityRecord,
    IdentityUpdated,
    InnerKind,
    JoinRequest,
    JoinResponse,
    KeyRecord,
    LinkChannel,
    LinkClaim,
    LinkFailure,
    LinkHello,
    LinkProof,
    LinkRefusal,
    LinkRefusalCode,
    LinkReply,
    LinkRole,
    LocalMetadata,
    LookupIdentityRequest,
    LookupIdentityResponse,
    NodeAdvert,
    Ordering,
    P2PMessage,
    Protocol,
    RelayContent,
    RelayMessage,
    RelayStatus,
    Reliability,
    ReplyContent,
    ResendEvents,
    Reservation,
    ReservationAnswer,
    ReservationRequest,
    Result,
    ResultCode,
    RoutingPrefs,
    RoutingScope,
    ScopeKind,
    SealingKeys,
    Security,
    SessionKeys,
    Signed,
    SigningKey,
    SubscribeTopic,
    Target,
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
    issue_voucher,
    local_items,
    lock_key,
    open_voucher,
    parse_advert_envelope,
    parse_control,
    parse_domain_advert,
    parse_domain_record,
    parse_engine_advert,
    parse_engine_message,
    parse_event,
    parse_greeting,
    parse_handshake,
    parse_identity,
    parse_identity_bytes,
    parse_key_file,
    parse_link_claim,
    parse_node_advert,
    parse_p2p_message,
    parse_relay_message,
    parse_reservation,
    parse_reservation_answer,
    parse_reservation_request,
    parse_signed,
    parse_target,
    parse_topic_advert,
    parse_topic_record,
    read_row,
    row_of,
    seal,
    seal_answer,
    serialize_advert_envelope,
    serialize_control,
    serialize_domain_advert,
    serialize_domain_record,
    serialize_engine_advert,
    serialize_engine_message,
    serialize_event,
    serialize_greeting,
    serialize_handshake,
    serialize_key_file,
    serialize_link_claim,
    serialize_node_advert,
    serialize_p2p_message,
    serialize_relay_message,
    serialize_reservation,
    serialize_reservation_answer,
    serialize_reservation_request,
    serialize_topic_advert,
    serialize_topic_record,
    sign_advert,
    sign_engine_message,
    sign_event,
    sign_join_request,
    sign_join_response,
    sign_relay_message,
    target_text,
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


GREETINGS: Final = [
    Greeting(NOW - 1, NOW),
    Greeting(NOW - 1, NOW, tuple(ADVERTS[1:3])),
    Greeting(0, 2**42 - 1, (AdvertEnvelope(AdvertKind.ENGINE, b"hi"),)),
]
RESERVATION: Final = Reservation(NODE, ENGINE, NOW + 1000, 2**20, 1000)
VOUCHER: Final = issue_voucher(RESERVATION, KEYS[0])


LINK: Final = SessionKeys(ChaCha20Poly1305(bytes(32)), ChaCha20Poly1305(REPLY_KEY), bytes(32))
SENDER: Final = LinkChannel(LINK, dialled=True)
FRAMES: Final = [SENDER.seal(each) for each in (b"", b"\x80", SIGNED_ENGINES[0])]
ROWS: Final = [
    DirectoryRow(NODE, 0, 1, ADVERTS[0].envelope, NOW, b"", 0),
    DirectoryRow(PRINTER, 1, None, b"", 0, dumps(local_items(RECORD.local)), 0),
]
IDENTITY_TEXTS: Final = [identity_text(each).encode() for each in (NODE, PRINTER)]
TARGET_TEXTS: Final = [
    *(destination_text(Destination(each, TOPIC)).encode() for each in DestinationKind),
    *(
        target_text(Target(Destination(DestinationKind.ENGINE, PRINTER), rprefs, tprefs)).encode()
        for rprefs, tprefs in (
            (RoutingPrefs(RoutingScope(ScopeKind.DOMAIN, TOPIC)), ONION),
            (RoutingPrefs(SCOPE_LOCAL), None),
            (None, TransportPrefs(Ordering.UNORDERED, Reliability.UNRELIABLE)),
        )
    ),
]


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


def frame_again(data: bytes) -> bytes:
    """Open a frame of a session."""
    record = LinkChannel(LINK, dialled=False, window=64).open(data)
    if isinstance(record, LinkFailure):
        raise BadRecord(record.value)
    return data if data in FRAMES else b"forged"


def row_again(data: bytes) -> bytes:
    """Read the values of a row of a directory, and write them."""
    try:
        values = loads(data)
        row = DirectoryRow(*values)
    except Exception as error:
        raise BadRecord("it is no row") from error  # which is not what is looked at
    return data if row_of(*read_row(row)) == row else b"another"


def voucher_again(data: bytes) -> bytes:
    """Open a voucher."""
    voucher = open_voucher(data, VERIFIERS, NOW)
    if voucher is None:
        raise BadRecord("it is over, or its signature is wrong")
    return issue_voucher(voucher, KEY_OF[voucher.relay])


VERIFIERS: Final = Verifiers()


def identity_again(data: bytes) -> bytes:
    """Read the text of an identity, in any case and between spaces, and write it."""
    text = data.decode("latin-1")
    written = identity_text(parse_identity(text))
    return data if written == text.strip().lower() else written.encode()


def target_again(data: bytes) -> bytes:
    """Read the text of a target, and write one that means the same."""
    text = data.decode("latin-1")
    target = parse_target(text)
    written = target_text(target)
    return data if parse_target(written) == target else written.encode()


# A line for each pair of functions is all that a new record needs. Those that read what any node
# may send come first.
DECODERS: Final = {
    "frame": Decoder(FRAMES, frame_again, BadRecord),
    "handshake": decoder(HANDSHAKES, parse_handshake, serialize_handshake),
    "link claim": decoder(CLAIMS, parse_link_claim, serialize_link_claim),
    "envelope": decoder(
        [parse_signed(each) for each in (*SIGNED_ENGINES, *SIGNED_RELAYS, *SIGNED_EVENTS)],
        parse_signed,
        write_signed,
    ),
    "message of nodes": decoder(P2P, parse_p2p_message, serialize_p2p_message),
    "greeting": decoder(GREETINGS, parse_greeting, serialize_greeting),
    "engine message": decoder(ENGINES, parse_engine_message, serialize_engine_message),
    "relay message": decoder(RELAYS, parse_relay_message, serialize_relay_message),
    "advert envelope": decoder(ADVERTS, parse_advert_envelope, serialize_advert_envelope),
    "engine advert": decoder(ENGINE_ADVERTS, parse_engine_advert, serialize_engine_advert),
    "node advert": decoder([NODE_ADVERT], parse_node_advert, serialize_node_advert),
    "topic advert": decoder(TOPIC_ADVERTS, parse_topic_advert, serialize_topic_advert),
    "domain advert": decoder([DOMAIN_ADVERT], parse_domain_advert, serialize_domain_advert),
    "topic record": decoder(TOPIC_RECORDS, parse_topic_record, serialize_topic_record),
    "domain record": decoder(DOMAIN_RECORDS, parse_domain_record, serialize_domain_record),
    "event": decoder(EVENTS, parse_event, serialize_event),
    "control record": decoder(CONTROLS, parse_control, serialize_control),
    "reservation request": decoder(
        [ReservationRequest(1, 1, 1), ReservationRequest(3600, 2**20, 1000)],
        parse_reservation_request,
        serialize_reservation_request,
    ),
    "reservation": decoder([RESERVATION], parse_reservation, serialize_reservation),
    "reservation answer": decoder(
        [ReservationAnswer(RelayStatus.OK, VOUCHER), ReservationAnswer(RelayStatus(200))],
        parse_reservation_answer,
        serialize_reservation_answer,
    ),
    "voucher": Decoder([VOUCHER], voucher_again, BadRecord),
    "identity": decoder([NODE, PRINTER], parse_identity_bytes, bytes, BadIdentity),
    "text of an identity": Decoder(IDENTITY_TEXTS, identity_again, BadIdentity),
    "text of a target": Decoder(TARGET_TEXTS, target_again, BadIdentity),
    "row of a directory": Decoder([dumps(tuple(each)) for each in ROWS], row_again, BadRecord),
    "key file": decoder([KEY_FILE], parse_key_file, serialize_key_file),
}
PIECES: Final = [
    *(b"\x00", b"\x18\xff", b"\x1a\xff\xff\xff\xff", b"\x1b" + b"\xff" * 8, b"\x40", b"\x60"),
    *(b"\x80", b"\x9b" + b"\xff" * 8, b"\x5f", b"\xf4", b"\xf6", b"\xff", b"\x58\x21", NODE),
]
TREES: Final[dict[str, list[Any]]] = {
    name: [loads(each) for each in decoder.seeds]
    for name, decoder in DECODERS.items()
    if decoder.error is BadRecord and name not in {"frame", "envelope", "voucher", "key file"}
}
"""The items of valid records, by their decoders."""
ITEMS: Final[list[Any]] = [
    *(0, 1, 5, 23, 24, 2**32, 2**64 - 1, -1, b"", b"a", bytes(33), "", "é", (), (0,), (2,)),
    *(None, True, False, 1.5, NODE, PRINTER, TOPIC, HANDLE, bytes(1025), "a" * 33),
]


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


def reshaped(random: Random, tree: Any, trees: list[Any]) -> Any:
    """Return a record with one item changed, at any depth.

    Args:
        random: The source of randomness.
        tree: The items of the record.
        trees: Those of other records, of which one may take the place of an item.
    """
    if not isinstance(tree, (list, tuple)) or not tree:
        return random.choice(ITEMS)
    items: list[Any] = list(tree)  # pyright: ignore[reportUnknownArgumentType]
    place = int(random.random() * len(items))
    kind = int(random.random() * 8)
    if kind < 4:
        items[place] = reshaped(random, items[place], trees)
    elif kind == 4:
        del items[place]
    elif kind == 5:
        items.insert(place, random.choice(items))
    elif kind == 6:
        items[place] = random.choice(random.choice(trees))
    else:
        items[place] = random.choice(ITEMS)
    return tuple(items)
