"""Opening a listener for a command, with errors people can read."""

from __future__ import annotations

import os
from typing import Any

from ..actors import Listener, Node, UnknownScheme
from ._status import CommandError, Status

__all__ = ["listen", "reason_of"]


async def listen(node: Node, uri: str, scheme: str | tuple[str, ...], **options: Any) -> Listener:
    """Listen, and print `listening` with the URI that others have to use.

    Args:
        node: The node that is to listen.
        uri: Where.
        scheme: What the scheme has to start with, or several of which it may start with any.
        **options: The transport's options.

    Raises:
        CommandError: It cannot be done.
    """
    if not uri.startswith(scheme):
        starts = scheme if isinstance(scheme, str) else ", ".join(scheme)
        raise CommandError(f"{uri!r} does not start with {starts}", Status.USAGE)
    try:
        listener = await node.listen(uri, **options)
    except OSError as error:
        raise CommandError(f"cannot listen at {uri}: {reason_of(error)}") from error
    except UnknownScheme:
        raise
    except ValueError as error:
        raise CommandError(f"cannot listen at {uri}: {error}", Status.USAGE) from error
    print("listening", listener.uri, flush=True)
    return listener


def reason_of(error: OSError) -> str:
    """Return the system's words for an error, which each loop decorates in its own way."""
    if error.errno and error.errno > 0:
        return os.strerror(error.errno)
    return error.strerror or str(error)
