"""Typed workers: what a handler may declare, what it gets, and what becomes of a bad payload."""

# Classes whose definition has to fail are used by nobody.
# pyright: reportUnusedClass=false

from __future__ import annotations

import asyncio
import dataclasses
import datetime as dt
import decimal
import enum
import sys
from typing import Annotated, Any, Literal, TypedDict

import msgspec
import pytest

from onward.actors import (
    BadHandler,
    GivenUp,
    MailboxOptions,
    MissingExtra,
    Node,
    NodeLimits,
    Overflow,
    Pending,
    Refused,
    Rejection,
    ThreadWorker,
    TypedWorker,
    call,
    decode_value,
    encode_value,
    typed,
)
from onward.actors.testing import Probe
from onward.protocol import (
    LOCAL,
    Address,
    MailboxFull,
    Message,
    NotDelivered,
    RequestTimeout,
    WorkerFailed,
)
from onward.protocol.payloads import (
    BARE_STRING,
    BYTES,
    CBOR,
    JSON,
    CborCodec,
    Codec,
    PayloadError,
    PayloadLimits,
)
from tests.support.workers import Echo, Forwarder, Gate, start_worker


@dataclasses.dataclass
class Line:
    item: str
    count: int


@dataclasses.dataclass
class Order:
    lines: list[Line]
    when: dt.date | None = None

    def __post_init__(self) -> None:
        if not self.lines:
            raise ValueError("an order without lines")


class Paid(msgspec.Struct, tag="paid"):
    amount: int


class Sent(msgspec.Struct, tag="sent"):
    by: str


class Point(TypedDict):
    x: int
    y: int


class Colour(enum.Enum):
    RED = "red"


class Orders(TypedWorker):
    def handle(self, order: Order) -> int:
        return sum(line.count for line in order.lines)


class JsonOrders(Orders):
    codec = JSON


class Same(TypedWorker):
    """Answers with what it got; the tests derive from it to say what that is."""

    def __init__(self, codec: Codec = CBOR) -> None:
        super().__init__()
        self.codec = codec


class SameEvent(Same):
    def handle(self, event: Paid | Sent) -> Paid | Sent:
        return event


class SamePoint(Same):
    def handle(self, point: Point) -> Point:
        return point


class SameUnion(Same):
    def handle(self, value: int | list[str] | None) -> list[object]:
        return [type(value).__name__, value]


class SameText(Same):
    def handle(self, text: Annotated[str, msgspec.Meta(max_length=3)]) -> str:
        return text


class SameBytes(Same):
    def handle(self, data: bytes) -> bytes:
        return data


class SameNumbers(Same):
    def handle(self, numbers: dict[int, Colour]) -> dict[int, Colour]:
        return numbers


class SameLiteral(Same):
    def handle(self, word: Literal["yes", "no"]) -> str:
        return word


class SameAnything(Same):
    def handle(self, value: Any) -> Any:
        return value


class Later(Same):
    async def handle(self, seconds: float, message: Message) -> str | None:
        await asyncio.sleep(seconds)
        return f"{message.to} after {seconds}" if seconds else None


class Blocking(TypedWorker, ThreadWorker):
    async def handle(self, order: Order) -> str:
        await asyncio.sleep(0)
        return order.lines[0].item


ONE = Order([Line("tea", 2)])

KINDS: list[tuple[type[Same], Any, Any, Any]] = [
    (SameEvent, Paid(3), Paid | Sent, Paid(3)),
    (SameEvent, Sent("post"), Paid | Sent, Sent("post")),
    (SamePoint, {"x": 1, "y": 2}, Point, {"x": 1, "y": 2}),
    (SameUnion, 7, list[Any], ["int", 7]),
    (SameUnion, ["a"], list[Any], ["list", ["a"]]),
    (SameUnion, None, list[Any], ["NoneType", None]),
    (SameText, "tea", str, "tea"),
    (SameBytes, b"\x00\xff", bytes, b"\x00\xff"),
    (SameNumbers, {1: Colour.RED}, dict[int, Colour], {1: Colour.RED}),
    (SameLiteral, "yes", str, "yes"),
    (SameAnything, [1, {"a": "b"}], Any, [1, {"a": "b"}]),
]


