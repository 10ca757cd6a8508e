"""Clients of any make that send one request after the other, and the books that are kept of them.

Each request has a text of its own, which is in each element of a stream behind the number of the
element. Metadata pushes have no place for one in every make: they are counted.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import Final, NamedTuple

from tests.peers.clients import APPLICATION_ERROR, CANCELED, REJECTED, Ask, Destination
from tests.peers.programs import TIMEOUT
from tests.peers.rsocket_client import Outcome

__all__ = ["Handled", "Load", "Told", "finished", "loaded"]

CONNECTION_CLOSE: Final = 0x102
CONNECTION_ERROR: Final = 0x101
"""The code of the Python package for whatever ends a connection."""
AGAIN: Final = 0.05
"""Seconds before the next request if one could not be sent, or was REJECTED."""
ENDS: Final = ("clos", "reset", "epipe")
"""What is in the message of a library for the end of a connection, if there is a message."""
ELEMENTS: Final = 40
"""The length of a stream: eight times the credit that requesters give at a time."""
PUSHED: Final = "news"
"""The route of metadata pushes: the one that Onward's destination has a handler for."""
UNANSWERED: Final = frozenset({"fire_and_forget", "metadata_push"})
"""Interactions without an answer."""
COUNTED: Final = "metadata_push"
"""The interaction whose requests have no text of their own."""


class Handled:
    """What destinations got.

    Attributes:
        texts: How often each text came, as a request or as the first element of a channel.
        pushes: The metadata pushes by the name of the destination.
        at: The texts that each destination got, by its name.
    """

    def __init__(self) -> None:
        self.texts = Counter[str]()
        self.pushes = Counter[str]()
        self.at: dict[str, Counter[str]] = {}

    def note(self, name: str, interaction: str, text: str) -> None:
        """Note a request that a destination got."""
        if interaction == COUNTED:
            self.pushes[name] += 1
            return
        if interaction == "request_stream":
            text = text.partition(" ")[2]
        self.texts[text] += 1
        self.at.setdefault(name, Counter())[text] += 1

    async def record(self, name: str, destination: Destination) -> None:
        """Note what a destination gets, until its program ends."""
        self.at.setdefault(name, Counter())
        while True:
            try:
                received = await destination.received()
            except EOFError:
                return
            except (AssertionError, TimeoutError):
                continue  # it told of something else, as a cancellation; or of nothing for a while
            self.note(name, received.interaction, received.data)


class Told(NamedTuple):
    """A fire-and-forget that has left a client: its number, where it was to go, and its text."""

    number: int
    service: str
    text: str


