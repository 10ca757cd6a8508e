"""The sessions of a listener that can be resumed, by resume token.

A RESUME carries no credentials, and it may come from anywhere. So a token is a secret: a session is
bound to the peer's certificate or user id where there is one, and otherwise its token has at least
`MIN_TOKEN` bytes. That holds with credentials in its SETUP as well, as they are not shown again.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final, Protocol

from ...protocol.rsocket import ErrorCode, RejectedResume, RejectedSetup, Resume, ResumeRefusal
from ...protocol.security import ANONYMOUS, PeerIdentity, Principal
from ..streams._source import Places
from ._byte_shares import ByteShares
from ._options import ResumeOptions

if TYPE_CHECKING:
    from ._flow import Flow
    from ._link import Link
    from ._resumable_link import ResumableLink

__all__ = ["MIN_TOKEN", "ResumableSessions", "SessionsOwner"]

_logger = logging.getLogger("onward.transports.rsocket")

MIN_TOKEN: Final = 16
"""Least bytes of a token that nothing but itself protects."""
SILENT: Final = 0.5
"""The part of its lifetime after which a silent peer may begin anew with the token it has."""
RESUMED: Final = "resumed"
"""The result of a RESUME that was accepted; others are `ResumeRefusal`s by name."""
DROPPED: Final = "dropped"
"""The result of a session that dropped frames its peer may not have received."""


class SessionsOwner(Protocol):
    """The listener of the sessions."""

    def on_suspended(self, link: Link) -> None:
        """Give up the place of a connection that was lost."""

    def on_resumed(self, link: Link) -> None:
        """Add the place of a session that goes on over another connection."""


class ResumableSessions:
    """The sessions of a listener that can be resumed.

    Attributes:
        options: The limits.
        owner: The listener.
        kept: The bytes of frames kept for all sessions.
        refused: Sessions refused because there were too many.
        results: Each RESUME by its result, and sessions that dropped frames.
        accepting: Whether the listener accepts connections; if not, no session can be resumed.

    Args:
        options: The limits.
        owner: The listener.
        clock: Tells the time, in seconds.
    """

    def __init__(
        self, options: ResumeOptions, owner: SessionsOwner, clock: Callable[[], float]
    ) -> None:
        self.options = options
        self.owner = owner
        self.kept = ByteShares(options.max_kept_total, _kept, clock)
        self.results: Counter[str] = Counter()
        self.refused = 0
        self.accepting = True
        self._places = Places(options.max_sessions, None)
        self._links: dict[tuple[bytes | int | None, bytes], ResumableLink] = {}
        self._clock = clock

    def __len__(self) -> int:
        return len(self._links)

    def suspended(self) -> Iterator[ResumableLink]:
        """Yield the connections that are suspended."""
        yield from [link for link in self._links.values() if link.suspended]

    def add(self, link: ResumableLink, token: bytes) -> None:
        """Begin a session.

        Raises:
            RejectedSetup: The token is too short or in use, or there are too many sessions.
        """
        bound = _bound_to(link.identity)
        # Identification Token Handling: "Tokens should not be predictable by an attacking 3rd
        # party".
        if len(token) < (MIN_TOKEN if bound is None else 1):
            raise RejectedSetup(f"a resume token has at least {MIN_TOKEN} bytes")
        before = self._links.get((bound, token))
        if before is not None:
            # Identification Token Handling: "A server should not accept a SETUP with a Token that
            # is currently already being used".
            if not self._may_replace(before, link.session.principal):
                raise RejectedSetup("the resume token is in use")
            before.close("replaced", "another connection has begun a session with its token")
        elif self._places.refusal(link.source):
            self.refused += 1
            raise RejectedSetup("there are too many sessions")
        self._places.take(link.source)
        self._links[bound, token] = link
        link.key = (bound, token)

    def _may_replace(self, before: ResumableLink, principal: Principal | None) -> bool:
        """Whether a principal may begin anew with the token of a session."""
        owner = before.session.principal or ANONYMOUS
        if not owner.is_same(principal or ANONYMOUS):
            return False
        return before.suspended or before.core.silence(self._clock()) > SILENT

    def discard(self, link: ResumableLink) -> None:
        """Forget the session of a connection that has ended."""
        key = link.key
        if key is None:
            return
        link.key = None
        if self._links.get(key) is link:
            del self._links[key]
        self._places.give_up(link.source)
        self.kept.note(link, 0)

    def resume(self, entrance: ResumableLink, resume: Resume) -> None:
        """Resume a session over a connection that has sent RESUME, or refuse it.

        Args:
            entrance: The connection; its socket goes over to that of the session.
            resume: The RESUME.
        """
        # Resume Operation: "use the RESUME Identification Token field to determine which client
        # the resume pertains to. If the client is identified successfully, resumption MAY be
        # continued. If not identified, then the server MUST send an ERROR[REJECTED_RESUME] frame."
        found = self._links.get((_bound_to(entrance.identity), resume.token))
        if found is None:
            authentication = entrance.shared.authentication
            if authentication is not None:
                authentication.note_unknown_session(entrance.source)
            self._refuse(entrance, ResumeRefusal.UNKNOWN)
            return
        if found.expired:
            self._refuse(entrance, ResumeRefusal.EXPIRED)
            found.close("credentials expired", ResumeRefusal.EXPIRED.value)
            return
        try:
            found.resume(entrance, resume)
        except RejectedResume as error:
            self._refuse(entrance, ResumeRefusal(error.text))
            found.close("not resumable", error.text)
            return
        self.results[RESUMED] += 1
        _logger.info(
            "%s: resumed",
            found.name,
            extra={"event": "connection.resumed", "peer": found.name},
        )

    def _refuse(self, entrance: Link, refusal: ResumeRefusal) -> None:
        self.results[refusal.name.lower()] += 1
        entrance.close("resume refused", refusal.value, ErrorCode.REJECTED_RESUME)

    def stop(self, reason: str, text: str) -> None:
        """End the suspended sessions, as no connection is accepted that could resume them."""
        self.accepting = False
        for link in self.suspended():
            link.close(reason, text)


def _bound_to(identity: PeerIdentity) -> bytes | int | None:
    """Return what a session of a peer is bound to besides its token."""
    return identity.digest or identity.user_id


def _kept(link: Flow) -> int:
    return link.kept_bytes
