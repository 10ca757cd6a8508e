"""Hostile nodes that pass on for others: on the route between two nodes, and as relays."""

from __future__ import annotations

import asyncio
import random
from collections import deque
from contextlib import AbstractContextManager, suppress
from typing import Any, Final
from unittest import mock

from onward.actors import Worker
from onward.actors.identity import ROUTER
from onward.actors.identity._outgoing import Outgoing
from onward.actors.identity.links._session import Failed
from onward.protocol import Address, Message, OnwardError
from onward.protocol.identity import Identity, P2PContent, RelayContent, ReplyContent

__all__ = ["Liar", "Middle", "altered"]

_KEPT: Final = 100
LIES: Final = {
    "drop": 1,
    "alter": 1,
    "delay": 1,
    "twice": 3,
    "again": 3,
    "replay": 2,
    "elsewhere": 1,
    "handle": 1,
}
"""How often a relay that lies does each thing, relative to the others."""


class Middle(Worker):
    """A worker on the route between two routers, which passes frames on, or does not.

    It has the address of a router. What comes over a link goes to a link of its own to the other
    node, and back.

    Args:
        draw: Its lies.
        to: The URI of the node that it is on the way to.
        counts: What it has done, and how often.

    Attributes:
        lies: How often it lies, from 0 to 1.
    """

    def __init__(self, draw: random.Random, to: str, counts: dict[str, int]) -> None:
        super().__init__()
        self.lies = 0.0
        self._draw: Final = draw
        self._to: Final = to
        self._counts: Final = counts
        self._over: Final[dict[Address, asyncio.Task[Address | None]]] = {}
        self._back: Final[dict[Address, Address]] = {}
        self._seen: Final[deque[bytes]] = deque(maxlen=_KEPT)

    async def handle_message(self, message: Message) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Pass a frame on."""
        link = message.return_route[0]
        out = self._back.get(link)
        if out is None:
            task = self._over.get(link)
            if task is None:
                task = self._over[link] = asyncio.create_task(self._connect(link))
            out = await asyncio.shield(task)
        if out is not None:
            self._pass_on(out, message.payload)

    async def _connect(self, link: Address) -> Address | None:
        with suppress(OnwardError):
            out = await self.node.connect(self._to, expose=[ROUTER])
            self._back[out] = link
            self.node.watch(out, lambda: self._end(link))
            self.node.watch(link, lambda: self._end(out))
            return out
        self._end(link)
        return None

    def _end(self, link: Address) -> None:
        worker = self.node.parts.table.worker_at(link)
        if worker is not None:
            worker.stop()

    def _pass_on(self, out: Address, frame: bytes) -> None:
        self._seen.append(frame)
        for each in self._lied(out, frame):
            self._send(out, each)

    def _send(self, out: Address, frame: bytes) -> None:
        with suppress(OnwardError):
            self.send([out, ROUTER], frame)

    def _lied(self, out: Address, frame: bytes) -> list[bytes]:
        """Return what is sent in place of a frame."""
        draw = self._draw
        if draw.random() >= self.lies:
            return [frame]
        lie = draw.choice(("drop", "alter", "delay", "twice", "replay", "shorten", "junk"))
        self._counts[f"lies on the way: {lie}"] += 1
        match lie:
            case "drop":
                return []
            case "alter":
                return [altered(draw, frame)]
            case "delay":
                self.after(draw.uniform(0.01, 2), lambda: self._send(out, frame))
                return []
            case "twice":
                return [frame, frame]
            case "replay":
                return [draw.choice(self._seen), frame]
            case "shorten":
                return [frame[: draw.randrange(len(frame))]]
            case _:
                return [frame, draw.randbytes(draw.choice((1, 40, 200)))]


def altered(draw: random.Random, data: bytes) -> bytes:
    """Return bytes of which one is another one."""
    at = draw.randrange(len(data))
    return data[:at] + bytes((data[at] ^ draw.randint(1, 255),)) + data[at + 1 :]


class Liar:
    """Nodes that lie about what they pass on for others, or get as an answer, as relays.

    Args:
        draw: Their lies.
        counts: What they have done, and how often.

    Attributes:
        of: The nodes.
        lies: How often they lie, from 0 to 1.
        seen: What they have passed on last, and to which node.
    """

    def __init__(self, draw: random.Random, counts: dict[str, int]) -> None:
        self.of: Final[set[Identity]] = set()
        self.lies = 0.0
        self._draw: Final = draw
        self._counts: Final = counts
        self.seen: Final[deque[tuple[Identity, RelayContent | ReplyContent]]] = deque(maxlen=_KEPT)

    def at_work(self) -> AbstractContextManager[object]:
        """Return what has them lie while it is entered."""
        right = Outgoing.tell

        def tell(
            out: Outgoing,
            node: Identity,
            content: P2PContent,
            failed: Failed,
            expiry: int | None = None,
        ) -> Any:
            if (
                not isinstance(content, RelayContent | ReplyContent)
                or out._router.own not in self.of
            ):
                return right(out, node, content, failed, expiry)
            self.seen.append((node, content))
            said = self._lied(out, node, content)
            copies = sum(_is_copy(content, each) for _, each, _ in said)
            for to, each, after in said:
                if not after:
                    # What becomes of another than that, or of one of several, its sender is not
                    # told: the others may come.
                    is_it = each is content and to == node and copies == 1
                    right(out, to, each, failed if is_it else ignored)
                else:
                    asyncio.get_running_loop().call_later(after, right, out, to, each, ignored)
            return None

        return mock.patch.object(Outgoing, "tell", tell)

    def _lied(
        self, out: Outgoing, node: Identity, content: RelayContent | ReplyContent
    ) -> list[tuple[Identity, RelayContent | ReplyContent, float]]:
        """Return what is sent in place of a content: to which node, and after which time."""
        draw = self._draw
        if draw.random() >= self.lies:
            return [(node, content, 0.0)]
        lie = draw.choices([*LIES], [*LIES.values()])[0]
        self._counts[f"lies of relays: {lie}"] += 1
        match lie:
            case "alter" if isinstance(content, RelayContent):
                changed = RelayContent(altered(draw, content.envelope), content.handle)
                return [(node, changed, 0.0)]
            case "alter" if isinstance(content, ReplyContent):
                return [(node, ReplyContent(content.handle, altered(draw, content.reply)), 0.0)]
            case "delay":
                return [(node, content, draw.uniform(0.01, 3))]
            case "twice":
                return [(node, content, 0.0), (node, content, draw.choice((0.0, 2.0)))]
            case "again" if isinstance(content, RelayContent):
                layer = RelayContent(content.envelope, draw.randbytes(16))
                return [(node, content, 0.0), (node, layer, draw.choice((0.0, 2.0)))]
            case "again" if isinstance(content, ReplyContent):
                answer = ReplyContent(content.handle, altered(draw, content.reply))
                return [(node, content, 0.0), (node, answer, draw.choice((0.0, 2.0)))]
            case "replay":
                to, other = draw.choice(self.seen)
                return [(node, content, 0.0), (to, other, 0.0)]
            case "elsewhere":
                peers = list(out._router.peers.sessions)
                return [(node, content, 0.0), (draw.choice(peers or [node]), content, 0.0)]
            case "handle" if isinstance(content, RelayContent):
                handle = draw.choice((None, draw.randbytes(16)))
                return [(node, RelayContent(content.envelope, handle), 0.0)]
            case "handle" if isinstance(content, ReplyContent):
                return [(node, ReplyContent(draw.randbytes(16), content.reply), 0.0)]
            case _:
                return []


def _is_copy(content: RelayContent | ReplyContent, other: RelayContent | ReplyContent) -> bool:
    """Whether another content is the same one, or the same layer with another handle."""
    if isinstance(content, RelayContent) and isinstance(other, RelayContent):
        return content.envelope == other.envelope
    return content is other


def ignored(_: object) -> None:
    """Do nothing."""
