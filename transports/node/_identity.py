"""The names of a link's peer, from its verified certificate, and access control by them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from ..streams._tls import NAME_KINDS

if TYPE_CHECKING:
    from ...actors import Node
    from ...protocol import Address, Message

__all__ = ["forget_names", "from_certificate", "note_names"]

_names: Final[dict[tuple[int, Address], frozenset[str]]] = {}
"""The names of the peer of each link that is up, by the identity of the node and the link's
address. The address is random, so no later node has the same key."""


def note_names(node: Node, link: Address, names: tuple[str, ...]) -> None:
    """Store the names of a link's peer."""
    _names[id(node), link] = frozenset(names)


def forget_names(node: Node, link: Address) -> None:
    """Remove the names of a link that is down."""
    _names.pop((id(node), link), None)


def from_certificate(node: Node, *names: str) -> Callable[[Message], bool]:
    """Return an access control that admits messages over links to peers with one of these names.

    It finds the link by the message's `source`, which the node sets, and checks the certificate
    of the link's peer. It is for a worker that is exposed to TLS links: those that connect, and
    those of listeners with `require_client`. Messages forwarded by another worker of the node
    are not admitted.

    Args:
        node: The node of the worker.
        *names: Names as in `LinkStatistics.names`, each with its kind: `URI:`, `DNS:`, `IP:`,
            `email:`, or `CN:` for certificates that have no others. The certificate must have
            one of them.

    Raises:
        ValueError: A name has no kind.
    """
    for name in names:
        kind, mark, _ = name.partition(":")
        if not mark or kind not in NAME_KINDS:
            kinds = ", ".join(NAME_KINDS)
            raise ValueError(f"a name is like DNS:…, with one of {kinds} before it, not {name!r}")
    wanted, here = frozenset(names), id(node)

    def certified(message: Message) -> bool:
        source = message.source
        return source is not None and not wanted.isdisjoint(_names.get((here, source), ()))

    return certified
