"""Deliveries of Proton's library, beside those of its package."""

from __future__ import annotations

from typing import Any

import pytest

from onward.transports.amqp._deliveries import impl_of, load_binding
from onward.transports.amqp._proton import (
    ACCEPTED,
    MODIFIED,
    RECEIVED,
    REJECTED,
    RELEASED,
    load_proton,
)
from tests.support.amqp import needs_proton

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
