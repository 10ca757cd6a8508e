"""Connections to containers: another node's listener, and a container of Proton's users."""

from __future__ import annotations

import asyncio
import json
import shutil
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from onward.actors import Node, OnFailure, Supervision
from onward.actors._node_report import node_report
from onward.actors.dispatch import Accept, Dispatcher, Producer, Received
from onward.protocol import Message
from onward.protocol.dispatch import (
    ACCEPTED,
    MODIFIED,
    Mechanism,
    Modified,
    Outcome,
    Rejected,
    Released,
    RoutingPattern,
    Semantics,
)
from onward.protocol.security import Principal, UserPassword
from onward.transports import Backoff, TlsOptions
from onward.transports.amqp import (
    AmqpContainer,
    AmqpContainerState,
    AmqpLinkState,
    AmqpListener,
    AmqpOptions,
    AutoLink,
    LinkRoute,
)
from onward.transports.amqp._auto_links import MAX_UNANSWERED, NOT_ANSWERED
from onward.transports.amqp._links import Links
from tests.support.amqp import Container, needs_proton
from tests.support.amqp_queues import Queues
from tests.support.certificates import Certificates
from tests.support.memory_port import MemoryPort
from tests.support.security import gated
from tests.support.transports import eventually

pytestmark = [pytest.mark.peer, pytest.mark.real_time]
needs_proton()

FAST = Backoff(first=0.01, longest=0.05)
TIMEOUT = 20.0
LINKS = [AutoLink("in", "new-orders", "orders"), AutoLink("out", "sent-bills", "bills")]


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates.make(tmp_path_factory.mktemp("tls"))


class Pair:
    """A node with a listener, which is the container, and one that is connected to it."""

    def __init__(
        self,
        far: Dispatcher,
        listener: AmqpListener,
        near: Dispatcher,
        node: Node,
        container: AmqpContainer,
    ) -> None:
        self.far = far
        self.listener = listener
        self.near = near
        self.node = node
        self.container = container

    async def attached(self, links: int = len(LINKS)) -> None:
        await eventually(lambda: self.container.statistics().attached == links)


@asynccontextmanager
async def pair(
    uri: str = "amqp://127.0.0.1:0",
    links: list[AutoLink] = LINKS,
    listens: dict[str, Any] | None = None,
    **more: Any,
) -> AsyncGenerator[Pair]:
    async with Node("far") as far_node, Node("near") as near_node:
        far, near = await Dispatcher.attach(far_node), await Dispatcher.attach(near_node)
        listener = await far_node.listen(uri, dispatcher=far, **(listens or {}))
        assert isinstance(listener, AmqpListener)
        where = listener.uri.replace("127.0.0.1", "localhost")
        container = AmqpContainer(where, near, links, backoff=FAST, **more)
        await near_node.start(lambda: container)
        yield Pair(far, listener, near, near_node, container)


async def sent(producer: Producer, payload: bytes) -> Outcome:
    return await asyncio.wait_for(producer.send(payload), TIMEOUT)


def by_content(delivery: Received) -> None:
    if b"bad" in delivery.payload:
        delivery.reject("shop:closed", "come back tomorrow")
    elif b"back" in delivery.payload:
        delivery.release()
    elif b"lost" in delivery.payload:
        delivery.modify()
    else:
        delivery.accept()


@pytest.mark.parametrize(
    ("consumes", "produces", "at_far", "at_near"),
    [("sent-bills", "bills", True, False), ("orders", "new-orders", False, True)],
)
async def test_messages_and_outcomes_cross_a_link_in_both_directions(
    consumes: str, produces: str, at_far: bool, at_near: bool
) -> None:
    async with pair() as made:
        consumer = made.far if at_far else made.near
        producer = made.far if at_near else made.near
        await made.attached()
        await consumer.consume(consumes, by_content, accept=Accept.SELF)
        producing = await producer.produce(produces)
        outcomes = [
            await sent(producing, each) for each in (b"good", b"bad", b"lost", b"x" * 500_000)
        ]
        assert outcomes == [
            ACCEPTED,
            Rejected("shop:closed", "come back tomorrow"),
            Modified(failed=True),
            ACCEPTED,
        ]
        assert isinstance(await sent(producing, b"back"), Released)
        statistics = made.container.statistics()
        assert (statistics.state, statistics.connected) == (AmqpContainerState.OPEN, 1)


