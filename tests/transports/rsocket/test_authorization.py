"""What the peers of a broker with rules may register, request and learn."""

from __future__ import annotations

import json
from typing import Any, Final
from uuid import UUID

import pytest

from onward.actors.broker import BrokerOptions, Handlers, Request, WaitingOptions
from onward.protocol.broker import TagSet, parse_query
from onward.protocol.security import Principal, Rules, read_rules
from tests.support.rsocket_peer import *
from tests.support.workers import Echo, Forwarder, Recorder

REJECTED_SETUP, CONNECTION_ERROR, REJECTED, INVALID = 0x003, 0x101, 0x202, 0x204
ROUTE_ID, REGION = 2, 6
ROUTE = b"message/x.onward.route.v0"
ROUTING = b"message/x.rsocket.routing.v0"
AT_ONCE: Final = BrokerOptions(waiting=WaitingOptions(no_route_timeout=0))
NO_TAGS: Final[TagSet] = frozenset()

RULES = """
[[rule]]
roles = ["shop"]
register = ["service=orders region=*", "service=mail tenant=b"]
request = ["service=orders", "service=stock", "service=nobody"]

[[rule]]
roles = ["any"]
register = "*"
request = "*"

[[rule]]
names = ["*"]
register = "service=audit"
deny = true

[[rule]]
roles = ["ops"]
read = true
"""


def role(name: str, tags: str = "", *, of: str = "") -> Principal:
    forced = parse_query(tags) if tags else NO_TAGS
    return Principal(of or f"{name} {tags}", "token", frozenset({name}), forced)


SHOP, ANY, NONE = role("shop"), role("any"), role("none")
TENANT_A, TENANT_B = role("any", "tenant=a"), role("any", "tenant=b")


def connect(w: World, principal: Principal | None) -> Peer:
    peer = w.connect()
    peer.link.session.principal = principal
    return peer


async def requester(w: World, principal: Principal | None) -> Peer:
    peer = connect(w, principal)
    assert await peer.ask(setup()) == []
    return peer


def registration(route_id: UUID, service: str, tags: dict[int | str, str] | None = None) -> bytes:
    return composite((BROKER_FRAME, route_setup(route_id, service, tags)))


async def destination(
    w: World,
    principal: Principal | None,
    service: str,
    tags: dict[int | str, str] | None = None,
    route_id: UUID | None = None,
) -> Peer:
    peer = connect(w, principal)
    assert await peer.ask(setup(registration(route_id or w.new_id(), service, tags))) == []
    return peer


async def refused(peer: Peer, frame: bytes) -> tuple[int, str]:
    """Send a request that is answered with an error."""
    ((_, code, text),) = errors(await peer.ask(frame))
    return code, text


async def reached(peer: Peer, frame: bytes, *destinations: Peer) -> list[int]:
    """Send a request, and return the indices of the destinations that get it."""
    answers = await peer.ask(frame)
    assert answers == [], errors(answers)
    found: list[int] = []
    for index, each in enumerate(destinations):
        for raw in await each.received():
            if raw == IS_IT_ALIVE:
                continue
            found.append(index)
            each.send(payload(stream_of(raw), b"", N | C))
    await peer.received()
    return found


# --- registering ----------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("principal", "service", "tags"),
    [
        (None, "orders", {}),
        (NONE, "orders", {}),
        (SHOP, "stock", {}),
        (SHOP, "orders", {"tenant": "b"}),
        (SHOP, "orders", {ROUTE_ID: "0-0-0-0-9"}),
        (ANY, "audit", {}),
        (TENANT_A, "orders", {"tenant": "b"}),
    ],
)
@in_world(rules=RULES)
async def test_a_setup_with_tags_that_are_not_allowed_is_rejected(
    w: World, principal: Principal, service: str, tags: dict[int | str, str]
) -> None:
    peer = connect(w, principal)
    frames = setup(registration(w.new_id(), service, tags)), request(RR, 1, asked_for("orders"))
    assert errors(await peer.ask(*frames)) == [(0, REJECTED_SETUP, "not allowed: register")]
    assert peer.closed
    assert w.services() == []
    assert w.listener.statistics().closed == {"setup refused": 1}
    authorization = w.broker.authorization
    assert authorization is not None
    assert authorization.statistics().denied == {"register": 1}


@in_world(rules=RULES)
async def test_a_late_registration_that_is_not_allowed_ends_the_connection(w: World) -> None:
    peer = await requester(w, SHOP)
    late = push(registration(w.new_id(), "stock")), request(RR, 1, asked_for("orders"))
    assert errors(await peer.ask(*late)) == [(0, CONNECTION_ERROR, "not allowed: register")]
    assert peer.closed
    assert w.listener.statistics().closed == {"not allowed": 1}
    fine = await requester(w, SHOP)
    assert await fine.ask(push(registration(w.new_id(), "orders", {REGION: "eu"}))) == []
    assert w.services() == ["orders"]


@in_world(rules=RULES)
async def test_a_destination_has_the_forced_tags_of_its_principal(w: World) -> None:
    await destination(w, TENANT_A, "orders", {REGION: "eu", "tenant": "a"})
    assert dict(w.row("orders").tags)["tenant"] == "a"
    await destination(w, TENANT_B, "mail")
    assert dict(w.row("mail").tags)["tenant"] == "b"


@in_world(rules=RULES)
async def test_a_route_id_of_another_principal_is_not_taken_over(w: World) -> None:
    own = UUID(int=7)
    first = await destination(w, role("any", of="one"), "orders", route_id=own)
    (service,) = (row for row in w.broker.routes() if row.service.startswith("onward."))
    for taken in (own, service.route_id):
        thief = connect(w, role("any", of="two"))
        got = await thief.ask(setup(registration(taken, "orders")))
        assert errors(got) == [(0, REJECTED_SETUP, "not allowed: register")]
    assert not first.closed
    # The principal itself connects anew, perhaps with other roles.
    again = await destination(w, role("shop", of="one"), "orders", route_id=own)
    assert first.closed
    assert not again.closed


# --- introducing itself as a broker ---------------------------------------------------------
OF_A_BROKER = bytes.fromhex("0000 0001 1000") + bytes(16) + (1_700_000_000_000).to_bytes(8)
PEER_RULES = (
    RULES
    + """
[[rule]]
roles = ["cluster"]
peer = true
request = "*"
register = "*"
"""
)


@pytest.mark.parametrize("single", [False, True])
@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("principal", [None, ANY])
@in_world(rules=PEER_RULES)
async def test_a_client_that_may_not_be_a_broker(
    w: World, principal: Principal | None, late: bool, single: bool
) -> None:
    peer = connect(w, principal)
    mime = BROKER_FRAME if single else COMPOSITE
    metadata = OF_A_BROKER if single else composite((b"a/b", b"?"), (BROKER_FRAME, OF_A_BROKER))
    if late:
        got = await peer.ask(setup(mime=mime), push(metadata))
    else:
        got = await peer.ask(setup(metadata, mime=mime))
    code = CONNECTION_ERROR if late else REJECTED_SETUP
    assert errors(got) == [(0, code, "not allowed: peer")]
    assert peer.closed
    reason = "not allowed" if late else "setup refused"
    assert w.listener.statistics().closed == {reason: 1}
    authorization = w.broker.authorization
    assert authorization is not None
    assert authorization.statistics().denied == {"peer": 1}


@in_world(rules=PEER_RULES)
async def test_a_registration_beside_the_introduction_of_a_broker_is_not_made(w: World) -> None:
    both = composite((BROKER_FRAME, OF_A_BROKER), (BROKER_FRAME, route_setup(w.new_id(), "orders")))
    got = await connect(w, ANY).ask(setup(both))
    assert errors(got) == [(0, REJECTED_SETUP, "not allowed: peer")]
    assert w.services() == []


@in_world(rules=PEER_RULES)
async def test_a_client_that_may_be_a_broker_says_so_in_its_setup(w: World) -> None:
    cluster = role("cluster")
    orders = await destination(w, ANY, "orders")
    metadata = composite((BROKER_FRAME, OF_A_BROKER))
    peer = connect(w, cluster)
    assert await peer.ask(setup()) == []
    assert await reached(peer, request(RR, 1, asked_for("orders")), orders) == [0]
    # On a stream it is no ADDRESS, whatever is allowed.
    code, text = await refused(peer, request(RR, 3, metadata))
    assert (code, "no ADDRESS" in text) == (INVALID, True)
    got = await peer.ask(push(metadata))
    assert errors(got) == [(0, CONNECTION_ERROR, "not allowed: peer")]
    # In SETUP it is not refused by the rules, but there is no cluster.
    got = await connect(w, cluster).ask(setup(metadata))
    assert errors(got) == [(0, REJECTED_SETUP, "this broker has no cluster")]
    authorization = w.broker.authorization
    assert authorization is not None
    assert authorization.statistics().denied == {}
    assert w.services() == ["orders"]


