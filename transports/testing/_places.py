"""Cases: URIs, options, resolved addresses, threads and hostile bytes."""

from __future__ import annotations

import asyncio
from random import Random
from typing import Any, Final

from ...actors import Node
from ...protocol import Address, DeliveryError, NotDelivered, OnwardError
from ._case import Case, case
from ._stage import EchoWorker, Stage, expect

__all__ = ["PLACES"]

PLACES: Final[list[Case]] = []


@case(PLACES)
async def uris_that_are_none(stage: Stage) -> None:
    """A URI without a place is a `ValueError`, for `listen` and for `connect`."""
    for method in (stage.c.listen, stage.a.connect):
        try:
            await method(f"{stage.scheme}://")
        except ValueError:
            continue
        raise AssertionError(f"{method.__name__} takes {stage.scheme}:// for a URI")


@case(PLACES)
async def options_that_are_none(stage: Stage) -> None:
    """An unknown option is a `TypeError`, for `listen` and for `connect`."""
    unknown: dict[str, Any] = {"no_such_option": 1}
    listener = await stage.listen(stage.c)
    for method, uri in ((stage.b.listen, stage.place()), (stage.a.connect, listener.uri)):
        try:
            await method(uri, **unknown)
        except TypeError:
            continue
        raise AssertionError(f"{method.__name__} takes an option that there is not")


@case(PLACES, "ephemeral")
async def any_free_place(stage: Stage) -> None:
    """A listener at any free place has its actual URI, and two have different ones."""
    await stage.c.start(EchoWorker, address="echo")
    listeners = [await stage.listen(stage.c, "echo") for _ in range(2)]
    expect(listeners[0].uri != listeners[1].uri, f"both listen at {listeners[0].uri}")
    for listener in listeners:
        link = await stage.connect(stage.a, listener.uri)
        await stage.ask(stage.a, [link, "echo"], b"")


@case(PLACES, "address_type")
async def addresses_are_resolved(stage: Stage) -> None:
    """An address of the transport's type opens a link, which keeps messages until it is up."""
    await stage.c.start(EchoWorker, address="echo")
    listener = await stage.listen(stage.c, "echo")
    there = _address_of(stage, listener.uri)
    answers = [await stage.ask(stage.a, [there, "echo"], b"%d" % number) for number in range(3)]
    expect([each.payload for each in answers] == [b"0", b"1", b"2"], "others were answered")
    links = {each.return_route[0] for each in answers}
    expect(len(links) == 1, f"{len(links)} links were opened")
    expect(stage.a.has(links.pop()), "the answer did not come by a link")


@case(PLACES, "address_type", "connected")
async def addresses_where_nobody_listens(stage: Stage) -> None:
    """A request to an address without a listener ends with `NotDelivered`."""
    listener = await stage.listen(stage.c)
    await listener.close()
    try:
        await stage.ask(stage.a, [_address_of(stage, listener.uri), "echo"], b"")
    except NotDelivered:
        return
    except DeliveryError as error:
        raise AssertionError(f"the error is {error!r}, which is no NotDelivered") from None
    raise AssertionError("it was answered")


@case(PLACES, "address_type")
async def addresses_that_are_none(stage: Stage) -> None:
    """An address of the transport's type that names no place is an error for the sender."""
    try:
        stage.a.send([Address(stage.claims.address_type or 0, b"\xff\xfe"), "echo"], b"")
    except OnwardError:
        return
    raise AssertionError("two bytes that are no text are taken for a place")


@case(PLACES, "threads")
async def nodes_of_different_threads(stage: Stage) -> None:
    """The nodes may be on the event loops of different threads."""
    await stage.c.start(EchoWorker, address="echo")
    listener = await stage.listen(stage.c, "echo")

    def far() -> list[bytes]:
        background = Node.in_background("far")
        stage.equip(background.node)
        with background:
            link = background.connect(listener.uri, **stage.claims.connect_options)
            asked = [
                background.request([link, "echo"], b"%d" % each, timeout=stage.claims.patience)
                for each in range(20)
            ]
        return [answer.payload for answer in asked]

    answers = await asyncio.to_thread(far)
    expect(answers == [b"%d" % each for each in range(20)], f"the answers are {answers}")


@case(PLACES, "raw")
async def bytes_of_strangers(stage: Stage) -> None:
    """Hostile bytes do no harm: the listener goes on, and no worker fails."""
    raw = stage.claims.raw
    if raw is None:
        raise AssertionError("unexpected case")
    await stage.c.start(EchoWorker, address="echo")
    listener = await stage.listen(stage.c, "echo")
    link = await stage.connect(stage.a, listener.uri)
    random = Random(4)  # noqa: S311 - has to be repeatable
    hostile = [b"", b"\x00", b"\xff" * 64, b"GET / HTTP/1.1\r\n\r\n", bytes(100_000)]
    hostile += [random.randbytes(random.randrange(1, 2000)) for _ in range(20)]
    for data in hostile:
        await raw(listener.uri, data)
        answer = await stage.ask(stage.a, [link, "echo"], b"still")
        expect(answer.payload == b"still", "the listener did not go on")


def _address_of(stage: Stage, uri: str) -> Address:
    return Address(stage.claims.address_type or 0, uri.partition("://")[2].encode())
