"""Two brokers that dial each other, over each kind of socket."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from onward.actors import Node
from onward.actors.broker import Broker
from onward.actors.cluster import PeerRefused
from onward.actors.security import Authorization
from onward.protocol import LinkDown, NotDelivered, OnwardError
from onward.protocol.security import BearerToken, Credentials, Principal, read_rules
from onward.transports.client import connect
from onward.transports.rsocket import PeerDialler, PeerOptions, RSocketListener, _prolonging
from onward.transports.rsocket._link import Link
from tests.support.certificates import Certificates
from tests.support.peer_brokers import CLUSTER, HandMade
from tests.support.security import gated
from tests.support.transports import eventually

SCHEMES = ["rsocket+tcp", "rsocket+tls", "rsocket+ws", "rsocket+wss", "rsocket+unix"]
RULES = "rule = [{roles = ['cluster'], peer = true}]"


class Side(NamedTuple):
    """A broker of a cluster.

    Attributes:
        broker: The broker.
        peers: Its cluster.
        listener: Its listener.
    """

    broker: Broker
    peers: HandMade
    listener: RSocketListener

    def link(self, at: int = 0) -> Link:
        """Return the connection of a peer link."""
        found: object = getattr(self.peers.links[at], "_link")  # noqa: B009 - of another class
        assert isinstance(found, Link)
        return found


@asynccontextmanager
async def side(uri: str, rules: str | None = None, **more: Any) -> AsyncGenerator[Side]:
    authorization = None if rules is None else Authorization(read_rules(rules))
    async with Node("broker") as node:
        broker = await Broker.attach(node, authorization=authorization)
        peers = HandMade(broker.broker_id)
        listener = await node.listen(uri, broker=broker, peers=peers, **more)
        assert isinstance(listener, RSocketListener)
        yield Side(broker, peers, listener)


def workers(at: Side) -> int:
    """Return the number of workers of a broker's node."""
    return len(at.broker.node.statistics().workers)


def uri_of(scheme: str, folder: Path, name: str) -> str:
    return f"{scheme}://{folder}/{name}" if scheme.endswith("unix") else f"{scheme}://127.0.0.1:0"


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates.make(tmp_path_factory.mktemp("tls"))


@asynccontextmanager
async def dialled(near: Side, far: Side, **options: Any) -> AsyncGenerator[PeerDialler]:
    """Have the near broker dial the far one."""
    dialler = PeerDialler(near.broker, options=PeerOptions(**options))
    await dialler.connect(far.listener.uri, near.peers)
    yield dialler


@pytest.mark.parametrize("scheme", SCHEMES)
async def test_over_each_kind_of_socket(
    scheme: str, tmp_path: Path, certificates: Certificates
) -> None:
    secure = scheme in {"rsocket+tls", "rsocket+wss"}
    more: dict[str, Any] = {"tls": certificates.listener} if secure else {}
    async with (
        side(uri_of(scheme, tmp_path, "near"), **more) as near,
        side(uri_of(scheme, tmp_path, "far"), **more) as far,
    ):
        options = PeerOptions(tls=certificates.anonymous) if secure else PeerOptions()
        made = await PeerDialler(near.broker, options=options).connect(far.listener.uri, near.peers)
        await eventually(lambda: bool(far.peers.links))
        assert near.peers.links == [made]
        assert made.dialled
        assert made.info == far.peers.info
        (accepted,) = far.peers.links
        assert accepted.info == near.peers.info
        assert not accepted.dialled
        # Either side asks the other.
        assert await made.request(CLUSTER, b"1") == b"answer to 1"
        assert await accepted.request(CLUSTER, b"2") == b"answer to 2"
        setup = near.link().session.setup
        assert setup is not None
        assert (setup.keepalive, setup.lifetime) == (1000, 5000)
        made.close("drained", "it was enough")
        await eventually(lambda: bool(near.peers.lost and far.peers.lost))
        assert near.peers.lost == [(made, "drained")]
        assert far.peers.lost == [(accepted, "it was enough")]


@pytest.mark.parametrize("scheme", ["rsocket+tls", "rsocket+wss"])
async def test_an_address_of_a_name_that_the_certificate_is_for(
    scheme: str, certificates: Certificates
) -> None:
    # The certificate is for `localhost`, and for no address of the two.
    async with (
        side("rsocket+tcp://127.0.0.1:0") as near,
        side(f"{scheme}://127.0.0.2:0", tls=certificates.listener) as one,
        side(f"{scheme}://127.0.0.3:0", tls=certificates.listener) as two,
    ):
        dialler = PeerDialler(near.broker, options=PeerOptions(tls=certificates.anonymous))
        for far, address in ((one, "127.0.0.2"), (two, "127.0.0.3")):
            plain = far.listener.uri
            with pytest.raises(OSError, match="certificate"):
                await dialler.connect(plain, near.peers)
            named = plain.replace(address, "localhost")
            made = await dialler.connect(f"{named}#{address}", near.peers)
            assert made.info == far.peers.info
        other = one.listener.uri.replace("127.0.0.2", "brokers.example")
        with pytest.raises(OSError, match="certificate"):
            await dialler.connect(f"{other}#127.0.0.2", near.peers)


