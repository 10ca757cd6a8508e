"""Opening a listener for a command, with readable errors."""

from __future__ import annotations

import os
from typing import Any, Final

from ..actors import Listener, Node, UnknownScheme
from ._status import CommandError, Status

__all__ = ["NO_LISTENER", "listen", "reason_of"]

NO_LISTENER: Final = "none"
"""What `--listen` says of a node that only connects to others."""


async def listen(node: Node, uri: str, scheme: str | tuple[str, ...], **options: Any) -> Listener:
    """Listen.

    Args:
        node: The node.
        uri: The URI to listen at.
        scheme: The required start of the scheme, or several, one of which is required.
        **options: The transport's options.

    Raises:
        CommandError: It cannot listen.
    """
    if not uri.startswith(scheme):
        starts = scheme if isinstance(scheme, str) else ", ".join(scheme)
        raise CommandError(f"{uri!r} does not start with {starts}", Status.USAGE)
    try:
        return await node.listen(uri, **options)
    except OSError as error:
        raise CommandError(f"cannot listen at {uri}: {reason_of(error)}") from error
    except UnknownScheme:
        raise
    except ValueError as error:
        raise CommandError(f"cannot listen at {uri}: {error}", Status.USAGE) from error


def reason_of(error: OSError) -> str:
    """Return the system's text of an error, without the additions of the event loop."""
    if error.errno and error.errno > 0:
        return os.strerror(error.errno)
    return error.strerror or str(error)
