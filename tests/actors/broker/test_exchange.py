"""What the workers on the way see of a request."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from onward.actors.broker import Exchange, exchange_of
from onward.actors.broker._exchange import requester_of
from onward.protocol import Context, Message, NotDelivered, Route, address

TO = (address("to"),)


def test_a_message_carries_an_exchange_or_none() -> None:
    exchange = Exchange()
    exchange.handed = None
    assert exchange_of(Message(TO, (), b"")) is None
    assert exchange_of(Message(TO, (), b"", None, Context(meta="mine"))) is None
    assert exchange_of(Message(TO, (), b"", None, Context(meta=exchange))) is exchange


@pytest.mark.parametrize("back", [(), TO])
def test_what_a_worker_sends_on_carries_its_payload(back: Route) -> None:
    exchange = Exchange()
    exchange.handed = back
    message = Message(TO, back, b"its own", None, Context(meta=exchange))
    assert exchange_of(message) is None
    assert requester_of(message) is exchange


def fail(exchange: Exchange) -> None:
    exchange.fail(NotDelivered())


def whole(exchange: Exchange) -> object:
    return exchange.whole(object)


@pytest.mark.parametrize(
    "call",
    [Exchange.wait, Exchange.data, Exchange.return_route, Exchange.answered_once, fail, whole],
)
def test_connections_say_how(call: Callable[[Exchange], object]) -> None:
    with pytest.raises(NotImplementedError):
        call(Exchange())
