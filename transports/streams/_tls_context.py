"""TLS contexts that follow their files.

A context is never changed while it is in use. When a file has changed, a new context is made from
all of them, and takes the place of the current one for later handshakes: only so can an authority
be removed, and a session ticket that the old context has issued be refused. If it cannot be made,
as a file is half written or the key is not that of the certificate, the current one stays.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from .._log import SeldomLogger, shown
from ._certificate_end import read_not_after
from ._tls import TlsOptions

__all__ = ["TlsContext", "TlsStatistics"]

_logger = logging.getLogger("onward.transports")

Stamp: TypeAlias = tuple[int, ...]
"""The identity and the times of a file; empty if there is no file."""


@dataclass(frozen=True, slots=True)
class TlsStatistics:
    """The TLS of a listener at one moment.

    Attributes:
        handshakes: The TLS handshakes since the start, by result: `completed`, or the reason of the
            failure.
        not_after: The time at which the certificate in use expires, in seconds since 1970; `None`
            for a context of one's own.
        reloads: How often the certificates have been replaced since the start.
        failed_reloads: How often they could not be, so that those in use stayed.
    """

    handshakes: Mapping[str, int]
    not_after: float | None
    reloads: int
    failed_reloads: int


class TlsContext:
    """The current TLS context of a listener, or of a connecting side.

    Args:
        tls: The files, or a context of one's own, which is never replaced.
        make: Makes a context: `server_context` or `client_context`.

    Attributes:
        current: The context for the next handshake.

    Raises:
        OSError: A file cannot be read.
        ValueError: A file has the wrong contents.
    """

    def __init__(
        self,
        tls: TlsOptions | ssl.SSLContext,
        make: Callable[[TlsOptions | ssl.SSLContext], ssl.SSLContext],
    ) -> None:
        self._tls = tls
        self._make = make
        self._seldom = SeldomLogger(_logger)
        self._reloads = 0
        self._failed = 0
        self._timer: asyncio.TimerHandle | None = None
        self._stamps = _look(tls)
        self.current = make(tls)
        self._not_after = _end(tls)

    def reload(self) -> None:
        """Replace the context by one of the files as they are now.

        Raises:
            OSError: As for `prepare_reload`.
            ValueError: As for `prepare_reload`.
        """
        self.prepare_reload()()

    def prepare_reload(self, tls: TlsOptions | None = None) -> Callable[[], object]:
        """Make a context of the files as they are now; return the function that puts it in place.

        Args:
            tls: Other files, which take the place of those named before; `None`: the same.

        Raises:
            OSError: A file cannot be read. The current context stays.
            ValueError: A file has the wrong contents. The current context stays.
        """
        if isinstance(self._tls, ssl.SSLContext):
            return lambda: None
        options = self._tls if tls is None else tls
        stamps = _look(options)  # before they are read: a change meanwhile is found the next time
        try:
            made = self._make(options)
        except (OSError, ValueError) as error:
            self._failed += 1
            text = "the certificates are not reloaded, and those in use stay: %s"
            self._seldom.log(
                logging.ERROR,
                str(error),
                text,
                shown(str(error)),
                extra={"event": "certificates.not_reloaded"},
            )
            raise
        not_after = _end(options)

        def put() -> None:
            self._tls = options
            self.current, self._stamps, self._not_after = made, stamps, not_after
            self._reloads += 1
            self._seldom.log(
                logging.INFO,
                "reloaded",
                "the certificates are reloaded",
                extra={"event": "certificates.reloaded"},
            )

        return put

    def refresh(self) -> None:
        """Replace the context if a file has changed; if that fails, the current one stays."""
        if self._interval is not None and _look(self._tls) != self._stamps:
            # A failure is logged and counted; the next look tries again.
            with contextlib.suppress(OSError, ValueError):
                self.reload()

    def watch(self, loop: asyncio.AbstractEventLoop) -> None:
        """Look at the files from time to time, until `unwatch`."""
        interval = self._interval
        if interval is not None:
            self._timer = loop.call_later(interval, self._next_look, loop)

    def unwatch(self) -> None:
        """Look at the files no more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def statistics(self, handshakes: Mapping[str, int]) -> TlsStatistics:
        """Return the current statistics of a listener, given its handshakes by result."""
        return TlsStatistics(handshakes, self._not_after, self._reloads, self._failed)

    def _next_look(self, loop: asyncio.AbstractEventLoop) -> None:
        self.refresh()
        self.watch(loop)

    @property
    def _interval(self) -> float | None:
        return self._tls.reload_interval if isinstance(self._tls, TlsOptions) else None


def _look(tls: TlsOptions | ssl.SSLContext) -> tuple[Stamp, ...]:
    if isinstance(tls, ssl.SSLContext):
        return ()
    files = (tls.certificate, tls.key, tls.authority)
    return tuple(_stamp(each) for each in files if each is not None)


def _end(tls: TlsOptions | ssl.SSLContext) -> float | None:
    if isinstance(tls, ssl.SSLContext) or tls.certificate is None:
        return None
    return read_not_after(tls.certificate)


def _stamp(path: str | os.PathLike[str]) -> Stamp:
    """Return the stamp of a file; of its target if it is a link, which may lead elsewhere later."""
    try:
        found = os.stat(path)  # noqa: PTH116 - the path may be of any type
    except OSError:
        return ()
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns
