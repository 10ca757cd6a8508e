"""What tests of bundles have: dispatchers in a row, what crosses their links, and senders."""

from __future__ import annotations

from asyncio import sleep

import pytest

from onward.actors.dispatch import Accept
from onward.protocol import Address, Message, OnwardError
from onward.transports.node._link import Link
from onward.transports.simulated import SimulatedNetwork
from tests.actors.dispatch.nets import SETTLE, Net, linear
from tests.actors.dispatch.senders import BACK, ORDERS, SHOP, NetSender as World
from tests.support.workers import Recorder, start_worker

__all__ = [
    "bundled_world",
    "kinds",
    "learned",
    "let_errors_out",
    "neighbour",
    "record_crossed",
    "together",
    "undelivered",
]


async def bundled_world(network: SimulatedNetwork) -> World:
    """Return dispatchers in a row, with a sender at the first one."""
    net = Net(network, error_replies=True)
    await linear(net)
    await sleep(SETTLE)
    return World(net, await start_worker(net.nodes["a"], Recorder(), address=BACK))


def record_crossed(monkeypatch: pytest.MonkeyPatch) -> list[tuple[bytes, bytes, Message]]:
    """Return the kinds of the messages that cross links from now on, with the address of each."""
    found: list[tuple[bytes, bytes, Message]] = []
    before = Link.handle_message

    def handle(link: Link, message: Message) -> object:
        onward = message.onward_route
        if len(onward) > 2:
            found.append((onward[2].value[:1], onward[2].value, message))
        return before(link, message)

    monkeypatch.setattr(Link, "handle_message", handle)
    return found


def kinds(crossed: list[tuple[bytes, bytes, Message]]) -> str:
    text = b"".join(kind for kind, _, _ in crossed).decode()
    crossed.clear()
    return text


async def together(world: World, *payloads: bytes, settled: bool = False) -> None:
    """Send messages in one turn, between two hellos."""
    await sleep(0.5)
    for payload in payloads:
        world.net.nodes["a"].send(ORDERS, payload, return_route=() if settled else BACK)
    await sleep(0.25)


async def learned(world: World, at: str = "c") -> Recorder:
    """Attach a worker that gets pre-settled messages, by ways that are known."""
    shop = await start_worker(world.net.nodes[at], Recorder(), address=SHOP)
    await world.net.at[at].consume("orders", SHOP, accept=Accept.HANDED)
    await sleep(SETTLE)
    await together(world, b"first", settled=True)
    assert shop.payloads == [b"first"]
    shop.messages.clear()
    return shop


def neighbour(net: Net, at: str, to: str) -> Address:
    """Return the link of a node to another one."""
    topology = net.at[at]._core.topology
    return topology.links[str(topology.network.link_to(to))]


def undelivered(link: Link, error: OnwardError, message: Message) -> None:
    """Lose a message that a link has accepted."""
    link.undelivered(message, error)


def let_errors_out(net: Net, at: str, to: str) -> None:
    """Let error replies cross a link."""
    exposures = net.nodes[at].parts.guards.exposures
    exposures.error_replies.add(neighbour(net, at, to))
