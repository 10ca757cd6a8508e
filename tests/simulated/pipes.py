"""A pipe over five hops of a bad network, and what has to be true of it whatever the seed.

Six nodes in a line, a forwarder on each of the four between; each link loses, duplicates and
reorders messages, and once the line is cut somewhere for a while: mostly shorter than the sender
waits, sometimes longer, so that it gives up. All of it is drawn from the seed.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from typing import Final
from unittest import mock

from onward.actors import Mailbox, Node, Worker
from onward.actors.pipes import PipeReceiver, PipeSender
from onward.protocol import Address, Message
from onward.protocol.pipes import (
    Broken,
    Confirm,
    Gap,
    Missed,
    PipeOptions,
    PipeReceiverOptions,
    Receiver,
)
from onward.transports.simulated import Faults, SimulatedNetwork, simulate

NODES: Final = "abcdef"
MESSAGES: Final = 40
GIVE_UP: Final = 4.0
OPTIONS: Final = PipeOptions(
    frame_messages=4, window=64, first_timeout=0.2, max_timeout=0.5, give_up=GIVE_UP
)
RECEIVER: Final = PipeReceiverOptions(window=64, gap_timeout=20.0, stall_timeout=10.0)
SETTLED: Final = 60.0
"""Most time, in seconds, that a run may take after the last message was sent."""


@dataclass
class Outcome:
    """What one run came to.

    Attributes:
        handed: Messages handed on at the far end, in order, by their numbers.
        in_doubt: Messages that the sender reported in doubt.
        missed: Messages that the sender was told were missed.
        unsent: Messages that the sender reported as not sent.
        gaps: Numbers of messages that the receiver reported as missed.
        sent: Messages that went into the pipe.
        frames: Messages that all links sent.
        lost: Messages that links lost, those lost by the partition included.
        duplicated: Messages that links duplicated.
        overtaken: Messages that came behind a later one.
        resent: Frames that the sender sent again.
        duplicates: Messages that the receiver dropped, as they came again.
        gave_up: Whether a pipe broke, or the receiver went on without a message.
        ended: Whether the pipe was ended, and its worker has stopped; `None` if it was not.
    """

    handed: list[int] = field(default_factory=list[int])
    in_doubt: list[int] = field(default_factory=list[int])
    missed: list[int] = field(default_factory=list[int])
    unsent: list[int] = field(default_factory=list[int])
    gaps: int = 0
    sent: int = 0
    frames: int = 0
    lost: int = 0
    duplicated: int = 0
    overtaken: int = 0
    resent: int = 0
    duplicates: int = 0
    gave_up: bool = False
    ended: bool | None = None

    def accounted(self) -> bool:
        """Tell whether every message that was sent has been handed on or reported."""
        return set(range(self.sent)) <= {*self.handed, *self.reported}

    @property
    def reported(self) -> list[int]:
        """Messages that the sender reported in any way."""
        return [*self.in_doubt, *self.missed, *self.unsent]


def violations(outcome: Outcome) -> list[str]:
    """Say what is not as promised: strict order, at most once, and nothing unaccounted for."""
    found: list[str] = []
    handed = outcome.handed
    if twice := [number for number, times in Counter(handed).items() if times > 1]:
        found.append(f"handed on more than once: {twice}")
    if any(after < before for before, after in pairwise(handed)):
        found.append(f"not in order: {handed}")
    if lost := sorted(set(range(outcome.sent)) - {*handed, *outcome.reported}):
        found.append(f"neither handed on nor reported: {lost}")
    if wrong := sorted({*outcome.missed, *outcome.unsent} & set(handed)):
        found.append(f"reported as not delivered, and handed on: {wrong}")
    if not outcome.gave_up and handed != list(range(outcome.sent)):
        found.append(f"the pipe held, and delivered {handed}")
    if outcome.ended is False:
        found.append("the pipe was ended, and its worker still runs")
    return found


class Onward(Worker):
    """Passes on to the next node."""

    def __init__(self, link: Address) -> None:
        super().__init__()
        self._link = link

    def handle_message(self, message: Message) -> None:
        self.route(message.redirect(self._link))


class Sink(Worker):
    """Notes what is handed on."""

    def __init__(self, outcome: Outcome) -> None:
        super().__init__()
        self._outcome = outcome

    def handle_message(self, message: Message) -> None:
        self._outcome.handed.append(int.from_bytes(message.payload))


def draw_faults(draw: random.Random) -> Faults:
    """Draw what goes wrong on each hop."""
    least = draw.uniform(0.0005, 0.01)
    return Faults(
        latency=(least, least + draw.uniform(0, 0.03)),
        loss=draw.uniform(0, 0.06),
        duplicate=draw.uniform(0, 0.06),
        reorder=draw.uniform(0, 0.25),
        reorder_by=draw.uniform(0, 0.2),
    )


async def line(network: SimulatedNetwork, names: str) -> tuple[Node, Node, list[Address]]:
    """Join nodes in a line; return the first, the last, and the hops between them."""
    nodes = [await network.node(name) for name in names]
    links: list[Address] = []
    for node, following in pairwise(nodes):
        name = following.name
        await following.listen(f"sim://{name}", expose=["on", "pipe", "sink"])
        links.append(await node.connect(f"sim://{name}"))
    for node, link in zip(nodes[1:], links[1:], strict=False):
        await node.start(partial(Onward, link), address="on")
    return nodes[0], nodes[-1], [links[0], *[Address(0, b"on")] * (len(names) - 2)]


async def five_hops(network: SimulatedNetwork, seed: int) -> Outcome:
    """Send messages through a pipe over five hops, and wait until each is accounted for."""
    draw = random.Random(f"{seed}/five hops")
    outcome = Outcome()
    first, last, hops = await line(network, NODES)
    await last.start(lambda: Sink(outcome), address="sink")
    receiver = PipeReceiver(RECEIVER, on_gap=lambda gap: _gap(outcome, gap))
    await last.start(lambda: receiver, address="pipe")
    sender = PipeSender(
        [*hops, "pipe"],
        OPTIONS,
        on_missed=lambda missed: _missed(outcome, missed),
        on_broken=lambda broken: _broken(outcome, broken),
    )
    await first.start(lambda: sender, address="pipe", mailbox=Mailbox(MESSAGES))
    cut = asyncio.create_task(_partition(network, draw))
    while outcome.sent < MESSAGES:
        for _ in range(draw.randint(1, 12)):
            if outcome.sent < MESSAGES:
                first.send("pipe => sink", outcome.sent.to_bytes(4))
                outcome.sent += 1
        await asyncio.sleep(draw.choice((0.001, 0.02, 0.3)))
    await cut
    loop = asyncio.get_running_loop()
    settled = loop.time() + SETTLED
    while loop.time() < settled and not outcome.accounted():  # noqa: ASYNC110 - virtual time
        await asyncio.sleep(0.25)
    await asyncio.sleep(1.0)  # for what comes once more
    _count(network, sender, receiver, outcome)
    if draw.random() < 0.5 and outcome.accounted():
        await sender.end()
        await asyncio.sleep(0.1)
        outcome.ended = not first.has("pipe")
    return outcome


async def _partition(network: SimulatedNetwork, draw: random.Random) -> None:
    at = draw.randint(1, len(NODES) - 1)
    long = draw.random() < 0.1
    await asyncio.sleep(draw.uniform(0, 0.5))
    network.partition(set(NODES[:at]), set(NODES[at:]))
    await asyncio.sleep(GIVE_UP + 2 if long else draw.uniform(0.05, 2))
    network.heal()


def _missed(outcome: Outcome, missed: Missed) -> None:
    outcome.missed += [int.from_bytes(message.payload) for message in missed.messages]
    outcome.gave_up = True


def _broken(outcome: Outcome, broken: Broken) -> None:
    outcome.in_doubt += [int.from_bytes(message.payload) for message in broken.in_doubt]
    outcome.unsent += [int.from_bytes(message.payload) for message in broken.unsent]
    outcome.gave_up = True


def _gap(outcome: Outcome, gap: Gap) -> None:
    outcome.gaps += gap.last - gap.first + 1


def _count(
    network: SimulatedNetwork, sender: PipeSender, receiver: PipeReceiver, outcome: Outcome
) -> None:
    traffic = network.traffic()
    outcome.frames = traffic.sent
    outcome.lost = traffic.lost + traffic.cut
    outcome.duplicated = traffic.copied
    outcome.overtaken = traffic.overtaken
    outcome.resent = sender.statistics().resent
    outcome.duplicates = receiver.statistics().duplicates


def run(seed: int) -> Outcome:
    """Do one run."""
    draw = random.Random(f"{seed}/faults")
    return simulate(lambda network: five_hops(network, seed), seed=seed, faults=draw_faults(draw))


def checked_run(seed: int) -> tuple[int, Outcome | None, list[str]]:
    """Do one run and check it; an error in it is a violation too."""
    try:
        outcome = run(seed)
    except Exception as error:
        return seed, None, [f"{type(error).__name__}: {error}"]
    return seed, outcome, violations(outcome)


# --- pipes that are broken on purpose ---------------------------------------------------------


class ForgetsDuplicates(Receiver):
    """Hands on again what comes again."""

    def _take(self, first: int, messages: tuple[Message, ...]) -> None:
        if first < self._next:
            self._add_ready(first, messages)
        super()._take(first, messages)


class ConfirmsTooSoon(Receiver):
    """Confirms the latest that has come, whatever is missing before it."""

    def _confirmation(self) -> Confirm:
        latest = max(self._held, default=self._next - 1)
        return Confirm(self.identity, self.epoch, latest)


class HoldsNothingBack(Receiver):
    """Hands on what comes when it comes."""

    def _hold(self, number: int, message: Message) -> None:
        self._early.add(number)
        self._add_ready(number, (message,))


BROKEN: Final = (ForgetsDuplicates, ConfirmsTooSoon, HoldsNothingBack)


def run_broken(seed: int, kind: type[Receiver]) -> Outcome:
    """Do one run with a receiver that is broken on purpose."""
    with mock.patch("onward.actors.pipes._receiving.Receiver", kind):
        return run(seed)
