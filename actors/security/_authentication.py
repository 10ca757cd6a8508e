"""The authentication of a listener: its methods in order, with a limit of time."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

from ...protocol.options import Count, Seconds, check_options
from ...protocol.security import (
    Attempts,
    Credentials,
    NotAuthenticated,
    PeerIdentity,
    Principal,
    Remembered,
)
from .._log import SeldomLogger
from .._reloads import ReloadFailed
from ._authenticator import Authenticator

__all__ = ["Authentication", "AuthenticationOptions", "AuthenticationStatistics"]

OUR_CAUSES: Final = frozenset({"busy", "failure", "no keys", "stopped", "timeout"})
"""The causes of refusals that are not the fault of the peer, and no failures of its source."""

NO_GUESSES: Final = OUR_CAUSES | {"expired"}
"""The causes of refused requests that are no failures: a gateway passes expired tokens on."""

_logger = logging.getLogger("onward.actors.security")


@dataclass(frozen=True, slots=True)
class AuthenticationOptions:
    """The limits of authentication.

    Attributes:
        timeout: Seconds for the decision on a peer; then it is refused.
        max_undecided: Decisions in progress for peers of one source; a further peer is refused.
        max_failures: Refused peers of one source within the window; then it is banned: the listener
            closes its connections at once. Ten RESUME frames that name no session count as one;
            each accepted peer of the source takes back one of them.
        failure_window: The window, in seconds.
        max_sources: Sources with refused peers that are remembered. When there are more, the one
            with the oldest failure is forgotten, and may fail as often again.
        per_request: What a listener of a broker does with an authentication entry in the metadata
            of a request. `forward`: nothing; it is between requester and destination. `check`: its
            principal decides on that request, and the entry is not passed on.
        max_held: Requests of one connection that wait for a check of credentials in a request; one
            more is REJECTED. Their bytes count for `GatheringOptions.max_gathered`.
        remembered: Credentials of requests that are remembered with their principals, by SHA-256;
            then the oldest is forgotten, and is checked again.
        remember_time: Seconds for which they are remembered at most, and never beyond the expiry
            of the principal or a reload. Where credentials are withdrawn without a reload, they are
            accepted for as long.
    """

    timeout: Seconds = 2.0
    max_undecided: Count = 20
    max_failures: Count = 10
    failure_window: Seconds = 60.0
    max_sources: Count = 10_000
    per_request: Literal["forward", "check"] = "forward"
    max_held: Count = 100
    remembered: Count = 10_000
    remember_time: Seconds = 60.0

    def __post_init__(self) -> None:
        check_options(self)


@dataclass(frozen=True, slots=True)
class AuthenticationStatistics:
    """The figures of an authentication at one moment.

    Attributes:
        undecided: Authentications in progress.
        accepted: Peers accepted since the start, by method.
        refused: Peers refused since the start, by cause.
        reloads_failed: Reloads since the start by which a method kept its old files.
        banned: Connections since the start that were closed at once, for the failures of their
            source.
        sources: Sources with failures that are remembered.
        sources_forgotten: Sources since the start that were forgotten within the window, for too
            many others.
        requests_checked: Requests since the start with credentials that were checked, and accepted.
        requests_remembered: Requests since the start with credentials that were remembered.
        requests_refused: Requests since the start with credentials that were refused, by cause.
        remembered: Credentials of requests that are remembered.
    """

    undecided: int
    accepted: dict[str, int]
    refused: dict[str, int]
    reloads_failed: int = 0
    banned: int = 0
    sources: int = 0
    sources_forgotten: int = 0
    requests_checked: int = 0
    requests_remembered: int = 0
    requests_refused: dict[str, int] = field(default_factory=dict[str, int])
    remembered: int = 0


class Authentication:
    """The methods of a listener, tried in order until one accepts or refuses a peer.

    Args:
        methods: The methods, at least one.
        options: The limits.
        clock: Returns the seconds since 1970, by which credentials expire.
        ticks: Returns a time in seconds that never goes back, by which failures become old.

    Raises:
        ValueError: There is no method, or two have one name.
    """

    def __init__(
        self,
        methods: Sequence[Authenticator],
        options: AuthenticationOptions = AuthenticationOptions(),
        clock: Callable[[], float] = time.time,
        ticks: Callable[[], float] = time.monotonic,
    ) -> None:
        names = [each.method for each in methods]
        if not names or len(set(names)) < len(names):
            raise ValueError(f"methods must be one or more, each once, not {names}")
        self.options = options
        self._methods = tuple(methods)
        self._clock = clock
        self._ticks = ticks
        self._seldom = SeldomLogger(_logger, ticks)
        self._attempts = Attempts(
            options.max_undecided,
            options.max_failures,
            options.failure_window,
            options.max_sources,
        )
        self._banned = 0
        self._undecided = 0
        self._accepted: Counter[str] = Counter()
        self._refused: Counter[str] = Counter()
        self._reloads_failed = 0
        self._remembered: Remembered[Principal] = Remembered(options.remembered)
        self._reloaded = 0
        self._watchers: list[Callable[[], object]] = []
        self._requests_checked = 0
        self._requests_remembered = 0
        self._requests_refused: Counter[str] = Counter()

    async def authenticate(self, credentials: Credentials | None, peer: PeerIdentity) -> Principal:
        """Return the principal of a peer.

        Raises:
            NotAuthenticated: No method accepts the peer, none has decided in time, or its source
                has made too many attempts.
        """
        try:
            principal = await self._limited(credentials, peer, OUR_CAUSES)
        except NotAuthenticated as error:
            self._refused[error.cause] += 1
            raise
        self._accepted[principal.method] += 1
        return principal

    # --- credentials of requests ----------------------------------------------------------------

    def remembered(self, digest: bytes) -> Principal | None:
        """Return the principal of credentials that a request has shown before, if it is known.

        Args:
            digest: The SHA-256 of the credentials, with what else decides on them.
        """
        principal = self._remembered.get(digest, self._ticks())
        if principal is None or (
            principal.expires is not None and principal.expires <= self._clock()
        ):
            return None
        self._requests_remembered += 1
        return principal

    async def authenticate_request(
        self, credentials: Credentials, peer: PeerIdentity, digest: bytes
    ) -> Principal:
        """Return the principal of the credentials in a request, and remember it.

        A failure counts against the source, as one in a SETUP, but for credentials that were right
        and have expired.

        Args:
            credentials: The credentials.
            peer: The listener and the source. Certificates and user ids are those of the
                connection, and decide on no request.
            digest: As for `remembered`.

        Raises:
            NotAuthenticated: As for `authenticate`.
        """
        reloaded = self._reloaded
        try:
            principal = await self._limited(credentials, peer, NO_GUESSES)
        except NotAuthenticated as error:
            self._requests_refused[error.cause] += 1
            raise
        self._requests_checked += 1
        if reloaded == self._reloaded:
            until = self._ticks() + self.options.remember_time
            self._remembered.put(digest, principal, until)
        return principal

    # --- deciding -------------------------------------------------------------------------------

    async def _limited(
        self, credentials: Credentials | None, peer: PeerIdentity, excused: frozenset[str]
    ) -> Principal:
        """Decide within the limits of a source; causes that are excused are no failures of it."""
        if not is_limited(peer.source):
            return await self._timed(credentials, peer)
        if not self._attempts.begin(peer.source, self._ticks()):
            raise NotAuthenticated("attempts")
        failed = False
        try:
            return await self._timed(credentials, peer)
        except NotAuthenticated as error:
            failed = error.cause not in excused
            raise
        finally:
            self._attempts.end(peer.source, self._ticks(), failed=failed)

    def time(self) -> float:
        """Return the seconds since 1970, by which credentials expire."""
        return self._clock()

    def admits(self, source: str) -> bool:
        """Whether a listener should go on with a connection of a source; a refusal is counted.

        Args:
            source: The source, as in `PeerIdentity.source`.
        """
        if not is_limited(source) or self._attempts.admits(source, self._ticks()):
            return True
        self._banned += 1
        return False

    def note_unknown_session(self, source: str) -> None:
        """Count a RESUME that names no session, a part of a failure of its source.

        Args:
            source: The source, as in `PeerIdentity.source`.
        """
        if is_limited(source):
            self._attempts.fail_in_part(source, self._ticks())

    async def _timed(self, credentials: Credentials | None, peer: PeerIdentity) -> Principal:
        self._undecided += 1
        try:
            async with asyncio.timeout(self.options.timeout):
                return await self._decide(credentials, peer)
        except TimeoutError:
            raise NotAuthenticated("timeout") from None
        finally:
            self._undecided -= 1

    async def _decide(self, credentials: Credentials | None, peer: PeerIdentity) -> Principal:
        for each in self._methods:
            try:
                principal = await each.authenticate(credentials, peer)
            except NotAuthenticated:
                raise
            except Exception as error:
                # A method that fails must not let a peer in by the next one.
                text = "the authentication method %s has failed: %s"
                self._seldom.log(
                    logging.ERROR,
                    each.method,
                    text,
                    each.method,
                    type(error).__name__,
                    extra={"event": "authentication.method_failed"},
                )
                # The text of the error may hold credentials.
                _logger.debug(
                    "the error of %s",
                    each.method,
                    exc_info=error,
                    extra={"event": "authentication.method_failed"},
                )
                raise NotAuthenticated("failure") from None
            if principal is None:
                continue
            if principal.expires is not None and principal.expires <= self._clock():
                raise NotAuthenticated("expired")
            return principal
        raise NotAuthenticated("no credentials" if credentials is None else "unknown")

    def statistics(self) -> AuthenticationStatistics:
        """Return the figures at this moment."""
        return AuthenticationStatistics(
            self._undecided,
            dict(self._accepted),
            dict(self._refused),
            self._reloads_failed,
            self._banned,
            self._attempts.sources,
            self._attempts.forgotten,
            self._requests_checked,
            self._requests_remembered,
            dict(self._requests_refused),
            len(self._remembered),
        )

    # --- reload -------------------------------------------------------------------------------

    def readmit(self, principal: Principal, peer: PeerIdentity) -> Principal | None:
        """Return what a connected peer is after a reload, or `None` if it is refused now.

        Args:
            principal: What a method has made of the peer.
            peer: What the transport has verified of the peer.
        """
        method = next((each for each in self._methods if each.method == principal.method), None)
        return None if method is None else method.readmit(principal, peer)

    def on_reload(self, watcher: Callable[[], object]) -> Callable[[], None]:
        """Add a function that is called after files and keys were replaced.

        Returns:
            The function that removes it.
        """
        self._watchers.append(watcher)
        return lambda: self._watchers.remove(watcher)

    async def prepare_reload(self) -> Callable[[], object]:
        """Read the files and keys of all methods again; return the function that replaces them.

        Raises:
            ReloadFailed: Some cannot be used. All methods go on with their old ones.
        """
        prepared = [each.prepare_reload() for each in self._methods]
        outcomes = await asyncio.gather(*prepared, return_exceptions=True)
        replace, faults = list[Callable[[], object]](), dict[str, list[str]]()
        for method, outcome in zip(self._methods, outcomes, strict=True):
            if isinstance(outcome, BaseException):
                self._reloads_failed += 1
                # Methods share files.
                text = str(outcome) or type(outcome).__name__
                faults.setdefault(text, []).append(method.method)
            else:
                replace.append(outcome)
        if faults:
            raise ReloadFailed({", ".join(names): text for text, names in faults.items()})

        def replace_all() -> None:
            for each in replace:
                each()
            self._reloaded += 1
            self._remembered.clear()
            for watcher in tuple(self._watchers):
                watcher()

        return replace_all

    async def close(self) -> None:
        """Release what the methods hold."""
        for each in self._methods:
            await each.close()


def is_limited(source: str) -> bool:
    """Whether attempts of a source are limited.

    A socket without an address has none, and in `proxies` each connection is one of its own, with
    its number behind the address.
    """
    return bool(source) and " #" not in source