@in_world(rules=PEER_RULES)
async def test_a_short_frame_introduces_no_broker(w: World) -> None:
    peer = await requester(w, ANY)
    assert await peer.ask(push(composite((BROKER_FRAME, OF_A_BROKER[:5])))) == []
    assert not peer.closed


# --- requests -------------------------------------------------------------------------------
@pytest.mark.parametrize("fragments", [False, True])
@in_world(AT_ONCE, rules=RULES)
async def test_a_refusal_says_nothing_about_destinations(w: World, fragments: bool) -> None:
    await destination(w, ANY, "secret")
    peer = await requester(w, SHOP)
    for number, service in enumerate(("secret", "missing", "secret")):
        asked = [request(RR, 1 + 2 * number, asked_for(service), b"da")]
        if fragments:
            asked = [
                request(RR, 1 + 2 * number, asked_for(service), b"da", flags=F),
                payload(1 + 2 * number, b"ta"),
            ]
        ((_, code, text),) = errors(await peer.ask(*asked))
        assert (code, text) == (INVALID, f"not allowed: request service={service}")
    # What is allowed, and not there, is another thing.
    code, text = await refused(peer, request(RR, 7, asked_for("nobody")))
    assert (code, "no route" in text) == (REJECTED, True)


@in_world(rules=RULES)
async def test_requests_without_an_answer_are_dropped_and_counted(w: World) -> None:
    secret = await destination(w, ANY, "secret")
    peer = await requester(w, SHOP)
    sent = request(FNF, 1, asked_for("secret")), push(asked_for("secret"))
    assert await peer.ask(*sent) == []
    assert await secret.received() == []
    assert w.listener.statistics().refused == 2
    authorization = w.broker.authorization
    assert authorization is not None
    assert authorization.statistics().denied == {"request": 2}
    assert not peer.closed


@in_world(rules=RULES)
async def test_a_request_for_fewer_tags_is_refused(w: World) -> None:
    await destination(w, ANY, "orders", {REGION: "eu"}, route_id=UUID(int=9))
    peer = await requester(w, SHOP)
    fewer: tuple[dict[int | str, str], ...] = ({REGION: "eu"}, {ROUTE_ID: str(UUID(int=9))})
    for number, tags in enumerate(fewer):
        code, text = await refused(peer, request(RR, 1 + 2 * number, asked_for(tags)))
        assert (code, text.startswith("not allowed: request ")) == (INVALID, True)


@in_world(AT_ONCE, rules=RULES)
async def test_without_a_principal_a_peer_is_anonymous(w: World) -> None:
    peer = await requester(w, None)
    assert (await refused(peer, request(RR, 1, asked_for("orders"))))[0] == INVALID
    assert w.broker.authorization is not None
    w.broker.authorization.replace(
        read_rules("rule = [{names = ['anonymous'], request = 'service=orders'}]")
    )
    assert (await refused(peer, request(RR, 3, asked_for("orders"))))[0] == REJECTED


# --- tenants --------------------------------------------------------------------------------
def hinted(tags: dict[int | str, str], *hints: tuple[int, str], flags: int = UNICAST) -> bytes:
    """Return composite metadata with an ADDRESS that has hints, in the specification's form."""
    plain = address(tags, flags, mime=FORWARDING)
    listed = b"".join(
        bytes((0x80 | key, (0x80 if left else 0) | len(text))) + text.encode()
        for left, (key, text) in zip(range(len(hints) - 1, -1, -1), hints, strict=True)
    )
    assert plain[22:24] == b"\x80\x00"
    return composite((FORWARDING, plain[:22] + listed + plain[24:]))


SHARD_KEY, STICKY = 0x1B, 0x1D


