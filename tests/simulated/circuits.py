"""Circuits over simulated nodes, and what has to be true of them whatever the seed.

Three to five nodes, joined at random, with containers of names that do nothing, attach again or
resume after a loss. Ends attach, give credit, send in parts, settle, drain and detach as they like;
links are cut and joined, and become slow; nodes crash and are started again; containers come and
go. At any time it holds that what a consumer gets was sent by one producer, in its order and once,
and that no node sees a frame that may not come. Once all is healed, that each end has a circuit
with an end that agrees about credit and what is unsettled, or knows that it has none; and when all
have detached, that no table has anything left.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from onward.actors import Node
from onward.actors.dispatch import DISPATCH, CircuitContainer, CircuitLink, Dispatcher
from onward.protocol import Address, OnwardError
from onward.protocol.dispatch import (
    CircuitAttach,
    CircuitMisuse,
    DetachKind,
    Mechanism,
    Reattach,
    RoutingPattern,
    Semantics,
)
from onward.transports.simulated import Faults, SimulatedNetwork, simulate

TROUBLE: Final = 20.0
"""Time for which something happens, in seconds."""
CALM: Final = 150.0
"""Time after which all ends have a circuit, or know that there is none, in seconds."""
FORBIDDEN: Final = "bad-frame", "credit-exceeded", "unsettled-exceeded", "end-failed"
"""Conditions of circuits of which a part has broken the protocol."""
NAMES: Final = {
    "no": Semantics(mechanism=Mechanism.LINK),
    "again": Semantics(mechanism=Mechanism.LINK, reattach=Reattach.AGAIN),
    "resume": Semantics(mechanism=Mechanism.LINK, reattach=Reattach.RESUME),
    "direct": Semantics(
        mechanism=Mechanism.LINK, reattach=Reattach.RESUME, pattern=RoutingPattern.DIRECT
    ),
}
WEIGHTS: Final = {
    "attach": 12,
    "act": 60,
    "detach": 3,
    "cut": 3,
    "join": 6,
    "slow": 2,
    "crash": 1,
    "start": 4,
    "serve": 3,
    "close": 1,
}
"""How often each thing happens, relative to the others."""


class SeenCircuits(Dispatcher):
    """A dispatcher of which the tables are seen."""

    def tables(self) -> Counter[str]:
        """Return the sizes of the tables that end up empty."""
        it = self._core.circuits
        return +Counter(
            {
                "circuits": self.statistics().circuits,
                "sides": len(it._sides),
                "labels": len(it._labels),
                "placed": len(it._placed),
                "ends": len(it._links),
                "resumable": len(it._resumable),
                "work": len(it._work),
            }
        )


@dataclass
class Run:
    """What has happened in a run.

    Attributes:
        ends: All ends.
        sent: By the tag of a delivery, the number of its producer and of the delivery there.
        happened: What has happened, and how often.
        wrong: What was seen not to be as promised.
    """

    ends: list[End] = field(default_factory=list["End"])
    sent: dict[bytes, tuple[int, int]] = field(default_factory=dict[bytes, tuple[int, int]])
    happened: Counter[str] = field(default_factory=Counter[str])
    wrong: list[str] = field(default_factory=list[str])


class End:
    """An end that does what the seed says.

    Attributes:
        link: What it calls.
        over: Whether it knows that it has no circuit, and will have none.
        up: Whether it knows that it has one.
    """

    link: CircuitLink

    def __init__(self, run: Run, draw: random.Random, host: str) -> None:
        self.number = len(run.ends)
        self.host = host
        self.up = self.over = self.dead = False
        self._run = run
        self._draw = draw
        self._open: bytes | None = None
        self._sent = 0
        self._got: dict[int, int] = {}
        self._part: bytes | None = None
        run.ends.append(self)

    def act(self) -> None:
        """Do one thing that the end may do."""
        link, draw = self.link, self._draw
        if not link.attached:
            return
        with suppress(CircuitMisuse):
            if link.unsettled and draw.random() < 0.3:
                tag = draw.choice(link.unsettled)[0]
                settled = link.producer or draw.random() < 0.7
                link.dispose(tag, draw.randbytes(2), settled=settled)
            elif not link.producer:
                link.grant(draw.randint(0, 4), drain=draw.random() < 0.2)
            elif link.draining and draw.random() < 0.5:
                link.drained()
            else:
                self._send()

    def _send(self) -> None:
        more = self._draw.random() < 0.3
        tag = self._open
        if tag is None:
            if not self.link.has_credit():
                return
            self._sent += 1
            tag = b"%d.%d" % (self.number, self._sent)
            self._run.sent[tag] = self.number, self._sent
            settled = self._draw.random() < 0.2
            self.link.send(tag, b"begin", more=more, settled=settled)
        else:
            aborted = not more and self._draw.random() < 0.3
            self.link.send(tag, b"" if aborted else b"more", more=more, aborted=aborted)
        self._open = tag if more else None

    # --- what it is told --------------------------------------------------------------------

    def attached(self, properties: bytes) -> None:
        """Record that there is a circuit."""
        del properties
        self.up = True

    def refused(self, condition: str, description: str) -> None:
        """Record that there is none."""
        del condition, description
        self._ended(over=True)

    def down(self, how: DetachKind, condition: str, description: str, again: bool) -> None:
        """Record that there is none any more."""
        del how, description
        if condition in FORBIDDEN:
            self._run.wrong.append(f"end {self.number}: {condition}")
        self._ended(over=not again)

    def _ended(self, *, over: bool) -> None:
        self.up, self._open, self._part = False, None, None
        self.over = over

    def flow(self, credit: int, drain: bool) -> None:
        """Use credit at once, now and then."""
        del credit
        if drain and self._draw.random() < 0.5:
            self.link.drained()

    def drained(self, credit: int) -> None:
        """Record nothing."""

    def transfer(
        self, tag: bytes, payload: bytes, more: bool, aborted: bool, settled: bool
    ) -> None:
        """Check that a part comes in its order."""
        del settled
        begins = self._part is None
        if begins is not (payload == b"begin") or (not begins and tag != self._part):
            self._run.wrong.append(f"end {self.number}: a part of {tag!r} in the wrong place")
        if begins:
            producer, number = self._run.sent.get(tag, (-1, 0))
            if number <= self._got.get(producer, 0):
                self._run.wrong.append(f"end {self.number}: {tag!r} twice, or out of order")
            self._got[producer] = number
        if aborted and begins:
            self._run.wrong.append(f"end {self.number}: {tag!r} was aborted before it came")
        self._part = tag if more else None

    def disposition(self, tag: bytes, state: bytes, settled: bool) -> None:
        """Record nothing."""

    def unresolved(self, tag: bytes) -> None:
        """Record nothing."""

    def ready(self) -> None:
        """Record nothing."""


class Scenario:
    """A run of a seed.

    Args:
        network: The network.
        seed: The seed.
    """

    def __init__(self, network: SimulatedNetwork, seed: int) -> None:
        self.run: Final = Run()
        self._network = network
        self._draw = random.Random(seed)
        self._hosts = "abcde"[: self._draw.randint(3, 5)]
        pairs = [(a, b) for a in self._hosts for b in self._hosts if a < b]
        row = list(zip(self._hosts, self._hosts[1:], strict=False))
        self._pairs = row + [
            each for each in pairs if each not in row and self._draw.random() < 0.3
        ]
        self._at: dict[str, SeenCircuits] = {}
        self._links: dict[tuple[str, str], Address] = {}
        self._containers: list[tuple[str, CircuitContainer]] = []

    async def play(self) -> Run:
        """Let trouble happen, then heal, and check what is then."""
        for host in self._hosts:
            await self._start(host, await self._network.node(host))
        await self._heal()
        await asyncio.sleep(10)
        until = asyncio.get_running_loop().time() + TROUBLE
        while asyncio.get_running_loop().time() < until:
            await self._happen()
            await asyncio.sleep(self._draw.choice((0.0, 0.01, 0.1, 0.3)))
        await self._heal()
        await asyncio.sleep(CALM)
        self._check()
        for end in self.run.ends:
            if not end.dead:
                end.link.detach(closed=True)
        await asyncio.sleep(CALM)
        for host, dispatcher in self._at.items():
            left = dispatcher.tables()
            if left:
                self.run.wrong.append(f"{host} has {dict(left)} left")
            self.run.wrong += [
                f"{host}: {what}"
                for what in dispatcher.statistics().counts
                if any(each in what for each in FORBIDDEN)
            ]
        return self.run

    async def _start(self, host: str, node: Node) -> None:
        dispatcher = await SeenCircuits.attach(node)
        assert isinstance(dispatcher, SeenCircuits)
        self._at[host] = dispatcher
        for name, semantics in NAMES.items():
            dispatcher.provision(name, semantics)
        await node.listen(f"sim://{host}", expose=[DISPATCH])

    async def _happen(self) -> None:
        draw = self._draw
        what = draw.choices([*WEIGHTS], [*WEIGHTS.values()])[0]
        self.run.happened[what] += 1
        host, pair, name = draw.choice(self._hosts), draw.choice(self._pairs), draw.choice([*NAMES])
        if what in {"attach", "act", "detach"}:
            self._at_end(what, host, name)
            return
        match what:
            case "cut":
                link = self._links.pop(pair, None)
                if link is not None and pair[0] in self._at:
                    with suppress(OnwardError):
                        await self._at[pair[0]].node.stop_worker(link)
            case "join":
                await self._join(pair)
            case "slow":
                self._network.set_faults(*pair, Faults(latency=(0.05, 0.2)))
            case "crash" if host in self._at and len(self._at) > 2:
                await self._crash(host)
            case "start" if host not in self._at:
                await self._start(host, await self._network.restart(host))
            case "serve" if host in self._at:
                self._serve(host, name)
            case "close" if self._containers:
                at, container = draw.choice(self._containers)
                if at in self._at:
                    container.close()
            case _:
                pass

    def _at_end(self, what: str, host: str, name: str) -> None:
        draw, run = self._draw, self.run
        alive = [each for each in run.ends if not each.dead and not each.over]
        if what == "attach" and host in self._at:
            end = End(run, draw, host)
            producer = draw.random() < 0.6
            end.link = self._at[host].open_circuit(name, end, producer=producer)
        elif what == "act" and alive:
            for _ in range(5):
                draw.choice(alive).act()
        elif alive:
            draw.choice(alive).link.detach(closed=draw.random() < 0.5)

    async def _crash(self, host: str) -> None:
        await self._network.crash(host)
        del self._at[host]
        self._containers = [each for each in self._containers if each[0] != host]
        for pair in [each for each in self._links if host in each]:
            del self._links[pair]
        for end in self.run.ends:
            end.dead = end.dead or end.host == host

    def _serve(self, host: str, name: str) -> None:
        def accept(attach: CircuitAttach, link: CircuitLink) -> End:
            del attach
            end = End(self.run, self._draw, host)
            end.link = link
            if self._draw.random() < 0.9:
                link.accept()
            else:
                link.refuse("shop:closed")
            return end

        with suppress(OnwardError):
            self._containers.append((host, self._at[host].serve_circuits(name, accept)))

    async def _join(self, pair: tuple[str, str]) -> None:
        one, other = pair
        if pair in self._links or one not in self._at or other not in self._at:
            return
        with suppress(OnwardError):
            self._links[pair] = await self._at[one].neighbour(f"sim://{other}")

    async def _heal(self) -> None:
        self._network.set_all_faults(Faults())
        for host in self._hosts:
            if host not in self._at:
                await self._start(host, await self._network.restart(host))
        for pair in self._pairs:
            await self._join(pair)
        for name in NAMES:
            self._serve(self._draw.choice(self._hosts), name)

    def _check(self) -> None:
        """Check that each end has a circuit, or knows that it has none."""
        by_key: dict[bytes, list[End]] = {}
        for end in self.run.ends:
            if end.dead:
                continue
            if end.link.attached is not end.up or end.link.attached is end.over:
                self.run.wrong.append(f"end {end.number} is {end.up=} {end.over=}")
            if end.link.attached:
                by_key.setdefault(end.link.key, []).append(end)
        for ends in by_key.values():
            numbers = [each.number for each in ends]
            states = {(each.link.credit, frozenset(each.link.unsettled)) for each in ends}
            if len(ends) != 2 or len(states) != 1:
                self.run.wrong.append(f"ends {numbers} have {states}")


def run_circuits(seed: int) -> Run:
    """Return what has happened in the run of a seed."""

    async def scenario(network: SimulatedNetwork) -> Run:
        return await Scenario(network, seed).play()

    return simulate(scenario, seed=seed)


def checked_run(seed: int) -> tuple[int, Run | None, list[str]]:
    """Return a seed, what has happened in its run, and what was not as promised."""
    try:
        run = run_circuits(seed)
    except Exception as error:
        return seed, None, [f"{type(error).__name__}: {error}"]
    run.ends.clear()  # links of a loop that is over
    return seed, run, run.wrong
