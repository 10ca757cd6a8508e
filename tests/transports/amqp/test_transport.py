"""Listeners of a node at amqp:// and amqps://, with the clients that Proton's users write."""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import Callable
from typing import Any, TypeVar

import pytest

from onward.actors import Node
from onward.actors.dispatch import Accept, Dispatcher, Received
from onward.protocol.security import Principal, UserPassword
from onward.transports import TlsOptions
from onward.transports.amqp import AmqpContainer, AmqpListener, AmqpOptions, AutoLink
from onward.transports.amqp._proton import load_proton
from tests.support.amqp import needs_proton
from tests.support.certificates import Certificates
from tests.support.security import gated
from tests.support.transports import eventually

T = TypeVar("T")

pytestmark = [pytest.mark.real_time]

URI = "amqp://127.0.0.1:0"
TIMEOUT = 20.0


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates.make(tmp_path_factory.mktemp("tls"))


async def listening(node: Node, uri: str = URI, **more: Any) -> tuple[Dispatcher, AmqpListener]:
    needs_proton()
    dispatcher = await Dispatcher.attach(node)
    listener = await node.listen(uri, dispatcher=dispatcher, **more)
    assert isinstance(listener, AmqpListener)
    return dispatcher, listener


# --- a listener ---------------------------------------------------------------------------------


async def test_wrong_options_are_refused() -> None:
    async with Node("a") as node:
        dispatcher = await Dispatcher.attach(node)
        given: list[tuple[dict[str, Any], str]] = [
            ({}, "needs dispatcher="),
            ({"dispatcher": dispatcher, "expose": ["x"]}, "no addresses to expose"),
            ({"dispatcher": dispatcher, "window": 1}, "unknown option 'window'"),
        ]
        for options, text in given:
            with pytest.raises(ValueError, match=text):
                await node.listen(URI, **options)
        with pytest.raises(ValueError, match="options"):
            await node.listen(URI, dispatcher=dispatcher, options=3)
        given = [
            ({}, "needs dispatcher="),
            ({"dispatcher": dispatcher, "expose": ["x"]}, "there is nothing to expose"),
            ({"dispatcher": dispatcher, "authentication": 1}, "unknown option 'authentication'"),
            ({"dispatcher": dispatcher, "links": 1}, "links"),
            ({"dispatcher": dispatcher, "links": [("in", "a")]}, "a link is an AutoLink, a Link"),
            ({"dispatcher": dispatcher, "links": ["in"]}, "a link is an AutoLink, a LinkRoute or"),
            ({"dispatcher": dispatcher, "links": [("to", "a", "b")]}, "is in, out or route"),
            ({"dispatcher": dispatcher, "tls": {"key": "k"}}, "key needs certificate"),
        ]
        for options, text in given:
            with pytest.raises(ValueError, match=text):
                await node.connect("amqps://127.0.0.1:1", **options)


async def test_a_node_connects_to_a_container_by_its_uri() -> None:
    needs_proton()
    async with Node("far") as far_node, Node("near") as node:
        far, near = await Dispatcher.attach(far_node), await Dispatcher.attach(node)
        listener = await far_node.listen(URI, dispatcher=far)
        links = [AutoLink("in", "new-orders", "orders"), ("out", "sent-bills", "bills")]
        address = await node.connect(listener.uri, dispatcher=near, links=links, name="shop")
        container = node.parts.table.worker_at(address)
        assert isinstance(container, AmqpContainer)
        assert container.links == (links[0], AutoLink("out", "sent-bills", "bills"))
        await eventually(lambda: container.statistics().attached == 2)
        assert container.statistics().name == "shop"


async def test_without_proton_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(name: str) -> None:
        raise ModuleNotFoundError(name=name)

    monkeypatch.setattr("onward.transports.amqp._proton.import_module", fail)
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'onward\[amqp\]'"):
        load_proton()


async def test_a_listener_closes_and_its_certificates_are_read_again(
    certificates: Certificates,
) -> None:
    async with Node("a") as node:
        dispatcher, listener = await listening(node)
        assert listener.uri.startswith("amqp://127.0.0.1:")
        assert node.has(listener.address)
        await listener.close()
        await listener.close()
        assert not node.has(listener.address)
        secure = await node.listen(
            "amqps://127.0.0.1:0", dispatcher=dispatcher, tls=certificates.listener
        )
        assert isinstance(secure, AmqpListener)
        secure.reload()
        with pytest.raises(OSError, match="missing"):
            secure.prepare_reload(TlsOptions(certificate=certificates.folder / "missing.pem"))
    assert not node.has(secure.address)


# --- the clients of Proton ----------------------------------------------------------------------


