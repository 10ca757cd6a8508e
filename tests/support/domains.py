"""Domains for tests: their adverts, and members that say which of them has answered."""

from __future__ import annotations

from onward.actors import Node, Worker
from onward.protocol import Message
from onward.protocol.identity import (
    AdvertSource,
    DomainAdvert,
    Identity,
    SigningKey,
    identity_text,
    sign_advert,
)
from onward.transports.identity import Identities
from tests.support.identities import NOW, attached, joined, key_of

__all__ = ["DOMAIN", "Named", "domain_text", "learns", "member"]

DOMAIN: SigningKey = key_of("domain")


class Named(Worker):
    """Answers with a name, and counts."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name.encode()
        self.asked = 0

    def handle_message(self, message: Message) -> None:
        self.asked += 1
        if message.return_route:
            self.reply(message, self.name)


def domain_text(*rest: str) -> str:
    """Return the route to the domain of the tests, and on at a member, as text."""
    return " => ".join((f"36#domain:{identity_text(DOMAIN.identity)}", *rest))


def learns(identities: Identities, *nodes: Identity, version: int = 1) -> None:
    """Have a node know the members of the domain."""
    advert = DomainAdvert(DOMAIN.identity, nodes, version, int(NOW * 1000))
    identities.directory.put(sign_advert(advert, DOMAIN), AdvertSource.LOCAL)


async def member(
    node: Node, asks: tuple[Node, Identities], *, expose: tuple[str, ...] = ()
) -> tuple[Identities, Named]:
    """Make a node serve the domain, by a worker that answers with the name of the node."""
    theirs = await attached(node)
    worker = Named(node.name)
    await node.start(lambda: worker, address="orders")
    theirs.serve(DOMAIN.identity, "orders", expose=expose)
    await joined(asks, node)
    return theirs, worker
