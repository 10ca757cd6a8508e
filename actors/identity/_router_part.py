"""The parts of a router: each serves its kinds of destinations and of records."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING, ClassVar, Final

from ...protocol import Message
from ...protocol.identity import (
    ControlContent,
    DestinationKind,
    EngineMessage,
    Identity,
    P2PContent,
    Target,
)
from ..routing._pending import Pending

if TYPE_CHECKING:
    from ._carriage import Carriage
    from ._engines import Engine
    from ._outgoing import Undelivered
    from .links._session import Session

__all__ = ["RouterPart", "RouterParts"]


class RouterPart:
    """A part of the router. It overrides what it serves; all of it runs on the node's loop.

    Attributes:
        kinds: The kinds of destinations that it serves: in routes of workers, in the messages of
            engines elsewhere, and as the kind of `reply_address`.
        contents: The types of contents of messages between nodes that it receives.
        controls: The numbers of the control records that it receives.
    """

    kinds: ClassVar[tuple[DestinationKind, ...]] = ()
    contents: ClassVar[tuple[type[P2PContent], ...]] = ()
    controls: ClassVar[range] = range(0)

    def resolve(self, message: Message, target: Target) -> Message | Pending | None:
        """Resolve the first address of a message, which is of a kind that it serves."""
        raise NotImplementedError

    def carry(
        self,
        own: Identity,
        to: Identity,
        message: Message,
        carriage: Carriage,
        undelivered: Undelivered,
    ) -> Awaitable[None] | None:
        """Carry a message of a worker to a destination of a kind that it serves, or over relays.

        Args:
            own: The identity that it is of.
            to: The identity that it is for.
            message: The message, as a transport has it.
            carriage: How it is carried.
            undelivered: Receives it if it cannot be delivered.

        Returns:
            `None`, or what to wait for before the next message.
        """
        raise NotImplementedError

    def answer(
        self, token: bytes, message: Message, undelivered: Undelivered
    ) -> Awaitable[None] | None:
        """Carry an answer that has a way of its own.

        Args:
            token: What the way is known by; see `reply_address`.
            message: The answer, as a transport has it.
            undelivered: Receives it if it cannot be delivered.

        Returns:
            `None`, or what to wait for before the next message.
        """
        raise NotImplementedError

    def receive_signed(
        self, message: EngineMessage, inner: Message, node: Identity, envelope: bytes
    ) -> None:
        """Receive the message of an engine elsewhere, which is verified, fresh, and accepted.

        Args:
            message: The message; its destination is of a kind that this part serves.
            inner: What it says, as a transport has it.
            node: The node at the other end of the link by which it came.
            envelope: The signed message, for what passes it on as it is.
        """
        raise NotImplementedError

    def receive(self, session: Session, content: P2PContent) -> None:
        """Receive the content of a message of another node, of a type that it receives.

        A control record has one of the numbers that it receives; it may be anything otherwise.
        """
        raise NotImplementedError

    def node_joined(self, node: Identity) -> None:
        """Receive word that a node takes messages."""

    def node_lost(self, node: Identity) -> None:
        """Receive word that the link to a node has ended."""

    def node_began(self, node: Identity) -> None:
        """Receive word that a node has begun its session anew, or has new keys for it.

        It may have forgotten what it was asked for over this link, which did not end here.
        """

    def clock_set(self, *, back: bool) -> None:
        """Receive word that the clock was set: what says a time is to be signed anew.

        Args:
            back: Whether it was set back.
        """

    def needs(self, node: Identity) -> bool:
        """Whether the link to a node is needed while no message goes over it."""
        return False

    def engine_ended(self, engine: Engine) -> None:
        """Receive the end of an engine of this node."""

    def banned(self, identity: Identity) -> None:
        """Receive word that an identity has no trust any more."""

    def close(self) -> None:
        """End, as the node does."""


class RouterParts:
    """A router with parts, each for its kinds of destination and its records; see `Router`.

    Attributes:
        parts: The parts, in the order in which they were added.
    """

    def __init__(self) -> None:
        self.parts: Final[list[RouterPart]] = []
        self._part_of_kind: Final[dict[DestinationKind, RouterPart]] = {}
        self._part_of_content: Final[dict[type[P2PContent], RouterPart]] = {}
        self._part_of_control: Final[dict[int, RouterPart]] = {}

    def add_part(self, part: RouterPart) -> None:
        """Add a part, for what it serves."""
        self.parts.append(part)
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
