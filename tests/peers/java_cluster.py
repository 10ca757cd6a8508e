"""A cluster of brokers of ours in this process, and the Java broker beside it."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from typing import Final, NamedTuple

import pytest
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    load_pem_private_key,
    pkcs12,
)
from cryptography.x509 import load_pem_x509_certificate, load_pem_x509_certificates

from onward.actors import Node
from onward.actors.broker import Broker, Handlers, Request
from onward.actors.cluster import Cluster, ClusterOptions
from onward.actors.security import Authorization
from onward.protocol.broker import Dialect
from onward.protocol.security import read_rules
from onward.transports import TlsOptions
from onward.transports.client import Client, ClientOptions, connect
from onward.transports.rsocket import (
    DestinationError,
    PeerDialler,
    PeerOptions,
    RSocketListener,
)
from tests.peers.jvm import FAST_START, JavaBroker, JavaMissing, java_broker
from tests.support.certificates import Certificates

__all__ = [
    "BROKERS",
    "DIALECTS",
    "GOT",
    "PATIENCE",
    "TAKEN",
    "Side",
    "all_ask_all",
    "asked",
    "client",
    "free_port",
    "running",
    "secret_stores",
    "settled",
    "side",
    "until",
]

DIALECTS: Final = (Dialect.SPECIFICATION, Dialect.REFERENCE)
PATIENCE: Final = 60.0
"""Seconds until something has happened on a machine with other things to do."""
CLUSTER: Final = "-Dio.rsocket.broker.cluster."
BROKERS: Final = "-Dio.rsocket.broker.brokers[0]."
PASSWORD: Final = "of the tests"
"""Opens the files of keys and certificates of the Java broker."""
TAKEN: Final = ("note", "news")
"""What a destination gets without an answer."""
GOT: Final[list[str]] = []
"""What the destinations of `answering` got without an answer."""


class Side(NamedTuple):
    """A broker of ours."""

    listener: RSocketListener
    cluster: Cluster
    uri: str

    @property
    def up(self) -> int:
        """The peer brokers that it has links with."""
        return sum(row.state == "up" for row in self.cluster.peers())

    @property
    def told(self) -> bool:
        """Whether each peer broker has all its routes."""
        return not any(row.unsent for row in self.cluster.peers())

    def routes_of_java(self) -> int:
        """Return how many routes it has of the Java broker."""
        return next((row.routes for row in self.cluster.peers() if row.java), 0)


def free_port() -> int:
    """Return a port for a program that has to tell others of it before it listens."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port


@asynccontextmanager
async def side(
    name: str, *seeds: str, rules: str = "", secure: Certificates | None = None
) -> AsyncGenerator[Side]:
    """Run a broker of ours; it listens by `wss` if it has certificates, else by `tcp`."""
    dials = secure.anonymous if secure else None
    listens, by = (secure.listener, "wss") if secure else (None, "tcp")
    async with Node(name) as node:
        authorization = Authorization(read_rules(rules)) if rules else None
        broker = await Broker.attach(node, authorization=authorization)
        cluster = await Cluster.attach(
            node,
            broker,
            ClusterOptions(seeds=seeds, name=name),
            connect=PeerDialler(broker, options=PeerOptions(tls=dials)).connect,
        )
        listener = await node.listen(
            f"rsocket+{by}://127.0.0.1:0", broker=broker, peers=cluster, tls=listens
        )
        cluster.join(listener.uri)
        assert isinstance(listener, RSocketListener)
        yield Side(listener, cluster, listener.uri)


async def until(condition: Callable[[], bool]) -> None:
    """Wait until something is so."""
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        await asyncio.sleep(0.05)


