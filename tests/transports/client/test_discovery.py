"""What clients learn of other brokers: from the real ones of a cluster, and from bad ones."""

from __future__ import annotations

import asyncio
import ssl
from dataclasses import replace
from typing import Any, cast
from uuid import uuid4

import pytest

from onward.protocol.cluster import DRAINING, PeerInfo, parse_infos, serialize_infos
from onward.transports import Backoff, TlsOptions
from onward.transports.client import BrokersOptions, Client, ClientOptions, connect
from onward.transports.client._dial import parse_place
from onward.transports.client._discovery import Discovery, LearnedUris
from tests.support.certificates import Certificates
from tests.support.rsocket_peer import ERROR, PAYLOAD, RR, frame, kind_of
from tests.support.rsocket_wires import BrokerByHand, WiredLoop, on_wires
from tests.support.transports import eventually

from .clustered import TCP, sites
from .peers import echo_handlers, quick

TO = "service=echo"
LOOPBACK = ("rsocket+tcp://127.0.0.1:*",)
FAST = BrokersOptions(allowed=LOOPBACK, refresh=0.2, rebalance=0.1)


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates.make(tmp_path_factory.mktemp("certificates"))


def known(client: Client) -> set[str]:
    assert client._pool is not None
    return client._pool.brokers.uris


# --- what may be used -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("named", "tls", "allowed", "learned", "refusal"),
    [
        # Without patterns: with TLS only, and with a certificate or a host that was named.
        ("rsocket+tls://a:1", None, (), "rsocket+tls://a:2", ""),
        ("rsocket+tls://a:1", None, (), "rsocket+wss://a:2/x", ""),
        ("rsocket+tls://a:1", None, (), "rsocket+tls://b:1", "not allowed"),
        ("rsocket+tls://a:1", None, (), "rsocket+tcp://a:1", "less secure"),
        ("rsocket+tls://a:1", None, (), "rsocket+unix:///a", "less secure"),
        ("rsocket+tls://a:1", "server", (), "rsocket+tls://b:1", ""),
        ("rsocket+tls://a:1", "authority", (), "rsocket+tls://b:1", ""),
        ("rsocket+tls://a:1", "context", (), "rsocket+tls://b:1", "not allowed"),
        ("rsocket+tls://a:1", "context", (), "rsocket+tls://a:2", ""),
        ("rsocket+tcp://a:1", None, (), "rsocket+tcp://a:2", "less secure"),
        # With patterns: what matches, and is no less secure than any that was named.
        ("rsocket+tcp://a:1", None, ("rsocket+tcp://*.x:*",), "rsocket+tcp://b.x:2", ""),
        ("rsocket+tcp://a:1", None, ("rsocket+tcp://*.x:*",), "rsocket+tcp://b.y:2", "not allowed"),
        ("rsocket+tls://a:1", None, ("*",), "rsocket+tcp://b:2", "less secure"),
        ("rsocket+tls://a:1", None, ("rsocket+*",), "rsocket+tls://b:2", "not allowed"),
        ("rsocket+tls://a:1", None, ("rsocket+tls://*.x:1",), "rsocket+tls://b.x:1", ""),
        # A pattern's part of the host is no path, no query, and no user.
        (
            "rsocket+wss://a:1",
            None,
            ("rsocket+wss://*.x:1",),
            "rsocket+wss://b:1/.x:1",
            "not allowed",
        ),
        (
            "rsocket+wss://a:1",
            None,
            ("rsocket+wss://*.x:1",),
            "rsocket+wss://b:1?.x:1",
            "not allowed",
        ),
        (
            "rsocket+wss://a:1",
            None,
            ("rsocket+wss://*.x:1",),
            "rsocket+wss://b:1#.x:1",
            "not allowed",
        ),
        (
            "rsocket+wss://a:1",
            None,
            ("rsocket+wss://*.x:1",),
            "rsocket+wss://u@b.x:1",
            "not allowed",
        ),
        ("rsocket+tcp://a:1", None, ("*://*:*",), "http://a:1", "no URI of a broker"),
        ("rsocket+tcp://a:1", None, ("*//*",), "rsocket+tcp://[a:1", "no URI of a broker"),
        ("rsocket+tcp://a:1", None, ("rsocket+tcp:*",), "rsocket+tcp:", "no URI of a broker"),
        ("rsocket+tls://a:1", None, (), "rsocket+tls://[a:1", "not allowed"),
    ],
)
def test_which_learned_brokers_may_be_used(
    certificates: Certificates,
    named: str,
    tls: Any,
    allowed: tuple[str, ...],
    learned: str,
    refusal: str,
) -> None:
    given: TlsOptions | ssl.SSLContext | None = {
        "server": TlsOptions(server_name="broker"),
        "authority": TlsOptions(authority=certificates.authority),
        "context": ssl.create_default_context(),
        None: None,
    }[tls]
    options = ClientOptions(tls=given, brokers=BrokersOptions(allowed=allowed))
    assert LearnedUris([parse_place(named, options)], options).refusal(learned) == refusal


