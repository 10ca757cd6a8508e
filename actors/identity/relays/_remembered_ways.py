"""The ways over relays that no route names, which the links remember by their addresses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ....protocol.identity import Identity

if TYPE_CHECKING:
    from .._router import Router

__all__ = ["RememberedWays"]


class RememberedWays:
    """The identities that are reached through a relay which no route names.

    The links remember what the addresses of these are replaced by, until it is forgotten here.

    Args:
        router: The router.
    """

    __slots__ = ("_router", "_ways")

    def __init__(self, router: Router) -> None:
        self._router: Final = router
        # By the node that has them: the relay, and the identities.
        self._ways: Final[dict[Identity, tuple[Identity, dict[Identity, None]]]] = {}

    def remember(self, home: Identity, relay: Identity, identity: Identity) -> None:
        """Remember that an identity at a node is reached through a relay."""
        found = self._ways.get(home)
        if found is None or found[0] != relay or len(found[1]) >= _MAX_REMEMBERED:
            self.forget(home)
            if len(self._ways) >= _MAX_REMEMBERED:
                self.forget(next(iter(self._ways)))
            found = self._ways[home] = relay, {}
        found[1][identity] = None

    def forget(self, home: Identity) -> None:
        """Resolve anew what leads to a node through a relay: there may be another way to it now."""
        _, identities = self._ways.pop(home, (home, {}))
        for identity in identities:
            self._router.links.forget(identity)

    def forget_all(self) -> None:
        """Resolve anew all that leads through relays, as changes of the directory were lost."""
        for home in tuple(self._ways):
            self.forget(home)

    def relay_lost(self, relay: Identity) -> None:
        """Resolve anew what leads to any node through a relay, as the link to that has ended."""
        for home in [home for home, (via, _) in self._ways.items() if via == relay]:
            self.forget(home)


_MAX_REMEMBERED: Final = 1024
"""Most nodes behind relays of which the links remember addresses, and most identities at each.
Beyond: some are resolved anew."""