@pytest.mark.parametrize("codec", [CBOR, JSON], ids=["cbor", "json"])
@pytest.mark.parametrize(("worker", "value", "kind", "answer"), KINDS)
async def test_what_a_handler_may_declare(
    worker: type[Same], value: Any, kind: Any, answer: Any, codec: Codec, node: Node
) -> None:
    await node.start(lambda: worker(codec), address="w")
    assert await call(node, "w", value, kind, codec=codec) == answer


@pytest.mark.parametrize(("worker", "codec"), [(Orders, CBOR), (JsonOrders, JSON)])
async def test_a_dataclass(worker: type[Orders], codec: Codec, node: Node) -> None:
    await node.start(worker, address="orders")
    order = Order([Line("tea", 2), Line("milk", 3)], dt.date(2026, 11, 21))
    assert await call(node, "orders", order, int, codec=codec) == 5


async def test_a_handler_that_awaits_and_wants_the_message(node: Node) -> None:
    await node.start(Later, address="later")
    assert await call(node, "later", 2.5, str) == "0#later after 2.5"


async def test_no_answer_is_none(node: Node) -> None:
    probe = await Probe.on(node, "probe")
    await node.start(Later, address="later")
    await node.start(SameAnything, address="same")
    for address in ("later", "same"):
        node.send(address, CBOR.encode(0 if address == "later" else None), return_route="probe")
    await asyncio.sleep(1)
    assert probe.messages == []
    assert node.dead_letters.total == 0


@pytest.mark.real_time
async def test_a_worker_with_a_thread_of_its_own(node: Node) -> None:
    await node.start(Blocking, address="blocking")
    assert await call(node, "blocking", ONE, str) == "tea"
    with pytest.raises(NotDelivered, match="bad payload"):
        await call(node, "blocking", 1, str)


async def test_bare_strings_and_bytes(node: Node) -> None:
    await node.start(lambda: SameText(BARE_STRING), address="text")
    await node.start(lambda: SameBytes(BYTES), address="bytes")
    answer = await node.request("text", b"\x03tea")
    assert answer.payload == b"\x03tea"
    assert (await node.request("bytes", b"\x00")).payload == b"\x00"
    assert await call(node, "text", "ten", str, codec=BARE_STRING) == "ten"
    with pytest.raises(NotDelivered, match="length <= 3"):
        await call(node, "text", "eleven", str, codec=BARE_STRING)


class Money:
    def __init__(self, cents: int) -> None:
        self.cents = cents


class MoneyCodec:
    """Reads what is wanted and not plain data, as codecs of generated classes do."""

    name = "money"

    def encode(self, value: Any) -> bytes:
        return str(value.cents).encode()

    def decode(self, data: bytes, kind: Any) -> Any:
        return kind(int(data)) if data.isdigit() else data.decode()


class Till(TypedWorker):
    codec = MoneyCodec()

    def handle(self, money: Money) -> Money:
        return Money(money.cents + 1)


async def test_a_codec_of_ones_own(node: Node) -> None:
    await node.start(Till, address="till")
    assert (await call(node, "till", Money(1), Money, codec=MoneyCodec())).cents == 2
    with pytest.raises(NotDelivered, match="Expected Money, got str"):
        await node.request("till", b"much")


class Unhashable(MoneyCodec):
    __hash__ = None  # type: ignore[assignment] # pyright: ignore[reportAssignmentType]


async def test_a_codec_that_cannot_be_remembered(node: Node) -> None:
    await node.start(Till, address="till")
    assert (await call(node, "till", Money(1), Money, codec=Unhashable())).cents == 2


# --- bad payloads ---------------------------------------------------------------------
BAD: list[tuple[Any, str]] = [
    ({"lines": [{"item": "tea", "count": "x"}]}, "lines[0].count: Expected int, got str"),
    ({"lines": [{"item": "tea"}]}, "lines[0]: Object missing required field count"),
    ({"lines": []}, "an order without lines"),
    (
        {"lines": [{"item": "tea", "count": 1}], "when": "soon"},
        "when: Invalid RFC3339 encoded date",
    ),
    ({}, "Object missing required field lines"),
    (7, "Expected object, got int"),
]