def answering(name: str) -> Handlers:
    """Return handlers of each interaction, whose answers begin with a name."""
    handlers = Handlers()

    @handlers.response
    async def answer(request: Request) -> bytes:
        return name.encode() + b" " + request.data

    @handlers.stream
    async def count(request: Request) -> AsyncGenerator[bytes]:
        for number in range(int(request.data)):
            yield b"%s %d" % (name.encode(), number)

    @handlers.channel
    async def echo(_: Request, incoming: AsyncIterator[bytes]) -> AsyncGenerator[bytes]:
        async for element in incoming:
            yield name.encode() + b" " + element

    @handlers.fire_and_forget
    async def take(request: Request) -> None:
        GOT.append(f"{name} {request.data.decode()}")

    @handlers.metadata_push("news")
    async def take_push(_: Request) -> None:
        GOT.append(f"{name} news")

    del answer, count, echo, take, take_push
    return handlers


async def client(
    stack: AsyncExitStack, uri: str, name: str, service: str, tls: TlsOptions | None = None
) -> Client:
    """Connect a client that answers; one whose name begins with `java` in the other dialect.

    A Java broker adds what joins on several threads, and tells of one only if two join at the same
    moment: `joinEvents.tryEmitNext` of its table drops the other. So its clients are connected
    while no other broker tells it of routes.
    """
    dialect = Dialect.REFERENCE if name.startswith("java") else Dialect.SPECIFICATION
    options = ClientOptions(dialect=dialect, reconnect=False, tls=tls)
    return await stack.enter_async_context(
        connect(uri, options=options, service=service, handlers=answering(name))
    )


async def asked(client: Client, service: str, text: bytes = b"hi") -> bytes:
    """Return the answer of a service."""
    async with asyncio.timeout(PATIENCE):
        return (await client.request(f"service={service}", text)).data


def secret_stores(certificates: Certificates) -> tuple[str, ...]:
    """Return the options of a JVM that has the key of a server, and trusts one authority.

    They are in files of PKCS #12: Spring Boot 2.6 reads no PEM.
    """
    pem = certificates.server.read_bytes()
    first, *others = load_pem_x509_certificates(pem)
    key = load_pem_private_key(pem, None)
    assert isinstance(key, EllipticCurvePrivateKey)
    locked = BestAvailableEncryption(PASSWORD.encode())
    own, trusted = (certificates.folder / name for name in ("own.p12", "trusted.p12"))
    own.write_bytes(pkcs12.serialize_key_and_certificates(b"own", key, first, others, locked))
    authority = load_pem_x509_certificate(certificates.authority.read_bytes())
    entry = pkcs12.PKCS12Certificate(authority, b"authority")
    trusted.write_bytes(pkcs12.serialize_java_truststore([entry], locked))
    return (
        f"-Donward.key-store={own}",
        f"-Donward.key-store-password={PASSWORD}",
        f"-Djavax.net.ssl.trustStore={trusted}",
        f"-Djavax.net.ssl.trustStorePassword={PASSWORD}",
    )


@contextmanager
def running(ports: tuple[int, int], *options: str, by: str = "tcp") -> Generator[JavaBroker]:
    """Run the Java broker in a cluster, and kill it at the end."""
    more = f"{CLUSTER}enabled=true", f"{CLUSTER}uri={by}://127.0.0.1:{ports[0]}"
    place = f"{by}://127.0.0.1:{ports[1]}"
    try:
        with java_broker(place, options=(*FAST_START, *more, *options)) as java:
            yield java
    except JavaMissing as error:
        pytest.skip(f"Java broker: {error}")


async def all_ask_all(clients: dict[str, Client], services: Sequence[str]) -> None:
    """Check that each client gets an answer of each service."""
    for service in services:
        # It tells nothing when it has registered a destination, and a request waits for ever.
        for each in clients.values():
            assert await asked(each, service) == f"{service} hi".encode()


async def settled(asking: Client, *services: str) -> None:
    """Wait until the Java broker knows services; a request that comes before waits for ever."""
    for service in services:
        for _ in range(60):
            try:
                async with asyncio.timeout(1):
                    await asking.request(f"service={service}", b"?")
                    break
            except TimeoutError:
                continue
            except DestinationError:  # its link to the other broker is lost, and not yet back
                await asyncio.sleep(0.5)
        else:
            raise AssertionError(f"{service} is never known")
