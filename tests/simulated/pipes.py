"""A pipe over five hops of a bad network, and what has to be true of it whatever the seed.

Six nodes in a line, a forwarder on each of the four between; each link loses, duplicates and
reorders messages, and once the line is cut somewhere for a while: mostly shorter than the sender
waits, sometimes longer, so that it gives up. Windows are small, the worker at the end is slow and
has a small mailbox, sometimes it does not move for longer than the receiver waits, and the
receiver, or the service that makes it, stops and starts anew. Some runs are calm: nothing is lost
and nothing is cut, so that hardly anything is left that a pipe may report. All of it is drawn from
the seed.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from typing import Final

from onward.actors import MailboxOptions, Node, Worker
from onward.actors.pipes import PipeReceiver, PipeSender, PipeService, PipeServiceOptions
from onward.protocol import Address, Message
from onward.protocol.pipes import Broken, Gap, Missed, PipeBroken, PipeOptions, PipeReceiverOptions
from onward.transports.simulated import Faults, SimulatedNetwork, simulate

NODES: Final = "abcdef"
GIVE_UP: Final = 4.0
GAP: Final = 20.0
STALL: Final = 10.0
SETTLED: Final = 60.0
"""Most time, in seconds, that a run may take after the last message was sent."""
REST: Final = 3.0
"""How long a run goes on when all is accounted for, in seconds: for what comes once more."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What happens in one run.

    Attributes:
        messages: Messages to send.
        window: The sender's window.
        receiver_window: The receiver's.
        mailbox: Messages that may wait for the worker at the end.
        pause: The longest pause of that worker, in seconds; it takes one now and then.
        stalls_at: The message at which it pauses for longer than the receiver waits, if any.
        service: Whether the pipe leads to a service, and not to a receiver.
        restarts: The receiver stops when so many messages have been handed on, but after a second
            at the latest, and is away for so many seconds; one after the other.
        cut: Where the line is cut, when and for how long, in seconds, if it is.
        calm: Whether nothing is lost or cut.
        faults: What goes wrong on each hop.
        end: When the pipe is ended: `"never"`, `"settled"`, or `"at once"` behind the last message.
    """

    messages: int
    window: int
    receiver_window: int
    mailbox: int
    pause: float
    stalls_at: int | None
    service: bool
    restarts: tuple[tuple[int, float], ...]
    cut: tuple[int, float, float] | None
    calm: bool
    faults: Faults
    end: str


@dataclass
class Outcome:
    """What one run came to.

    Attributes:
        plan: What was to happen.
        handed: Messages handed on at the far end, in order, by their numbers.
        in_doubt: Messages that the sender reported in doubt.
        missed: Messages that the sender was told were missed.
        unsent: Messages that the sender reported as not sent.
        gaps: Numbers of messages that the receiver reported as missed.
        sent: Messages that went into the pipe.
        breaks: Times that the pipe broke.
        most_in_doubt: Most messages in doubt after one break.
        most_unconfirmed: Most messages seen sent and not confirmed.
        most_held: Most messages seen at the receiver, not yet handed on.
        frames: Messages that all links sent.
        lost: Messages that links lost, those lost by the partition included.
        duplicated: Messages that links duplicated.
        overtaken: Messages that came behind a later one.
        resent: Frames that the sender sent again.
        duplicates: Messages that the receiver dropped, as they came again.
        ended: Whether the pipe was ended, and its worker has stopped; `None` if it was not.
    """

    plan: Plan
    handed: list[int] = field(default_factory=list[int])
    in_doubt: list[int] = field(default_factory=list[int])
    missed: list[int] = field(default_factory=list[int])
    unsent: list[int] = field(default_factory=list[int])
    gaps: int = 0
    sent: int = 0
    breaks: int = 0
    most_in_doubt: int = 0
    most_unconfirmed: int = 0
    most_held: int = 0
    frames: int = 0
    lost: int = 0
    duplicated: int = 0
    overtaken: int = 0
    resent: int = 0
    duplicates: int = 0
    ended: bool | None = None

    def accounted(self) -> bool:
        """Tell whether every message that was sent has been handed on or reported."""
        known = len(self.handed) + len(self.in_doubt) + len(self.missed) + len(self.unsent)
        return known >= self.sent and set(range(self.sent)) <= {*self.handed, *self.reported}

    @property
    def reported(self) -> list[int]:
        """Messages that the sender reported in any way."""
        return [*self.in_doubt, *self.missed, *self.unsent]


def violations(outcome: Outcome) -> list[str]:
    """Say what is not as promised: strict order, at most once, and nothing unaccounted for."""
    found: list[str] = []
    handed, reported = outcome.handed, outcome.reported
    if twice := [number for number, times in Counter(handed).items() if times > 1]:
        found.append(f"handed on more than once: {twice}")
    if any(after < before for before, after in pairwise(handed)):
        found.append(f"not in order: {handed}")
    if lost := sorted(set(range(outcome.sent)) - {*handed, *reported}):
        found.append(f"neither handed on nor reported: {lost}")
    if twice := [number for number, times in Counter(reported).items() if times > 1]:
        found.append(f"reported more than once: {twice}")
    if wrong := sorted({*outcome.missed, *outcome.unsent} & set(handed)):
        found.append(f"reported as not delivered, and handed on: {wrong}")
    if not reported and handed != list(range(outcome.sent)):
        found.append(f"the pipe held, and delivered {handed}")
    if outcome.ended is False:
        found.append("the pipe was ended, and its worker still runs")
    return found + _out_of_bounds(outcome) + _without_cause(outcome)


def _out_of_bounds(outcome: Outcome) -> list[str]:
    """Say what was more than a window allows."""
    plan = outcome.plan
    both = min(plan.window, plan.receiver_window)
    seen = (
        ("sent and not confirmed", outcome.most_unconfirmed, both),
        ("in doubt after a break", outcome.most_in_doubt, both),
        ("held by the receiver", outcome.most_held, plan.receiver_window),
    )
    return [f"{count} {what}, over {most}" for what, count, most in seen if count > most]


def _without_cause(outcome: Outcome) -> list[str]:
    """Say what was reported though nothing happened that a pipe could not deal with."""
    plan = outcome.plan
    found: list[str] = []
    if outcome.missed and plan.stalls_at is None:
        found.append(f"missed, and who is to take it was never slow for long: {outcome.missed}")
    if plan.calm and outcome.unsent:
        found.append(f"not sent, and nothing was lost: {outcome.unsent}")
    if plan.calm and outcome.breaks and not plan.restarts:
        found.append("broken, and the receiver was always there")
    return found


# --- what happens -----------------------------------------------------------------------------
def draw_plan(seed: int) -> Plan:
    """Draw what happens in a run."""
    draw = random.Random(f"{seed}/plan")
    calm = draw.random() < 0.2
    messages = round(40 * 10 ** (draw.random() ** 3))
    # After an early and short one comes what was sent to the receiver before.
    restarts = tuple(
        (draw.randint(1, draw.choice((10, messages))), draw.choice((0.0, draw.uniform(0, 2))))
        for _ in range(draw.choice((0, 0, 1, 1, 2)))
    )
    return Plan(
        messages=messages,
        window=draw.randint(4, 64),
        receiver_window=draw.randint(4, 64),
        mailbox=draw.choice((1, 4, 16, 64)),
        pause=draw.choice((0.0, 0.05, 0.3)),
        stalls_at=draw.randrange(messages) if draw.random() < 0.1 else None,
        service=draw.random() < 0.5,
        restarts=restarts,
        cut=None if calm or draw.random() < 0.1 else _draw_cut(draw),
        calm=calm,
        faults=_draw_faults(draw, calm),
        end=draw.choice(("never", "settled", "settled", "at once")),
    )


def _draw_faults(draw: random.Random, calm: bool) -> Faults:
    least = draw.uniform(0.0005, 0.01)
    return Faults(
        latency=(least, least + draw.uniform(0, 0.03)),
        loss=0.0 if calm else draw.uniform(0, 0.06),
        duplicate=draw.uniform(0, draw.choice((0.06, 0.06, 0.06, 0.3))),
        reorder=draw.uniform(0, 0.25),
        reorder_by=draw.uniform(0, draw.choice((0.2, 0.2, 0.2, 1.0))),
    )


def _draw_cut(draw: random.Random) -> tuple[int, float, float]:
    long = GIVE_UP + 2 if draw.random() < 0.1 else draw.uniform(0.05, 2)
    return draw.randint(1, len(NODES) - 1), draw.uniform(0, 1), long


# --- the workers ------------------------------------------------------------------------------
class Onward(Worker):
    """Passes on to the next node."""

    def __init__(self, link: Address) -> None:
        super().__init__()
        self._link = link

    def handle_message(self, message: Message) -> None:
        self.route(message.redirect(self._link))


class Sink(Worker):
    """Notes what is handed on."""

    def __init__(self, handed: list[int]) -> None:
        super().__init__()
        self._handed = handed

    def handle_message(self, message: Message) -> None:
        self._handed.append(int.from_bytes(message.payload))


class SlowSink(Worker):
    """Notes what is handed on, and takes its time."""

    def __init__(self, outcome: Outcome, seed: int, look: Callable[[], None]) -> None:
        super().__init__()
        self._outcome = outcome
        self._draw = random.Random(f"{seed}/sink")
        self._look = look
        self._stalls_at = outcome.plan.stalls_at

    async def handle_message(self, message: Message) -> None:
        self._outcome.handed.append(int.from_bytes(message.payload))
        self._look()
        pause = self._outcome.plan.pause
        if self._stalls_at is not None and len(self._outcome.handed) > self._stalls_at:
            self._stalls_at = None
            await asyncio.sleep(2 * STALL)
        elif pause and self._draw.random() < 0.2:
            await asyncio.sleep(self._draw.uniform(0, pause))


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


class FiveHops:
    """One run: the ends of a pipe, and all that happens to it.

    Args:
        network: Where.
        seed: What the run is drawn from.
        plan: What happens.
    """

    def __init__(self, network: SimulatedNetwork, seed: int, plan: Plan) -> None:
        self.outcome = Outcome(plan)
        self._network = network
        self._seed = seed
        self._plan = plan
        self._draw = random.Random(f"{seed}/five hops")
        self._ends: list[PipeReceiver | PipeService] = []
        self._restart_at = 0
        self._due = asyncio.Event()

    async def run(self) -> Outcome:
        """Send messages through a pipe over five hops, until each is accounted for."""
        plan, outcome = self._plan, self.outcome
        first, self._last, hops = await line(self._network, NODES)
        options = PipeOptions(
            frame_messages=4,
            window=plan.window,
            first_timeout=0.2,
            max_timeout=0.5,
            give_up=GIVE_UP,
        )
        self._sender = PipeSender(
            [*hops, "pipe"], options, on_missed=self._missed, on_broken=self._broken
        )
        mailbox = MailboxOptions(plan.messages + 10)
        await first.start(lambda: self._sender, address="pipe", mailbox=mailbox)
        await self._last.start(
            lambda: SlowSink(outcome, self._seed, self._look),
            address="sink",
            mailbox=MailboxOptions(plan.mailbox),
        )
        await self._start_end()
        troubles = [asyncio.create_task(each) for each in (self._restarts(), self._cut())]
        await self._send(first)
        if plan.end == "at once":
            await self._end(first)
        await asyncio.gather(*troubles)
        await self._settle()
        if plan.end == "settled" and outcome.accounted():
            await self._end(first)
        # It has handled what waits for it when it has stopped.
        await self._last.stop_worker("sink", timeout=10 * SETTLED)
        self._count()
        return outcome

    async def _start_end(self) -> None:
        options = PipeReceiverOptions(
            window=self._plan.receiver_window, gap_timeout=GAP, stall_timeout=STALL
        )
        end: PipeReceiver | PipeService
        if self._plan.service:
            end = PipeService(PipeServiceOptions(receiver=options), on_gap=self._gap)
        else:
            end = PipeReceiver(options, on_gap=self._gap)
        await self._last.start(lambda: end, address="pipe")
        self._ends.append(end)

    async def _restarts(self) -> None:
        for count, away in self._plan.restarts:
            self._restart_at += count
            self._due.clear()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._due.wait(), 1.0)
            await self._last.stop_worker("pipe")
            await asyncio.sleep(away)
            await self._start_end()

    async def _cut(self) -> None:
        if self._plan.cut is not None:
            at, after, long = self._plan.cut
            await asyncio.sleep(after)
            self._network.partition(set(NODES[:at]), set(NODES[at:]))
            await asyncio.sleep(long)
            self._network.heal()

    async def _send(self, first: Node) -> None:
        outcome, messages, draw = self.outcome, self._plan.messages, self._draw
        while outcome.sent < messages:
            for _ in range(draw.randint(1, messages // 4)):
                if outcome.sent < messages:
                    first.send("pipe => sink", outcome.sent.to_bytes(4))
                    outcome.sent += 1
            self._look()
            if outcome.sent < messages:
                await asyncio.sleep(draw.choice((0.001, 0.02, 0.3)))

    async def _settle(self) -> None:
        loop = asyncio.get_running_loop()
        settled = loop.time() + SETTLED
        while loop.time() < settled and not self.outcome.accounted():  # noqa: ASYNC110 - virtual
            await asyncio.sleep(0.25)
        await asyncio.sleep(REST)

    async def _end(self, first: Node) -> None:
        with suppress(PipeBroken):
            await self._sender.end(timeout=SETTLED)
        await asyncio.sleep(0.1)
        self.outcome.ended = not first.has("pipe")

    # --- what is noted ------------------------------------------------------------------------

    def _look(self) -> None:
        outcome, end = self.outcome, self._ends[-1]
        if len(outcome.handed) >= self._restart_at:
            self._due.set()
        unconfirmed = self._sender.statistics().unconfirmed
        outcome.most_unconfirmed = max(outcome.most_unconfirmed, unconfirmed)
        if isinstance(end, PipeReceiver):
            outcome.most_held = max(outcome.most_held, end.statistics().held)

    def _missed(self, missed: Missed) -> None:
        self.outcome.missed += [int.from_bytes(message.payload) for message in missed.messages]

    def _broken(self, broken: Broken) -> None:
        outcome = self.outcome
        outcome.breaks += 1
        outcome.most_in_doubt = max(outcome.most_in_doubt, len(broken.in_doubt))
        outcome.in_doubt += [int.from_bytes(message.payload) for message in broken.in_doubt]
        outcome.unsent += [int.from_bytes(message.payload) for message in broken.unsent]

    def _gap(self, gap: Gap) -> None:
        self.outcome.gaps += gap.last - gap.first + 1

    def _count(self) -> None:
        outcome, traffic = self.outcome, self._network.traffic()
        outcome.frames = traffic.sent
        outcome.lost = traffic.lost + traffic.cut
        outcome.duplicated = traffic.copied
        outcome.overtaken = traffic.overtaken
        outcome.resent = self._sender.statistics().resent
        receivers = [each for each in self._ends if isinstance(each, PipeReceiver)]
        outcome.duplicates = sum(each.statistics().duplicates for each in receivers)


def run(seed: int) -> Outcome:
    """Do one run."""
    plan = draw_plan(seed)
    return simulate(
        lambda network: FiveHops(network, seed, plan).run(), seed=seed, faults=plan.faults
    )


class Errors(logging.Handler):
    """Keeps what is logged as an error, as the failure of a worker or a timer is."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.found: list[str] = []
        self._loggers = [logging.getLogger(name) for name in ("onward", "asyncio")]

    def __enter__(self) -> list[str]:
        for each in self._loggers:
            each.addHandler(self)
            each.propagate = False
        return self.found

    def __exit__(self, *_: object) -> None:
        for each in self._loggers:
            each.removeHandler(self)
            each.propagate = True

    def emit(self, record: logging.LogRecord) -> None:
        self.found.append(f"logged: {record.getMessage()}")


def checked_run(seed: int) -> tuple[int, Outcome | None, list[str]]:
    """Do one run and check it; an error in it, or one that is logged, is a violation too."""
    with Errors() as errors:
        try:
            outcome = run(seed)
        except Exception as error:
            return seed, None, [f"{type(error).__name__}: {error}", *errors]
    return seed, outcome, violations(outcome) + errors
