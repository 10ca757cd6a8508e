"""What the workers on the way see of a request."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from onward.actors.broker import Exchange, exchange_of
from onward.protocol import Context, Message, NotDelivered, address

TO = (address("to"),)


def test_a_message_carries_an_exchange_or_none() -> None:
    exchange = Exchange()
    assert exchange_of(Message(TO, (), b"")) is None
    assert exchange_of(Message(TO, (), b"", None, Context(meta="mine"))) is None
    assert exchange_of(Message(TO, (), b"", None, Context(meta=exchange))) is exchange


def fail(exchange: Exchange) -> None:
    exchange.fail(NotDelivered())


def whole(exchange: Exchange) -> object:
    return exchange.whole(object)


@pytest.mark.parametrize(
    "call",
    [
        Exchange.wait,
        Exchange.data,
        Exchange.return_route,
        Exchange.answered_once,
        fail,
        whole,
    ],
)
def test_connections_say_how(call: Callable[[Exchange], object]) -> None:
    with pytest.raises(NotImplementedError):
        call(Exchange())