class Blocking:
    """A client with a thread of its own, as programs use Proton."""

    def __init__(self, uri: str, **more: Any) -> None:
        self._utils: Any = importlib.import_module("proton.utils")
        self.proton: Any = importlib.import_module("proton")
        self._uri = uri
        self._more = more

    async def run(self, function: Callable[[Any], T]) -> T:
        """Call a function with a connection, on a thread."""
        return await asyncio.wait_for(asyncio.to_thread(self._run, function), 3 * TIMEOUT)

    def _run(self, function: Callable[[Any], T]) -> T:
        connection = self._utils.BlockingConnection(self._uri, timeout=TIMEOUT, **self._more)
        try:
            return function(connection)
        finally:
            connection.close()


@pytest.mark.peer
async def test_a_client_sends_and_is_told_the_outcome() -> None:
    async with Node("a") as node:
        dispatcher, listener = await listening(node)

        def handle(delivery: Received) -> None:
            if b"bad" in delivery.payload:
                delivery.reject("shop:closed", "come back tomorrow")
            elif b"back" in delivery.payload:
                delivery.release()
            elif b"lost" in delivery.payload:
                delivery.modify()
            else:
                delivery.accept()

        await dispatcher.consume("orders", handle, accept=Accept.SELF)
        client = Blocking(listener.uri)
        delivery = client.proton.Delivery

        def send(connection: Any) -> list[int]:
            sender = connection.create_sender("orders")
            return [
                sender.send(client.proton.Message(body), error_states=[]).remote_state
                for body in ("good", "bad", "back", "lost", "x" * 900_000)
            ]

        assert await client.run(send) == [
            delivery.ACCEPTED,
            delivery.REJECTED,
            delivery.RELEASED,
            delivery.MODIFIED,
            delivery.ACCEPTED,
        ]


@pytest.mark.peer
async def test_a_client_receives_and_tells_the_outcome() -> None:
    async with Node("a") as node:
        dispatcher, listener = await listening(node)
        producer = await dispatcher.produce("orders")
        client = Blocking(listener.uri)

        def receive(connection: Any) -> list[Any]:
            receiver = connection.create_receiver("orders", credit=1)
            found: list[Any] = []
            for settle in ("accept", "reject", "accept"):
                # The body is a view, which is of no use without its message.
                message = receiver.receive(timeout=TIMEOUT)
                found.append(bytes(message.body))
                getattr(receiver, settle)()
            return found

        received = asyncio.create_task(client.run(receive))
        outcomes = [
            type(await asyncio.wait_for(producer.send(each), TIMEOUT)).__name__
            for each in (b"a", b"b", b"x" * 900_000)
        ]
        assert outcomes == ["Accepted", "Rejected", "Accepted"]
        assert await received == [b"a", b"b", b"x" * 900_000]


@pytest.mark.peer
async def test_a_request_with_a_name_for_its_answer(certificates: Certificates) -> None:
    _, authentication = gated({UserPassword("ann", "secret"): Principal("ann", "test")})
    async with Node("a") as node:
        dispatcher, listener = await listening(
            node, "amqps://127.0.0.1:0", tls=certificates.listener, authentication=authentication
        )
        needs_proton()
        proton: Any = importlib.import_module("proton")
        utils: Any = importlib.import_module("proton.utils")
        domain = proton.SSLDomain(proton.SSLDomain.MODE_CLIENT)
        domain.set_trusted_ca_db(str(certificates.authority))
        domain.set_peer_authentication(proton.SSLDomain.VERIFY_PEER_NAME)
        answers = await dispatcher.produce_any()

        async def answer(delivery: Received) -> None:
            message = proton.Message()
            message.decode(delivery.payload)
            again = proton.Message(f"{message.body} pears", correlation_id=message.correlation_id)
            await answers.send(message.reply_to, bytes(again.encode()))

        await dispatcher.consume("orders", answer)
        client = Blocking(
            listener.uri.replace("127.0.0.1", "localhost"),
            ssl_domain=domain,
            user="ann",
            password="secret",
            allowed_mechs="PLAIN",
            sasl_enabled=True,
        )

        def ask(connection: Any) -> Any:
            asking = utils.SyncRequestResponse(connection, "orders")
            return asking.call(proton.Message("12")).body

        assert await client.run(ask) == "12 pears"
        wrong = Blocking(
            listener.uri.replace("127.0.0.1", "localhost"),
            ssl_domain=domain,
            user="ann",
            password="wrong",
            allowed_mechs="PLAIN",
            sasl_enabled=True,
        )
        with pytest.raises(proton.ProtonException):
            await wrong.run(ask)


@pytest.mark.peer
async def test_limits_are_those_of_the_listener() -> None:
    async with Node("a") as node:
        dispatcher, listener = await listening(node, options=AmqpOptions(max_message=1000))
        await dispatcher.consume("orders", lambda _: None)
        client = Blocking(listener.uri)

        def send(connection: Any) -> str:
            sender = connection.create_sender("orders")
            try:
                sender.send(client.proton.Message("x" * 2000))
            except client.proton.LinkException as error:
                return str(error)
            return ""

        assert "amqp:link:message-size-exceeded" in await client.run(send)
        assert listener.statistics().dropped == {"too large": 1}