async def test_a_producer_waits_until_the_container_has_the_link() -> None:
    async with pair() as made:
        await made.attached()
        await made.far.node.stop_worker(made.listener.address)
        await eventually(lambda: made.container.statistics().state is not AmqpContainerState.OPEN)
        producing = await made.near.produce("bills")
        assert producing.credit == 0
        sending = asyncio.create_task(sent(producing, b"12 apples"))
        got: list[bytes] = []
        await made.far.consume("sent-bills", lambda each: got.append(each.payload))
        again = made.listener.uri
        await made.far.node.listen(again, dispatcher=made.far)
        assert await sending == ACCEPTED
        assert b"12 apples" in got[0]
        assert made.container.statistics().connected == 2
        assert sum(made.container.statistics().ended.values()) >= 1


async def test_what_the_container_had_when_it_was_lost_is_in_doubt() -> None:
    async with pair() as made:
        await made.attached()
        taken = asyncio.Event()
        await made.far.consume("sent-bills", lambda _: taken.set(), accept=Accept.SELF)
        producing = await made.near.produce("bills")
        sending = asyncio.create_task(sent(producing, b"a"))
        await asyncio.wait_for(taken.wait(), TIMEOUT)
        await made.listener.close()
        assert await sending == MODIFIED


async def test_a_link_that_is_refused_is_attached_later() -> None:
    links = [*LINKS, AutoLink("in", "closed", "orders")]
    async with Node("far") as far_node, Node("near") as near_node:
        far, near = await Dispatcher.attach(far_node), await Dispatcher.attach(near_node)
        far.provision("closed", Semantics(pattern=RoutingPattern.UNAVAILABLE))
        listener = await far_node.listen("amqp://127.0.0.1:0", dispatcher=far)
        container = AmqpContainer(listener.uri, near, links, backoff=FAST)
        await near_node.start(lambda: container)
        await eventually(lambda: container.statistics().attached == len(LINKS))
        far.withdraw("closed")
        await eventually(lambda: container.statistics().attached == len(links))
        assert container.statistics().connected == 1


async def test_a_name_that_is_refused_here_is_tried_again() -> None:
    async with Node("far") as far_node, Node("near") as near_node:
        far, near = await Dispatcher.attach(far_node), await Dispatcher.attach(near_node)
        near.provision("orders", Semantics(pattern=RoutingPattern.UNAVAILABLE))
        listener = await far_node.listen("amqp://127.0.0.1:0", dispatcher=far)
        container = AmqpContainer(listener.uri, near, LINKS, backoff=FAST)
        await near_node.start(lambda: container)
        await eventually(lambda: container.statistics().attached == 1)
        near.withdraw("orders")
        await eventually(lambda: container.statistics().attached == 2)


async def test_a_container_with_tls_and_a_password(certificates: Certificates) -> None:
    _, authentication = gated({UserPassword("ann", "secret"): Principal("ann", "test")})
    listens = {"tls": certificates.listener, "authentication": authentication}
    tls = TlsOptions(authority=certificates.authority)
    async with pair(
        "amqps://127.0.0.1:0",
        listens=listens,
        tls=tls,
        credentials=UserPassword("ann", "secret"),
    ) as made:
        await made.attached()
    async with pair(
        "amqps://127.0.0.1:0",
        listens=listens,
        tls=tls,
        credentials=UserPassword("ann", "wrong"),
    ) as made:
        ended = "amqp:unauthorized-access"
        await eventually(lambda: made.container.statistics().ended.get(ended))
        assert made.container.statistics().connected == 0


