"""The method `unix`: the user id of the peer of a Unix socket."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from ...protocol.security import Credentials, NotAuthenticated, PeerIdentity, Principal
from ._authenticator import Authenticator
from ._principals_file import PrincipalsFile

__all__ = ["UnixAuthenticator"]


class UnixAuthenticator(Authenticator):
    """The method for the peers of Unix sockets: the operating system tells their user id.

    With a file, peers with other user ids are left to the next method. Without one, each peer of a
    Unix socket is accepted, as `uid:1000`.

    Args:
        file: The file with the user ids, or its path.
        roles: Without a file: the roles of each peer.
    """

    method = "unix"

    def __init__(
        self,
        file: PrincipalsFile | str | Path | None = None,
        roles: frozenset[str] = frozenset(),
    ) -> None:
        self._file = PrincipalsFile(file) if isinstance(file, str | Path) else file
        self._roles = roles

    async def authenticate(
        self, credentials: Credentials | None, peer: PeerIdentity
    ) -> Principal | None:
        """Return the principal of a user id, or `None` for a peer without a known one.

        Raises:
            NotAuthenticated: The entry is disabled.
        """
        return self._find(peer)

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

    def readmit(self, principal: Principal, peer: PeerIdentity) -> Principal | None:
        """Return what the file makes of the peer now."""
        with suppress(NotAuthenticated):
            return self._find(peer)
        return None

    async def prepare_reload(self) -> Callable[[], object]:
        """Read the file again."""
        if self._file is None:
            return await super().prepare_reload()
        return await self._file.prepare_reload()
