"""Deliveries of Proton's library, beside those of its package."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import pytest

from onward.transports.amqp._deliveries import PART, impl_of, load_binding
from onward.transports.amqp._engine import AmqpEngine, EngineEvent, LinkAttached
from onward.transports.amqp._options import AmqpOptions
from onward.transports.amqp._proton import (
    ACCEPTED,
    MODIFIED,
    RECEIVED,
    REJECTED,
    RELEASED,
    load_proton,
)
from tests.support.amqp import AmqpClient, needs_proton
from tests.support.fixtures import Patch

pytestmark = pytest.mark.peer
needs_proton()

TAGS = [b"1", b"\0\xff" * 16, b"x"]


def sender() -> Any:
    return load_proton().Connection().session().sender("orders")


@pytest.mark.parametrize("tag", TAGS)
def test_a_delivery_has_its_tag_and_its_key(tag: bytes) -> None:
    binding, link = load_binding(), sender()
    assert binding.current(link) is None
    made = binding.begin(link, tag)
    again = binding.current(link)
    assert again is not None
    assert again.tag == made.tag == tag
    assert {made.key: "found"}[again.key] == "found"
    assert hash(made.key) == hash(again.key)


def test_two_deliveries_have_two_keys() -> None:
    binding, link = load_binding(), sender()
    first = binding.begin(link, b"1")
    link.advance()
    second = binding.begin(link, b"2")
    assert first.key != second.key
    assert [first.tag, second.tag] == [b"1", b"2"]


@pytest.mark.parametrize("state", [RECEIVED, ACCEPTED, REJECTED, RELEASED, MODIFIED])
def test_a_state_is_that_of_the_package(state: int) -> None:
    binding, link = load_binding(), sender()
    made = binding.begin(link, b"1")
    made.local.failed = state == MODIFIED
    made.update(state)
    package: Any = load_proton()
    wrapped = package.Delivery.wrap(made.key)
    assert wrapped.local_state == state
    assert wrapped.local.failed is (state == MODIFIED)
    assert (made.remote_state, made.settled) == (0, False)
    assert (made.readable, made.partial, made.aborted, made.pending) == (
        wrapped.readable,
        wrapped.partial,
        wrapped.aborted,
        wrapped.pending,
    )
    assert made.remote.condition is None


def test_a_delivery_is_there_for_as_long_as_its_key() -> None:
    """Proton uses a delivery that is settled for the next one, unless something refers to it."""
    binding, link = load_binding(), sender()
    first = binding.begin(link, b"1")
    first.settle()
    second = binding.begin(link, b"2")
    assert first.key != second.key
    assert second.tag == b"2"


def test_an_event_of_another_kind_is_none() -> None:
    package = load_proton()
    collector, connection = package.Collector(), package.Connection()
    binding = load_binding()
    assert binding.next_delivery(collector) is None
    connection.collect(collector)
    assert binding.next_delivery(collector) is None
    assert collector.peek() is not None


def test_what_is_written_and_unsent_is_counted() -> None:
    binding = load_binding()
    connection = load_proton().Connection()
    session = connection.session()
    link = session.sender("orders")
    binding.begin(link, b"1")
    assert binding.unsent(session) == 0
    assert link.stream(b"x" * 100) == 100
    assert binding.unsent(session) == 100
    assert impl_of(link) == impl_of(link)


class Received:
    """A message that has come to an engine.

    Args:
        body: The message.
    """

    def __init__(self, body: bytes) -> None:
        self._client: Final = AmqpClient()
        sender = self._client.sender("orders")
        self.engine: Final = AmqpEngine(load_proton(), "server", AmqpOptions())
        for event in self._carry():
            if isinstance(event, LinkAttached):
                self.link: Any = event.link
                self.link.open()
                self.link.flow(1)
        self._carry()
        self._client.send(sender, body)
        self._carry()

    def _carry(self) -> list[EngineEvent]:
        self.engine.open()
        found: list[EngineEvent] = []
        for _ in range(4):
            self.engine.receive(self._client.take())
            found += self.engine.events()
            self._client.receive(self.engine.data_to_send(PART))
        return found

    def read(self) -> bytes:
        """Read what there is of it, at most a part."""
        return self.engine.binding.read(self.link)

    def release(self) -> None:
        """Give all objects back."""
        list(self.engine.events())
        self.engine.release()
        self._client.release()


class Interleaved:
    """The library as it is if another thread runs behind each of its calls.

    Args:
        library: The library.
        other: What the other thread does.
    """

    def __init__(self, library: Any, other: Callable[[], object]) -> None:
        self._library: Final = library
        self._other: Callable[[], object] | None = other

    def __getattr__(self, name: str) -> Any:
        return getattr(self._library, name)

    def pn_link_recv(self, *given: Any) -> int:
        """Read a part, and let the other thread run before it is copied."""
        size: int = self._library.pn_link_recv(*given)
        other, self._other = self._other, None
        if other is not None:
            other()
        return size


def test_connections_of_two_threads_read_each_its_own_bytes(monkeypatch: Patch) -> None:
    """The interpreter lets other threads run around each call of the library."""
    ours, theirs = Received(b"A" * 5000), Received(b"B" * 5000)
    found: list[bytes] = []
    binding = ours.engine.binding
    interleaved = Interleaved(binding.library, lambda: found.append(theirs.read()))
    monkeypatch.setattr(binding, "library", interleaved)
    found.append(ours.read())
    assert found == [b"B" * 5000, b"A" * 5000]
    ours.release()
    theirs.release()