@pytest.mark.parametrize(("value", "words"), BAD)
async def test_an_error_reply_names_the_bad_field(value: Any, words: str, node: Node) -> None:
    await node.start(Orders, address="orders")
    with pytest.raises(NotDelivered) as caught:
        await node.request("orders", CBOR.encode(value))
    assert f"bad payload: {words}" in str(caught.value)
    assert node.dead_letters.by_reason == {"bad payload": 1}
    [worker] = node.statistics().workers
    assert (worker.handled, worker.failed) == (1, 0)
    assert await call(node, "orders", ONE, int) == 2


async def test_a_bad_key(node: Node) -> None:
    await node.start(SameNumbers, address="numbers")
    with pytest.raises(NotDelivered, match="bad payload: a key: Expected int, got str"):
        await node.request("numbers", CBOR.encode({"x": "red"}))


async def test_a_payload_that_is_not_of_the_codec(node: Node) -> None:
    await node.start(Orders, address="orders")
    with pytest.raises(NotDelivered, match="bad payload: cut short"):
        await node.request("orders", b"")


async def test_a_bad_payload_with_no_way_back_is_a_dead_letter(node: Node) -> None:
    await node.start(Orders, address="orders")
    node.send("orders", b"\xff")
    await asyncio.sleep(1)
    assert node.dead_letters.by_reason == {"bad payload": 1}


@typed
def positive(value: int) -> int:
    if value <= 0:
        raise Rejection(f"{value} is not positive")
    return value


@typed
async def positive_later(value: int) -> int:
    await asyncio.sleep(1)
    return positive.handle(value)  # type: ignore[no-any-return]


@pytest.mark.parametrize("kind", [positive, positive_later])
async def test_a_handler_may_reject_a_value(kind: type[TypedWorker], node: Node) -> None:
    await node.start(add_one, address="one")
    await node.start(kind, address="positive")
    with pytest.raises(Refused, match=r"0#positive \(rejected: -1 is not positive\)"):
        await call(node, "positive", -1, int)
    with pytest.raises(GivenUp, match=r"0#positive \(rejected: 0 is not positive\)"):
        await call(node, "one => positive", -1, int)
    assert await call(node, "one => positive", 0, int) == 1
    assert node.dead_letters.by_reason == {"rejected": 2}
    assert node.statistics().failed == 0


# --- acknowledgements -----------------------------------------------------------------
class Sink(TypedWorker):
    def __init__(self) -> None:
        super().__init__()
        self.values: list[int] = []

    def handle(self, value: int) -> None:
        self.values.append(value)


class LateSink(Sink):
    async def handle(self, value: int) -> None:  # type: ignore[override]
        await asyncio.sleep(1)
        self.values.append(value)


class SilentSink(Sink):
    ack = False


class UnannotatedSink(Sink):
    def handle(self, value: int):  # type: ignore[no-untyped-def]
        self.values.append(value)


@pytest.mark.parametrize("kind", [Sink, LateSink])
async def test_a_handler_that_returns_nothing_acknowledges(kind: type[Sink], node: Node) -> None:
    sink = await start_worker(node, kind(), "sink")
    await call(node, "sink", 3, None)
    assert sink.values == [3]
    assert (await node.request("sink", CBOR.encode(4))).payload == b""


@pytest.mark.parametrize("kind", [SilentSink, UnannotatedSink])
async def test_no_acknowledgement_unless_it_is_declared(kind: type[Sink], node: Node) -> None:
    await node.start(kind, address="sink")
    with pytest.raises(RequestTimeout):
        await call(node, "sink", 3, None)


async def test_a_message_that_waits_for_no_answer_is_not_acknowledged(node: Node) -> None:
    sink, probe = Sink(), await Probe.on(node, "probe")
    await node.start(lambda: sink, address="sink")
    node.send("sink", CBOR.encode(1))
    probe.send("sink", CBOR.encode(2))
    probe.send("sink", CBOR.encode(3), return_route="elsewhere => probe")
    await asyncio.sleep(1)
    assert sink.values == [1, 2, 3]
    assert probe.messages == []
    # Only the third names another return route than the sender's own address.
    assert node.dead_letters.by_reason == {"no such worker": 1}


async def test_an_answer_is_no_acknowledgement(node: Node) -> None:
    await node.start(Orders, address="orders")
    with pytest.raises(PayloadError, match="not empty"):
        await call(node, "orders", ONE, None)


# --- chains ---------------------------------------------------------------------------
@typed
def add_one(value: int) -> int:
    """Return the next number."""
    return value + 1


