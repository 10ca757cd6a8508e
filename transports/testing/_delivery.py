"""Cases: messages arrive with their routes, in order, whole, and many at a time."""

from __future__ import annotations

import asyncio
from random import Random
from typing import Final

from ...protocol import Address, AddressLike, Context, address
from ._case import Case, case
from ._stage import EchoWorker, RelayWorker, Stage, expect

__all__ = ["DELIVERY"]

DELIVERY: Final[list[Case]] = []

_MANY: Final = 500


@case(DELIVERY)
async def routes_of_a_message(stage: Stage) -> None:
    """A message loses the near link's address, and gains the far one's on its return route.

    See the specification, Session Establishment, messages 2 to 4.
    """
    a, c = stage.a, stage.c
    sender, target = await stage.probe(a, "a1"), await stage.probe(c, "c1")
    link = await stage.link("c1")
    sender.send([link, "c1", "further"], b"there")
    came = await stage.next(target)
    expect(came.payload == b"there", f"sent {b'there'!r}, and {came.payload!r} came")
    expected = (address("c1"), address("further"))
    expect(came.onward_route == expected, f"the onward route is {came.onward_route}")
    expect(len(came.return_route) == 2, f"the return route is {came.return_route}")
    far, back = came.return_route
    expect(back == address("a1"), f"the return route ends with {back}, not the sender")
    expect(c.has(far), "the return route does not begin with a worker of the node")
    expect(came.source == far, f"the source is {came.source}, not the link of the node")


@case(DELIVERY)
async def answers_come_back(stage: Stage) -> None:
    """A reply returns over the same link, to a request and to a worker."""
    await stage.c.start(EchoWorker, address="echo")
    asker = await stage.probe(stage.a, "asker")
    link = await stage.link("echo")
    answer = await stage.ask(stage.a, [link, "echo"], b"hi")
    expect(answer.payload == b"hi", f"asked with {b'hi'!r}, answered {answer.payload!r}")
    expected = (link, address("echo"))
    expect(answer.return_route == expected, f"the answer came by {answer.return_route}")
    asker.send([link, "echo"], b"again")
    came = await stage.next(asker)
    expect(came.onward_route == (address("asker"),), f"it came with {came.onward_route}")


@case(DELIVERY)
async def both_ends_may_ask(stage: Stage) -> None:
    """The end that was connected to can send requests to the other, over the same connection."""
    await stage.a.start(EchoWorker, address="echo-a")
    target = await stage.probe(stage.c, "c1")
    listener = await stage.listen(stage.c, "c1")
    near = await stage.connect(stage.a, listener.uri, "echo-a")
    stage.a.send([near, "c1"], b"hello", return_route="somebody")
    far = (await stage.next(target)).return_route[0]
    answer = await stage.ask(stage.c, [far, "echo-a"], b"and you?")
    expect(answer.payload == b"and you?", f"the answer is {answer.payload!r}")


@case(DELIVERY)
async def two_links_and_a_relay(stage: Stage) -> None:
    """A route may lead over several links, with workers between them."""
    a, b, c = stage.a, stage.b, stage.c
    await b.start(RelayWorker, address="relay")
    await c.start(EchoWorker, address="echo")
    second = await stage.connect(b, (await stage.listen(c, "echo")).uri)
    to_b = await stage.listen(b, "relay", allow=[second])
    first = await stage.connect(a, to_b.uri)
    answer = await stage.ask(a, [first, "relay", second, "echo"], b"far")
    expected = (first, address("relay"), second, address("echo"))
    expect(answer.return_route == expected, f"the answer came by {answer.return_route}")


@case(DELIVERY)
async def a_node_and_itself(stage: Stage) -> None:
    """A node may connect to itself."""
    await stage.c.start(EchoWorker, address="echo")
    listener = await stage.listen(stage.c, "echo")
    link = await stage.connect(stage.c, listener.uri)
    answer = await stage.ask(stage.c, [link, "echo"], b"me")
    expect(answer.payload == b"me", f"the answer is {answer.payload!r}")


@case(DELIVERY)
async def payloads_of_all_sizes(stage: Stage) -> None:
    """Every payload arrives whole: an empty one, every byte, up to the size claimed."""
    await stage.c.start(EchoWorker, address="echo")
    target = await stage.probe(stage.c, "c1")
    link = await stage.link("echo", "c1")
    most = stage.claims.max_payload
    random = Random(most)  # noqa: S311 - has to be repeatable
    around = (each + more for each in (256, 1024, 16_384, 65_536) for more in (-1, 0, 1))
    for size in sorted({0, 1, 23, 24, most - 1, most, *around}):
        if size > most:
            break
        sent = bytes(range(256)) if size == 256 else random.randbytes(size)
        stage.a.send([link, "c1"], sent)
        there = (await stage.next(target)).payload
        _same(there, sent, "there")
        came = (await stage.ask(stage.a, [link, "echo"], sent)).payload
        _same(came, sent, "back")


def _same(came: object, sent: bytes, where: str) -> None:
    kind = type(came).__name__
    expect(kind == "bytes", f"a payload of {len(sent)} bytes came {where} as {kind}")
    if isinstance(came, bytes) and came != sent:
        more = "" if len(came) != len(sent) else ", which are others"
        raise AssertionError(f"of {len(sent)} bytes {len(came)} came {where}{more}")


