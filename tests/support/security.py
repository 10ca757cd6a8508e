"""An authentication that a test decides, and credentials byte by byte."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import Any

from onward.actors.security import Authentication, AuthenticationOptions, Authenticator
from onward.protocol.security import Credentials, NotAuthenticated, PeerIdentity, Principal

__all__ = ["AUTHENTICATION", "TOKEN", "USER", "Gate", "gated"]

AUTHENTICATION = b"message/x.rsocket.authentication.v0"

USER = bytes.fromhex("80 0004 75736572 70617373776f7264")
"""The entry for `user` and `password`, as the Python package writes it."""

TOKEN = bytes.fromhex("81 746f6b")
"""The entry for the token `tok`, as the Python package writes it."""


class Gate(Authenticator):
    """A method that accepts what a test says, once it is open.

    Attributes:
        seen: The credentials it was asked about, and the peers.
        open: Whether it decides.
        accepted: The credentials it accepts, each with its principal.
    """

    method = "test"

    def __init__(self, accepted: Mapping[Credentials | None, Principal]) -> None:
        self.seen: list[tuple[Credentials | None, PeerIdentity]] = []
        self.open = asyncio.Event()
        self.open.set()
        self.accepted = dict(accepted)

    async def authenticate(
        self, credentials: Credentials | None, peer: PeerIdentity
    ) -> Principal | None:
        self.seen.append((credentials, peer))
        await self.open.wait()
        if credentials is not None and credentials not in self.accepted:
            raise NotAuthenticated("unknown")
        return self.accepted.get(credentials)


def gated(
    accepted: Mapping[Credentials | None, Principal],
    timeout: float = 2.0,
    clock: Callable[[], float] = time.time,
    **more: Any,
) -> tuple[Gate, Authentication]:
    """Return an authentication that bans no source, and the gate that decides."""
    gate = Gate(accepted)
    limits: dict[str, Any] = {
        "timeout": timeout,
        "max_undecided": 10_000,
        "max_failures": 10_000,
        **more,
    }
    return gate, Authentication([gate], AuthenticationOptions(**limits), clock, clock)
