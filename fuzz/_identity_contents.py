"""Contents of messages of another node: valid ones, near to these, and signed again."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any, Final, NamedTuple

from _fuzzing import noise, nudged
from _identity_records import (
    ANSWER,
    HANDLE,
    KEY_OF,
    KEYS,
    NOW,
    PIECES,
    SEALING,
    TREES,
    reshaped,
    written,
)
from _identity_world import ASKED, DOMAIN, KEYED, LOCAL, STRANGE, World

from onward.actors.identity._outgoing import ONWARD
from onward.protocol import (
    IDENTITY,
    Address,
    Message,
)
from onward.protocol.identity import (
    NO_REPLY,
    AdvertKind,
    ControlContent,
    DestinationKind,
    EngineContent,
    Identity,
    InnerKind,
    JoinRequest,
    P2PContent,
    RelayContent,
    ReplyContent,
    SignedKind,
    SigningKey,
    derived_engine,
    relay_info,
    room_for,
    seal,
    sign,
    sign_join_request,
)
from onward.protocol.ockam import decode_message, encode_message

SELF: Final = Address(IDENTITY, b"self")
ENGINES: Final = 64
"""Engines of the strange node that have no key."""
USES: Final = 4
"""Inputs that are made of one signed record."""


def engine_tree(world: World, random: Random) -> list[Any]:
    """Return the items of a message that is delivered, in most cases."""
    origin: tuple[bytes, bytes] | None = None
    chance = random.random()
    if chance < 0.3:
        src = STRANGE.identity
    elif chance < 0.5:
        src = KEYED.identity
    else:
        name = b"engine %d" % int(random.random() ** 3 * ENGINES)
        src, origin = derived_engine(STRANGE.identity, name), (STRANGE.identity, name)
    to: tuple[int, bytes] = (int(DestinationKind.ENGINE), world.local)
    if random.random() < 0.2:
        others = (LOCAL.identity, world.router.own, STRANGE.identity, KEYS[2].identity)
        to = (int(random.choice(tuple(DestinationKind))), random.choice(others))
    world.ids += 1 if random.random() < 0.98 else int(random.expovariate(0.001))
    now = world.now()
    number = (NOW + 30_000 << 20) + world.ids if random.random() < 0.95 else now << 20
    expiry = now + int(random.random() * 60_000)
    onward = (SELF,) if random.random() < 0.8 else random_route(random)
    back = () if random.random() < 0.5 else random_route(random)
    body = encode_message(Message(onward, back, b"%d" % world.ids))
    if random.random() < 0.1:
        body = nudged(random, body, PIECES)
    protocol = (ONWARD.name, ONWARD.version)
    return [src, to, number, None, expiry, None, None, protocol, body, origin]


def random_route(random: Random) -> tuple[Address, ...]:
    """Return a route of a few addresses, with those that the router alone writes."""
    return tuple(
        Address(
            random.choice((0, 0, 1, IDENTITY, IDENTITY)),
            random.choice((b"recorder", b"self", b"by:\x80", b"reply:\x01x", b"x", b"router"))
            if random.random() < 0.8
            else noise(random) or b"x",
        )
        for _ in range(int(random.random() * 4))
    )


def key_for(tree: Any, random: Random) -> SigningKey:
    """Return the key that signs the message of an engine, in most cases."""
    if random.random() < 0.03 or not isinstance(tree, (list, tuple)):
        return random.choice(KEYS)
    items: list[Any] = list(tree)  # pyright: ignore[reportUnknownArgumentType]
    src = items[0] if items else None
    return KEY_OF.get(Identity(src), STRANGE) if isinstance(src, bytes) else STRANGE


def engine_content(world: World, random: Random) -> list[P2PContent]:
    """Return the message of an engine, in an envelope."""
    tree: Any = engine_tree(world, random)
    while random.random() < 0.35:
        tree = reshaped(random, tree, ALL_TREES)
    payload = written(random, tree, 0.01 if random.random() < 0.05 else 0.0)
    kind = SignedKind.ENGINE if random.random() < 0.97 else random.choice(tuple(SignedKind))
    envelope = sign(kind, payload, key_for(tree, random))
    made = [envelope] + [
        envelope if random.random() < 0.4 else nudged(random, envelope, PIECES)
        for _ in range(USES - 1)
    ]
    return [EngineContent(each) for each in made if each]


ADVERTS: Final = (
    (AdvertKind.ENGINE, "engine advert", SignedKind.ENGINE_ADVERT),
    (AdvertKind.NODE, "node advert", SignedKind.NODE_ADVERT),
    (AdvertKind.TOPIC, "topic advert", SignedKind.TOPIC_ADVERT),
    (AdvertKind.DOMAIN, "domain advert", SignedKind.DOMAIN_ADVERT),
)
ADVERT_KEYS: Final = {
    "engine advert": (KEYS[1], KEYS[0]),
    "node advert": (KEYS[0],),
    "topic advert": (KEYS[2], KEYS[2]),
    "domain advert": (KEYS[2],),
}
"""The keys that sign the valid adverts, in their order."""


def greeting_content(world: World, random: Random) -> list[P2PContent]:
    """Return a greeting with adverts, some of which are signed anew."""
    adverts: list[Any] = []
    for _ in range(int(random.random() * 3)):
        kind, name, signed = ADVERTS[int(random.random() ** 2 * len(ADVERTS))]
        which = int(random.random() * len(TREES[name]))
        tree, key = TREES[name][which], ADVERT_KEYS[name][which]
        if random.random() < 0.8:
            tree = [*tree[:-1], world.now()]  # when it was made
        if random.random() < 0.3:
            tree = reshaped(random, tree, ALL_TREES)
        if random.random() < 0.05:
            key = random.choice(KEYS)
        adverts.append([int(kind), sign(signed, written(random, tree, 0.0), key)])
    now = world.now()
    tree = [64, random.choice((0, now, 2**42 - 1)), random.choice((0, now, 2**42 - 1)), adverts]
    return changed(random, tree, ControlContent)


def changed(random: Random, tree: Any, content: Callable[[bytes], P2PContent]) -> list[P2PContent]:
    """Return contents with a record: as it is or with items changed, and with small changes."""
    while random.random() < 0.3:
        tree = reshaped(random, tree, ALL_TREES)
    record = written(random, tree, 0.0)
    made = [record] + [nudged(random, record, PIECES) for _ in range(USES - 1)]
    return [content(each) for each in made if each]


def control_of(name: str) -> Callable[[World, Random], list[P2PContent]]:
    """Return what makes control records that a decoder reads."""

    def make(_: World, random: Random) -> list[P2PContent]:
        return changed(random, random.choice(TREES[name]), ControlContent)

    return make


def layer(world: World, random: Random) -> bytes:
    """Return the envelope of a message for a relay, with a layer for this node in most cases."""
    inner: bytes
    kind, key = random.choice((InnerKind.ENGINE, InnerKind.EXIT)), random.choice(KEYS)
    chance = random.random()
    if chance < 0.5:
        tree: Any = engine_tree(world, random)
        if random.random() < 0.3:
            tree = reshaped(random, tree, ALL_TREES)
        inner = sign(SignedKind.ENGINE, written(random, tree, 0.0), key_for(tree, random))
    elif chance < 0.8:
        kind = InnerKind.RELAY
        tree = random.choice(TREES["relay message"])
        if random.random() < 0.5:
            tree = reshaped(random, tree, ALL_TREES)
        inner = sign(SignedKind.RELAY, written(random, tree, 0.0), random.choice(KEYS))
    else:
        inner = noise(random) or b"x"
    if random.random() < 0.1:
        kind = random.choice(tuple(InnerKind))
    to, expiry = world.router.own, world.now() + int(random.random() * 60_000)
    info = relay_info(key.identity, to, None, expiry)
    room = room_for(inner) + int(random.random() * 3)
    reply = NO_REPLY if random.random() < 0.5 else random.randbytes(len(NO_REPLY))
    sealed = seal(SEALING.public, kind, reply, inner, room=room, info=info)
    if random.random() < 0.2:
        sealed = nudged(random, sealed, PIECES)
    tree = [key.identity, to, None, expiry, sealed]
    if random.random() < 0.3:
        tree = reshaped(random, tree, ALL_TREES)
    return sign(SignedKind.RELAY, written(random, tree, 0.0), key)


def relay_content(world: World, random: Random) -> list[P2PContent]:
    """Return messages for a relay."""
    envelope, handle = layer(world, random), HANDLE if random.random() < 0.5 else None
    made = [envelope, envelope] + [nudged(random, envelope, PIECES) for _ in range(USES - 2)]
    return [RelayContent(each, handle) for each in made if each]


def reply_content(_: World, random: Random) -> list[P2PContent]:
    """Return answers."""
    answer = ANSWER if random.random() < 0.7 else noise(random) or b"x"
    return [ReplyContent(random.choice((HANDLE, random.randbytes(16))), answer)]


def reservation_content(_: World, random: Random) -> list[P2PContent]:
    """Return what is said about reservations."""
    name = random.choice(("reservation request", "reservation answer"))
    return changed(random, random.choice(TREES[name]), ControlContent)


def domain_content(world: World, random: Random) -> list[P2PContent]:
    """Return requests to a domain that the node serves, and answers to those that it has sent."""
    pending = [each.request for each in world.identities._domains.requests._pending.values()]
    asked = [each for each in pending if each.domain == ASKED.identity]
    route, back = random_route(random), random_route(random)
    onward = (SELF,) if random.random() < 0.8 else route
    protocol, member = (ONWARD.name, ONWARD.version), STRANGE.identity
    chance = random.random()
    if chance < 0.4 or not asked:
        path = [KEYS[1].identity, member] if random.random() < 0.5 else [member]
        expiry = world.now() + int(random.random() * 60_000)
        body = encode_message(Message(onward, back, b"?"))
        number = int(random.random() * 2**40)
        tree: Any = [48, path[0], DOMAIN.identity, number, path, expiry, protocol, body]
    elif chance < 0.7:
        one = random.choice(asked)
        to = decode_message(one.body)[1] if random.random() < 0.8 else route
        body = encode_message(Message(to, back, b"!")) if random.random() < 0.9 else b""
        result = 0 if random.random() < 0.8 else int(random.random() * 12)
        way = one.path[::-1]
        tree = [49, one.domain, member, one.src, one.id, way, result, protocol, body]
    elif chance < 0.9:
        one = random.choice(asked)
        tree = [50, one.src, one.id, int(random.random() * 12)]
    else:
        domain = random.choice((DOMAIN, ASKED)).identity
        created = world.now() + int(random.random() * 100) - 50
        signed = sign_join_request(JoinRequest(member, domain, None, created), STRANGE)
        tree = [51, signed]
    return changed(random, tree, ControlContent)


class Source(NamedTuple):
    """A kind of contents that another node sends.

    Attributes:
        share: How often it is there.
        make: Returns some contents that are near to each other.
    """

    share: int
    make: Callable[[World, Random], list[P2PContent]]


# A line for each kind is all that a new one needs.
SOURCES: Final = {
    "messages of engines": Source(50, engine_content),
    "greetings": Source(10, greeting_content),
    "messages for relays": Source(10, relay_content),
    "answers": Source(4, reply_content),
    "control records": Source(8, control_of("control record")),
    "topic records": Source(8, control_of("topic record")),
    "domain records": Source(8, control_of("domain record")),
    "requests to domains and answers": Source(8, domain_content),
    "reservations": Source(2, reservation_content),
}
MAKERS: Final = [each.make for each in SOURCES.values() for _ in range(each.share)]
ALL_TREES: Final[list[Any]] = [each for trees in TREES.values() for each in trees]
