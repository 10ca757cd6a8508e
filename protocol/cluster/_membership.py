"""The brokers of a cluster as one of them sees it: which links to make and keep, what to tell.

Theory of operation
===================

A broker knows others from its *seeds*, from links, and by hearsay: what a peer broker says of
others. It dials each broker of its zone that it has no link with, at seeds and at addresses that
are allowed, and waits longer after each failure. Of two links between the same two brokers, the one
that the broker with the smaller id has dialled stays; of two with one dialler, the newer.

A broker *vouches* for itself and for those that it has links with, and for no other: what was heard
is not passed on. So one that is gone is forgotten everywhere. News that comes by a link (an unknown
broker, or a newer timestamp) is told to all other peer brokers. When a link is new, and then at
regular intervals, its dialler sends a hash of the list that it vouches for. The other answers with
its own list if that differs, and is then told what it lacks. So news spreads in one hop where all
have links, and by one comparison for each further hop where not.

Nothing here reads a clock: `now` is in seconds of the caller's clock.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from math import inf
from typing import Any, TypeAlias

from ._addresses import AddressBook
from ._info import CLUSTER_VERSION, PeerInfo, parse_infos, serialize_infos
from ._limits import ClusterLimits
from ._links import LinkRefusal, LinkRefused, PeerLink, preferred

__all__ = [
    "Compare",
    "Dial",
    "KnownBroker",
    "Linked",
    "Membership",
    "MembershipStatistics",
    "MembershipTask",
    "Tell",
]


@dataclass(frozen=True, slots=True)
class Dial:
    """Connect to an address; `Membership.connected` or `failed` has to be called at the end.

    Attributes:
        uri: The address.
    """

    uri: str


@dataclass(frozen=True, slots=True)
class Tell:
    """Send a BROKER_INFO to a peer broker, by `REMOTE_BROKER_INFO_ROUTE`.

    Attributes:
        to: The peer broker's id.
        info: The broker to tell of.
    """

    to: bytes
    info: PeerInfo


@dataclass(frozen=True, slots=True)
class Compare:
    """Ask a peer broker by `BROKERS_ROUTE`, and give the answer to `Membership.compared`.

    Attributes:
        to: The peer broker's id.
        digest: The data of the request.
    """

    to: bytes
    digest: bytes


MembershipTask: TypeAlias = Dial | Tell | Compare
"""What a broker has to do for its cluster."""


@dataclass(frozen=True, slots=True)
class Linked:
    """A link that is kept.

    Attributes:
        replaces: The link to the same broker that it replaces, and that has to be closed.
    """

    replaces: Any | None = None


@dataclass(frozen=True, slots=True)
class KnownBroker:
    """A broker that is known, as an operator is shown it.

    Attributes:
        info: The facts.
        linked: Whether there is a link.
        dialled: Whether this broker has dialled it.
        reported_by: Id of the peer broker that named it last; `None` if none did.
        failures: Number of attempts that have failed since the last success.
        cause: The reason of the last failure; empty if there was none.
        dials_at: When it is dialled next; `None` if that is not to be.
    """

    info: PeerInfo
    linked: bool
    dialled: bool
    reported_by: bytes | None
    failures: int
    cause: str
    dials_at: float | None


@dataclass(frozen=True, slots=True)
class MembershipStatistics:
    """A membership at one moment.

    Attributes:
        links: Number of links.
        known: Number of brokers that are known, this one not included.
        dialling: Number of attempts under way.
        told: Number of BROKER_INFO frames to tell since the start.
        ignored: Number of unknown brokers that were not remembered, because of `max_known`.
        refused: Number of links that were refused, by the reason.
    """

    links: int
    known: int
    dialling: int
    told: int
    ignored: int
    refused: Mapping[LinkRefusal, int]


@dataclass(slots=True)
class _Known:
    info: PeerInfo
    heard_at: float
    reported_by: bytes | None = None
    paused_until: float = -inf


class Membership:
    """The brokers of a cluster, as this one sees it.

    Args:
        own: The facts of this broker.
        seeds: Addresses that are dialled whatever `allowed` says.
        allowed: Patterns of addresses that may be dialled if a peer broker names them; `*` stands
            for any text. None by default: others cannot choose what this broker connects to.
        limits: Its limits.
        now: The time, in seconds of the caller's clock.
        random: Gives a number from 0 up to 1, for the jitter of waits.

    Attributes:
        own: The facts of this broker, as it tells them.
    """

    def __init__(
        self,
        own: PeerInfo,
        *,
        seeds: Sequence[str] = (),
        allowed: Sequence[str] = (),
        limits: ClusterLimits | None = None,
        now: float,
        random: Callable[[], float],
    ) -> None:
        self.own = own
        self._limits = limits or ClusterLimits()
        self._addresses = AddressBook(own, allowed, self._limits, random)
        self._known: dict[bytes, _Known] = {}
        self._links: dict[bytes, PeerLink] = {}
        # What is to be told: peer broker and broker. In the order it became known.
        self._news: dict[tuple[bytes, bytes], None] = {}
        self._told = self._ignored = 0
        self._refused = Counter[LinkRefusal]()
        self._addresses.replace_seeds(seeds, now)

    def replace_seeds(self, seeds: Sequence[str], now: float) -> None:
        """Replace the seeds, as after a name was resolved anew; links stay."""
        self._addresses.replace_seeds(seeds, now)

    def replace_allowed(self, allowed: Sequence[str], now: float) -> None:
        """Replace the patterns of addresses that may be dialled; those that were allowed stay."""
        self._addresses.replace_allowed(allowed)
        for known in self._known.values():
            self._addresses.add(known.info, now, linked=False)

    # --- what there is ------------------------------------------------------------------------

    @property
    def linked(self) -> list[bytes]:
        """The ids of the peer brokers that there are links with."""
        return list(self._links)

    def brokers(self) -> Iterator[KnownBroker]:
        """Iterate over the brokers that are known, this one not included."""
        for broker_id, known in self._known.items():
            link = self._links.get(broker_id)
            address = self._addresses.get(known.info.cluster_uri)
            yield KnownBroker(
                known.info,
                linked=link is not None,
                dialled=link is not None and link.dialled is not None,
                reported_by=known.reported_by,
                failures=address.failures if address else 0,
                cause=address.cause if address else "",
                dials_at=None if address is None or link is not None else address.at,
            )

    def unreached(self) -> Iterator[tuple[str, str]]:
        """Yield the seeds at which no broker was found, each with the cause of the last failure."""
        return self._addresses.unreached()

    def statistics(self) -> MembershipStatistics:
        """Return the membership's figures at this moment."""
        return MembershipStatistics(
            links=len(self._links),
            known=len(self._known),
            dialling=self._addresses.dialling,
            told=self._told,
            ignored=self._ignored,
            refused=dict(self._refused),
        )

    # --- links --------------------------------------------------------------------------------

    def connected(
        self, info: PeerInfo, link: Any, *, dialled: str | None, now: float
    ) -> Linked | LinkRefused:
        """Decide on a link on which the other broker has said what it is.

        Args:
            info: The facts of the other broker.
            link: Whatever the caller knows the link by.
            dialled: The address that this broker has dialled; `None` if the other one has.
            now: The time.

        Returns:
            Whether the link is kept. One that is refused has to be closed with the reason.
        """
        if dialled is not None:
            self._addresses.reached(dialled, info.broker_id, now)
        # Another implementation knows no comparison; it is told instead.
        compares = dialled is not None and bool(info.version)
        made = PeerLink(link, info, dialled, now, now if compares else inf)
        refusal = self._refusal(made, now)
        if refusal is not None:
            self._refused[refusal] += 1
            return LinkRefused(refusal, info)
        replaced = self._links.get(info.broker_id)
        news = self._learn(info, None, now)
        self._links[info.broker_id] = made
        if not info.version:
            self._tell_all_to(info.broker_id)
        if news:
            self._tell_others(info.broker_id)
        return Linked(None if replaced is None else replaced.link)

    def refusal(self, info: PeerInfo, now: float) -> LinkRefusal | None:
        """Return why a broker that dials is refused, before it has a link; `None` if it is not.

        A broker that has dialled itself is not: it learns from the handshake that it has.
        """
        refusal = self._refusal(PeerLink(None, info, None, now, inf), now)
        if refusal is None or refusal is LinkRefusal.SELF:
            return None
        self._refused[refusal] += 1
        return refusal

    def _refusal(self, made: PeerLink, now: float) -> LinkRefusal | None:
        info, own = made.info, self.own
        if info.broker_id == own.broker_id:
            same = info.instance == own.instance
            return LinkRefusal.SELF if same else LinkRefusal.OWN_ID
        if info.version not in ("", CLUSTER_VERSION):
            return LinkRefusal.VERSION
        if not self._addresses.same_zone(info):
            return LinkRefusal.ZONE
        known = self._known.get(info.broker_id)
        if known is not None and now < known.paused_until:
            return LinkRefusal.PAUSED
        there = self._links.get(info.broker_id)
        if there is None:
            full = len(self._links) >= self._limits.max_peers
            return LinkRefusal.FULL if full else None
        if there.info.instance != info.instance:
            return LinkRefusal.TWIN
        if not preferred(made, there, own.broker_id):
            return LinkRefusal.DUPLICATE
        return None

    def failed(self, uri: str, cause: str, now: float) -> None:
        """Receive the failure of an attempt to dial."""
        self._addresses.failed(uri, cause, now)

    def lost(self, broker_id: bytes, link: Any, now: float) -> bool:
        """Receive the loss of a link; return False if it was replaced before, or refused."""
        there = self._links.get(broker_id)
        if there is None or there.link != link:
            return False
        del self._links[broker_id]
        self._addresses.lost(broker_id, now)
        self._known[broker_id].heard_at = now
        for key in [key for key in self._news if key[0] == broker_id]:
            del self._news[key]
        return True

    def pause(self, broker_id: bytes, until: float) -> None:
        """Neither dial a broker nor keep a link to it until a time."""
        known = self._known.get(broker_id)
        if known is not None:
            known.paused_until = until
            self._addresses.pause(broker_id, until)

    # --- what is told -------------------------------------------------------------------------

    def heard(self, info: PeerInfo, by: bytes, now: float) -> None:
        """Receive what a peer broker says of another broker, or of itself.

        Args:
            info: The facts.
            by: The id of the peer broker.
            now: The time.
        """
        link = self._links.get(by)
        if link is None:
            return
        broker_id = info.broker_id
        own = broker_id == self.own.broker_id
        if own or broker_id in self._links:
            link.told[broker_id] = max(info.timestamp, link.told.get(broker_id, 0))
        # A broker with a link is believed about itself, and no other about it.
        if own or (broker_id != by and broker_id in self._links):
            return
        self._learn(info, by, now)
        if now < link.made_at + self._limits.longest_retry:
            # A network that was cut is whole again: the others need not wait for their time.
            self._addresses.hasten(broker_id, now)

    def _learn(self, info: PeerInfo, by: bytes | None, now: float) -> bool:
        """Remember a broker, and return whether that is news."""
        broker_id = info.broker_id
        known = self._known.get(broker_id)
        if known is None:
            if not self._has_room(linked=by is None):
                self._ignored += 1
                return False
            self._known[broker_id] = _Known(info, now, by)
            self._addresses.add(info, now, linked=by is None)
            return True
        known.heard_at = now
        if by is not None:
            known.reported_by = by
        # What it says of itself counts after a restart, even if its clock was set back.
        anew = by is None and info.instance != known.info.instance
        if info.timestamp <= known.info.timestamp and not anew:
            if by is None:
                # A seed may have been of an unknown broker until now.
                self._addresses.add(known.info, now, linked=True)
            return False
        known.info = info
        link = self._links.get(broker_id)
        # What a restarted broker says of itself comes by a link of its own.
        if link is not None and link.info.instance == info.instance:
            link.info = info
        self._addresses.add(info, now, linked=by is None)
        return True

    def _has_room(self, *, linked: bool) -> bool:
        """Whether one more broker can be remembered; one with a link may take another's place."""
        if len(self._known) < self._limits.max_known:
            return True
        if not linked:
            return False
        others = [
            (known.heard_at, key) for key, known in self._known.items() if key not in self._links
        ]
        if others:
            self._forget(min(others)[1])
        # Links are as many as `max_peers` at most, and all of them are remembered.
        return True

    def _forget(self, broker_id: bytes) -> None:
        uri = self._known.pop(broker_id).info.cluster_uri
        self._addresses.drop(uri)
        for link in self._links.values():
            link.told.pop(broker_id, None)

    def _tell_others(self, broker_id: bytes) -> None:
        for peer in self._links:
            if peer != broker_id:
                self._news[peer, broker_id] = None

    def _tell_all_to(self, peer: bytes) -> None:
        for broker_id in self._links:
            if broker_id != peer:
                self._news[peer, broker_id] = None

    def update(self, clock: int, **changes: Any) -> PeerInfo:
        """Change the facts of this broker, and tell all peer brokers.

        Args:
            clock: The time, in milliseconds since the Unix epoch.
            changes: Fields of `PeerInfo`, as `state=DRAINING`.
        """
        timestamp = max(clock, self.own.timestamp + 1)
        self.own = self._addresses.own = replace(self.own, timestamp=timestamp, **changes)
        self._tell_others(self.own.broker_id)
        return self.own

    # --- comparisons --------------------------------------------------------------------------

    def _vouched(self) -> list[PeerInfo]:
        return [self.own, *(link.info for link in self._links.values())]

    def digest(self) -> bytes:
        """Return the hash of the list of brokers that this one vouches for."""
        listed = sorted((info.broker_id, info.timestamp) for info in self._vouched())
        return sha256(b"".join(key + time.to_bytes(8) for key, time in listed)).digest()

    def answer(self, by: bytes, digest: bytes) -> bytes:
        """Answer the comparison of a peer broker: nothing if both lists are the same."""
        if digest == self.digest():
            return b""
        infos = self._vouched()
        link = self._links.get(by)
        if link is not None:
            link.told.update((info.broker_id, info.timestamp) for info in infos)
        return serialize_infos(infos)

    def compared(self, by: bytes, answer: bytes, now: float) -> None:
        """Receive the answer to a comparison, and prepare to tell what the other lacks.

        Raises:
            ClusterFrameError: It is none.
        """
        if not answer:
            return
        for info in parse_infos(answer, self._limits.max_known + 1):
            self.heard(info, by, now)
        self._tell_all_to(by)
        # This broker as well, if the other has an older list of it.
        self._news[by, self.own.broker_id] = None

    # --- what is to be done ---------------------------------------------------------------------

    def due(self, now: float) -> list[MembershipTask]:
        """Return what is to be done now, each once."""
        self._expire(now)
        tasks: list[MembershipTask] = list(self._tells())
        for peer, link in self._links.items():
            if now >= link.compare_at:
                link.compare_at = now + self._limits.compare
                tasks.append(Compare(peer, self.digest()))
        room = self._limits.max_peers - len(self._links) - self._addresses.dialling
        for uri, at in list(self._addresses.dialable(self._links)):
            if room > 0 and now >= at:
                self._addresses.dial(uri)
                room -= 1
                tasks.append(Dial(uri))
        return tasks

    def _tells(self) -> Iterator[Tell]:
        news, self._news = self._news, {}
        own = self.own
        for peer, broker_id in news:
            link, about = self._links[peer], self._links.get(broker_id)
            info = own if broker_id == own.broker_id else about.info if about else None
            # Each is told once for each timestamp.
            if info is None or link.told.get(broker_id, 0) >= info.timestamp:
                continue
            link.told[broker_id] = info.timestamp
            self._told += 1
            yield Tell(peer, info)

    def get_timer(self) -> float:
        """Return when `due` has to be called next; `-inf` is now."""
        if self._news:
            return -inf
        limits = self._limits
        times = [link.compare_at for link in self._links.values()]
        if len(self._links) + self._addresses.dialling < limits.max_peers:
            times += [at for _, at in self._addresses.dialable(self._links)]
        times += [
            known.heard_at + limits.forget_after
            for key, known in self._known.items()
            if key not in self._links
        ]
        return min(times, default=inf)

    def _expire(self, now: float) -> None:
        for broker_id, known in list(self._known.items()):
            if broker_id not in self._links and now >= known.heard_at + self._limits.forget_after:
                self._forget(broker_id)