@typed
async def halve(value: int, message: Message) -> int | None:
    assert message.to.value == b"halve"
    await asyncio.sleep(1)
    return None if value % 2 else value // 2


async def test_a_result_is_passed_on_to_the_next_worker(node: Node) -> None:
    for name, stage in {"one": add_one, "halve": halve, "two": add_one}.items():
        await node.start(stage, address=name)
    assert await call(node, "one => halve => two", 3, int) == 3
    with pytest.raises(GivenUp, match="0#halve"):
        await call(node, "one => halve => two", 2, int)
    assert node.dead_letters.total == 0
    assert add_one.handle(1) == 2
    assert add_one.__doc__ == "Return the next number."


async def test_the_last_worker_of_a_chain_may_acknowledge(node: Node) -> None:
    sink = Sink()
    await node.start(add_one, address="one")
    await node.start(lambda: sink, address="sink")
    await call(node, "one => sink", 3, None)
    assert sink.values == [4]


async def test_a_refusal_behind_another_worker_is_in_doubt(node: Node) -> None:
    await node.start(add_one, address="one")
    await node.start(Orders, address="orders")
    with pytest.raises(GivenUp, match=r"0#orders \(bad payload: Expected object, got int\)"):
        await call(node, "one => orders", 3, int)
    with pytest.raises(GivenUp, match=r"0#one \(no such worker\)"):
        await call(node, "one => gone", 3, int)
    with pytest.raises(Refused, match="0#orders"):
        await call(node, "orders => one", 3, int)
    assert node.dead_letters.by_reason == {"bad payload": 2, "no such worker": 1}
    assert node.statistics().failed == 0


async def test_a_value_lost_behind_another_worker_is_in_doubt() -> None:
    async with Node(limits=NodeLimits(room_timeout=1.0)) as node:
        await node.start(add_one, address="one")
        gate = await start_worker(node, Gate(), "g", mailbox=MailboxOptions(1, Overflow.WAIT))
        node.send("g", b"in hand")
        await asyncio.sleep(0.1)
        node.send("g", b"waits")
        with pytest.raises(GivenUp, match=r"0#g \(mailbox full\)"):
            await call(node, "one => g", 3, int)
        with pytest.raises(MailboxFull):
            node.send("g", b"")
        node.add_rule(200, lambda _: Pending(timeout=1.0))
        with pytest.raises(GivenUp, match=r"200#x \(unresolved\)"):
            await call(node, "one => 200#x", 3, int)
        gate.opened.set()


async def test_a_value_that_waits_in_a_mailbox_at_its_end_is_in_doubt(node: Node) -> None:
    await node.start(add_one, address="one")
    await start_worker(node, Gate(), "g")
    node.send("g", b"in hand")
    await asyncio.sleep(0.1)
    asked = asyncio.create_task(call(node, "one => g", 3, int))
    await asyncio.sleep(0.1)
    await node.stop_worker("g", timeout=1.0)
    with pytest.raises(GivenUp, match="worker stopped"):
        await asked


async def test_a_worker_of_bytes_may_answer_at_the_end_of_a_chain(node: Node) -> None:
    await node.start(add_one, address="one")
    await node.start(Echo, address="echo")
    assert await call(node, "one => echo", 3, int) == 4
    answer = await node.request("one => one", encode_value(3))
    assert (decode_value(answer.payload, int), answer.onward_route[1:]) == (5, ())


async def test_an_answer_of_a_chain_that_is_too_big_is_told() -> None:
    async with Node(limits=NodeLimits(payload=100)) as node:
        await node.start(add_one, address="one")
        await node.start(typed(_long), address="long")
        with pytest.raises(GivenUp, match="payload too big"):
            await call(node, "one => long", 3, str)
        assert node.statistics().failed == 0


def _long(value: int) -> str:
    return "x" * 1000 * value


@pytest.mark.parametrize("way", ["one => {link} => orders", "one => f => {link} => orders"])
async def test_a_refusal_on_another_node_is_in_doubt_behind_a_worker(way: str) -> None:
    async with Node("here") as here, Node("there", error_replies=True) as there:
        await here.start(add_one, address="one")
        await here.start(Forwarder, address="f")
        await there.start(Orders, address="orders")
        await there.start(add_one, address="more")
        listener = await there.listen(
            "memory://x", expose=["orders", "more"], allow=["orders"], error_replies=True
        )
        link = await here.connect(listener.uri)
        with pytest.raises(GivenUp, match="bad payload"):
            await call(here, way.format(link=link), 3, int)
        with pytest.raises(GivenUp, match="bad payload"):
            await call(here, f"one => {link} => more => orders", 3, int)
        with pytest.raises(Refused, match="bad payload"):
            await call(here, f"f => {link} => orders", 3, int)
        assert await call(here, f"one => {link} => more", 3, int) == 5


