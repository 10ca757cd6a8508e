"""The directory of a node, as its router and its workers use it: all of it on the node's loop.

What it knows of an identity changes in a call, and is told to its subscribers in the next turn of
the loop: once for each identity, as it is then, in the order of the first changes.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final, TypeVar

from ....protocol.identity import (
    MAX_ADVERTS_SENT,
    AdvertEnvelope,
    AdvertSource,
    Directory,
    DirectoryLimits,
    DirectoryStatistics,
    DomainAdvert,
    EngineAdvert,
    Identity,
    IdentityRecord,
    IdentityUpdated,
    LocalMetadata,
    NodeAdvert,
    PutOutcome,
    ResultCode,
    RowJournal,
    TopicAdvert,
    Verifiers,
    read_advert,
)
from ._saver import DirectorySaver

__all__ = ["DirectoryService"]

T = TypeVar("T")

_logger = logging.getLogger("onward.actors.identity")


class DirectoryService:
    """The directory of a node.

    Args:
        verifiers: Public keys that are ready to verify.
        milliseconds: Returns the time since the Unix epoch, in milliseconds.
        call_soon: Calls a function in the next turn of the loop, as `loop.call_soon` does.
        limits: The limits.
        journal: Keeps what is to be saved, for a directory with a file.

    Attributes:
        directory: What is known.
        saver: The writer of its file; `None` for a directory without one. If it cannot be written,
            the reason is in its `trouble`.
        on_update: Each receives every identity that has changed, in the next turn of the loop. An
            exception of one is logged, and the others are called.
        on_lost: Each receives the number of changes that were lost since the last call, after the
            updates of a turn, as more identities have changed than `DirectoryLimits.max_updates`.
            All that depends on the directory is then to be looked up anew.
        failures: Exceptions of subscribers.
    """

    def __init__(
        self,
        verifiers: Verifiers,
        milliseconds: Callable[[], int],
        call_soon: Callable[[Callable[[], object]], object],
        limits: DirectoryLimits | None = None,
        journal: RowJournal | None = None,
    ) -> None:
        self.directory: Final = Directory(verifiers, limits, journal)
        self.saver: DirectorySaver | None = None
        self.on_update: Final[list[Callable[[IdentityUpdated], object]]] = []
        self.on_lost: Final[list[Callable[[int], object]]] = []
        self.failures = 0
        self._milliseconds: Final = milliseconds
        self._call_soon: Final = call_soon
        self._is_scheduled = False

    def put(
        self,
        envelope: AdvertEnvelope,
        source: AdvertSource,
        teller: Identity | None = None,
        ahead: int = 0,
    ) -> PutOutcome:
        """Put an advert into the directory; whether it is signed is looked at here.

        Args:
            envelope: The advert.
            source: Where it is from.
            teller: The node that has told it; see `Directory.put_advert`.
            ahead: The time by which the clock that it is compared with is ahead of that of this
                node, in milliseconds.
        """
        now = self._milliseconds() + ahead
        outcome = self.directory.put_advert(envelope, now, source, teller)
        self._schedule()
        return outcome

    def lookup(self, identity: Identity) -> IdentityRecord | None:
        """Return what is known of an identity for this node, which uses it; `None` for nothing."""
        record = self.directory.lookup(identity, self._milliseconds())
        self._schedule()  # an advert that is too old is dropped
        return record

    def peek(self, identity: Identity) -> IdentityRecord | None:
        """Return what is known of an identity for others than this node; `None` for nothing."""
        record = self.directory.peek(identity, self._milliseconds())
        self._schedule()
        return record

    def update(self, identity: Identity, local: LocalMetadata) -> ResultCode:
        """Set what the node itself says about an identity; see `Directory.update`."""
        code = self.directory.update(identity, local)
        self._schedule()
        return code

    def set_trust(self, identity: Identity, trust: int) -> ResultCode:
        """Set the trust in an identity; see `Directory.set_trust`.

        Raises:
            BadRecord: There is no such trust.
        """
        code = self.directory.set_trust(identity, trust)
        self._schedule()
        return code

    def forget(self, identity: Identity) -> bool:
        """Forget an identity, a ban included; return whether it was known."""
        known = self.directory.forget(identity)
        self._schedule()
        return known

    def adverts_for(self, identity: Identity) -> tuple[AdvertEnvelope, ...]:
        """Return the adverts to tell another node of an identity: its own, then those that lead on.

        These are that of the node of an engine, those of the first publisher of a topic and its
        node, or those of the first nodes of a domain: at most `MAX_ADVERTS_SENT`. What is banned is
        not told. None of them is used by that.
        """
        adverts: dict[Identity, AdvertEnvelope] = {}
        to_add = [identity]
        while to_add and len(adverts) < MAX_ADVERTS_SENT:
            each = to_add.pop(0)
            record = self.peek(each)
            if each in adverts or record is None or record.advert is None or record.is_banned:
                continue
            adverts[each] = record.advert
            to_add += _next_of(record.advert)
        return tuple(adverts.values())

    def statistics(self) -> DirectoryStatistics:
        """Return the directory at this moment."""
        return self.directory.statistics()

    # --- changes ------------------------------------------------------------------------------

    def _schedule(self) -> None:
        if self.directory.has_updates and not self._is_scheduled:
            self._is_scheduled = True
            self._call_soon(self._tell)
        if self.saver is not None:
            self.saver.wake()

    def _tell(self) -> None:
        # Before the subscribers: what they change is told in a turn of its own.
        self._is_scheduled = False
        updates, lost = self.directory.take_updates()
        for update in updates:
            for on_update in tuple(self.on_update):
                self._call(on_update, update)
        if lost:
            for on_lost in tuple(self.on_lost):
                self._call(on_lost, lost)

    def _call(self, subscriber: Callable[[T], object], value: T) -> None:
        try:
            subscriber(value)
        except Exception:
            self.failures += 1
            _logger.exception(
                "a subscriber to the directory failed",
                extra={"event": "identity.subscriber_failed"},
            )


def _next_of(envelope: AdvertEnvelope) -> tuple[Identity, ...]:
    """Return the identities that an advert which is known leads on to."""
    match read_advert(envelope).advert:
        case EngineAdvert(node=node):
            return (node,)
        case TopicAdvert(publishers=publishers):
            return (publishers or ())[:1]
        case DomainAdvert(nodes=nodes):
            return nodes[: MAX_ADVERTS_SENT - 1]
        case NodeAdvert():
            return ()