async def test_credentials_are_shown_and_rules_asked() -> None:
    good, bad, weak = BearerToken(b"good"), BearerToken(b"bad"), BearerToken(b"weak")
    principals: dict[Credentials | None, Principal] = {
        good: Principal("broker-1", "test", frozenset({"cluster"})),
        weak: Principal("shop-1", "test"),
    }
    _, authentication = gated(principals)
    uri = "rsocket+tcp://127.0.0.1:0"
    async with side(uri) as near, side(uri, RULES, authentication=authentication) as far:
        for shown, text in ((bad, "not authenticated"), (weak, "not allowed: peer")):
            with pytest.raises(PeerRefused, match=text):
                await PeerDialler(near.broker, shown).connect(far.listener.uri, near.peers)
        assert near.peers.links == far.peers.links == []

        async def fresh() -> Credentials:
            return good

        await PeerDialler(near.broker, fresh).connect(far.listener.uri, near.peers)
        await eventually(lambda: bool(far.peers.links))
        principal = far.link().session.principal
        assert principal is not None
        assert principal.name == "broker-1"

        async def failing() -> Credentials:
            raise OSError("secret")

        with pytest.raises(NotDelivered, match="no credentials"):
            await PeerDialler(near.broker, failing).connect(far.listener.uri, near.peers)


async def test_credentials_that_expire_are_shown_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_prolonging, "PART", 0.0)
    monkeypatch.setattr(_prolonging, "LEAST", 0.0)
    soon, late = time.time() + 600, time.time() + 1200
    roles = frozenset({"cluster"})
    principals: dict[Credentials | None, Principal] = {
        BearerToken(b"one"): Principal("broker-1", "test", roles, expires=soon),
        BearerToken(b"two"): Principal("broker-1", "test", roles, expires=late),
    }
    gate, authentication = gated(principals)
    tokens = iter((b"one", b"two"))
    asked = asyncio.Event()

    async def fresh() -> Credentials:
        for token in tokens:
            return BearerToken(token)
        asked.set()
        return await asyncio.Future[Credentials]()

    uri = "rsocket+tcp://127.0.0.1:0"
    async with side(uri) as near, side(uri, RULES, authentication=authentication) as far:
        await PeerDialler(near.broker, fresh).connect(far.listener.uri, near.peers)
        await asked.wait()
        assert [given for given, _ in gate.seen] == [BearerToken(b"one"), BearerToken(b"two")]
        principal = far.link().session.principal
        assert principal is not None
        assert principal.expires == late
        assert far.peers.lost == []
        near.link().close("drained", "it was enough")
        await eventually(lambda: bool(far.peers.lost))
    left = asyncio.all_tasks() - {asyncio.current_task()}
    assert not left


async def test_refusals_of_either_side() -> None:
    uri = "rsocket+tcp://127.0.0.1:0"
    async with side(uri) as near, side(uri) as far:
        dialler = PeerDialler(near.broker)
        before = workers(near)
        far.peers.refuses["greet"] = "paused"
        with pytest.raises(PeerRefused, match="paused"):
            await dialler.connect(far.listener.uri, near.peers)
        far.peers.refuses.clear()
        near.peers.refuses["connected"] = "another link stays"
        with pytest.raises(PeerRefused, match="another link stays"):
            await dialler.connect(far.listener.uri, near.peers)
        await eventually(lambda: bool(far.peers.lost))
        near.peers.refuses.clear()
        far.peers.refuses["connected"] = "another link stays"
        # Its answer came before it closed the connection.
        link = await dialler.connect(far.listener.uri, near.peers)
        await eventually(lambda: near.peers.lost == [(link, "another link stays")])
        await eventually(lambda: workers(near) == before)


@pytest.mark.parametrize(
    ("uri", "error"),
    [
        ("http://a:1", ValueError),
        ("rsocket+unix:///nowhere/at-all", OSError),
        ("rsocket+tcp://does-not-exist.invalid:1", OSError),
    ],
)
async def test_what_cannot_be_dialled(uri: str, error: type[Exception]) -> None:
    async with side("rsocket+tcp://127.0.0.1:0") as near:
        before = workers(near)
        with pytest.raises(error):
            await PeerDialler(near.broker).connect(uri, near.peers)
        await eventually(lambda: workers(near) == before)


@asynccontextmanager
async def server(answer: bytes | None) -> AsyncGenerator[str]:
    """Serve what is no broker: it sends some bytes and closes, or it sends nothing."""

    left = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal left
        left += 1
        if answer is not None:
            await reader.readuntil(b"cluster.broker-info")
            writer.write(answer)
        else:
            await reader.read()
        writer.close()
        left -= 1

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as serving:
        host, port = serving.sockets[0].getsockname()
        yield f"rsocket+tcp://{host}:{port}"
        await eventually(lambda: not left)


ANSWERS = {
    "closed": b"",
    "no RSocket": b"HTTP/1.0 400 Bad Request\r\n\r\n",
    "no BROKER_INFO": bytes.fromhex("000007 00000001 2860 3f"),
    "an error": bytes.fromhex("00000b 00000001 2c00 00000202 6e"),
    "a request": bytes.fromhex("000007 00000002 1000 3f"),
}


@pytest.mark.parametrize("answer", ANSWERS.values(), ids=ANSWERS.keys())
async def test_a_program_that_is_no_broker(answer: bytes) -> None:
    async with side("rsocket+tcp://127.0.0.1:0") as near, server(answer) as uri:
        before = workers(near)
        with pytest.raises(LinkDown):
            await PeerDialler(near.broker).connect(uri, near.peers)
        await eventually(lambda: workers(near) == before)
        assert near.peers.links == []
        assert near.peers.lost == []


async def test_a_program_that_says_nothing() -> None:
    async with side("rsocket+tcp://127.0.0.1:0") as near, server(None) as uri:
        before = workers(near)
        dialler = PeerDialler(near.broker, options=PeerOptions(connect_timeout=0.05))
        with pytest.raises(LinkDown, match="no answer within"):
            await dialler.connect(uri, near.peers)
        # Given up by its caller.
        dialling = asyncio.ensure_future(PeerDialler(near.broker).connect(uri, near.peers))
        await asyncio.sleep(0)
        await eventually(lambda: workers(near) > before)
        dialling.cancel()
        with pytest.raises(asyncio.CancelledError):
            await dialling
        await eventually(lambda: workers(near) == before)


async def test_a_client_of_the_same_listener_stays_a_client() -> None:
    uri = "rsocket+tcp://127.0.0.1:0"
    async with side(uri) as near, side(uri) as far, dialled(near, far):
        async with connect(far.listener.uri) as client:
            with pytest.raises(OnwardError):
                await client.request("service=nothing @no-route=reject", b"")
        assert far.listener.connections_left <= 1


async def test_the_round_trip_of_the_side_that_has_dialled() -> None:
    uri = "rsocket+tcp://127.0.0.1:0"
    async with side(uri) as near, side(uri) as far, dialled(near, far, keepalive=0.02):
        (link,) = near.peers.links
        await eventually(lambda: link.round_trip > 0)
        assert link.round_trip < 5


async def test_all_that_one_broker_has_dialled_are_kept_alive_at_once() -> None:
    uri = "rsocket+tcp://127.0.0.1:0"
    async with side(uri) as near, side(uri) as one, side(uri) as two:
        dialler = PeerDialler(near.broker, options=PeerOptions(keepalive=0.1, lifetime=60.0))
        for far in (one, two):
            await dialler.connect(far.listener.uri, near.peers)
            await eventually(lambda: near.peers.links[-1].round_trip > 0)
        first, second = (near.link(at).core.get_timer() for at in range(2))
        assert first is not None
        assert first == pytest.approx(second, abs=1e-6)


async def test_the_end_of_a_node_ends_its_links() -> None:
    uri = "rsocket+tcp://127.0.0.1:0"
    async with side(uri) as far:
        async with side(uri) as near, dialled(near, far):
            (link,) = near.peers.links
            waiting = asyncio.ensure_future(far.peers.links[0].request("cluster.nothing", b""))
            await asyncio.wait([waiting])
            assert waiting.exception() is not None
        assert [each for each, _ in near.peers.lost] == [link]
        await eventually(lambda: bool(far.peers.lost))


@pytest.mark.parametrize(
    "fields", [{"keepalive": 5.0}, {"lifetime": 0.0}, {"connect_timeout": 0.0}]
)
def test_options_out_of_range(fields: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"keepalive|lifetime|connect_timeout"):
        replace(PeerOptions(), **fields)