@pytest.mark.parametrize(
    "asked",
    [
        asked_for("orders"),
        asked_for({1: "orders", "tenant": "a"}),
        asked_for({REGION: "eu"}),
        asked_for("orders", MULTICAST),
        hinted({1: "orders", 10: "ann"}, (STICKY, "user")),
        hinted({1: "orders", "tenant": "a"}, (STICKY, "tenant")),
        hinted({1: "orders", "tenant": "a", 10: "x"}, (STICKY, "tenant"), (STICKY, "user")),
        hinted({1: "orders", 10: "ann"}, (SHARD_KEY, "user"), flags=SHARD),
        hinted(
            {1: "orders", "tenant": "a", 10: "x"},
            (SHARD_KEY, "tenant"),
            (SHARD_KEY, "user"),
            flags=SHARD,
        ),
        composite((ROUTE, b"32#service=orders")),
        composite((ROUTE, b"32#@multicast service=orders")),
        composite((ROUTE, b"32#@sticky=tenant service=orders tenant=a")),
    ],
    ids=range(12),
)
@in_world(rules=RULES)
async def test_a_tenant_reaches_its_own_destinations_only(w: World, asked: bytes) -> None:
    theirs = await destination(w, TENANT_B, "orders", {REGION: "eu"})
    own = await destination(w, TENANT_A, "orders", {REGION: "eu"})
    peer = await requester(w, TENANT_A)
    for number in range(4):
        assert await reached(peer, request(RR, 1 + 2 * number, asked), own, theirs) == [0]


@pytest.mark.parametrize(
    "asked",
    [
        asked_for("orders"),
        hinted({1: "orders", "tenant": "a"}, (STICKY, "tenant")),
        composite((ROUTE, b"32#@sticky=tenant service=orders tenant=a")),
    ],
    ids=range(3),
)
@in_world(rules=RULES)
async def test_a_tenant_waits_for_its_own_destinations_only(w: World, asked: bytes) -> None:
    peer = await requester(w, TENANT_A)
    assert await peer.ask(request(RR, 1, asked)) == []
    theirs = await destination(w, TENANT_B, "orders")
    assert await theirs.received() == []
    own = connect(w, TENANT_A)
    (got,) = await own.ask(setup(registration(w.new_id(), "orders")))
    assert await own.ask(payload(stream_of(got), b"", N | C)) == []
    assert await theirs.received() == []
    await peer.received()


@pytest.mark.parametrize(
    "asked",
    [
        asked_for({1: "orders", "tenant": "b"}),
        asked_for({1: "orders", "tenant": "b"}, MULTICAST),
        hinted({1: "orders", "tenant": "b"}, (STICKY, "tenant")),
        hinted({1: "orders", "tenant": "b"}, (SHARD_KEY, "tenant"), flags=SHARD),
        composite((ROUTE, b"32#service=orders tenant=b")),
        composite((ROUTE, b"32#@sticky=tenant service=orders tenant=b")),
    ],
    ids=range(6),
)
@in_world(rules=RULES)
async def test_a_tenant_cannot_name_another(w: World, asked: bytes) -> None:
    await destination(w, TENANT_B, "orders")
    peer = await requester(w, TENANT_A)
    code, text = await refused(peer, request(RR, 1, asked))
    assert (code, text.startswith("not allowed: request ")) == (INVALID, True)


@in_world(AT_ONCE, rules=RULES)
async def test_the_route_id_of_another_tenant_is_no_route(w: World) -> None:
    await destination(w, TENANT_B, "orders", route_id=UUID(int=9))
    peer = await requester(w, TENANT_A)
    texts: list[str] = []
    for number, asked in enumerate((UUID(int=9), UUID(int=8))):
        frame = request(RR, 1 + 2 * number, asked_for({ROUTE_ID: str(asked)}))
        code, text = await refused(peer, frame)
        assert code == REJECTED
        texts.append(text.replace(str(asked), "ID"))
    # The same for one that exists, and for one that does not.
    assert texts[0] == texts[1]


@in_world(rules=RULES)
async def test_a_shard_key_of_forced_tags_only_is_invalid(w: World) -> None:
    peer = await requester(w, TENANT_A)
    frame = hinted({1: "orders", "tenant": "a"}, (SHARD_KEY, "tenant"), flags=SHARD)
    code, text = await refused(peer, request(RR, 1, frame))
    assert (code, text) == (
        INVALID,
        "ShardKey: the tags that it names are those of the principal",
    )
    many: dict[int | str, str] = {1: "orders"} | {f"k{number}": "" for number in range(255)}
    code, text = await refused(peer, request(RR, 3, asked_for(many)))
    assert (code, text) == (INVALID, "tags: more than 256 with those of the principal")


