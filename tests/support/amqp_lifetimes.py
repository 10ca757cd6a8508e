"""Peers that end links and sessions in any order, while something still refers to them.

It is for a process of its own, since what is looked for damages its memory:

    python -m tests.support.amqp_lifetimes FIRST COUNT

Each number is the seed of a run. A run has an engine, and a peer of Proton that does what a peer
may do. References to links and deliveries of the engine are held for a while, as by a message
without an outcome yet, and are dropped in any order. As long as the engine has its connection, it
alone may give a session back: a session that goes with the last reference to a link of it takes the
link with it, which the library frees again. The process ends just before.
"""

from __future__ import annotations

import gc
import importlib
import os
import random
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any, Final, NoReturn

from onward.transports.amqp._client_engine import ClientEngine, Login
from onward.transports.amqp._deliveries import Delivery
from onward.transports.amqp._engine import (
    AmqpEngine,
    DeliveryChanged,
    EngineEvent,
    LinkAttached,
    LinkDetached,
    Opened,
)
from onward.transports.amqp._options import AmqpOptions
from onward.transports.amqp._proton import load_proton

OPTIONS: Final = AmqpOptions(max_frame=4096, max_sessions=12, max_links=24)
STEPS: Final = 120
"""The actions of a run."""

FREED_EARLY: Final = 3
"""The status of the process once a session goes with a link of it."""

_proton: Any = importlib.import_module("proton")
_wrapper: Any = importlib.import_module("proton._wrapper")


class Mark:
    """An object in the attributes of a session of Proton, which goes before the session."""

    def __init__(self, run: Run) -> None:
        self._run = run

    def __del__(self) -> None:
        if self._run.bound and (self._run.dropping or _in_end_of_link(sys._getframe())):
            _freed_early()


def _in_end_of_link(frame: FrameType | None) -> bool:
    """Whether a frame is called as an object of Proton's package for a link ends."""
    ends = _wrapper.Wrapper.__del__.__code__
    while frame is not None:
        if frame.f_code is ends and isinstance(frame.f_locals["self"], _proton.Link):
            return True
        frame = frame.f_back
    return False


def _freed_early() -> NoReturn:
    os.write(2, b"a session has gone with a link of it\n")
    os._exit(FREED_EARLY)