class Wrong:
    """A codec that writes no bytes."""

    name = "wrong"

    def encode(self, value: Any) -> bytes:
        return value  # type: ignore[no-any-return]

    def decode(self, data: bytes, kind: Any) -> Any:
        return kind(data)


async def test_a_codec_that_writes_no_bytes_is_a_failure_of_the_worker(node: Node) -> None:
    @typed(codec=Wrong())
    def same(value: bytearray) -> bytearray:
        return value

    await node.start(same, address="same")
    for route in ("same", "same => same"):
        with pytest.raises(WorkerFailed):
            await node.request(route, b"x")
    assert node.statistics().failed == 2


def test_values_without_workers() -> None:
    assert decode_value(encode_value(ONE, JSON), Order, JSON) == ONE
    with pytest.raises(PayloadError, match="Expected object"):
        decode_value(encode_value(1), Order)


def test_a_function_must_declare_its_value() -> None:
    with pytest.raises(BadHandler, match="len: 'obj' has no annotation"):
        typed(len)


# --- answers --------------------------------------------------------------------------
async def test_an_answer_with_no_way_back_is_a_dead_letter(node: Node) -> None:
    await node.start(Orders, address="orders")
    node.send("orders", CBOR.encode({"lines": [{"item": "tea", "count": 1}]}))
    await asyncio.sleep(1)
    assert node.dead_letters.by_reason == {"empty route": 1}
    assert node.statistics().failed == 0


async def test_an_answer_to_somebody_who_has_gone_is_a_dead_letter(node: Node) -> None:
    await node.start(Orders, address="orders")
    node.send("orders", CBOR.encode(dataclasses.asdict(ONE)), return_route="gone")
    await asyncio.sleep(1)
    [letter] = node.dead_letters.recent
    assert letter.reason == "no such worker"
    assert letter.message[:3] == (
        (Address(LOCAL, b"gone"),),
        (Address(LOCAL, b"orders"),),
        CBOR.encode(2),
    )
    assert node.statistics().failed == 0


async def test_an_answer_that_cannot_be_encoded_is_a_failure_of_the_worker(node: Node) -> None:
    await node.start(lambda: SameAnything(CborCodec(PayloadLimits(items=1))), address="same")

    class Wide(SameAnything):
        def handle(self, value: Any) -> Any:
            return [value] * 2

    await node.start(lambda: Wide(CborCodec(PayloadLimits(items=1))), address="wide")
    with pytest.raises(Exception, match="worker failed"):
        await node.request("wide", CBOR.encode(1))
    assert node.statistics().failed == 1


async def test_an_answer_of_another_type_is_the_callers_to_see(node: Node) -> None:
    await node.start(SameAnything, address="same")
    with pytest.raises(PayloadError, match="Expected int, got str"):
        await call(node, "same", "text", int)


async def test_what_cannot_be_encoded_is_not_sent(node: Node) -> None:
    await node.start(SameAnything, address="same")
    with pytest.raises(PayloadError, match="64 bits"):
        await call(node, "same", 1 << 64, int)
    assert node.statistics().handled == 0


async def test_a_worker_calls_another(node: Node) -> None:
    class Asking(TypedWorker):
        async def handle(self, count: int) -> int:
            return await call(self, "orders", Order([Line("tea", count)]), int) * 10

    await node.start(Orders, address="orders")
    await node.start(Asking, address="asking")
    assert await call(node, "asking", 4, int) == 40


# --- what is wrong with a handler -----------------------------------------------------
def test_a_handler_must_declare_its_value() -> None:
    with pytest.raises(BadHandler, match=r"Undeclared.handle: 'value' has no annotation"):

        class Undeclared(TypedWorker):
            def handle(self, value) -> None:  # type: ignore[no-untyped-def]
                """Declare nothing."""


