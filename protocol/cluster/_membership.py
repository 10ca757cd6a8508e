"""The brokers of a cluster as one of them sees it: which links to make and keep, what to tell.

Theory of operation
===================

A broker knows others from its *seeds*, from links, and by hearsay: what a peer broker says of
others. It dials each broker of its zone that it has no link with, at seeds and at addresses that
are allowed, and waits longer after each failure. Of two links between the same two brokers, the one
that the broker with the smaller id has dialled stays; of two with one dialler, the newer.

Brokers of other zones are dialled one of each zone (`_zones`). Over the links to them lists are
compared in one direction: the dialler learns the brokers of the other zone, and its links to
further zones, when that list has changed. So a zone that is new to one broker is soon known to all.

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
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from hashlib import sha256
from math import inf
from typing import Any, Final

from ._admission import Admission
from ._dialling import Dialling
from ._info import PeerInfo, parse_infos, serialize_infos
from ._known import KnownBrokers
from ._limits import ClusterLimits
from ._link_table import LinkTable
from ._links import (
    NOTHING_HEARD,
    LinkRefusal,
    LinkRefused,
    LinkRole,
    PeerLink,
    role_of,
)
from ._membership_tasks import (
    Compare,
    KnownBroker,
    Linked,
    MembershipStatistics,
    MembershipTask,
    Tell,
)
from ._news import News

__all__ = ["Membership"]


MOST_LISTED: Final = 4096
"""Brokers that the list of another broker may have, also if fewer are remembered here: that one may
have more links than this one."""


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
        self._links = LinkTable(self._limits)
        self._known = KnownBrokers(self._links, self._limits)
        self._dialling = Dialling(own, self._links, allowed, self._limits, random)
        self._zones = self._dialling.zones
        self._admission = Admission(self._links, self._known, self._zones)
        self._news = News(self._links)
        self._ignored = 0
        self._refused = Counter[LinkRefusal]()
        self._dialling.near.replace_seeds(seeds, now)

    def replace_seeds(self, seeds: Sequence[str], now: float) -> None:
        """Replace the seeds, as after a name was resolved anew; links stay."""
        self._dialling.near.replace_seeds(seeds, now)
        for known in self._known:
            if known.info.broker_id in self._links:
                self._dialling.add(known.info, now, linked=True)

    def replace_allowed(self, allowed: Sequence[str], now: float) -> None:
        """Replace the patterns of addresses that may be dialled; those that were allowed stay."""
        self._dialling.replace_allowed(allowed)
        for known in self._known:
            self._dialling.add(known.info, now, linked=False)

    # --- what there is ------------------------------------------------------------------------

    @property
    def linked(self) -> list[bytes]:
        """The ids of the peer brokers that there are links with."""
        return self._links.ids()

    def gateway(self, zone: str) -> bytes | None:
        """Return the id of the broker of another zone that requests to it go to; `None`: none."""
        link = self._links.gateways().get(zone)
        return None if link is None else link.info.broker_id

    def zones(self) -> list[str]:
        """Return the names of the other zones of which a broker is known."""
        return list(self._zones)

    def brokers(self) -> Iterator[KnownBroker]:
        """Iterate over the brokers that are known, this one not included."""
        for known in self._known:
            broker_id = known.info.broker_id
            links = list(self._links.all_of(broker_id))
            address = self._dialling.address_of(known.info)
            yield KnownBroker(
                known.info,
                linked=bool(links),
                dialled=any(link.dialled is not None for link in links),
                reported_by=known.reported_by,
                failures=address.failures if address else 0,
                cause=address.cause if address else "",
                dials_at=None if address is None or links else address.at,
            )

    def info_of(self, broker_id: bytes) -> PeerInfo | None:
        """Return what is known of a broker; `None` if it is not known."""
        known = self._known.get(broker_id)
        return None if known is None else known.info

    def unreached(self) -> Iterator[tuple[str, str]]:
        """Yield the seeds at which no broker was found, each with the cause of the last failure."""
        return self._dialling.near.unreached()

    def statistics(self) -> MembershipStatistics:
        """Return the membership's figures at this moment."""
        return MembershipStatistics(
            links=len(self._links.mesh),
            to_zones=len(self._links.to_zones),
            from_zones=len(self._links.from_zones),
            known=len(self._known),
            dialling=self._dialling.attempts,
            told=self._news.told,
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
        role = role_of(info, self.own, dialled=dialled is not None) or LinkRole.MESH
        # Another implementation knows no comparison; it is told instead.
        compares = dialled is not None and bool(info.version)
        made = PeerLink(link, info, dialled, now, now if compares else inf, role)
        refusal = self._admission.refusal(made, self.own, now)
        if dialled is not None and refusal is not None and refusal.is_lasting:
            # What broker is there does not matter: it is as if there were none.
            self._dialling.failed(dialled, refusal.value, now)
        elif dialled is not None:
            self._dialling.reached(dialled, info.broker_id, now)
        if refusal is not None:
            self._refused[refusal] += 1
            if refusal is LinkRefusal.GATEWAY:
                self._learn(info, None, now)
            return LinkRefused(refusal, info)
        replaced = self._admission.replaced(made)
        if replaced is not None:
            self._links.remove(replaced)
            self._known.heard(replaced.info.broker_id, now)
        reached = self._links.gateways() if role is not LinkRole.MESH else {}
        first = all(link.info.zone != info.zone for link in self._links)
        news = self._learn(info, None, now)
        self._links.put(made)
        if not info.version:
            self._news.tell_all_to(info.broker_id)
        elif role is LinkRole.MESH:
            self._news.tell_zones_to(info.broker_id)
        if news if role is LinkRole.MESH else info.zone not in reached:
            self._news.tell_zone_of(info.broker_id)
        if role is not LinkRole.MESH:
            self._news.tell_followers_of(info, first=first)
            # One that can reach this broker can be reached, as a rule, also if it could not before.
            self._zones.book.hasten(info.broker_id, now)
        return Linked(None if replaced is None else replaced.link, role)

    def refusal(self, info: PeerInfo, now: float) -> LinkRefusal | None:
        """Return why a broker that dials is refused, before it has a link; `None` if it is not.

        A broker that has dialled itself is not: it learns from the handshake that it has.
        """
        role = role_of(info, self.own, dialled=False) or LinkRole.MESH
        made = PeerLink(None, info, None, now, inf, role)
        refusal = self._admission.refusal(made, self.own, now)
        if refusal is None or refusal is LinkRefusal.SELF:
            return None
        self._refused[refusal] += 1
        return refusal

    def failed(self, uri: str, cause: str, now: float) -> None:
        """Receive the failure of an attempt to dial."""
        self._dialling.failed(uri, cause, now)

    def lost(self, broker_id: bytes, link: Any, now: float) -> bool:
        """Receive the loss of a link; return False if it was replaced before, or refused."""
        there = self._links.find(broker_id, link)
        if there is None:
            return False
        self._links.remove(there)
        if there.role is not LinkRole.FROM_ZONE:
            self._dialling.lost(broker_id, now)
        self._known.heard(broker_id, now)
        if broker_id in self._links:
            return True
        self._news.drop(broker_id)
        return True

    def pause(self, broker_id: bytes, until: float) -> None:
        """Neither dial a broker nor keep a link to it until a time."""
        known = self._known.get(broker_id)
        if known is not None:
            known.paused_until = until
            self._dialling.pause(broker_id, until)

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
            self._dialling.hasten(broker_id, now)

    def untold(self, tell: Tell) -> None:
        """Receive the failure to tell: it is told after the next comparison, if it lacks still."""
        link, broker_id = self._links.get(tell.to), tell.info.broker_id
        if link is not None and link.told.get(broker_id) == tell.info.timestamp:
            del link.told[broker_id]

    def _learn(self, info: PeerInfo, by: bytes | None, now: float) -> bool:
        """Remember a broker, and return whether that is news."""
        broker_id = info.broker_id
        known = self._known.get(broker_id)
        if known is None:
            if not self._has_room(now, linked=by is None):
                self._ignored += 1
                return False
            self._known.add(info, by, now)
            self._dialling.add(info, now, linked=by is None)
            return True
        itself = by is None or by == broker_id
        self._known.heard(broker_id, now)
        if by is not None:
            known.reported_by = by
        # What it says of itself counts after a restart, even if its clock was set back; and in the
        # place of what others have said of it, whenever that was.
        restarted = info.instance != known.info.instance
        anew = by is None and info != known.info and (restarted or not known.itself)
        if info.timestamp <= known.info.timestamp and not anew:
            if itself:
                known.itself = True
                # A seed may have been of an unknown broker until now.
                self._dialling.add(known.info, now, linked=True)
            return False
        known.info, known.itself = info, itself
        for link in self._links.all_of(broker_id):
            # What a restarted broker says of itself comes by a link of its own, and so does another
            # zone.
            if (link.info.instance, link.info.zone) == (info.instance, info.zone):
                link.info = info
        self._dialling.add(info, now, linked=itself)
        return True

    def _has_room(self, now: float, *, linked: bool) -> bool:
        """Whether one more broker can be remembered; one with a link may take another's place."""
        if not self._known.is_full():
            return True
        if not linked:
            return False
        oldest = self._known.oldest(now)
        if oldest is not None:
            self._forget(oldest)
        # Links are bounded themselves, and all of them are remembered.
        return True

    def _forget(self, broker_id: bytes) -> None:
        self._dialling.forget(self._known.pop(broker_id).info)
        for link in self._links:
            link.told.pop(broker_id, None)

    def update(self, clock: int, **changes: Any) -> PeerInfo:
        """Change the facts of this broker, and tell all peer brokers.

        Args:
            clock: The time, in milliseconds since the Unix epoch.
            changes: Fields of `PeerInfo`, as `state=DRAINING`.
        """
        timestamp = max(clock, self.own.timestamp + 1)
        self.own = replace(self.own, timestamp=timestamp, **changes)
        self._dialling.replace_own(self.own)
        self._news.tell_all_of(self.own.broker_id)
        return self.own

    # --- comparisons --------------------------------------------------------------------------

    def _vouched(self) -> list[PeerInfo]:
        return [self.own, *(link.info for link in self._links.mesh.values())]

    def digest(self) -> bytes:
        """Return the hash of the list of brokers of its zone that this one vouches for."""
        return _digest(self._vouched())

    def answer(self, by: bytes, digest: bytes) -> bytes:
        """Answer the comparison of a peer broker: nothing if both lists are the same."""
        infos = self._vouched()
        if by not in self._links.mesh and by in self._links:
            # One of another zone. It is told of this zone, and of those that are linked to it.
            infos += self._links.known_to_zones(by)
        if digest == _digest(infos):
            return b""
        for link in self._links.all_of(by):
            link.told.update((info.broker_id, info.timestamp) for info in infos)
        return serialize_infos(infos)

    def compared(self, by: bytes, answer: bytes, now: float) -> None:
        """Receive the answer to a comparison, and prepare to tell what the other lacks.

        Raises:
            ClusterFrameError: It is none.
        """
        link = self._links.to_zones.get(by)
        if not answer:
            # The other zone vouches for these as before.
            for broker_id in link.listed if link else ():
                self._known.heard(broker_id, now)
            return
        infos = parse_infos(answer, max(MOST_LISTED, self._limits.max_known + 1))
        for info in infos:
            self.heard(info, by, now)
        if link is not None:
            if link.heard == NOTHING_HEARD:
                self._zones.listed(link.info.zone, now)
            link.heard = _digest(infos)
            link.listed = tuple(info.broker_id for info in infos)
            return
        self._news.tell_all_to(by)
        # This broker as well, if the other has an older list of it.
        self._news.add(by, self.own.broker_id)

    # --- what is to be done ---------------------------------------------------------------------

    def due(self, now: float) -> list[MembershipTask]:
        """Return what is to be done now, each once."""
        for broker_id in self._known.expired(now):
            self._forget(broker_id)
        tasks: list[MembershipTask] = list(self._news.tells(self.own))
        for link in self._links:
            if now >= link.compare_at:
                link.compare_at = now + self._limits.compare
                to_zone = link.role is LinkRole.TO_ZONE
                digest = link.heard if to_zone else self.digest()
                tasks.append(Compare(link.info.broker_id, digest))
        tasks.extend(self._dialling.due(now))
        return tasks

    def get_timer(self) -> float:
        """Return when `due` has to be called next; `-inf` is now."""
        if self._news.waiting:
            return -inf
        times = [link.compare_at for link in self._links]
        return min(self._known.expires_at, self._dialling.get_timer(), *times)


def _digest(infos: Iterable[PeerInfo]) -> bytes:
    listed = sorted((info.broker_id, info.timestamp) for info in infos)
    return sha256(b"".join(key + time.to_bytes(8) for key, time in listed)).digest()
