"""Who is at the other end of a link, by the certificate that was verified."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from ..streams._tls import NAME_KINDS

if TYPE_CHECKING:
    from ...actors import Node
    from ...protocol import Address, Message

__all__ = ["forget_names", "from_certificate", "note_names"]

_names: Final[dict[tuple[int, Address], frozenset[str]]] = {}
"""The names of the peer of each link that is up, by the identity of its node and its address,
which is random: that of a node that has gone is never another's."""


def note_names(node: Node, link: Address, names: tuple[str, ...]) -> None:
    """Note who is at the other end of a link."""
    _names[id(node), link] = frozenset(names)


def forget_names(node: Node, link: Address) -> None:
    """Note that a link is down."""
    _names.pop((id(node), link), None)


def from_certificate(node: Node, *names: str) -> Callable[[Message], bool]:
    """Make an access control that lets in what came over a link from a peer with such a name.

    It looks at the link the message came by (its `source`, which nobody can claim), and at the
    peer's certificate there. So it is for a worker that is exposed to links with TLS whose
    listeners have `require_client`, or that connect: messages by way of another worker of the
    node are not let in.

    Args:
        node: The node of the worker.
        *names: Names, as `LinkStatistics.names` has them, each with its kind: `URI:`, `DNS:`,
            `IP:`, `email:`, or `CN:` of certificates that have no others. One of them must be in
            the certificate.

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
