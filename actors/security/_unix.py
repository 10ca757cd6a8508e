"""The method `unix`: the user id of the peer of a Unix socket."""

from __future__ import annotations

from ...protocol.security import NotAuthenticated, PeerIdentity, Principal
from ._transport_method import TransportMethod

__all__ = ["UnixAuthenticator"]


class UnixAuthenticator(TransportMethod):
    """The method for the peers of Unix sockets: the operating system tells their user id.

    With a file, peers with other user ids are left to the next method. Without one, each peer of a
    Unix socket is accepted, as `uid:1000`.

    Args:
        file: The file with the user ids, or its path.
        roles: Without a file: the roles of each peer.
    """

    method = "unix"

    def _find(self, peer: PeerIdentity) -> Principal | None:
        if peer.user_id is None:
            return None
        if self._file is None:
            return Principal(f"uid:{peer.user_id}", self.method, self._roles)
        account = self._file.content.unix.get(peer.user_id)
        if account is None:
            return None
        if account.disabled:
            raise NotAuthenticated("disabled")
        return account.principal