@in_world(expose=("relay", "32#*"), allow=("32#*",), rules=RULES)
async def test_tag_queries_within_named_routes_are_decided_too(w: World) -> None:
    theirs, own = Recorder(), Recorder()
    await w.node.start(lambda: theirs, address="theirs")
    await w.node.start(lambda: own, address="own")
    w.broker.register("theirs", service="orders", tags={"tenant": "b"})
    w.broker.register("own", service="orders", tags={"tenant": "a"})
    await w.node.start(Forwarder, address="relay")
    await w.node.start(Echo, address="echo")
    peer = await requester(w, TENANT_A)
    for number, route in enumerate(("relay => 32#service=orders", "32#service=orders => echo")):
        frame = request(FNF, 1 + 2 * number, composite((ROUTE, route.encode())))
        assert await peer.ask(frame) == []
        assert theirs.messages == []
        assert len(own.messages) == 1 + number
    shop = await requester(w, SHOP)
    for number, route in enumerate(("relay => 32#service=x", "32#service=x => echo")):
        code, text = await refused(
            shop, request(RR, 1 + 2 * number, composite((ROUTE, route.encode())))
        )
        assert (code, text) == (INVALID, "not allowed: request service=x")


# --- other rules ----------------------------------------------------------------------------
@in_world(AT_ONCE, rules=RULES)
async def test_other_rules_hold_for_requests_that_were_decided_before(w: World) -> None:
    authorization = w.broker.authorization
    assert authorization is not None
    orders = await destination(w, SHOP, "orders")
    peer = await requester(w, SHOP)
    asked = asked_for("orders")
    assert await reached(peer, request(RR, 1, asked), orders) == [0]
    authorization.replace(
        read_rules("rule = [{roles = ['shop'], register = 'service=orders', read = true}]")
    )
    assert (await refused(peer, request(RR, 3, asked)))[0] == INVALID
    assert not orders.closed
    authorization.replace(read_rules(RULES))
    assert await reached(peer, request(RR, 5, asked), orders) == [0]
    # As if its credentials had been prolonged with other roles.
    peer.link.session.principal = NONE
    assert (await refused(peer, request(RR, 7, asked)))[0] == INVALID


@in_world(rules=RULES)
async def test_connections_that_may_no_longer_register_are_closed(w: World) -> None:
    authorization = w.broker.authorization
    assert authorization is not None
    orders = await destination(w, SHOP, "orders")
    tenant = await destination(w, role("shop", "tenant=b"), "mail")
    other = await destination(w, ANY, "orders")
    idle = await requester(w, SHOP)
    authorization.replace(
        read_rules("rule = [{roles = ['any', 'shop'], register = 'service=mail service=orders'}]")
    )
    assert [each.closed for each in (orders, tenant, other, idle)] == [False] * 4
    authorization.replace(read_rules("rule = [{roles = ['any'], register = 'service=orders'}]"))
    for each in (orders, tenant):
        told = errors(await each.received())
        assert told == [(0, CONNECTION_ERROR, "the rules no longer allow it")]
        assert each.closed
    assert not other.closed
    assert not idle.closed
    assert w.services() == ["orders"]
    assert w.listener.statistics().closed == {"not allowed": 2}
    authorization.replace(Rules())
    await other.received()
    assert w.services() == []


# --- the origin -----------------------------------------------------------------------------
@pytest.mark.parametrize("registered", [False, True])
@pytest.mark.parametrize("mime", [BROKER_FRAME, FORWARDING])
@in_world(rules=RULES)
async def test_the_origin_of_a_request_is_the_peer_itself(
    w: World, mime: bytes, registered: bool
) -> None:
    taker = connect(w, ANY)
    assert await taker.ask(setup(composite((mime, route_setup(w.new_id(), "taker"))))) == []
    own = UUID(int=77)
    peer = await requester(w, ANY)
    if registered:
        assert await peer.ask(push(registration(own, "asker"))) == []
    expected = own.bytes if registered else bytes(16)
    said: tuple[tuple[bytes, bytes], ...] = (
        (own.bytes, expected),
        (bytes(16), bytes(16)),
        (bytes(range(16)), expected),
        (bytes(range(16)), expected),
    )
    for number, (claimed, seen) in enumerate(said):
        stream = 1 + 2 * number
        claims, told = (
            composite((b"text/plain", b"x"), (mime, address("taker", mime=mime, origin=each)))
            for each in (claimed, seen)
        )
        await peer.ask(request(RR, stream, claims, b"data"))
        got = [raw for raw in await taker.received() if raw != IS_IT_ALIVE]
        assert got == [restamped(request(RR, 1, told, b"data"), stream_of(got[0]))]
        await taker.ask(payload(stream_of(got[0]), b"", N | C))
        await peer.received()
    # In pieces: the origin lies in two of them.
    claims, told = (
        composite((mime, address("taker", mime=mime, origin=each)))
        for each in (bytes(range(16)), expected)
    )
    cut = len(claims) - 20
    await peer.ask(
        request(RR, 21, claims[:cut], flags=F), payload(21, b"data", N | C, metadata=claims[cut:])
    )
    got = [raw for raw in await taker.received() if raw != IS_IT_ALIVE]
    stream = stream_of(got[0])
    assert got == [
        request(RR, stream, told[:cut], flags=F),
        payload(stream, b"data", N | C, metadata=told[cut:]),
    ]
    await taker.ask(payload(stream, b"", N | C))
    await peer.ask(push(claims))
    assert await taker.received() == [push(told)]