async def test_a_container_with_a_certificate(certificates: Certificates) -> None:
    gate, authentication = gated({None: Principal("ann", "test")})
    listens = {"tls": certificates.lenient, "authentication": authentication}
    tls = TlsOptions(authority=certificates.authority, certificate=certificates.client)
    async with pair("amqps://127.0.0.1:0", listens=listens, tls=tls) as made:
        await made.attached()
        assert gate.seen[0][1].digest == certificates.digest(certificates.client)


async def test_a_container_is_checked_for_the_name_that_is_asked_for(
    certificates: Certificates,
) -> None:
    tls = TlsOptions(authority=certificates.authority, server_name="another.example")
    listens = {"tls": certificates.listener}
    async with pair("amqps://127.0.0.1:0", listens=listens, tls=tls) as made:
        ended = "no TLS: CERTIFICATE_VERIFY_FAILED"
        await eventually(lambda: made.container.statistics().ended.get(ended))
        assert made.container.statistics().connected == 0


async def test_files_of_certificates_are_read_again_at_each_attempt(
    certificates: Certificates, tmp_path: Path
) -> None:
    (tmp_path / "other").mkdir()
    other = Certificates.make(tmp_path / "other")
    authority = tmp_path / "authority.pem"
    shutil.copyfile(other.authority, authority)
    listens = {"tls": certificates.listener}
    tls = TlsOptions(authority=str(authority))
    async with pair("amqps://127.0.0.1:0", listens=listens, tls=tls) as made:
        await eventually(lambda: made.container.statistics().attempts > 1)
        shutil.copyfile(certificates.authority, authority)
        await made.attached()


async def test_what_is_no_container_is_tried_again() -> None:
    async def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    number = server.sockets[0].getsockname()[1]
    async with Node("near") as node:
        near = await Dispatcher.attach(node)
        for scheme in ("amqp", "amqps"):
            container = AmqpContainer(f"{scheme}://127.0.0.1:{number}", near, LINKS, backoff=FAST)
            address = await node.start(partial(_as_it_is, container))
            await eventually(partial(_ended_twice, container))
            assert container.statistics().attached == 0
            await node.stop_worker(address)
        server.close()
        await server.wait_closed()
        container = AmqpContainer(f"amqp://127.0.0.1:{number}", near, LINKS, backoff=FAST)
        await node.start(lambda: container)
        await eventually(partial(_ended_twice, container))


def _as_it_is(container: AmqpContainer) -> AmqpContainer:
    return container


def _ended_twice(container: AmqpContainer) -> bool:
    return sum(container.statistics().ended.values()) >= 2


@pytest.mark.parametrize(
    ("uri", "more", "text"),
    [
        ("http://a:1", {}, "is not amqp://host:port"),
        ("amqp://a:1", {"tls": TlsOptions()}, "go with amqps://"),
        ("amqp://a:1", {"credentials": UserPassword("a", "b")}, "with TLS only"),
        ("amqp://a:1", {"links": [*LINKS, LINKS[0]]}, "two of a kind"),
        ("amqp://a:1", {"options": AmqpOptions(max_links=1)}, "or over 1"),
    ],
)
async def test_what_cannot_be_is_refused(uri: str, more: dict[str, Any], text: str) -> None:
    async with Node("near") as node:
        given: dict[str, Any] = {"links": LINKS, **more}
        near = await Dispatcher.attach(node)
        with pytest.raises(ValueError, match=text):
            AmqpContainer(uri, near, **given)
        with pytest.raises(ValueError, match="needs an address and a name"):
            AutoLink("in", "", "orders")


@dataclass(frozen=True, slots=True)
class Recorded(Backoff):
    """Waits that are short, of which the number of failures before each is kept."""

    attempts: list[int] = field(default_factory=list[int])

    def wait(self, attempt: int) -> float:
        self.attempts.append(attempt)
        return 0.0


# --- links that are not answered ----------------------------------------------------------------


def ignore(*_: object, **__: object) -> None:
    """Leave an attach or a detach without an answer."""


