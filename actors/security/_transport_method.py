"""What the methods have in common that know a peer by what its transport has verified."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from ...protocol.security import Credentials, NotAuthenticated, PeerIdentity, Principal
from ._authenticator import Authenticator
from ._principals_file import PrincipalsFile


class TransportMethod(Authenticator):
    """A method that takes no credentials: the identity of the peer decides.

    Args:
        file: The file with the identities, or its path.
        roles: Without a file: the roles of each peer.
    """

    def __init__(
        self,
        file: PrincipalsFile | str | Path | None = None,
        roles: frozenset[str] = frozenset(),
    ) -> None:
        self._file = PrincipalsFile(file) if isinstance(file, str | Path) else file
        self._roles = roles

    @abstractmethod
    def _find(self, peer: PeerIdentity) -> Principal | None:
        """Return the principal of a peer, or `None` for one that is not known.

        Raises:
            NotAuthenticated: The entry is disabled.
        """

    async def authenticate(
        self, credentials: Credentials | None, peer: PeerIdentity
    ) -> Principal | None:
        """Return the principal of a peer, or `None` for one that is not known.

        Raises:
            NotAuthenticated: The entry is disabled.
        """
        return self._find(peer)

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
