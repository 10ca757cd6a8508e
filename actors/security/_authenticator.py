"""The interface of a method of authentication."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from importlib.metadata import entry_points
from typing import Any, Final

from ...protocol.security import Credentials, PeerIdentity, Principal

__all__ = ["AnonymousAuthenticator", "Authenticator", "load_authenticator"]

GROUP: Final = "onward.authenticators"
"""The entry-point group of plug-ins."""


class Authenticator(ABC):
    """A method of authentication.

    Attributes:
        method: The name of the method, as in configuration, statistics and principals.
    """

    method: str

    @abstractmethod
    async def authenticate(
        self, credentials: Credentials | None, peer: PeerIdentity
    ) -> Principal | None:
        """Return the principal of a peer.

        It is cancelled when the time for a decision is over. It may be called for several
        connections at a time, always on the loop of the node: work of more than a millisecond
        belongs on a thread.

        Args:
            credentials: The credentials in the peer's SETUP, or `None`.
            peer: What the transport has verified of the peer.

        Returns:
            The principal, or `None` if this method has nothing to decide by: then the next method
            of the listener is tried.

        Raises:
            NotAuthenticated: The credentials are for this method, and wrong.
        """

    def readmit(self, principal: Principal, peer: PeerIdentity) -> Principal | None:
        """Return what a connected peer is after a reload, or `None` if it is refused now.

        It is called on the loop for each connection, after files and keys were replaced, and has no
        credentials to look at: those of a peer are not kept.

        Args:
            principal: What this method has made of the peer.
            peer: What the transport has verified of the peer.
        """
        return principal

    async def prepare_reload(self) -> Callable[[], object]:
        """Read files and keys again; return the function that replaces the old ones.

        Raises:
            OSError: They cannot be read. The method goes on with the old ones.
            OnwardError: They are not valid. The method goes on with the old ones.
        """
        return _nothing

    async def reload(self) -> None:
        """Read files and keys again, and replace the old ones in one step.

        Raises:
            OSError: As for `prepare_reload`.
            OnwardError: As for `prepare_reload`.
        """
        (await self.prepare_reload())()

    async def close(self) -> None:  # noqa: B027 - most methods hold nothing
        """Release what the method holds."""


def _nothing() -> None:
    """Replace nothing: most methods read no files."""


class AnonymousAuthenticator(Authenticator):
    """The method for peers without credentials.

    Args:
        roles: The roles of each of these peers.
    """

    method = "anonymous"

    def __init__(self, roles: frozenset[str] = frozenset()) -> None:
        self._principal = Principal("anonymous", self.method, roles)

    async def authenticate(
        self, credentials: Credentials | None, peer: PeerIdentity
    ) -> Principal | None:
        """Return the same principal for each peer without credentials."""
        return self._principal if credentials is None else None


def load_authenticator(name: str, **options: Any) -> Authenticator:
    """Return a new authenticator of an installed plug-in.

    Args:
        name: The name of its entry point in the group `onward.authenticators`. The entry point is
            a function, or a class, that returns an `Authenticator`.
        **options: The arguments of the function.

    Raises:
        ValueError: There is none of that name.
        TypeError: It makes no `Authenticator`, or does not take the options.
    """
    found = {entry.name: entry for entry in entry_points(group=GROUP)}
    if name not in found:
        known = ", ".join(sorted(found)) or "none is installed"
        raise ValueError(f"no authenticator is called {name!r}; there are: {known}")
    made = found[name].load()(**options)
    if not isinstance(made, Authenticator):
        kind = type(made).__name__
        raise TypeError(f"the plug-in {name!r} makes {kind}, which is no Authenticator")
    return made