async def test_a_link_that_is_not_answered_is_given_up_and_attached_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answers = Links._attach
    monkeypatch.setattr(Links, "_attach", ignore)
    async with pair(options=AmqpOptions(attach_timeout=0.02)) as made:
        statistics, links = made.container.statistics, made.container.link_statistics
        await eventually(lambda: statistics().unanswered >= 4)
        assert {each.reason for each in links()} == {NOT_ANSWERED}
        assert (statistics().attached, statistics().connected) == (0, 1)
        monkeypatch.setattr(Links, "_attach", answers)
        await made.attached()
        assert statistics().connected == 1
        assert [each.state for each in links()] == [AmqpLinkState.ATTACHED] * 2


async def test_a_container_that_answers_no_link_at_all_is_connected_to_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Links, "_attach", ignore)
    monkeypatch.setattr(Links, "_detach", ignore)
    async with pair(options=AmqpOptions(attach_timeout=0.02)) as made:
        await eventually(lambda: made.container.statistics().connected == 2)
        monkeypatch.undo()
        statistics = made.container.statistics()
        assert statistics.unanswered >= MAX_UNANSWERED
        assert statistics.ended == {"amqp:resource-limit-exceeded": 1}
        await made.attached()


async def test_the_waits_grow_while_a_link_is_not_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Links, "_attach", ignore)
    waits = Recorded(longest=0.01)
    async with pair(links=LINKS[:1], options=AmqpOptions(attach_timeout=0.02)) as made:
        # It is not there for as long as it is waited for.
        monkeypatch.setattr(made.container, "backoff", waits)
        await eventually(lambda: made.container.statistics().unanswered >= 4)
        assert waits.attempts[-2:] == [waits.attempts[-1] - 1, waits.attempts[-1]]


def test_an_answer_that_comes_late_is_that_of_no_link() -> None:
    port = MemoryPort()
    container = Container(port, *LINKS)
    late = Container(port)
    late.answers = False
    for each in LINKS:
        late.edge.begin(each)
    late.pump()
    for each in LINKS:
        late.edge.give_up(each)
    assert (late.ended, late.reasons) == (LINKS, [NOT_ANSWERED] * 2)
    for link in late.links:
        link.open()
    late.pump()
    assert (late.attached, late.edge.attached) == ([], 0)
    assert container.attached == LINKS
    assert [link.remote_condition.name for link in late.links] == ["amqp:link:detach-forced"] * 2
    late.edge.begin(LINKS[0])
    late.answers = True
    late.pump()
    assert late.ended == LINKS
    container.cut()
    late.cut()


# --- a container that others have written -------------------------------------------------------


async def test_queues_of_another_container_are_names() -> None:
    proton = needs_proton()
    with Queues() as queues:
        queues.messages["new-orders"] = [proton.Message(f"order {each}") for each in range(5)]
        async with Node("near") as node:
            near, got = await Dispatcher.attach(node), list[bytes]()
            container = AmqpContainer(f"amqp://127.0.0.1:{queues.port}", near, LINKS, backoff=FAST)
            await near.consume("orders", lambda each: got.append(each.payload))
            await node.start(lambda: container)
            producing = await near.produce("bills")
            assert await sent(producing, b"12 apples") == ACCEPTED
            await eventually(lambda: len(got) == 5)
            assert b"order 4" in got[4]
            assert [bytes(each.body) for each in queues.messages["sent-bills"]] == [b"12 apples"]


async def test_a_container_may_not_attach_links_but_may_end_its_session() -> None:
    with Queues() as queues:
        async with Node("near") as node:
            near = await Dispatcher.attach(node)
            container = AmqpContainer(f"amqp://127.0.0.1:{queues.port}", near, LINKS, backoff=FAST)
            await node.start(lambda: container)
            producing = await near.produce("bills")
            await sent(producing, b"attach a link")
            await eventually(lambda: queues.refused == ["amqp:not-allowed"])
            assert container.statistics().attached == len(LINKS)
            await sent(producing, b"end the session")
            await eventually(lambda: container.statistics().connected == 2)
            await eventually(lambda: container.statistics().attached == len(LINKS))


