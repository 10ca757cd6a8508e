"""The parts of a router, and which of them serves what."""

from __future__ import annotations

from typing import Final

from ...protocol.identity import ControlContent, DestinationKind, P2PContent
from ._router_part import RouterPart

__all__ = ["RouterParts"]


class RouterParts:
    """A router with parts, each for its kinds of destination and its records; see `Router`."""

    def __init__(self) -> None:
        self._parts: Final[list[RouterPart]] = []
        self._part_of_kind: Final[dict[DestinationKind, RouterPart]] = {}
        self._part_of_content: Final[dict[type[P2PContent], RouterPart]] = {}
        self._part_of_control: Final[dict[int, RouterPart]] = {}

    def add_part(self, part: RouterPart) -> None:
        """Add a part, for what it serves."""
        self._parts.append(part)
        self._part_of_kind.update(dict.fromkeys(part.kinds, part))
        self._part_of_content.update(dict.fromkeys(part.contents, part))
        self._part_of_control.update(dict.fromkeys(part.controls, part))

    def find_part(self, kind: DestinationKind) -> RouterPart | None:
        """Return the part that serves a kind of destination; `None` if the router itself does."""
        return self._part_of_kind.get(kind)

    def part(self, kind: DestinationKind) -> RouterPart:
        """Return the part that serves a kind of destination, which there is.

        Raises:
            KeyError: There is none.
        """
        return self._part_of_kind[kind]

    def part_for(self, content: P2PContent) -> RouterPart | None:
        """Return the part that receives a content of another node, if one does."""
        if isinstance(content, ControlContent):
            return self._part_of_control.get(content.number)
        return self._part_of_content.get(type(content))
