"""The identities of the peers of links, and access controls by them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

from ...protocol._principal import PeerIdentity, Principal
from ..streams._tls import NAME_KINDS

if TYPE_CHECKING:
    from ...actors import Node
    from ...protocol import Address, Message

__all__ = [
    "forget_identity",
    "from_certificate",
    "from_principal",
    "link_principals",
    "note_identity",
]

_identities: Final[dict[tuple[int, Address], tuple[PeerIdentity, Principal | None]]] = {}
"""The peer of each stream link that is up, by the `id` of the node and the link's address. The
address is random, so no later node has the same key."""

_UNKNOWN: Final = (PeerIdentity(), None)


def note_identity(
    node: Node, link: Address, identity: PeerIdentity, principal: Principal | None
) -> None:
    """Store the identity of a link's peer, and its principal if it is authenticated."""
    _identities[id(node), link] = identity, principal


def forget_identity(node: Node, link: Address) -> None:
    """Remove the identity of the peer of a link that is down."""
    _identities.pop((id(node), link), None)


def from_certificate(node: Node, *names: str) -> Callable[[Message], bool]:
    """Return an access control that admits messages over links to peers with one of these names.

    It finds the link by the message's `source`, which the node sets, and checks the certificate
    of the link's peer. It is for a worker that is exposed to TLS links: those that connect, and
    those of listeners with `TlsOptions.client`. Messages forwarded by another worker of the node
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
        if source is None:
            return False
        identity, _ = _identities.get((here, source), _UNKNOWN)
        return not wanted.isdisjoint(identity.names)

    return certified


def from_principal(node: Node, *names: str, roles: Iterable[str] = ()) -> Callable[[Message], bool]:
    """Return an access control that admits messages over links of some authenticated peers.

    It finds the link by the message's `source`, which the node sets. It is for a worker that is
    exposed to listeners with `authentication=`. Messages forwarded by another worker of the node
    are not admitted.

    Args:
        node: The node of the worker.
        *names: The names of principals.
        roles: Roles; a principal with one of them is admitted too.

    Raises:
        ValueError: There is neither a name nor a role.
    """
    wanted, wanted_roles, here = frozenset(names), frozenset(roles), id(node)
    if not wanted and not wanted_roles:
        raise ValueError("from_principal needs names or roles, else it would admit none")

    def authenticated(message: Message) -> bool:
        source = message.source
        if source is None:
            return False
        _, principal = _identities.get((here, source), _UNKNOWN)
        if principal is None:
            return False
        return principal.name in wanted or not wanted_roles.isdisjoint(principal.roles)

    return authenticated


def link_principals(node: Node) -> Callable[[Address], Principal | None]:
    """Return a function that finds the principal of a link's peer, by the address of the link.

    It is what `Dispatcher.attach` takes as `principal_of`, so that the roles of names are checked.

    Args:
        node: The node of the links.
    """
    here = id(node)

    def principal_of(link: Address) -> Principal | None:
        return _identities.get((here, link), _UNKNOWN)[1]

    return principal_of