class Run:
    """A run: an engine, its peer, and what is held.

    Args:
        seed: What decides on everything.

    Attributes:
        bound: Whether the engine has its connection still.
        dropping: Whether a reference to a link or a delivery is being dropped.
    """

    def __init__(self, seed: int) -> None:
        self.bound = True
        self.dropping = False
        self._random = random.Random(seed)
        self._client = self._random.random() < 0.3
        self._held: list[object] = []
        self._links: list[Any] = []  # of the engine, which are not freed
        self._names = 0
        self._peer: Any = _proton.Connection()
        mode = _proton.Transport.SERVER if self._client else _proton.Transport.CLIENT
        self._transport: Any = _proton.Transport(mode)
        self._collector: Any = _proton.Collector()
        self._peer.container = "peer"
        self._peer.collect(self._collector)
        if self._client:
            self._transport.channel_max = 12
            self._transport.sasl().allowed_mechs("ANONYMOUS")
        self._transport.bind(self._peer)
        self._peer.open()
        self._sessions: list[Any] = []
        self._theirs: list[Any] = []
        self._engine = (
            ClientEngine(load_proton(), "engine", OPTIONS, Login("localhost"))
            if self._client
            else AmqpEngine(load_proton(), "engine", OPTIONS)
        )

    def __call__(self) -> None:
        """Do what the seed says."""
        actions: list[Callable[[], object]] = [
            *(self._begin, self._end, self._flow, self._collect),
            *[self._attach] * 4,
            *[self._detach] * 2,
            *[self._deliver] * 4,
            *[self._own_action] * 4,
            *[self._drop] * 3,
            *[self._pump] * 6,
        ]
        for _ in range(STEPS):
            self._random.choice(actions)()
        if self._random.random() < 0.3:
            self._peer.close()
        self._pump()
        while self._held and self._random.random() < 0.8:
            self._drop()
        self._engine.release()
        self.bound = False
        self._links.clear()
        self._random.shuffle(self._held)
        while self._held:
            self._held.pop()
        gc.collect()
        self._transport.unbind()
        self._peer.free()

    # --- the peer -------------------------------------------------------------------------------

    def _one(self, of: list[Any]) -> Any:
        return self._random.choice(of) if of else None

    def _name(self) -> str:
        self._names += 1
        return f"link-{self._names}"

    def _begin(self) -> None:
        if not self._client and len(self._sessions) < 8:
            made = self._peer.session()
            made.open()
            self._sessions.append(made)

    def _end(self) -> None:
        # The end of the first one of a client ends its connection.
        first = self._client and self._random.random() < 0.9
        if (session := self._one(self._sessions[first:])) is not None:
            self._sessions.remove(session)
            session.close()

    def _attach(self) -> None:
        if (session := self._one(self._sessions)) is None or len(self._theirs) > 20:
            return
        made = self._random.choice((session.sender, session.receiver))(self._name())
        made.source.address = made.target.address = "a"
        made.open()
        self._theirs.append(made)

    def _detach(self) -> None:
        if (link := self._one(self._theirs)) is not None:
            self._theirs.remove(link)
            self._random.choice((link.close, link.detach))()

    def _flow(self) -> None:
        if (link := self._one(self._theirs)) is not None and link.is_receiver:
            link.flow(self._random.randrange(1, 5))

    def _deliver(self) -> None:
        link = self._one(self._theirs)
        if link is None or link.is_receiver:
            return
        word = self._random.choice(("send", "begin", "settle", "abort"))
        delivery = link.current or link.delivery(self._name())
        if word == "abort":
            delivery.abort()
            return
        link.stream(b"x" * self._random.randrange(1, 9000))
        if word != "begin":
            link.advance()
        if word == "settle":
            delivery.settle()

    def _peer_events(self) -> None:
        while (event := self._collector.peek()) is not None:
            kind = event.type.method
            if kind == "on_session_remote_open":
                if self._client and event.session not in self._sessions:
                    event.session.open()
                    self._sessions.append(event.session)
            elif kind == "on_link_remote_open":
                if event.link.state & event.link.LOCAL_UNINIT and self._random.random() < 0.8:
                    event.link.open()
                    self._theirs.append(event.link)
            elif kind == "on_session_remote_close" and event.session in self._sessions:
                self._sessions.remove(event.session)
                event.session.close()
            self._collector.pop()

    # --- the engine -----------------------------------------------------------------------------

    def _pump(self) -> None:
        for _ in range(self._random.choice((1, 2, 5))):
            if (size := self._transport.pending()) > 0:
                data = bytes(self._transport.peek(size))
                self._transport.pop(len(data))
                self._engine.receive(data)
            for event in self._engine.events():
                self._handle(event)
            if self._random.random() < 0.2:
                return  # what is answered waits
            answer = self._engine.data_to_send(1 << 20)
            while answer and (room := self._transport.capacity()) > 0:
                self._transport.push(answer[:room])
                answer = answer[room:]
            self._peer_events()

    def _handle(self, event: EngineEvent) -> None:
        chance = self._random.random()
        match event:
            case Opened():
                self._engine.open()
            case LinkAttached(link):
                self._attached(link, chance)
            case LinkDetached():
                self._detached(event, chance)
            case DeliveryChanged(_, delivery):
                if chance < 0.6:
                    self._held.append(Delivery(self._engine.binding, delivery))
            case _:
                pass

    def _attached(self, link: Any, chance: float) -> None:
        link.session.mark = Mark(self)
        self._links.append(link)
        if chance < 0.7:
            self._held.append(link)
        if chance < 0.9:
            link.open()
        if link.is_receiver:
            link.flow(10)

    def _detached(self, event: LinkDetached, chance: float) -> None:
        if chance < 0.4:
            self._held.append(event)
        if 0.2 < chance < 0.4 and not event.ended:
            return
        if event.closed:
            event.link.close()
        else:
            event.link.detach()
        if event.ended or chance < 0.8:
            self._free(event.link)

    def _free(self, link: Any) -> None:
        if link in self._links:
            self._links.remove(link)
        self._engine.free(link)

    def _own_action(self) -> None:
        """Do something with a link at this end, or attach one."""
        engine = self._engine
        if isinstance(engine, ClientEngine) and self._random.random() < 0.4:
            if engine.opened and not engine.closed:
                receives = self._random.random() < 0.5
                # As for a circuit.
                link: Any = engine._link_of_circuit("a", receives=receives)
                link.open()
                self._held.append(link)
            return
        if (link := self._one(self._links)) is None:
            return
        match self._random.randrange(6):
            case 0:
                link.close()
            case 1:
                link.detach()
            case 2 if link.is_receiver:
                while self._engine.binding.read(link):
                    pass
                link.advance()
            case 3 if not link.is_receiver:
                self._held.append(self._engine.binding.begin(link, self._name().encode()))
                link.stream(b"y" * self._random.randrange(1, 9000))
                if self._random.random() < 0.7:
                    link.advance()
            case 4 if self._random.random() < 0.3:
                self._free(link)
            case _:
                self._held.append(link)

    # --- what is held ---------------------------------------------------------------------------

    def _drop(self) -> None:
        if not self._held:
            return
        dropped = self._held.pop(self._random.randrange(len(self._held)))
        if isinstance(dropped, Delivery) and self._random.random() < 0.3:
            dropped.settle()
        self.dropping = True
        if self._random.random() < 0.2:
            # With others, in a cycle that the collector finds.
            cycle = [dropped, self._held[-2:]]
            del self._held[-2:]
            cycle.append(cycle)
            del cycle
        del dropped
        self.dropping = False

    def _collect(self) -> None:
        self.dropping = True
        gc.collect()
        self.dropping = False


def main(first: int, count: int) -> None:
    """Do as many runs, each with its number as the seed."""
    gc.freeze()  # what is there already is not looked through each time
    for seed in range(first, first + count):
        Run(seed)()
    print(f"{count} runs")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