@in_world()
async def test_without_rules_an_origin_is_passed_on(w: World) -> None:
    peer, taker = await w.pair()
    asked = asked_for("a")
    await peer.ask(request(RR, 1, asked))
    (got,) = await taker.received()
    assert got == restamped(request(RR, 1, asked), stream_of(got))
    await taker.ask(payload(stream_of(got), b"", N | C))
    await peer.received()


@in_world(rules=RULES)
async def test_each_address_of_a_request_has_the_right_origin(w: World) -> None:
    taker = await destination(w, ANY, "taker")
    peer = await requester(w, ANY)
    forged = address("other", origin=b"\1" * 16), address("taker", origin=b"\2" * 16)
    true = address("other", origin=bytes(16)), address("taker", origin=bytes(16))
    short = (BROKER_FRAME, forged[0][:12])
    await peer.ask(request(RR, 1, composite(short, *((BROKER_FRAME, each) for each in forged))))
    (got,) = await taker.received()
    told = composite(short, *((BROKER_FRAME, each) for each in true))
    assert got == restamped(request(RR, 1, told), stream_of(got))
    await taker.ask(payload(stream_of(got), b"", N | C))
    await peer.received()


# --- management -----------------------------------------------------------------------------
def question(text: str, rest: bytes = b"", kind: int = RR, stream: int = 1) -> bytes:
    entries = (
        (BROKER_FRAME, address("onward.management")),
        (ROUTING, bytes((len(text),)) + text.encode()),
    )
    n = None if kind == RR else 1000
    return request(kind, stream, composite(*entries), rest, n=n)


async def asked(peer: Peer, text: str, rest: bytes = b"", stream: int = 1) -> Any:
    peer.send(question(text, rest, stream=stream))
    for _ in range(50):
        (answer,) = await peer.received() or [b""]
        if answer:
            assert kind_of(answer) == PAYLOAD, errors([answer])
            return json.loads(answer[9:])
    raise AssertionError("no answer")


@in_world(rules=RULES)
async def test_the_management_service_shows_what_a_principal_may_request(w: World) -> None:
    await destination(w, TENANT_A, "orders")
    await destination(w, TENANT_B, "orders")
    await destination(w, ANY, "stock")
    seen: dict[Principal | None, list[str]] = {
        role("ops"): ["onward.management", "orders", "orders", "stock"],
        ANY: ["onward.management", "orders", "orders", "stock"],
        TENANT_A: ["orders"],
        SHOP: ["orders", "orders", "stock"],
        NONE: [],
        None: [],
    }
    for principal, services in seen.items():
        peer = await requester(w, principal)
        rows = await asked(peer, "routes")
        assert sorted(row["service"] for row in rows) == services
        if principal == TENANT_A:
            assert rows[0]["tags"]["tenant"] == "a"


