"""The authentication of a peer by the SETUP of its connection."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from ...protocol.rsocket import COMPOSITE_MIME, InvalidSetup, MalformedComposite, Setup, find_entry
from ...protocol.security import (
    AUTHENTICATION_MIME,
    BadCredentials,
    Credentials,
    NotAuthenticated,
    Principal,
    parse_credentials,
)

if TYPE_CHECKING:
    from ...actors.security import Authentication
    from ._link import Link

__all__ = ["MAX_SETUP_METADATA", "Admission", "credentials_in", "entry_in", "find_credentials"]

MAX_SETUP_METADATA: Final = 16 * 1024
"""The maximum size of the metadata of a SETUP at a listener with authentication, in bytes."""

_MIME: Final = AUTHENTICATION_MIME.encode()


def credentials_in(setup: Setup) -> Credentials | None:
    """Return the credentials in a SETUP, or `None` if it has none.

    Raises:
        InvalidSetup: The metadata are too long, cannot be read, or have more than one entry of
            credentials; or the entry is broken.
    """
    metadata = setup.metadata
    if metadata is None:
        return None
    if len(metadata) > MAX_SETUP_METADATA:
        raise InvalidSetup(f"the metadata of SETUP are over {MAX_SETUP_METADATA} bytes")
    try:
        if setup.metadata_mime == AUTHENTICATION_MIME:
            return parse_credentials(metadata)
        return entry_in(metadata) if setup.metadata_mime == COMPOSITE_MIME else None
    except BadCredentials as error:
        raise InvalidSetup(str(error)) from None
    except MalformedComposite as error:
        raise InvalidSetup(error.text) from None


def entry_in(metadata: bytes) -> Credentials | None:
    """Return the credentials in composite metadata, or `None` if there are none.

    Raises:
        BadCredentials: The entry is broken, or there are several.
        MalformedComposite: The metadata cannot be read.
    """
    found = find_credentials(metadata)
    return None if found is None else parse_credentials(metadata[slice(*found)])


def find_credentials(metadata: bytes) -> tuple[int, int] | None:
    """Return the offsets of the credentials in composite metadata; `None` if there are none.

    Raises:
        BadCredentials: There are several.
        MalformedComposite: The metadata cannot be read.
    """
    found = find_entry(metadata, _MIME)
    if found is not None and find_entry(metadata, _MIME, found[1]) is not None:
        raise BadCredentials("more than one authentication entry")
    return found


class Admission:
    """The decision on one peer. Meanwhile the peer is not read.

    A peer that leaves meanwhile is decided on all the same, and what has come of it before is
    handled then; see `Flow`.

    Args:
        link: The connection.
        authentication: The methods.
        setup: Its SETUP.
        credentials: The credentials in it.
    """

    def __init__(
        self,
        link: Link,
        authentication: Authentication,
        setup: Setup,
        credentials: Credentials | None,
    ) -> None:
        self._link: Link | None = link
        self._setup = setup
        link.block(link)
        deciding = authentication.authenticate(credentials, link.identity)
        self._task = link.node.loop.create_task(deciding)
        self._task.add_done_callback(self._decided)

    def cancel(self) -> None:
        """Give up: this side has ended the connection."""
        self._link = None
        self._task.cancel()

    def _decided(self, task: asyncio.Task[Principal]) -> None:
        link, self._link = self._link, None
        if link is None:  # it has ended
            if not task.cancelled():
                task.exception()  # so that asyncio logs none
            return
        if task.cancelled():
            link.session.reject("cancelled")
        elif (error := task.exception()) is None:
            link.session.admit(task.result(), self._setup)
        else:
            cause = error.cause if isinstance(error, NotAuthenticated) else type(error).__name__
            link.session.reject(cause)