# --- a cluster --------------------------------------------------------------------------------


async def test_a_client_learns_of_the_brokers_of_a_cluster() -> None:
    """It knows one, spreads its connections over all, and needs the first no more."""
    async with sites(3) as cluster:
        first = cluster.all[0]
        options = quick(brokers=FAST)
        async with (
            connect(cluster.all[2].uri, service="echo", handlers=echo_handlers()),
            connect(first.uri, connections=3, options=options) as client,
        ):
            everyone = {each.uri for each in cluster.all}
            await eventually(lambda: known(client) == everyone)
            await eventually(lambda: places(client) == everyone)
            await eventually(lambda: client.statistics().connected == 3)
            assert (await client.request(TO, b"hi")).data == b"hi"
            await cluster.stop(first)
            await eventually(
                lambda: len(places(client)) == 2 and client.statistics().connected == 3
            )
            assert (await client.request(TO, b"hi")).data == b"hi"
            # One that joins later is found as well.
            later = await cluster.start()
            await eventually(lambda: later.uri in places(client))


def places(client: Client) -> set[str]:
    """Return the brokers that a client is connected to."""
    assert client._pool is not None
    return {link.name for link in client._pool.alive()}


async def test_a_broker_tells_clients_only_what_they_need() -> None:
    async with sites(2) as cluster, connect(cluster.all[0].uri) as client:
        answer = await client.request("service=onward.brokers", b"")
        own, other = [site.broker.broker_id.bytes for site in cluster.all]
        infos = parse_infos(answer.data, 10)
        assert [each.broker_id for each in infos] == [own, other]
        assert [each.proxy_uri for each in infos] == [each.uri for each in cluster.all]
        assert {(each.cluster_uri, each.instance, each.name) for each in infos} == {("", 0, "")}


async def test_clients_are_told_nothing_by_default() -> None:
    async with (
        sites(2, tells=False) as cluster,
        connect(cluster.all[0].uri, options=quick(brokers=FAST)) as client,
    ):
        discovery = discovery_of(client)
        await eventually(lambda: discovery.failed > 1)
        assert known(client) == {cluster.all[0].uri}


RULES = """
[[rule]]
names = ["anonymous"]
peer = true
request = ["service=echo"{more}]
"""


@pytest.mark.parametrize("may", [False, True])
async def test_a_client_that_may_not_see_others_learns_nothing(may: bool) -> None:
    rules = RULES.replace("{more}", ', "service=onward.brokers"' if may else "")
    async with (
        sites(2, rules=rules) as cluster,
        connect(cluster.all[0].uri, options=quick(brokers=FAST)) as client,
    ):
        discovery = discovery_of(client)
        if may:
            await eventually(lambda: len(known(client)) == 2)
            assert not discovery.failed
        else:
            await eventually(lambda: discovery.failed > 1)
            assert known(client) == {cluster.all[0].uri}


def discovery_of(client: Client) -> Discovery:
    assert client._pool is not None
    assert client._pool._discovery is not None
    return client._pool._discovery


async def test_with_tls_the_certificates_say_which_brokers_are_used(
    certificates: Certificates,
) -> None:
    trusting = TlsOptions(authority=certificates.authority)
    async with sites(
        2, uri=TCP.replace("tcp", "tls"), tls=certificates.listener, peer_tls=trusting
    ) as cluster:
        options = quick(tls=trusting, brokers=replace(FAST, allowed=(), learn=True))
        async with connect(cluster.all[0].uri, connections=2, options=options) as client:
            await eventually(lambda: places(client) == {each.uri for each in cluster.all})
        # Without a check of the certificate the broker may be anything.
        blind = ssl.create_default_context()
        blind.check_hostname, blind.verify_mode = False, ssl.CERT_NONE
        options = quick(tls=blind, brokers=replace(FAST, allowed=(), learn=True))
        async with connect(cluster.all[0].uri, connections=2, options=options) as client:
            await eventually(lambda: client.statistics().connected == 2)
            assert discovery_of(client)._due(1e9) is None


# --- bad brokers ------------------------------------------------------------------------------


def info(port: int, **more: Any) -> PeerInfo:
    uri = f"rsocket+tcp://127.0.0.1:{port}"
    return PeerInfo(uuid4().bytes, 1, proxy_uri=uri, **more)


def options(**more: Any) -> ClientOptions:
    given: dict[str, Any] = {"allowed": LOOPBACK, "rebalance": 5.0, **more}
    backoff = Backoff(0.1, 8.0, random=lambda: 0.5)
    return ClientOptions(backoff=backoff, brokers=BrokersOptions(**given))


