"""Chains of typed workers: which types fit, and what is started."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any

import msgspec
import pytest

from onward.actors import (
    BadHandler,
    ChainMismatch,
    GivenUp,
    Node,
    TypedWorker,
    Worker,
    call,
    encode_value,
    start_chain,
    typed,
)
from onward.protocol import AddressInUse, RequestTimeout, route
from onward.protocol.payloads import JSON
from tests.support.workers import Forwarder


@dataclass
class Order:
    item: str


@dataclass
class Urgent(Order):
    by: int


class Paid(msgspec.Struct):
    item: str


@typed
def parse(text: str) -> Order:
    return Order(text)


@typed
def maybe(text: str) -> Order | None:
    return Order(text) if text else None


@typed
def urgent(text: str) -> Urgent:
    return Urgent(text, 1)


@typed
def anything(value: Any) -> Any:
    return value


@typed
def open_ended(value: str):  # type: ignore[no-untyped-def]
    return value


@typed
def pay(order: Order) -> Paid:
    return Paid(order.item)


@typed
def either(value: Annotated[Order | str, "either"]) -> int:
    return len(str(value))


@typed
def number(value: float) -> float:
    return value


@typed
def day(value: dt.date) -> dt.date:
    return value


@typed
def sink(order: Order) -> None:
    assert order


@typed(codec=JSON)
def json_pay(order: Order) -> Paid:
    return Paid(order.item)


class Adding(TypedWorker):
    def __init__(self, by: str = "!") -> None:
        super().__init__()
        self.by = by

    def handle(self, order: Order) -> Order:
        return Order(order.item + self.by)


FITTING = [
    (parse, pay),
    (maybe, pay),
    (urgent, pay),
    (urgent, Adding),
    (parse, partial(Adding, by="?")),
    (anything, pay),
    (open_ended, pay),
    (parse, anything),
    (either, number),
    (day, parse),
    (open_ended, either),
    (parse, sink),
    (parse, Forwarder),
    (parse, lambda: Adding("?")),
]

MISFITS = [
    (parse, parse, "the first returns Order, the second takes str"),
    (pay, Adding, "the first returns Paid, the second takes Order"),
    (number, either, r"the first returns float, the second takes .*Order \| str"),
    (sink, parse, "the first returns None, so that nothing is passed on"),
    (maybe, number, r"the first returns .*Order \| None, the second takes float"),
    (parse, json_pay, "the first writes cbor, the second reads json"),
]


@pytest.mark.parametrize(("before", "after"), FITTING)
async def test_types_that_fit(before: type[Worker], after: type[Worker], node: Node) -> None:
    assert await start_chain(node, {"a": before, "b": after}) == route("a => b")


@pytest.mark.parametrize(("before", "after", "words"), MISFITS)
async def test_wrong_types(
    before: type[Worker], after: type[Worker], words: str, node: Node
) -> None:
    with pytest.raises(ChainMismatch, match=words):
        await start_chain(node, {"first": anything, "a": before, "b": after})
    assert node.statistics().worker_count == 0


async def test_a_chain_answers_the_requester(node: Node) -> None:
    through = await start_chain(
        node, {"parse": parse, "add": Adding, "more": partial(Adding, "?"), "pay": pay}
    )
    assert await call(node, through, "tea", Paid) == Paid("tea!?")


async def test_a_filter_tells_the_requester_that_the_chain_has_ended(node: Node) -> None:
    way = await start_chain(node, {"maybe": maybe, "anything": anything})
    assert await call(node, way, "tea", dict) == {"item": "tea"}
    with pytest.raises(GivenUp, match=r"0#maybe \(the worker passed no value on\)"):
        await call(node, way, "", dict)
    node.send(way, encode_value(""))
    with pytest.raises(RequestTimeout):  # the last of a route may answer later
        await call(node, "maybe", "", dict)
    assert node.dead_letters.total == 0


async def test_a_chain_that_cannot_start_leaves_no_worker(node: Node) -> None:
    await node.start(Forwarder, address="pay")
    with pytest.raises(AddressInUse):
        await start_chain(node, {"parse": parse, "add": Adding, "pay": pay})
    assert node.statistics().worker_count == 1
    with pytest.raises(ValueError, match="a chain needs a worker"):
        await start_chain(node, {})


class Nameless(TypedWorker):
    """A worker without a handler."""


async def test_a_stage_without_a_handler(node: Node) -> None:
    with pytest.raises(BadHandler, match=r"Nameless\.handle: is not defined"):
        await start_chain(node, {"parse": parse, "nameless": Nameless})
