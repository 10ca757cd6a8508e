"""The paths of the admin interface, with the handler of each method."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final, Literal, TypeAlias

from ._messages import HttpError, HttpRequest, HttpResponse

__all__ = ["METRICS", "AdminPaths", "Handler", "Needs"]

METRICS: Final = "/metrics"
"""The path of the metrics, which a server may give to all that can connect to it."""

Handler: TypeAlias = Callable[[HttpRequest], Awaitable[HttpResponse]]
"""A function that answers requests. It runs on the node's loop."""

Needs: TypeAlias = Literal["nothing", "read", "operate"]
"""What a request needs: no authentication, or the right to read or to operate."""


@dataclass(frozen=True, slots=True)
class AdminPath:
    """A handler, and what its requests need."""

    handle: Handler
    needs: Needs


class AdminPaths:
    """The handlers by path and method. A `HEAD` request is handled as `GET`, without the body.

    Attributes:
        turn: The lock of a handler that looks through a table, so that many requests at a time hold
            the loop no longer than one.
    """

    def __init__(self) -> None:
        self.turn: Final = asyncio.Lock()
        self._paths: dict[str, dict[str, AdminPath]] = {}

    def add(
        self, path: str, handle: Handler, *, method: str = "GET", needs: Needs = "read"
    ) -> None:
        """Add a handler.

        Args:
            path: The path, from its slash on. `/x/*` are all paths below `/x/` without a handler of
                their own.
            handle: The handler.
            method: `GET` or `POST`.
            needs: What its requests need.

        Raises:
            ValueError: The path has a handler of this method.
        """
        methods = self._paths.setdefault(path, {})
        if method in methods:
            raise ValueError(f"{method} {path} has a handler already")
        methods[method] = AdminPath(handle, needs)

    def find(self, method: str, path: str) -> AdminPath:
        """Return the handler of a request.

        Raises:
            HttpError: There is no such path, or the path has no such method.
        """
        methods = self._paths.get(path) or self._paths.get(path[: path.find("/", 1) + 1] + "*")
        if methods is None:
            raise HttpError(HTTPStatus.NOT_FOUND, "there is no such path")
        found = methods.get("GET" if method == "HEAD" else method)
        if found is None:
            # RFC 9110 section 15.5.6: "The origin server MUST generate an Allow header field in a
            # 405 response".
            allowed = sorted({*methods, *(("HEAD",) if "GET" in methods else ())})
            text = f"the path has {', '.join(allowed)}"
            raise HttpError(HTTPStatus.METHOD_NOT_ALLOWED, text, {"allow": ", ".join(allowed)})
        return found

    def __iter__(self) -> Iterator[str]:
        """Yield the paths in order."""
        return iter(sorted(self._paths))
