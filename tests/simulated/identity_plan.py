"""What is drawn for a run of nodes with identities before it begins."""

from __future__ import annotations

import random
from typing import Final

from onward.actors.identity import IdentityKeys, IdentityOptions
from onward.protocol.identity import RelayPolicy, SigningKey
from tests.support.identities import key_of

__all__ = ["SKEW", "Plan"]

SKEW: Final = 2.0
"""Most time by which a clock is ahead of that of the loop, or behind it, in seconds."""
_OPEN_RELAY: Final = RelayPolicy(from_any=True, exits=True)


class Plan:
    """What is drawn for a run before it begins.

    Args:
        draw: What most of it is drawn from.
        more: What it draws from that came later, so that it changes nothing else.

    Attributes:
        hosts: The names of the nodes.
        pairs: Those that are joined.
        by_middle: The pair that is joined by way of a hostile node, if one is.
        keys: The keys of each node, which outlive it.
        skews: The time by which the clock of each node is ahead, in seconds.
        far: How nodes reach those that they are not joined with: by `dials`, by `reservations`, or
            not at all, which is empty.
        options: The options of each node.
        relays: Whether messages go over relays, as all nodes relay for others.
        domain: Whether there is a domain.
        members: The nodes that serve it.
        liars: The nodes that lie as relays, if messages go over relays.
        movers: The keys of the engines that move from node to node.
        error_replies: Whether workers answer what they cannot handle.
    """

    def __init__(self, draw: random.Random, more: random.Random) -> None:
        self.hosts: Final = [f"n{number}" for number in range(draw.choice((3, 3, 3, 4, 4, 5, 6)))]
        pairs = [(one, other) for one in self.hosts for other in self.hosts if one < other]
        row = list(zip(self.hosts, self.hosts[1:], strict=False))
        self.pairs: Final = row + [
            each for each in pairs if each not in row and draw.random() < 0.3
        ]
        self.by_middle: Final = draw.choice(self.pairs) if draw.random() < 0.5 else None
        self.keys: Final = {host: keys_of(host) for host in self.hosts}
        self.skews: Final = {host: draw.uniform(-SKEW, SKEW) for host in self.hosts}
        self.far: Final = more.choice(("", "", "dials", "reservations"))
        self.options: Final = IdentityOptions(
            message_time=draw.choice((5.0, 60.0, 600.0)),
            max_engines=8,
            max_correspondents=draw.choice((8, 20, 10_000)),
            max_peers=16,
            handshake_time=draw.choice((2.0, 10.0)),
            max_parked=draw.choice((2, 64)),
            anonymous=draw.random() < 0.5,
            dials=("sim",) if self.far == "dials" else (),
        )
        self.relays: Final = draw.random() < 0.5
        self.domain: Final = draw.random() < 0.5
        self.members: Final = draw.sample(self.hosts, 2)
        is_relayed = self.relays or self.far == "reservations"
        self.liars: Final = draw.sample(self.hosts, draw.choice((1, 2))) if is_relayed else []
        self.movers: Final = [SigningKey(draw.randbytes(32)) for _ in range(2)]
        self.error_replies: Final = draw.random() < 0.5

    @property
    def policy(self) -> RelayPolicy | None:
        """What each node relays for others; `None` for nothing."""
        if self.relays:
            return _OPEN_RELAY
        return RelayPolicy(to_reserved=True) if self.far == "reservations" else None

    def joined(self, host: str) -> set[str]:
        """Return a node, and those that it is joined with."""
        return {host, *(each for pair in self.pairs if host in pair for each in pair)}

    def name_of(self, mover: SigningKey) -> str:
        """Return the name of an engine that moves, at each node."""
        return f"mover{self.movers.index(mover)}"


def keys_of(host: str) -> IdentityKeys:
    """Return the keys of a node: the one to seal to outlives it as well."""
    return IdentityKeys(key_of(host), key_of(f"{host}/kx").sign(b"")[:32], None, None, host, 0)
