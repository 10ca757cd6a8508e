"""What was sent between simulated identities, what came of it, and the workers that see it."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Iterator
from dataclasses import dataclass, field
from typing import Final

from onward.actors import Worker
from onward.protocol import (
    InDoubt,
    Message,
    NodeStopped,
    NotDelivered,
    OnwardError,
    read_error_reply,
)
from onward.protocol.identity import Identity
from onward.transports.identity import Correspondent

__all__ = ["ANSWER", "QUESTION", "Ledger", "Sent", "Taker"]

QUESTION: Final = b"question"
ANSWER: Final = b"answer->"
_HEAD: Final = len(QUESTION) + 4


@dataclass(slots=True, eq=False)
class Sent:
    """A message to an identity.

    Attributes:
        number: Its number.
        source: The identity that it is of.
        target: The identity that it is for.
        payload: Its payload.
        nodes: The nodes that may pass it on in their own name, as requests to domains are.
        asks: Whether an answer is waited for.
        calm: Whether it was sent when all was healed, so that it has to come.
        forbidden: Why it may not be delivered at all; empty: it may.
        strange: Whether a hostile node has sent it, or it is for one.
        came: Where it was delivered: the host and its life, and the worker.
        ends: How its request has ended, each time that it has.
        answers: How often an answer came.
    """

    number: int
    source: Identity
    target: Identity
    payload: bytes
    nodes: frozenset[Identity] = frozenset()
    asks: bool = False
    calm: bool = False
    forbidden: str = ""
    strange: bool = False
    came: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    ends: list[str] = field(default_factory=list[str])
    answers: int = 0

    @property
    def answer(self) -> bytes:
        """The answer that it is given."""
        return ANSWER + self.payload[len(QUESTION) :]


class Ledger:
    """All messages of a run, and what is seen of them.

    Args:
        draw: The payloads.

    Attributes:
        sent: The messages, by their numbers.
        wrong: What was seen not to be as promised.
        counts: What has happened, and how often.
        strange: The identities of hostile nodes, of which anything may come.
        excused: How many messages need not have come although all was well, as a full table has
            refused that many.
    """

    def __init__(self, draw: random.Random) -> None:
        self.sent: Final[list[Sent]] = []
        self.wrong: Final[list[str]] = []
        self.counts: Final = Counter[str]()
        self.strange: Final[set[Identity]] = set()
        self.excused = 0
        self._draw: Final = draw

    def make(self, source: Identity, target: Identity) -> Sent:
        """Make a message."""
        number, size = len(self.sent), self._draw.choice((4, 16, 16, 300))
        payload = QUESTION + number.to_bytes(4) + self._draw.randbytes(size)
        sent = Sent(number, source, target, payload)
        sent.strange = source in self.strange or target in self.strange
        self.sent.append(sent)
        return sent

    def complain(self, text: str) -> None:
        """Note what is not as promised."""
        self.wrong.append(f"{text}, at {asyncio.get_running_loop().time():.2f} s")

    def find(self, payload: bytes) -> Sent | None:
        """Return the message that a payload is of, or the answer to it."""
        number = int.from_bytes(payload[len(QUESTION) : _HEAD])
        if len(payload) < _HEAD or number >= len(self.sent):
            return None
        sent = self.sent[number]
        return sent if payload in (sent.payload, sent.answer) else None

    async def ask(self, sent: Sent, asked: Awaitable[Message], timeout: float) -> None:
        """Await the answer to a request, and note how it has ended."""
        loop = asyncio.get_running_loop()
        until = loop.time() + timeout + 0.1
        try:
            answer = await asked
        except NodeStopped:
            sent.ends.append("gone")  # the node that asked has crashed
        except NotDelivered as error:
            sent.ends.append(f"certain: {error}")
        except InDoubt as error:
            sent.ends.append(f"in doubt: {error}")
        else:
            sent.ends.append("answered")
            if answer.payload != sent.answer and not sent.strange:
                self.complain(f"{sent.number} has another answer: {answer.payload!r}")
        if loop.time() > until:
            self.complain(f"{sent.number} has ended {loop.time() - until:.1f} s too late")

    def violations(self) -> Iterator[str]:
        """Yield what is not as promised, once the run is over."""
        yield from self.wrong
        for each in self.sent:
            yield from self._of(each)
        lost = [each for each in self.sent if self._is_lost(each)]
        for each in lost if len(lost) > self.excused else ():
            yield f"{each.number} was sent when all was well: {each.came}, {each.ends}"

    def _of(self, sent: Sent) -> Iterator[str]:
        said = f"{sent.number}{' (strange)' if sent.strange else ''}"
        # A node takes what it has not seen, so a hostile sender reaches an engine at each node; but
        # none twice, also if the node was started again.
        places = {place.partition("/")[0] for place, _ in sent.came} if sent.strange else ()
        if len(sent.came) > max(1, len(places)):
            yield f"{said} was delivered at {sent.came}"
        if sent.forbidden and sent.came:
            yield f"{said} was delivered at {sent.came}, and {sent.forbidden}"
        if sent.asks and len(sent.ends) != 1:
            yield f"{said} has the ends {sent.ends}"
        certain = [each for each in sent.ends if each.startswith("certain")]
        if certain and sent.came:
            yield f"{said} was delivered at {sent.came}, and {certain}"
        if "answered" in sent.ends and not sent.came and not sent.strange:
            yield f"{said} was answered, and never delivered"
        if sent.answers > 1:
            yield f"{said} was answered {sent.answers} times"

    def _is_lost(self, sent: Sent) -> bool:
        """Whether a message that had to come, or its answer, has not."""
        return sent.calm and (not sent.came or (sent.asks and sent.ends != ["answered"]))


class Taker(Worker):
    """A worker that is reached by an identity, notes what comes, answers, and sends.

    Args:
        ledger: The messages.
        host: The name of its node.
        identity: The identity that it is reached by: its own, or that of its node.
        banned: When its node has banned which identities, in seconds of the loop.
    """

    def __init__(
        self, ledger: Ledger, host: str, identity: Identity, banned: dict[Identity, float]
    ) -> None:
        super().__init__()
        self.identity: Final = identity
        self.host: Final = host
        self._ledger: Final = ledger
        self._banned: Final = banned

    def handle_message(self, message: Message) -> None:
        """Note a message, and answer it if it can be."""
        ledger, payload = self._ledger, message.payload
        source = self._source_of(message)
        if read_error_reply(message) is not None:
            return
        if source is not None and self._banned.get(source, 1e9) < self.node.loop.time():
            ledger.complain(f"{self.host} has a message of an identity that it has banned")
        sent = ledger.find(payload)
        if sent is None:
            if source not in ledger.strange:
                ledger.complain(f"{self.host} has {payload!r}, which was not sent")
            return
        if payload == sent.answer:
            self._answered(sent, source)
            return
        ledger.counts["messages delivered"] += 1
        sent.came.append((self.host, str(self.address)))
        if sent.target != self.identity:
            ledger.complain(f"{sent.number} is at {self.host}, and was for another identity")
        if source is not None and source != sent.source and source not in sent.nodes:
            ledger.complain(f"{sent.number} has a wrong source at {self.host}")
        if message.return_route:
            try:
                self.reply(message, sent.answer)
            except OnwardError as error:
                error.lost = None

    def _answered(self, sent: Sent, source: Identity | None) -> None:
        """Note the answer to a message without a request."""
        sent.answers += 1
        self._ledger.counts["answers without a request"] += 1
        if sent.source != self.identity and source not in self._ledger.strange:
            self._ledger.complain(f"the answer to {sent.number} is at {self.host}")
        if source is not None and source != sent.target and source not in self._ledger.strange:
            self._ledger.complain(f"the answer to {sent.number} has a wrong source")

    def _source_of(self, message: Message) -> Identity | None:
        """Return the identity that a message is of; `None` for one of this node."""
        link = None if message.source is None else self.node.parts.table.worker_at(message.source)
        return link.identity if isinstance(link, Correspondent) else None
