"""The brokers that one of a cluster knows: what they are, and how long they are remembered."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from math import inf

from ._info import PeerInfo
from ._limits import ClusterLimits
from ._link_table import LinkTable

__all__: list[str] = []


@dataclass(slots=True)
class Known:
    """A broker that is known.

    Attributes:
        info: Its facts.
        itself: Whether it has told them itself, and not another one of it.
        heard_at: When it was heard of last, in seconds of the caller's clock.
        reported_by: The id of the peer broker that has told of it last; `None` if none has.
        paused_until: The time until which there may be no link to it.
    """

    info: PeerInfo
    itself: bool
    heard_at: float
    reported_by: bytes | None = None
    paused_until: float = -inf


class KnownBrokers:
    """The brokers that one knows, that one not included.

    One without a link is forgotten when it was not heard of for `forget_after`.

    Args:
        links: The links of the broker.
        limits: `max_known` bounds those that are known by hearsay.

    Attributes:
        expires_at: A time before which none is forgotten: at the latest when the first one is.
    """

    def __init__(self, links: LinkTable, limits: ClusterLimits) -> None:
        self.expires_at = inf
        self._links = links
        self._limits = limits
        self._by_id: dict[bytes, Known] = {}

    def __len__(self) -> int:
        """Return the number of brokers."""
        return len(self._by_id)

    def __iter__(self) -> Iterator[Known]:
        """Iterate over the brokers."""
        return iter(self._by_id.values())

    def get(self, broker_id: bytes) -> Known | None:
        """Return a broker, if it is known."""
        return self._by_id.get(broker_id)

    def add(self, info: PeerInfo, by: bytes | None, now: float) -> None:
        """Add a broker.

        Args:
            info: Its facts.
            by: The id of the peer broker that has told of it; `None` if it has itself.
            now: The time.
        """
        self._by_id[info.broker_id] = Known(info, by in (None, info.broker_id), now, by)
        self._expires_in_time(now)

    def heard(self, broker_id: bytes, now: float) -> None:
        """Remember a broker for longer, if it is known: it is there."""
        known = self._by_id.get(broker_id)
        if known is not None:
            known.heard_at = now
            self._expires_in_time(now)

    def _expires_in_time(self, now: float) -> None:
        self.expires_at = min(self.expires_at, now + self._limits.forget_after)

    def pop(self, broker_id: bytes) -> Known:
        """Remove a broker, and return it."""
        return self._by_id.pop(broker_id)

    def is_full(self) -> bool:
        """Whether as many are known as may be by hearsay."""
        return len(self._by_id) >= self._limits.max_known

    def oldest(self, now: float) -> bytes | None:
        """Return the id of the broker without a link that was not heard of for the longest time.

        One that is paused comes behind all others, by the end of its pause: it would be let in
        again once it is forgotten.
        """
        first = min(self._unlinked(), key=partial(_order, now), default=None)
        return None if first is None else first.info.broker_id

    def _unlinked(self) -> Iterator[Known]:
        return (known for key, known in self._by_id.items() if key not in self._links)

    def expired(self, now: float) -> list[bytes]:
        """Return the ids of the brokers to forget now.

        They are looked for at `expires_at` and not at each call, as there may be thousands.
        """
        if now < self.expires_at:
            return []
        ids: list[bytes] = []
        self.expires_at = inf
        for known in self._unlinked():
            at = max(known.heard_at + self._limits.forget_after, known.paused_until)
            if now >= at:
                ids.append(known.info.broker_id)
            else:
                self.expires_at = min(self.expires_at, at)
        return ids


def _order(now: float, known: Known) -> tuple[float, float]:
    """Return by what a broker is forgotten before another one."""
    paused = known.paused_until if now < known.paused_until else -inf
    return paused, known.heard_at