@pytest.mark.parametrize(
    ("how", "longest", "attempts"),
    [(b"detach the link", 60.0, [0, 1, 2]), (b"close the link", 1e-9, [0, 0, 0])],
)
async def test_a_link_that_its_container_ends_is_attached_again_alone(
    how: bytes, longest: float, attempts: list[int]
) -> None:
    backoff = Recorded(longest=longest)
    with Queues() as queues:
        async with Node("near") as node:
            near = await Dispatcher.attach(node)
            uri = f"amqp://127.0.0.1:{queues.port}"
            container = AmqpContainer(uri, near, LINKS, backoff=backoff)
            await node.start(lambda: container)
            producing = await near.produce("bills")
            for each in range(1, 4):
                await eventually(lambda: container.statistics().attached == len(LINKS))
                assert await sent(producing, how) == ACCEPTED
                await eventually(partial(_was_ended, backoff, each))
            await eventually(lambda: container.statistics().attached == len(LINKS))
            assert await sent(producing, b"12 apples") == ACCEPTED
            # The connection and its other link have stayed. What was there for longer than the
            # longest wait begins with the first wait again.
            assert (container.statistics().connected, container.statistics().ended) == (1, {})
            assert backoff.attempts == attempts


def _was_ended(backoff: Recorded, times: int) -> bool:
    return len(backoff.attempts) == times


def rows_of(node: Node, question: str) -> list[dict[str, Any]]:
    answer = node_report(node, question)
    assert answer is not None
    rows: list[dict[str, Any]] = json.loads(answer)["rows"]
    return rows


async def test_an_operator_sees_containers_and_their_links() -> None:
    async with Node("empty") as node:
        assert node_report(node, "containers") is None
        await Dispatcher.attach(node)
        assert (rows_of(node, "containers"), rows_of(node, "container-links")) == ([], [])
    async with Node("near") as node, Node("far") as far_node:
        near, far = await Dispatcher.attach(node), await Dispatcher.attach(far_node)
        near.provision("jobs", Semantics(mechanism=Mechanism.LINK))
        far.provision("sent-bills", Semantics(pattern=RoutingPattern.UNAVAILABLE))
        began = time.time()
        listener = await far_node.listen("amqp://127.0.0.1:0", dispatcher=far)
        links: list[AutoLink | LinkRoute] = [*LINKS, LinkRoute("jobs", "queue")]
        links.append(LinkRoute("bills"))
        container = AmqpContainer(listener.uri, near, links, backoff=FAST, name="shop")
        address = await node.start(lambda: container)
        # One link is refused there, one route here.
        await eventually(lambda: container.statistics().attached == 1)
        await eventually(lambda: all(each.reason for each in container.link_statistics()[1::2]))
        (row,) = rows_of(node, "containers")
        assert (row["name"], row["uri"]) == ("shop", listener.uri)
        assert (row["state"], row["open"], row["attempts"], row["reason"]) == ("open", True, 0, "")
        assert (row["links"], row["attached"], row["routes"]) == (2, 1, 1)
        assert began <= row["since"] <= time.time()
        found = rows_of(node, "container-links")
        assert [(each["kind"], each["address"], each["name"]) for each in found] == [
            ("in", "new-orders", "orders"),
            ("out", "sent-bills", "bills"),
            ("route", "bills", "bills"),
            ("route", "queue", "jobs"),
        ]
        assert {each["container"] for each in found} == {"shop"}
        by_address = {each["address"]: each for each in found}
        for each in ("new-orders", "queue"):
            assert (by_address[each]["state"], by_address[each]["attempts"]) == ("attached", 0)
        for each, reason in (("sent-bills", "amqp:not-found"), ("bills", "amqp:not-allowed")):
            assert by_address[each]["reason"] == reason
            assert by_address[each]["attempts"] >= 1
        # The container stops, and is not there any more.
        await far_node.stop_worker(listener.address)
        await eventually(lambda: container.statistics().attempts >= 2)
        figures = container.statistics()
        assert (figures.attached, figures.routes) == (0, 0)
        assert figures.ended["closed"] == 1
        states = {each.state for each in container.link_statistics()}
        assert states == {AmqpLinkState.WAITING}
        assert container.link_statistics()[0].reason == "the connection was lost"
        await node.stop_worker(address)
        assert rows_of(node, "containers") == []


