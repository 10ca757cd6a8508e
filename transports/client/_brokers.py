"""The brokers that a client knows, and which of them a connection goes to."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from ._dial import BrokerEndpoint, parse_place

if TYPE_CHECKING:
    from ...protocol.cluster import PeerInfo
    from ._options import ClientOptions

__all__ = ["Brokers", "KnownBroker"]

_LONGEST: Final = 64
"""Failures after which waits grow no more, as in `Backoff`."""


@dataclass(slots=True, eq=False)
class KnownBroker:
    """A broker that a client knows.

    Attributes:
        uri: Its URI.
        endpoint: Its endpoint; `None` until it is dialled first.
        configured: Whether the program has named it; then it is never forgotten.
        broker_id: Its id; empty until it is known.
        draining: Whether it is about to stop, as it was told.
        listed: Whether it was in the last list of brokers.
        fresh: Whether it has come, or come back, since connections were last spread.
        at: Time before which others are preferred, in seconds of the loop's clock.
        failures: Attempts to connect that have failed since the last success.
        connections: Connections of the client to it, those that are being made included.
        changed: Timestamp of what was told of it last.
        gone_at: When it was missing in a list first.
    """

    uri: str
    endpoint: BrokerEndpoint | None = None
    configured: bool = False
    broker_id: bytes = b""
    draining: bool = False
    listed: bool = False
    fresh: bool = False
    at: float = 0.0
    failures: int = 0
    connections: int = 0
    changed: int = 0
    gone_at: float = 0.0

    def misses(self, now: float) -> int:
        """Return how much speaks against a new connection to it; 0: nothing."""
        absent = not (self.listed or self.configured)
        return absent + self.draining + (self.at > now)


@dataclass(slots=True)
class Learned:
    """The counts of brokers that the client was told of and does not use.

    Attributes:
        ignored: Brokers that were ignored because as many as possible are known.
        refused: Brokers that were refused, by reason.
    """

    ignored: int = 0
    refused: dict[str, int] = field(default_factory=dict[str, int])


class Brokers:
    """The brokers that a client knows: those that the program has named, and learned ones.

    It has no clock: each call is given the time.

    Attributes:
        learned: The counts of those that the client was told of and does not use.

    Args:
        places: The endpoints of the brokers that the program has named.
        options: Times and limits.
    """

    def __init__(self, places: Sequence[BrokerEndpoint], options: ClientOptions) -> None:
        self.learned = Learned()
        self._options = options
        self._backoff = options.backoff
        self._random = options.backoff.random
        named = {place.uri: place for place in places}
        self._known = [KnownBroker(uri, place, configured=True) for uri, place in named.items()]

    def __iter__(self) -> Iterator[KnownBroker]:
        return iter(tuple(self._known))

    def __len__(self) -> int:
        return len(self._known)

    @property
    def uris(self) -> set[str]:
        """The URIs of all."""
        return {each.uri for each in self._known}

    # --- connecting -----------------------------------------------------------------------------

    def choose(self, now: float) -> KnownBroker:
        """Return the broker for a new connection.

        One that is there, does not drain and has not just failed comes first. Among alike, the one
        with the fewest connections of this client; if none has anything in its favour, the one that
        is due first. Equal ones are taken at random, so that not all clients take the same.
        """
        return min(
            self._known,
            key=lambda each: (
                each.misses(now),
                each.failures > 0,
                self.load(each),
                max(0.0, each.at - now),
                self._random(),
            ),
        )

    def load(self, broker: KnownBroker) -> int:
        """Return the number of connections to a broker, under whatever URI."""
        if not broker.broker_id:
            return broker.connections
        same = (each for each in self._known if each.broker_id == broker.broker_id)
        return sum(each.connections for each in same)

    def endpoint(self, broker: KnownBroker) -> BrokerEndpoint:
        """Return the endpoint of a broker, with the certificates for it.

        Raises:
            OSError: A certificate cannot be read.
            ValueError: A certificate is wrong.
        """
        if broker.endpoint is None:
            broker.endpoint = parse_place(broker.uri, self._options)
        return broker.endpoint

    def connected(self, broker: KnownBroker) -> None:
        """Receive the success of an attempt."""
        broker.failures = 0
        broker.at = 0.0

    def failed(self, broker: KnownBroker, now: float) -> None:
        """Receive the failure of an attempt: others are preferred for a while."""
        broker.at = now + self._pause(broker.failures)
        broker.failures += 1

    def lost(self, broker: KnownBroker, now: float) -> None:
        """Receive the loss of a connection."""
        broker.at = max(broker.at, now + self._pause(0))

    def drains(self, broker: KnownBroker, now: float) -> None:
        """Receive a refusal of a broker because it is about to stop: others are preferred."""
        broker.at = max(broker.at, now + self._pause(_LONGEST))

    def _pause(self, failures: int) -> float:
        """Return a time of which half is random, so that clients do not come back together."""
        return (1.0 + self._random()) / 2 * self._backoff.bound(failures)

    def any_fit(self, now: float) -> bool:
        """Whether nothing speaks against a connection to one of them."""
        return any(not each.misses(now) for each in self._known)

    # --- spreading ------------------------------------------------------------------------------

    def wanted_move(
        self, at: Collection[KnownBroker], now: float
    ) -> tuple[KnownBroker, KnownBroker] | None:
        """Return from which broker to which a connection should move; `None` for none.

        Away from one that drains; from one with two more connections than another; and to one that
        has come back, with the probability that gives it its share of the connections of many
        clients.

        Args:
            at: The brokers of the connections that can move.
            now: The time.
        """
        fit = [each for each in self._known if not each.misses(now)]
        if not fit or not at:
            return None
        low = min(fit, key=lambda each: (self.load(each), self._random()))
        for each in at:
            if each.draining:
                return each, low
        high = max(at, key=self.load)
        most, least = self.load(high), self.load(low)
        if most - least > 1:
            return high, low
        fresh = [each for each in fit if each.fresh]
        for each in fresh:
            each.fresh = False
        fresh = [each for each in fresh if self.load(each) == least < most]
        connections = sum(each.connections for each in self._known)
        if self._random() * len(fit) < len(fresh) * connections:
            return high, fresh[int(self._random() * len(fresh))]
        return None

    # --- learning -------------------------------------------------------------------------------

    def learn(self, infos: Sequence[PeerInfo], now: float, refusal: Callable[[str], str]) -> None:
        """Receive a whole list of brokers.

        Args:
            infos: What they tell of themselves.
            now: The time.
            refusal: Returns the reason for which a URI must not be used; empty if it may be.
        """
        told = {info.broker_id: info for info in infos if info.proxy_uri}
        for info in told.values():
            same = [each for each in self._known if each.broker_id == info.broker_id]
            if not any(each.configured or each.uri == info.proxy_uri for each in same):
                same += self._add(info, now, refusal)
            for each in same:
                self._told(each, info, now)
        named = {(info.broker_id, info.proxy_uri) for info in told.values()}
        for each in self._known:
            there = each.broker_id in told if each.configured else _name(each) in named
            if each.listed and not there:
                each.listed, each.gone_at = False, now
        self._forget(now)

    def _add(self, info: PeerInfo, now: float, refusal: Callable[[str], str]) -> list[KnownBroker]:
        uri = info.proxy_uri
        for each in self._known:
            if each.uri == uri:  # a restarted broker has another id at the same place
                each.broker_id, each.changed = info.broker_id, 0
                return [each]
        reason = refusal(uri)
        if reason:
            self.learned.refused[reason] = self.learned.refused.get(reason, 0) + 1
            return []
        if len(self._known) >= self._options.brokers.max_brokers and not self._make_room():
            self.learned.ignored += 1
            return []
        added = KnownBroker(uri, broker_id=info.broker_id, gone_at=now)
        self._known.append(added)
        return [added]

    def _told(self, broker: KnownBroker, info: PeerInfo, now: float) -> None:
        if info.timestamp < broker.changed and broker.listed:
            return  # told by a broker that is behind
        # One that was missing may have been restarted, with a clock that was set back.
        news = info.timestamp > broker.changed or not broker.listed
        broker.changed, broker.draining = info.timestamp, info.draining
        if news and not info.draining:
            # One that was named and has never failed was chosen from in the first place.
            broker.fresh = broker.fresh or not broker.configured or broker.failures > 0
            broker.failures, broker.at = 0, min(broker.at, now)
        broker.listed = True

    def _make_room(self) -> bool:
        """Forget the broker that is missing for longest; return whether there is one."""
        missing = [each for each in self._known if _forgettable(each)]
        if missing:
            self._known.remove(min(missing, key=lambda each: each.gone_at))
        return bool(missing)

    def _forget(self, now: float) -> None:
        before = now - self._options.brokers.forget_after
        self._known = [
            each for each in self._known if not (_forgettable(each) and each.gone_at <= before)
        ]


def _name(broker: KnownBroker) -> tuple[bytes, str]:
    return broker.broker_id, broker.uri


def _forgettable(broker: KnownBroker) -> bool:
    return not (broker.configured or broker.listed or broker.connections)