def test_a_handler_takes_a_value_and_perhaps_the_message() -> None:
    with pytest.raises(BadHandler, match="takes a value and optionally the message"):

        class Nothing(TypedWorker):
            def handle(self) -> None:
                """Take nothing."""

    with pytest.raises(BadHandler, match="takes a value and optionally the message"):

        class Much(TypedWorker):
            def handle(self, value: int, message: Message, more: int) -> None:
                """Take what nobody gives."""

    with pytest.raises(BadHandler, match="by position"):

        class Named(TypedWorker):
            def handle(self, value: int, *, dry: bool = False) -> None:
                """Take what nobody names."""

    with pytest.raises(BadHandler, match="by position"):

        class Several(TypedWorker):
            def handle(self, *values: int) -> None:
                """Take any number."""

    with pytest.raises(BadHandler, match="'dry' is the message, with another type"):

        class Other(TypedWorker):
            def handle(self, value: int, dry: bool = False) -> None:
                """Take the message for something else."""


@dataclasses.dataclass
class Careless:
    counts: dict[str, int]

    def __post_init__(self) -> None:
        self.first = self.counts["first"]


class Sets(TypedWorker):
    codec = JSON

    def handle(self, value: set[Any]) -> None:
        """Declare what lists cannot be in."""


class CarelessWorker(TypedWorker):
    codec = JSON

    def handle(self, value: Careless) -> str:
        return "made"


class Prices(TypedWorker):
    codec = JSON

    def handle(self, value: set[decimal.Decimal]) -> None:
        """Declare numbers, of which one cannot be hashed."""


@pytest.mark.parametrize(
    ("worker", "payload"),
    [(Sets, b"[[1]]"), (CarelessWorker, b'{"counts":{}}'), (Prices, b'["sNaN"]')],
)
async def test_a_payload_that_a_type_refuses(
    worker: type[TypedWorker], payload: bytes, node: Node
) -> None:

    await node.start(worker, address="w")
    # Some versions of msgspec check that a value can be hashed, others raise the TypeError of it.
    told = "it is no valid value of the type|Expected a hashable value"
    with pytest.raises(Refused, match=told):
        await node.request("w", payload)
    assert node.statistics(workers=False).failed == 0
    assert node.dead_letters.by_reason == {"bad payload": 1}


def test_a_type_that_cannot_be_checked() -> None:
    with pytest.raises(BadHandler, match=r"Two.handle: 'value': Type unions may not contain more"):

        class Two(TypedWorker):
            def handle(self, value: Line | Order) -> None:
                """Declare what cannot be told apart."""


class Early(TypedWorker):
    def handle(self, value: Defined) -> str:
        return value.text


@dataclasses.dataclass
class Defined:
    text: str


class Lost(TypedWorker):
    def handle(self, value: Undefined) -> None:  # type: ignore[name-defined] # noqa: F821 # pyright: ignore[reportUndefinedVariable]
        """Declare what is defined nowhere."""


class Without(TypedWorker):
    """Has no handler at all."""


async def test_a_type_that_is_defined_later(node: Node) -> None:
    await node.start(Early, address="early")
    assert await call(node, "early", Defined("text"), str) == "text"
    await node.start(Early, address="again")
    with pytest.raises(BadHandler, match=r"Lost.handle: name 'Undefined' is not defined"):
        node.spawn(Lost, address="lost")
    with pytest.raises(BadHandler, match=r"Without.handle: is not defined"):
        node.spawn(Without, address="without")
    assert not node.has("lost")


def test_without_the_extra_a_class_cannot_be_defined(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "msgspec", None)
    with pytest.raises(MissingExtra) as caught:

        class Some(TypedWorker):
            def handle(self, value: int) -> None:
                """Never come to be."""

    assert str(caught.value) == "Some needs the extra: install onward[typed]"
    assert isinstance(caught.value, ImportError)


async def test_who_sent_a_bad_payload_from_elsewhere_is_told_too() -> None:
    async with Node("here") as here, Node("there", error_replies=True) as there:
        await there.start(Orders, address="orders")
        listener = await there.listen("memory://orders", expose=["orders"], error_replies=True)
        link = await here.connect(listener.uri)
        route = (link, Address(LOCAL, b"orders"))
        assert await call(here, route, ONE, int) == 2
        with pytest.raises(Refused) as caught:
            await here.request(route, CBOR.encode({"lines": 1}))
        assert caught.value.detail == "bad payload: lines: Expected array, got int"