class Load:
    """One client that sends one request after the other.

    Attributes:
        name: Its name; the texts of its requests begin with it.
        sent: The requests that were sent, or were to be.
        outcomes: What has become of the requests: `answered`, `told` for those that have no answer,
            `rejected`, `canceled`, `closed` for those that crossed the end of the connection,
            `unsent`, `failed` for other errors, or the outcome in words.
        texts: The texts of the requests by what has become of them.
        pushes: The metadata pushes by service, whatever has become of them.
        told: The fire-and-forgets that have left, in their order.
        cut: The streams and channels that an error ended after some elements.
        services: The services that are asked in turn.
        answered: Is set when one more was answered.
        over: Whether it ends with the request that it has sent.

    Args:
        name: Its name.
        ask: What sends a request.
        services: The services to ask in turn; by default the one that `ask` is for.
        interactions: The interactions to ask by in turn, all services by each.
        pause: Seconds between an answer and the next request.
    """

    def __init__(
        self,
        name: str,
        ask: Ask,
        services: Sequence[str] = ("",),
        interactions: Sequence[str] = ("request_response",),
        pause: float = 0.0,
    ) -> None:
        self.name = name
        self.sent = 0
        self.outcomes = Counter[str]()
        self.texts: dict[str, set[str]] = {}
        self.pushes = Counter[str]()
        self.told: list[Told] = []
        self.cut = 0
        self.answered = asyncio.Event()
        self.over = False
        self._pause = pause
        self._ask = ask
        self.services = tuple(services)
        self._interactions = itertools.cycle(interactions)

    async def run(self) -> None:
        """Send requests until it is over."""
        while not self.over:
            interaction = next(self._interactions)
            for service in self.services:
                kind = await self.one(interaction, service)
                await asyncio.sleep(self._pause if kind in {"answered", "told"} else AGAIN)
                if self.over:
                    return

    async def one(self, interaction: str, service: str) -> str:
        """Send one request, and return what became of it."""
        self.sent += 1

        text = f"{self.name}-{self.sent}"
        asked = f"{interaction}@{service}" if service else interaction
        argument, wanted = _spoken(interaction, text)
        number = self.sent
        try:
            outcome = await self._ask(asked, argument)
        except TimeoutError:
            kind = f"no answer to {asked}={argument}"
        else:
            kind = _kind_of(interaction, outcome, wanted)
            self.cut += kind != "answered" and bool(outcome.elements)
        self.outcomes[kind] += 1
        if interaction == COUNTED:
            self.pushes[service] += 1
        else:
            self.texts.setdefault(kind, set()).add(text)
        if (interaction, kind) == ("fire_and_forget", "told"):
            self.told.append(Told(number, service, text))
        if kind == "answered":
            self.answered.set()
        return kind

    def told_since(self, number: int | None) -> list[Told]:
        """Return the fire-and-forgets behind a request of this number; none if it is None."""
        return [] if number is None else [each for each in self.told if each.number > number]

    async def one_more(self) -> None:
        """Wait until a request is answered that was not when this was called."""
        self.answered.clear()
        await asyncio.wait_for(self.answered.wait(), TIMEOUT)


def _spoken(interaction: str, text: str) -> tuple[str, list[str]]:
    """Return the argument of a request with a text, and the words that its answers have."""
    match interaction:
        case "request_stream":
            return f"{ELEMENTS} {text}", [f"{number + 1} {text}" for number in range(ELEMENTS)]
        case "request_channel":
            words = [text, f"{text}/2", f"{text}/3"]
            return ",".join(words), words
        case "metadata_push":
            return PUSHED, []
        case "fire_and_forget":
            return text, []
        case _:
            return text, [text]


def _kind_of(interaction: str, outcome: Outcome, wanted: Sequence[str]) -> str:
    """Return what became of a request.

    An error may end a stream early, but the elements before it are the first ones, in their order.
    """
    message = (outcome.message or "").lower()
    words = [each.partition(" from ")[0] for each in outcome.elements]
    completed = outcome.code is None and outcome.message is None
    if words != list(wanted)[: None if completed else len(words)]:
        return f"wrong elements of {interaction}: {outcome}"
    if completed:
        return "told" if interaction in UNANSWERED else "answered"
    if outcome.code == REJECTED:
        return "rejected"
    if outcome.code == CANCELED:
        return "canceled"
    if outcome.code == APPLICATION_ERROR:
        return "failed"
    if outcome.code is None and any(word in message for word in ("refused", "lease")):
        return "unsent"
    ends = {CONNECTION_CLOSE, CONNECTION_ERROR, None}
    if outcome.code in ends and (
        outcome.code or not message or any(word in message for word in ENDS)
    ):
        return "closed"
    return f"{interaction}: {outcome}"


@asynccontextmanager
async def loaded(loads: Sequence[Load]) -> AsyncGenerator[None]:
    """Run them, once each has had an answer, and stop them in the end."""
    tasks = [asyncio.create_task(load.run()) for load in loads]
    try:
        for load in loads:
            await load.one_more()
        yield
        for load, task in zip(loads, tasks, strict=True):
            assert load.over or not task.done()
    finally:
        for load, task in zip(loads, tasks, strict=True):
            # Before Python 3.12 a `wait_for` that has its answer already forgets the cancellation.
            load.over = True
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def finished(loads: Sequence[Load]) -> None:
    """Have each client send no more, and wait until the request that it has sent has ended."""
    for load in loads:
        load.over = True
    async with asyncio.timeout(2 * TIMEOUT):
        while any(load.sent > load.outcomes.total() for load in loads):  # noqa: ASYNC110
            await asyncio.sleep(0.05)
