"""The facts that a broker tells others of itself: the list in its BROKER_INFO.

| key | value |
| --- | --- |
| 0x21 | URI for clients, as the Java broker has it |
| 0x22 | URI for peer brokers, likewise |
| `onward` | version of this protocol: 1. Absent: another implementation |
| `instance` | when the broker was started, in ms since the Unix epoch, in decimal digits |
| `zone` | the zone; absent if there is but one |
| `name` | a name for people |
| `state` | `up` or `draining` |
| `without` | keys of tags that its groups do not have, as text, separated by spaces |
| `max` | bytes to which it likes elements of its streams gathered, in decimal digits |
| `owners` | `1`: it answers other zones that ask for the owners of routes |

Keys that are not known are kept, and passed on. The timestamp says when the list has changed.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from .._errors import AddressError
from ..broker import (
    MAX_TAGS,
    BrokerFrameError,
    BrokerInfo,
    Dialect,
    Key,
    Metadata,
    WellKnownKey,
    format_key,
    parse_key,
)
from ._elements import LENGTH_SIZE, MIN_BATCH
from ._errors import ClusterFrameError

__all__ = [
    "BROKERS_ROUTE",
    "BROKER_INFO_ROUTE",
    "CLIENTS_SERVICE",
    "CLUSTER_VERSION",
    "DRAINING",
    "OWNERS",
    "REMOTE_BROKER_INFO_ROUTE",
    "ROUTES_ROUTE",
    "UP",
    "PeerInfo",
    "parse_infos",
    "serialize_infos",
]

CLUSTER_VERSION: Final = "1"
"""The version of the protocol between brokers, as BROKER_INFO says it."""

BROKER_INFO_ROUTE: Final = "cluster.broker-info"
"""The route by which two brokers exchange their BROKER_INFO, before anything else."""
REMOTE_BROKER_INFO_ROUTE: Final = "cluster.remote-broker-info"
"""The route by which a broker tells a peer broker of another one, or of a change of its own."""
BROKERS_ROUTE: Final = "onward.cluster.brokers"
"""The route by which two peer brokers compare the brokers that they know."""
ROUTES_ROUTE: Final = "onward.cluster.routes"
"""The route by which a broker subscribes to the routes of a peer broker."""

CLIENTS_SERVICE: Final = "onward.brokers"
"""The service by which a broker tells its clients of the brokers of its cluster."""

UP: Final = "up"
"""The state of a broker that takes requests."""
DRAINING: Final = "draining"
"""The state of a broker that is about to stop: others are to be preferred."""

OWNERS: Final = "2"
"""The value of `owners` of a broker that tells other zones the owners of routes."""

_PROXY, _CLUSTER = int(WellKnownKey.BROKER_PROXY_URI), int(WellKnownKey.BROKER_CLUSTER_URI)
_MAX_DIGITS: Final = 19


@dataclass(frozen=True, slots=True)
class PeerInfo:
    """The facts that a broker tells of itself.

    Attributes:
        broker_id: 16 bytes.
        timestamp: When they changed, in milliseconds since the Unix epoch.
        instance: When it was started, in milliseconds since the Unix epoch; 0 if it does not say.
        cluster_uri: URI at which peer brokers reach it; empty for none. At most 127 bytes, like the
            other texts.
        proxy_uri: URI at which clients reach it; empty for none.
        version: Version of the protocol; empty for another implementation.
        zone: Its zone.
        name: Its name for people.
        state: `UP`, `DRAINING`, or a word of a later version.
        without: Keys of tags that the groups it tells do not have, beside RouteId and InstanceName.
        max_batch: Bytes to which it likes elements gathered; `None` if it does not say.
        owners: `OWNERS` if it can be asked for the owners of routes.
        others: Entries with other keys.
    """

    broker_id: bytes
    timestamp: int
    instance: int = 0
    cluster_uri: str = ""
    proxy_uri: str = ""
    version: str = CLUSTER_VERSION
    zone: str = ""
    name: str = ""
    state: str = UP
    without: tuple[Key, ...] = ()
    max_batch: int | None = None
    owners: str = ""
    others: Metadata = ()

    @property
    def draining(self) -> bool:
        """Whether it is about to stop."""
        return self.state == DRAINING

    @classmethod
    def parse(cls, data: bytes | memoryview, dialect: Dialect = Dialect.SPECIFICATION) -> PeerInfo:
        """Read a BROKER_INFO.

        Raises:
            ClusterFrameError: It is none, or a value in its list is not what its key says.
        """
        try:
            frame = BrokerInfo.parse(data, dialect)
        except BrokerFrameError as error:
            raise ClusterFrameError(f"BROKER_INFO, {error}") from None
        return cls.of(frame)

    @classmethod
    def of(cls, frame: BrokerInfo) -> PeerInfo:
        """Read the list of a BROKER_INFO; of a key that is there twice the first counts.

        Raises:
            ClusterFrameError: A value is not what its key says, or there is no room for its state.
        """
        found: dict[Key, str] = {}
        others: list[tuple[Key, bytes | None]] = []
        for key, value in frame.metadata:
            if key in _TEXTS or key in (_PROXY, _CLUSTER):
                found.setdefault(key, _text(key, value))
            else:
                others.append((key, value))
        if len(frame.metadata) + ("state" not in found) > MAX_TAGS:
            # It is passed on with its state, which may not have been told.
            raise ClusterFrameError(f"BROKER_INFO with {MAX_TAGS} entries, and none for its state")
        largest = found.get("max")
        max_batch = None if largest is None else _number("max", largest)
        if max_batch is not None and max_batch < MIN_BATCH:
            raise ClusterFrameError(f"BROKER_INFO, max: less than {MIN_BATCH} bytes")
        return cls(
            frame.broker_id,
            frame.timestamp,
            instance=_number("instance", found.get("instance", "0")),
            cluster_uri=found.get(_CLUSTER, ""),
            proxy_uri=found.get(_PROXY, ""),
            version=found.get("onward", ""),
            zone=found.get("zone", ""),
            name=found.get("name", ""),
            state=found.get("state") or UP,
            without=_keys("without", found.get("without", "")),
            max_batch=max_batch,
            owners=found.get("owners", ""),
            others=tuple(others),
        )

    def frame(self) -> BrokerInfo:
        """Return it as a BROKER_INFO; what is empty is left out."""
        texts: tuple[tuple[Key, str], ...] = (
            (_PROXY, self.proxy_uri),
            (_CLUSTER, self.cluster_uri),
            ("onward", self.version),
            ("instance", str(self.instance or "")),
            ("zone", self.zone),
            ("name", self.name),
            ("state", self.state if self.version or self.state != UP else ""),
            ("without", _written(self.without)),
            ("max", str(self.max_batch or "")),
            ("owners", self.owners),
        )
        known = tuple((key, text.encode()) for key, text in texts if text)
        # A null value can only be the last.
        others = tuple(sorted(self.others, key=lambda entry: entry[1] is None))
        return BrokerInfo(self.broker_id, self.timestamp, known + others)

    def serialize(self, dialect: Dialect = Dialect.SPECIFICATION) -> bytes:
        """Write it as a BROKER_INFO.

        Raises:
            BrokerFrameError: A text is over 127 bytes or cannot be written.
        """
        return self.frame().serialize(dialect)


_TEXTS: Final = frozenset(
    {"onward", "instance", "zone", "name", "state", "without", "max", "owners"}
)


def _text(key: Key, value: bytes | None) -> str:
    try:
        return (value or b"").decode()
    except UnicodeDecodeError:
        raise ClusterFrameError(f"BROKER_INFO, {key}: not UTF-8") from None


def _number(key: str, text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= _MAX_DIGITS):
        raise ClusterFrameError(f"BROKER_INFO, {key}: not a number")
    return int(text)


def _keys(key: Key, text: str) -> tuple[Key, ...]:
    try:
        keys = tuple(map(parse_key, text.split()))
    except AddressError:
        keys = ()
    # What is passed on is as long as what came: any other spelling of a key may be longer.
    if _written(keys) != text:
        raise ClusterFrameError(f"BROKER_INFO, {key}: not the keys of tags")
    return keys


def _written(keys: Iterable[Key]) -> str:
    return " ".join(map(format_key, keys))


def serialize_infos(infos: Iterable[PeerInfo]) -> bytes:
    """Write a list of brokers: each BROKER_INFO with its length in 24 bits before it."""
    parts: list[bytes] = []
    for info in infos:
        data = info.serialize()
        parts += (len(data).to_bytes(LENGTH_SIZE), data)
    return b"".join(parts)


def parse_infos(data: bytes, most: int) -> list[PeerInfo]:
    """Read a list of brokers.

    Args:
        data: All of it.
        most: Brokers that it may have.

    Raises:
        ClusterFrameError: It is none, or has more brokers.
    """
    found: list[PeerInfo] = []
    at, size = 0, len(data)
    while at < size:
        start = at + LENGTH_SIZE
        at = start + int.from_bytes(data[at:start])
        if at > size:
            raise ClusterFrameError("a list of brokers is cut short")
        if len(found) == most:
            raise ClusterFrameError(f"a list of more than {most} brokers")
        found.append(PeerInfo.parse(data[start:at]))
    return found
