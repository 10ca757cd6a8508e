"""The paths of the console: a page, and the files that it loads.

The files are read when they are first asked for. Their path has a digest of all of them, so a
browser keeps them for as long as it likes, and never has files of two versions.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from http import HTTPStatus
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Final

from ._messages import HttpError, HttpRequest, HttpResponse
from ._paths import AdminPaths

__all__ = ["CONSOLE", "add_console", "console_files"]

CONSOLE: Final = "/"
"""The path of the page."""

PAGE: Final = "index.html"
MARK: Final = b"@DIGEST@"
"""The text in the page that the digest replaces."""

_TYPES: Final = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
_KEPT: Final = {"cache-control": "public, max-age=31536000, immutable"}


@dataclass(frozen=True, slots=True)
class ConsoleFiles:
    """The files of the console.

    Attributes:
        digest: The first digits of the SHA-256 of all of them.
        files: The content of each by its path.
    """

    digest: str
    files: Mapping[str, bytes]


@cache
def console_files() -> ConsoleFiles:
    """Return the files of the console; they are read once."""
    found = dict(sorted(_read(files(__name__.rpartition(".")[0]) / "console", "")))
    whole = hashlib.sha256()
    for name, content in found.items():
        whole.update(f"{name} {len(content)}\n".encode() + content)
    digest = whole.hexdigest()[:16]
    found[PAGE] = found[PAGE].replace(MARK, digest.encode())
    return ConsoleFiles(digest, found)


def _read(folder: Traversable, path: str) -> Iterator[tuple[str, bytes]]:
    for each in folder.iterdir():
        if each.is_dir():
            yield from _read(each, f"{path}{each.name}/")
        elif _type_of(each.name) is not None:
            yield path + each.name, each.read_bytes()


def _type_of(name: str) -> str | None:
    return _TYPES.get(name[name.rfind(".") :])


def add_console(paths: AdminPaths) -> None:
    """Add the paths of the console.

    Its files are the same for all and need no authentication: the page asks for a token itself.
    `/sign-in` has the browser ask for a user and a password, which it then sends with each request.
    """
    paths.add(CONSOLE, _page, needs="nothing")
    paths.add("/console/*", _file, needs="nothing")
    paths.add("/sign-in", _signed_in)


async def _page(_: HttpRequest) -> HttpResponse:
    found = await asyncio.to_thread(console_files)
    return HttpResponse(found.files[PAGE], _TYPES[".html"])


async def _file(request: HttpRequest) -> HttpResponse:
    found = await asyncio.to_thread(console_files)
    digest, _, name = request.path.removeprefix("/console/").partition("/")
    content = found.files.get(name) if digest == found.digest else None
    kind = _type_of(name)
    if content is None or kind is None:
        raise HttpError(HTTPStatus.NOT_FOUND, "there is no such file")
    return HttpResponse(content, kind, headers=_KEPT)


async def _signed_in(_: HttpRequest) -> HttpResponse:
    return HttpResponse(b"", status=HTTPStatus.SEE_OTHER, headers={"location": CONSOLE})