class Failing(AmqpContainer):
    """A container that each message makes fail."""

    def handle_message(self, message: Message) -> None:
        raise RuntimeError(message.payload.decode())


async def test_a_container_that_fails_ends_its_connection_and_is_not_shown(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with Node("far") as far_node, Node("near") as node:
        near, far = await Dispatcher.attach(node), await Dispatcher.attach(far_node)
        listener = await far_node.listen("amqp://127.0.0.1:0", dispatcher=far)
        assert isinstance(listener, AmqpListener)
        made: list[Failing] = []

        def make() -> Failing:
            made.append(Failing(listener.uri, near, LINKS, backoff=FAST, name="shop"))
            return made[-1]

        policy = Supervision(OnFailure.RESTART, max_restarts=1)
        await node.start(make, address="shop", supervision=policy)
        await eventually(lambda: made[-1].statistics().attached == 2)
        node.send("shop", b"fails")
        await eventually(lambda: len(made) == 2 and made[-1].statistics().attached == 2)
        assert [row["attached"] for row in rows_of(node, "containers")] == [2]
        assert len(rows_of(node, "container-links")) == 2
        await eventually(lambda: listener.statistics().connections == 1)
        node.send("shop", b"fails again")
        await eventually(lambda: not node.has("shop"))
        assert (rows_of(node, "containers"), rows_of(node, "container-links")) == ([], [])
        await eventually(lambda: listener.statistics().connections == 0)
    assert [each.statistics().connected for each in made] == [1, 1]
    assert "fails again" in caplog.text


async def test_a_container_is_shown_also_once_the_dispatcher_was_attached_again() -> None:
    async with Node("near") as node:
        near = await Dispatcher.attach(node)
        routes = [LinkRoute("jobs", "queue")]
        for name in ("shop", "bank"):
            make = partial(
                AmqpContainer, "amqp://127.0.0.1:1", near, routes, backoff=FAST, name=name
            )
            await node.start(make, address=name)
        for _ in range(2):
            await node.stop_worker(near.address)
            near = await Dispatcher.attach(node)
            assert [row["name"] for row in rows_of(node, "containers")] == ["bank", "shop"]
            assert len(rows_of(node, "container-links")) == 2
        await node.stop_worker("shop")
        await node.stop_worker(near.address)
        assert [row["name"] for row in rows_of(node, "containers")] == ["bank"]
        await node.stop_worker("bank")
        near = await Dispatcher.attach(node)
        await node.stop_worker(near.address)
        assert node_report(node, "containers") is node_report(node, "container-links") is None


async def test_the_last_end_has_what_the_container_has_said() -> None:
    later = Backoff(first=3600, longest=3600, random=lambda: 0.999)
    async with Node("far") as far_node, Node("near") as node:
        far, near = await Dispatcher.attach(far_node), await Dispatcher.attach(node)
        listener = await far_node.listen("amqp://127.0.0.1:0", dispatcher=far)
        container = AmqpContainer(listener.uri, near, LINKS, backoff=later)
        await node.start(lambda: container)
        await eventually(lambda: container.statistics().attached == len(LINKS))
        await listener.close()
        await eventually(lambda: container.statistics().state is AmqpContainerState.WAITING)
        figures = container.statistics()
        assert figures.reason == "closed: amqp:connection:forced"
        assert (figures.ended, figures.attempts, figures.name) == ({"closed": 1}, 0, listener.uri)
