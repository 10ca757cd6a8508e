"""The domains of a node: those that it serves, founds and joins."""

from __future__ import annotations

from collections.abc import Iterable

from ...actors.identity import Admit, DomainStatistics, admit_none
from ...protocol import AddressLike, address as as_address
from ...protocol.identity import Identity, ResultCode, SigningKey
from ._own_identity import OwnIdentity

__all__ = ["DomainCalls"]


class DomainCalls(OwnIdentity):
    """A node in domains; see `Identities`."""

    def serve(
        self, domain: Identity, worker: AddressLike, *, expose: Iterable[AddressLike] = ()
    ) -> None:
        """Serve a domain by a worker of the node, in the place of the one before, until it ends.

        Requests to the domain reach it as `36#domain:…`, and its address and those exposed as
        `36#domain:… => address`. It answers each once. The node has to be a member for others to
        send to it.

        Args:
            domain: The domain.
            worker: The address of the worker.
            expose: Other addresses of the node that requests to the domain may go to.

        Raises:
            UnknownAddress: There is no such worker.
            LimitReached: The node serves as many domains as it may.
        """
        exposed = frozenset(map(as_address, expose))
        self._domains.serve(domain, as_address(worker), exposed)

    def stop_serving(self, domain: Identity) -> bool:
        """Serve a domain no more; return whether it was served. What is in hand is answered."""
        return self._domains.stop(domain)

    def found_domain(
        self,
        key: SigningKey,
        nodes: Iterable[Identity] | None = None,
        *,
        admit: Admit = admit_none,
    ) -> Identity:
        """Sign the members of a domain, tell them to all nodes, and return its identity.

        Called again, `nodes` and `admit` take the place of those before. The key is used until the
        node ends: found it anew when the node is started again.

        Args:
            key: The key of the domain.
            nodes: The members, at most `MAX_DOMAIN_NODES`; by default those that the directory
                knows, which it keeps in its file, or this node if it knows of none.
            admit: Decides whether a node that asks to join is let in; no node is by default. What
                it shows is `JoinRequest.auth`. It runs on the loop, and may be a coroutine
                function, which is cancelled after 25 seconds; the node gets `TIMEOUT` then.

        Raises:
            LimitReached: There are more members than there may be, or more domains.
            ValueError: The domain is banned here.
        """
        members = None if nodes is None else tuple(dict.fromkeys(nodes))
        self._domains.memberships.found(key, members, admit)
        return key.identity

    async def join_domain(
        self, domain: Identity, via: Identity, auth: bytes | None = None
    ) -> ResultCode:
        """Ask to be a member of a domain, at the node that has its key.

        Args:
            domain: The domain.
            via: That node; there has to be a link to it.
            auth: What is shown to be let in, at most `MAX_JOIN_AUTH` bytes. The node sees it.

        Returns:
            `OK`; or `EXISTS` if the node is a member, `DENIED`, `OVERFLOW`, `UNKNOWN` if the other
            node does not have the key, and `TIMEOUT` if it has not decided after 25 seconds, or
            has not answered after 30.

        Raises:
            LinkDown: There is no link to the node.
            LinkLost: The link has ended meanwhile.
            LimitReached: 64 such requests are under way.
            BadRecord: There is more to show than there may be.
        """
        return await self._domains.memberships.join(domain, via, auth)

    def domain_statistics(self) -> DomainStatistics:
        """Return the domains and the requests to them at this moment."""
        return self._domains.statistics()
