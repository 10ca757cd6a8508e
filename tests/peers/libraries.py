"""The programs of libraries that know RSocket alone: built once, run by `make peers` only."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.peers.foreign import NPM, PeerMissing, built

__all__ = ["LIBRARIES", "Library", "program", "rust_program", "words"]

BUILD_TIMEOUT = 300.0
"""Seconds."""


@dataclass(frozen=True)
class Library:
    """A program made with a library.

    Attributes:
        folder: Where its source is.
        build: The command that builds it there.
        run: The command that runs it, with the path of the program last.
        pushes: Whether the library pushes metadata.
        takes_pushes: Whether its destinations take what others push.
        asks_in_fragments: Whether its requests can be fragments.
        answers_in_fragments: Whether its answers can.
    """

    folder: str
    build: tuple[str, ...]
    run: tuple[str, ...]
    pushes: bool = True
    takes_pushes: bool = True
    asks_in_fragments: bool = True
    answers_in_fragments: bool = True

    def cuts(self, role: str) -> bool:
        """Whether a requester or a destination can send fragments."""
        return self.asks_in_fragments if role == "requester" else self.answers_in_fragments


LIBRARIES = {
    "go": Library(
        "rsocket_go",
        ("go", "build", "-mod=mod", "-o", "peer", "."),
        ("peer",),
        # The first fragment of an answer says that it is the last.
        answers_in_fragments=False,
    ),
    "js-0.0.27": Library(
        "rsocket_js",
        NPM,
        ("node", "old.js"),
        # Its pushes lack the flag that says that there is metadata.
        pushes=False,
        asks_in_fragments=False,
        answers_in_fragments=False,
    ),
    "js-alpha": Library("rsocket_js", NPM, ("node", "alpha.js"), pushes=False, takes_pushes=False),
}


def program(name: str) -> Path:
    """Return the path of a library's program, which is built if need be.

    Raises:
        PeerMissing: It cannot be built, or what runs it is missing.
    """
    library = LIBRARIES[name]
    if not all(shutil.which(tool) for tool in library.run[:-1]):
        raise PeerMissing(f"{library.run[0]} is not installed")
    return built(library.folder, [library.build], timeout=BUILD_TIMEOUT) / library.run[-1]


def rust_program() -> Path:
    """Return the path of the program of `rsocket_rust/`, which is built if need be.

    It is no `Library`: without credit, its channels are none that all others understand.

    Raises:
        PeerMissing: It cannot be built.
    """
    place = built("rsocket_rust", [["cargo", "build", "--quiet"]], timeout=BUILD_TIMEOUT)
    return place / "target/debug/onward-rsocket-rust-peer"


def words(name: str, role: str, uri: str, service: str, *, fragments: bool = False) -> list[str]:
    """Return the command that runs a library's program, which is built if need be."""
    library = LIBRARIES[name]
    try:
        path = program(name)
    except PeerMissing as error:
        pytest.skip(f"{name} peer: {error}")
    cut = ["64"] if fragments and library.cuts(role) else []
    return [*library.run[:-1], str(path), role, uri, service, *cut]