def questions(broker: BrokerByHand) -> list[bytes]:
    return [each for each in broker.hand.frames if kind_of(each) == RR]


def answer(broker: BrokerByHand, data: bytes) -> None:
    stream = int.from_bytes(questions(broker)[-1][3:7])
    broker.hand.send(frame(stream, PAYLOAD, 0x60, data))


@on_wires
async def test_the_question_is_asked_once_at_first_and_then_rarely() -> None:
    loop = cast(WiredLoop, asyncio.get_running_loop())
    broker = BrokerByHand(loop)
    async with connect(broker.uri, options=options(refresh=60.0)):
        for minutes in range(1, 6):
            await loop.idle()
            assert len(questions(broker)) == minutes
            assert b"onward.brokers" in questions(broker)[-1]
            answer(broker, serialize_infos([info(7)]))
            await asyncio.sleep(43)
            assert len(questions(broker)) == minutes
            await asyncio.sleep(2.1)


@pytest.mark.parametrize(
    "data",
    [
        b"x",
        bytes(70_000),
        (0xFFFFFF).to_bytes(3),
        serialize_infos([info(8)])[:-1],
        b"",
        serialize_infos([]),
    ],
    ids=("no list", "too long", "a length alone", "cut", "nothing", "of none"),
)
@on_wires
async def test_a_list_that_cannot_be_read_changes_nothing(data: bytes) -> None:
    loop = cast(WiredLoop, asyncio.get_running_loop())
    broker = BrokerByHand(loop)
    async with connect(broker.uri, options=options()) as client:
        await loop.idle()
        answer(broker, data)
        await asyncio.sleep(30)
        assert known(client) == {broker.uri}
        assert client.statistics().connected == 1
        assert discovery_of(client).failed == bool(data)


@on_wires
async def test_of_a_list_of_more_brokers_than_are_known_the_first_are_used() -> None:
    """A broker of a large cluster tells of those of other zones as well."""
    loop = cast(WiredLoop, asyncio.get_running_loop())
    broker = BrokerByHand(loop)
    async with connect(broker.uri, options=options()) as client:
        await loop.idle()
        infos = [info(port) for port in range(7, 200)]
        answer(broker, serialize_infos(infos))
        await loop.idle()
        assert known(client) == {each.proxy_uri for each in infos[:64]}
        assert discovery_of(client).failed == 0
        assert client._pool is not None
        assert client._pool.brokers.learned.ignored == 200 - 7 - 64


@on_wires
async def test_a_broker_that_does_not_answer_is_asked_again() -> None:
    loop = cast(WiredLoop, asyncio.get_running_loop())
    broker = BrokerByHand(loop)
    async with connect(broker.uri, options=options()) as client:
        await loop.idle()
        stream = int.from_bytes(questions(broker)[-1][3:7])
        broker.hand.send(frame(stream, ERROR, 0, (0x202).to_bytes(4) + b"no route"))
        await asyncio.sleep(60)
        assert len(questions(broker)) == 2
        await asyncio.sleep(60)
        assert discovery_of(client).failed >= 2
        assert client.statistics().in_flight == 0


@on_wires
async def test_brokers_that_are_not_allowed_are_never_dialled() -> None:
    loop = cast(WiredLoop, asyncio.get_running_loop())
    broker = BrokerByHand(loop)
    bad = [
        replace(info(8), proxy_uri="rsocket+tcp://10.0.0.8:8"),
        replace(info(8), proxy_uri="rsocket+unix:///run/secret"),
        replace(info(8), proxy_uri="http://127.0.0.1:8"),
        replace(info(8), proxy_uri="rsocket+tcp://127.0.0.1:x"),
    ]
    async with connect(broker.uri, connections=3, options=options()) as client:
        await loop.idle()
        for hand in broker.hands:
            asked = [each for each in hand.frames if kind_of(each) == RR]
            for each in asked:
                stream = int.from_bytes(each[3:7])
                hand.send(frame(stream, PAYLOAD, 0x60, serialize_infos([info(7), *bad])))
        await asyncio.sleep(40)
        assert known(client) == {broker.uri}
        assert len(loop.dials) == 3
        assert client.statistics().brokers == 1
        assert client.statistics().brokers_refused >= 4


@on_wires
async def test_a_broker_that_the_list_says_drains_is_left() -> None:
    loop = cast(WiredLoop, asyncio.get_running_loop())
    one, two = BrokerByHand(loop, 7), BrokerByHand(loop, 8)
    async with connect(one.uri, options=options()) as client:
        await loop.idle()
        answer(one, serialize_infos([info(7, state=DRAINING), info(8)]))
        await asyncio.sleep(30)
        assert places(client) == {two.uri}
        assert client.statistics().moves == 1
