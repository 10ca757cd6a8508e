"""A sender to a name in a route: where its answers come to, and what they say."""

from __future__ import annotations

from asyncio import sleep

from onward.actors import Worker
from onward.protocol import NAME, Address, Message, is_error_reply, read_error_reply
from tests.actors.dispatch.kept import Kept
from tests.actors.dispatch.nets import SETTLE, Net
from tests.support.workers import Recorder

__all__ = ["BACK", "ORDERS", "SHOP", "Answer", "NetSender", "Sender"]

ORDERS = Address(NAME, b"orders")
BACK, SHOP = Address(0, b"back"), Address(0, b"shop")


class Answer(Worker):
    """A consumer that answers with what it got."""

    def handle_message(self, message: Message) -> None:
        self.reply(message, b"got " + message.payload)


class Sender:
    """What comes back to a sender.

    Args:
        back: The worker that its answers come to.
    """

    def __init__(self, back: Recorder) -> None:
        self.back = back

    @property
    def told(self) -> list[bytes | str]:
        """The outcomes: the answer of an accepted message, or the words of another outcome."""
        told: list[bytes | str] = []
        for message in self.back.messages:
            error = read_error_reply(message)
            assert is_error_reply(message) == (error is not None)
            told.append(message.payload if error is None else error.reason)
        self.back.messages.clear()
        return told


class NetSender(Sender):
    """Dispatchers a, b and c in a row, and what the sender at a has got."""

    def __init__(self, net: Net, back: Recorder) -> None:
        super().__init__(back)
        self.net = net

    @property
    def fast(self) -> tuple[int, ...]:
        """The unsettled messages on the fast path of each node."""
        return tuple(len(each._core.fast.open) for each in self.net.at.values())

    @property
    def full(self) -> tuple[int, ...]:
        """The copies that have a full record at each node."""
        return tuple(len(each._core.copies.tokens) for each in self.net.at.values())

    @property
    def came(self) -> tuple[int, ...]:
        """The messages of neighbours that are on the fast path of each node."""
        tables = [each._core.fast.unsettled.came.values() for each in self.net.at.values()]
        return tuple(sum(map(len, each)) for each in tables)

    async def send(self, *payloads: bytes, more: tuple[Address, ...] = ()) -> None:
        for payload in payloads:
            self.net.nodes["a"].send((ORDERS, *more), payload, return_route=BACK)
            await sleep(1)

    def outcomes(self, outcome: str) -> tuple[int, ...]:
        return tuple(each.statistics().outcomes[outcome] for each in self.net.at.values())

    def counts(self, reason: str) -> tuple[int, ...]:
        return tuple(each.statistics().counts.get(reason, 0) for each in self.net.at.values())

    async def keep(self, at: str = "c", window: int = 250) -> Kept:
        """Attach a consumer, and send it a first message: the next ones go the fast path."""
        kept = await self.net.keep(at, "orders", window)
        await sleep(SETTLE)
        await self.send(b"0")
        kept.deliveries[-1].accept()
        await sleep(1)
        assert self.told == [b""]
        assert self.full == (0, 0, 0)
        return kept
