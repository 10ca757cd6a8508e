"""Sessions that end while something refers to their links, as a message without an outcome does."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from onward.transports.amqp import _ended_sessions
from onward.transports.amqp._engine import AmqpEngine, LinkAttached, Opened
from onward.transports.amqp._options import AmqpOptions
from onward.transports.amqp._proton import AmqpLink, load_proton
from tests.support.amqp import AmqpClient, Container, Edges, needs_proton
from tests.support.amqp_chain import Chain
from tests.support.memory_port import MemoryPort

pytestmark = pytest.mark.peer
needs_proton()

ROOT = Path(__file__).resolve().parents[3]
LIMITS = AmqpOptions(max_frame=4096)


class Connection:
    """An engine and its client, whose links are held."""

    def __init__(self) -> None:
        self.engine = AmqpEngine(load_proton(), "server", LIMITS)
        self.client = AmqpClient()
        self.held: list[AmqpLink] = []

    def pump(self) -> None:
        """Carry bytes until there are none."""
        while data := self.client.take():
            self.engine.receive(data)
            for event in self.engine.events():
                if isinstance(event, Opened):
                    self.engine.open()
                elif isinstance(event, LinkAttached):
                    event.link.open()
                    self.held.append(event.link)
            self.client.receive(self.engine.data_to_send(1 << 20))

    def session(self, links: int = 1) -> None:
        """Begin a session with links, and end it."""
        session = self.client.connection.session()
        session.open()
        for _ in range(links):
            self.client.sender("a", session)
        self.pump()
        session.close()
        self.pump()


@pytest.fixture
def connection() -> Iterator[Connection]:
    made = Connection()
    yield made
    made.engine.release()
    made.client.release()
    # Now its links may go in any order.
    made.held.clear()


def test_a_session_is_kept_while_something_refers_to_a_link_of_it(connection: Connection) -> None:
    ended = connection.engine._ended
    connection.session(links=3)
    assert len(ended) == 1
    last = connection.held.pop()
    connection.held.clear()
    connection.session()
    assert len(ended) == 2
    # Each link goes, and the session only after the last one.
    connection.held.clear()
    del last
    connection.session(links=0)
    assert len(ended) == 1
    assert connection.engine.closed == ""


def test_sessions_are_looked_through_less_often_the_more_are_kept(connection: Connection) -> None:
    for _ in range(5):
        connection.session()
    # They were looked through for the fifth one, and are again once there are twice as many.
    connection.held.clear()
    seen = list[int]()
    for _ in range(5):
        connection.session(links=0)
        seen.append(len(connection.engine._ended))
    assert seen == [6, 7, 8, 1, 1]


def test_too_many_sessions_that_are_kept_end_the_connection(
    connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_ended_sessions, "MAX_ENDED", 3)
    # One that nothing refers to takes no place.
    for _ in range(5):
        connection.session(links=0)
    connection.session()
    connection.session()
    assert connection.engine.closed == ""
    connection.session()
    assert connection.engine.closed == "amqp:resource-limit-exceeded"
    assert connection.client.connection.remote_condition.description == "too many ended sessions"


def test_an_outcome_may_come_after_the_end_of_its_session() -> None:
    edges = Edges(MemoryPort())
    sender, receiver = edges(), edges()
    receiver.client.accepts = False
    receiver.client.receiver("orders")
    edges.pump()
    link = sender.client.sender("orders")
    edges.pump()
    sender.client.send(link, sender.client.message("x"))
    edges.pump()
    sender.client.session.close()
    edges.pump()
    assert len(sender.engine._ended) == 1
    delivery, _ = receiver.client.received[0]
    delivery.update(delivery.ACCEPTED)
    delivery.settle()
    edges.pump()
    # The last reference to the link was that of its outcome.
    edges.port.sent.clear()
    gc.collect()
    for each in edges.made:
        assert each.failures == []
        each.cut()


@pytest.mark.parametrize("how", ["open", "closed"])
@pytest.mark.parametrize("name", ["orders", "jobs"])
@pytest.mark.parametrize("sends", [True, False])
async def test_the_dispatcher_keeps_no_session_that_has_ended(
    chain: Chain, sends: bool, name: str, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_ended_sessions, "MAX_ENDED", 3)
    container, other, edge = chain.container(), chain.edges(), chain.edges()
    other.client.accepts = False
    other.client.receiver("orders", credit=100)
    chain.pump()
    # It is told of each end, and knows it for a while; what is garbage is not collected here.
    gc.disable()
    try:
        for at in range(6):
            session = edge.client.connection.session()
            session.open()
            link = (session.sender if sends else session.receiver)(f"link-{at}")
            link.source.address = link.target.address = name
            link.open()
            chain.pump()
            if not sends:
                link.flow(5)
            elif name == "jobs":
                container.links[-1].flow(5)
            chain.pump()
            if sends:
                edge.client.send(link, edge.client.message("x"))
                edge.client.begin(link, b"a part")
            elif name == "jobs" and how == "open":
                container.links[-1].delivery("tag")
                container.links[-1].stream(b"a part")
            chain.pump()
            if how == "closed":
                link.close()
                chain.pump()
            session.close()
            chain.pump()
    finally:
        gc.enable()
    assert edge.engine.closed == ""
    assert len(edge.engine._ended) == 1


def test_a_session_of_a_circuit_ends_before_its_link_is_answered() -> None:
    container = Container(MemoryPort())
    container.answers = False
    engine = container.engine
    link: Any = engine._link_of_circuit("a", receives=True)
    link.open()
    container.pump()
    container.links[0].session.close()
    container.pump()
    assert engine._of_circuits == {}
    assert engine.closed == ""
    del link
    container.cut()


@pytest.mark.parametrize("malloc", [{}, {"MALLOC_PERTURB_": "165"}], ids=["as it is", "filled"])
def test_links_and_sessions_end_in_any_order(malloc: dict[str, str]) -> None:
    # In glibc, what is freed is given back at once, and filled with other bytes.
    environment = {**os.environ, "GLIBC_TUNABLES": "glibc.malloc.tcache_count=0", **malloc}
    words = [sys.executable, "-X", "faulthandler", "-m", "tests.support.amqp_lifetimes", "0", "40"]
    done = subprocess.run(
        words, cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=120
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "40 runs\n", "")