@in_world(rules=RULES)
async def test_the_figures_of_services_are_those_of_what_a_principal_may_request(w: World) -> None:
    for owner in (TENANT_A, TENANT_B):
        to = await destination(w, owner, "orders")
        peer = await requester(w, owner)
        await peer.ask(request(RR, 1, asked_for("orders")))
        await to.ask(payload(2, b"", C))
    await destination(w, ANY, "stock")
    rows = {row["service"]: row for row in await asked(await requester(w, TENANT_A), "services")}
    assert set(rows) == {"orders"}
    seen = rows["orders"]
    assert (seen["destinations"], seen["requests"], seen["answered"]) == (1, 1, None)
    assert seen["durations"] is seen["success"] is seen["p99"] is None
    assert await asked(await requester(w, NONE), "services") == []
    rows = {row["service"]: row for row in await asked(await requester(w, role("ops")), "services")}
    assert set(rows) == {"onward.management", "orders", "stock"}
    assert (rows["orders"]["destinations"], rows["orders"]["requests"]) == (2, 2)
    assert (rows["orders"]["answered"], rows["orders"]["success"]) == (2, 1.0)


@in_world(rules=RULES)
async def test_a_query_is_explained_by_what_its_requester_may_see(w: World) -> None:
    await destination(w, TENANT_A, "orders", {REGION: "eu"})
    await destination(w, TENANT_A, "mail")
    await destination(w, TENANT_B, "orders", {REGION: "eu"})
    tenant = await requester(w, TENANT_A)
    found = await asked(tenant, "resolve", b"service=orders")
    assert found["query"] == "service=orders tenant=a"
    assert (found["matches"], found["routes"]) == (1, 2)
    assert [each["route"]["service"] for each in found["others"]] == ["mail"]
    told = await asked(tenant, "resolve", b"service=orders tenant=b", stream=3)
    assert told == {"error": "not allowed: request service=orders tenant=b"}
    reader = await requester(w, role("ops"))
    assert (await asked(reader, "resolve", b"service=orders"))["matches"] == 2


@in_world(rules=RULES)
async def test_figures_are_for_those_who_may_read(w: World) -> None:
    peer = await requester(w, TENANT_A)
    for number, text in enumerate(("statistics", "workers", "dead-letters")):
        code, told = await refused(peer, question(text, stream=1 + 2 * number))
        assert (code, told) == (INVALID, "not allowed: read")
    authorization = w.broker.authorization
    assert authorization is not None
    assert authorization.statistics().denied == {"read": 3}
    reader = await requester(w, role("ops"))
    assert "routes" in await asked(reader, "statistics")


@in_world(rules=RULES)
async def test_events_and_the_table_show_what_a_principal_may_request(w: World) -> None:
    tenant, reader = await requester(w, TENANT_A), await requester(w, role("ops"))
    for peer in (tenant, reader):
        assert await peer.ask(question("watch", kind=STREAM)) == []
    await destination(w, TENANT_B, "orders")
    await destination(w, TENANT_A, "orders", {REGION: ""})
    asking = await requester(w, TENANT_B)
    await refused(asking, request(RR, 1, composite((ROUTE, b"32#@no-route=reject service=x"))))
    seen = [json.loads(each) for each in elements(await tenant.received())]
    assert [(each["kind"], each["service"]) for each in seen] == [("joined", "orders")]
    assert len(elements(await reader.received())) == 3
    frame = request(RR, 3, composite((ROUTE, b"32#@no-route=reject service=y")))
    (event,) = [json.loads(each) for each in elements(await tenant.ask(frame))]
    assert event["query"] == "@no-route=reject service=y tenant=a"
    for peer, rows in ((tenant, 1), (reader, 2)):
        peer.send(question("table", kind=STREAM, stream=9))
        lines = b"".join(elements(await peer.received())).splitlines()
        assert len(lines) == rows
        peer.send(cancel(1))


@in_world(rules=RULES)
async def test_a_message_of_a_worker_counts_as_anonymous(w: World) -> None:
    await destination(w, ANY, "orders")
    answer = await w.node.request("32#service=onward.management", b"routes")
    assert json.loads(answer.payload) == []


@in_world(rules=RULES)
async def test_handlers_learn_the_principal(w: World) -> None:
    handlers = Handlers()
    heard: list[Principal | None] = []

    @handlers.response
    async def answer(request: Request) -> bytes:
        heard.append(request.principal)
        return b""

    w.broker.serve(handlers, service="orders", tags={"tenant": "a"})
    for principal in (SHOP, TENANT_A):
        peer = await requester(w, principal)
        assert len(await peer.ask(request(RR, 1, asked_for("orders")))) == 1
    peer = await requester(w, TENANT_A)
    assert len(await peer.ask(request(RR, 1, composite((ROUTE, b"32#service=orders"))))) == 1
    assert heard == [SHOP, TENANT_A, TENANT_A]