@case(DELIVERY, "too_large")
async def a_payload_that_is_too_large(stage: Stage) -> None:
    """A payload that is too large is an error for the requester, and does not harm the link."""
    await stage.c.start(EchoWorker, address="echo")
    link = await stage.link("echo")
    size = stage.claims.too_large or 0
    from ...protocol import NotDelivered, PayloadTooBig

    try:
        await stage.ask(stage.a, [link, "echo"], bytes(size))
    except (PayloadTooBig, NotDelivered):
        pass
    else:
        raise AssertionError(f"{size} bytes got across")
    answer = await stage.ask(stage.a, [link, "echo"], b"still")
    expect(answer.payload == b"still", "the link did not go on")


@case(DELIVERY)
async def addresses_of_all_kinds(stage: Stage) -> None:
    """Addresses cross unchanged: of any type, of any bytes, and as many as a route may have."""
    target = await stage.probe(stage.c, "c1")
    link = await stage.link("c1")
    odd = [Address(0, b"\x00\xff\n => #"), Address(255, b"{}"), Address(7, "ü/\\..".encode())]
    behind: list[AddressLike] = [*odd, *(str(number) for number in range(50))]
    stage.a.send([link, "c1", *behind], b"", return_route=behind)
    came = await stage.next(target)
    expected = tuple(address(each) for each in behind)
    expect(came.onward_route[1:] == expected, f"the onward route is {came.onward_route}")
    expect(came.return_route[1:] == expected, f"the return route is {came.return_route}")


@case(DELIVERY)
async def what_stays_in_the_node(stage: Stage) -> None:
    """Of a message's context only the tracing text crosses."""
    target = await stage.probe(stage.c, "c1")
    link = await stage.link("c1")
    stage.a.send([link, "c1"], b"", context=Context(deadline=1e9, meta="here"))
    came = (await stage.next(target)).context
    kept = Context() if came is None else came._replace(outside=None)
    expect(kept == Context(), f"the context {came} came")


@case(DELIVERY, "traces")
async def the_tracing_text(stage: Stage) -> None:
    """The tracing text crosses."""
    target = await stage.probe(stage.c, "c1")
    link = await stage.link("c1")
    stage.a.send([link, "c1"], b"", context=Context(trace="00-abc-def-01"))
    came = (await stage.next(target)).context
    kept = None if came is None else came._replace(outside=None)
    expect(kept == Context(trace="00-abc-def-01"), f"the context {came} came")


@case(DELIVERY, "ordered", "reliable")
async def order_is_kept(stage: Stage) -> None:
    """The messages of one link arrive in the order they were sent, each once."""
    target = await stage.probe(stage.c, "c1")
    link = await stage.link("c1")
    sent = [b"%d" % number for number in range(_MANY)]
    for payload in sent:
        stage.a.send([link, "c1"], payload)
    expect(await stage.come(target, _MANY) == sent, "the order is another")


@case(DELIVERY, "ordered", "reliable")
async def order_of_all_sizes(stage: Stage) -> None:
    """A small message does not overtake a large one, in either direction."""
    here, there = await stage.probe(stage.a, "here"), await stage.probe(stage.c, "there")
    listener = await stage.listen(stage.c, "there")
    near = await stage.connect(stage.a, listener.uri, "here")
    here.send([near, "there"], b"hello")
    far = (await stage.next(there)).return_route[0]
    sizes = [min(each, stage.claims.max_payload) for each in (0, 100_000, 0, 5000, 1_000_000, 10)]
    for number in range(60):
        payload = (b"%d" % number).ljust(sizes[number % len(sizes)])
        here.send([near, "there"], payload)
        there.send([far, "here"], payload)
    for probe, first in ((there, 1), (here, 0)):
        came = [payload.rstrip() for payload in await stage.come(probe, 60 + first)][first:]
        expect(came == [b"%d" % number for number in range(60)], "the order is another")


@case(DELIVERY, "reliable")
async def many_requests_at_a_time(stage: Stage) -> None:
    """Each of many requests at a time gets its own response."""
    await stage.c.start(EchoWorker, address="echo")
    link = await stage.link("echo")

    async def one(number: int) -> None:
        payload = b"%d" % number * (number % 50 + 1)
        answer = await stage.ask(stage.a, [link, "echo"], payload)
        expect(answer.payload == payload, f"request {number} got the answer of another")

    await asyncio.gather(*map(one, range(_MANY // 2)))


@case(DELIVERY, "reliable")
async def both_directions_at_a_time(stage: Stage) -> None:
    """Both ends may send as much as they can at the same time."""
    here, there = await stage.probe(stage.a, "here"), await stage.probe(stage.c, "there")
    listener = await stage.listen(stage.c, "there")
    near = await stage.connect(stage.a, listener.uri, "here")
    here.send([near, "there"], b"hello")
    far = (await stage.next(there)).return_route[0]
    for number in range(_MANY - 1):
        here.send([near, "there"], b"%d" % number)
        there.send([far, "here"], b"%d" % number)
    there.send([far, "here"], b"last")
    came = await stage.come(here, _MANY), await stage.come(there, _MANY)
    expect(len(set(came[0])) == len(set(came[1])) == _MANY, "a message came twice")


@case(DELIVERY, "many")
async def many_links_to_one_listener(stage: Stage) -> None:
    """A listener has many links at a time, and each reply uses the right one."""
    await stage.c.start(EchoWorker, address="echo")
    listener = await stage.listen(stage.c, "echo")
    nodes = [stage.a, stage.b] * 5
    links = [await stage.connect(node, listener.uri) for node in nodes]
    expect(len(set(links)) == len(links), "two links have the same address")
    asked = [
        stage.ask(node, [link, "echo"], b"%d" % number)
        for number, (node, link) in enumerate(zip(nodes, links, strict=True))
    ]
    answers = [each.payload for each in await asyncio.gather(*asked)]
    expected = [b"%d" % number for number in range(len(nodes))]
    expect(answers == expected, f"the answers are {answers}")
