"""What the models of clusters share: brokers in virtual time, and what happens to them.

What is real: the state machines of `onward.protocol.cluster`, the routing tables, and the bytes of
each element, list and comparison. What is a model: the network (0.2 to 2 ms, ordered, a silent end
is noticed after five to six seconds), and the destinations. Computing takes no time.
"""

from __future__ import annotations

import random
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Generic, TypeVar

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from tests.simulated.cluster_broker import Broker, Connection
from tests.simulated.cluster_network import Clockwork, Network

B = TypeVar("B", bound=Broker)

DELAYS: Final = (0.0002, 0.002)
PATIENCE: Final = 200.0


@dataclass(frozen=True, slots=True)
class Setting:
    """The figures in which the models differ.

    Attributes:
        routes: The least and the largest number of destinations of a broker.
        startup: Time within which all brokers start, in seconds.
        step: The resolution of times, in seconds.
        partition: Time for which half of the brokers are cut off, in seconds.
        joining: Destinations of the broker that joins.
        pace: Time between two brokers of a rolling restart, in seconds.
        counted: The messages that are counted.
    """

    routes: tuple[int, int]
    startup: float
    step: float
    partition: float
    joining: int
    pace: float
    counted: tuple[str, ...]


class Destination:
    """A destination that a broker holds a connection of."""

    def __init__(self, number: int) -> None:
        self.route_id = (number + 1).to_bytes(16)

    def closed(self, connection: Connection) -> None:
        """Ignore it: the model connects it again."""


class ClusterModel(ABC, Generic[B]):
    """Brokers of a cluster, and what can happen to them.

    Args:
        count: Number of brokers, without the one that joins later.
        draw: The source of randomness.
        setting: What differs between the models.

    Attributes:
        away: The brokers that are cut off.
    """

    def __init__(self, count: int, draw: random.Random, setting: Setting) -> None:
        self.count = count
        self.draw = draw
        self.setting = setting
        self.clock = Clockwork()
        self.network = Network(self.clock, draw, DELAYS)
        self.brokers: dict[int, B] = {}
        self.away: set[int] = set()
        self._destinations = 0

    @abstractmethod
    def make(self, number: int) -> B:
        """Make the broker of a host, which starts."""

    @abstractmethod
    def is_whole(self) -> bool:
        """Whether each broker has what it has to have of all that it can reach, and no more."""

    @abstractmethod
    def half(self) -> Iterable[int]:
        """Return the hosts that a partition cuts off."""

    @abstractmethod
    def rolled(self) -> list[B]:
        """Return the brokers that restart one after the other."""

    # --- for brokers --------------------------------------------------------------------------

    def violation(self, text: str) -> None:
        raise AssertionError(f"{text}, at {self.clock.now:.2f} s")

    def delivered(self, request: object, connection: Connection) -> None:
        raise AssertionError("nothing is requested")

    def sent_part(self, number: int, other: int) -> None:
        """Ignore it: no snapshot is cut."""

    def find(self, uri: str) -> Broker | None:
        return self.brokers.get(int(uri.removeprefix("sim://")))

    # --- what happens -------------------------------------------------------------------------

    def start(self, number: int) -> None:
        self.brokers[number] = self.make(number)

    def fill(self, number: int, count: int | None = None) -> None:
        """Connect destinations to a broker, over half a second."""
        broker = self.brokers[number]
        for _ in range(self.draw.randint(*self.setting.routes) if count is None else count):
            destination = Destination(self._destinations)
            self._destinations += 1
            self.clock.at(
                self.clock.now + self.draw.uniform(0.0, 0.5), broker.register, destination
            )

    def living(self) -> list[B]:
        return [broker for broker in self.brokers.values() if broker.alive]

    def wait(self, time: float) -> None:
        self.clock.run(self.clock.now + time)

    def until_whole(self) -> float:
        """Run until all is as it has to be; return how long that took."""
        began = self.clock.now
        while not self.is_whole():
            self.wait(self.setting.step)
            if self.clock.now - began > PATIENCE:
                raise AssertionError("it does not become whole")
        return self.clock.now - began

    def filled(self) -> float:
        """Wait until all destinations have connected, and all is as it has to be."""
        self.wait(0.5)
        return self.until_whole()

    def sent(self) -> tuple[int, int]:
        """Return messages and bytes so far, marks not included."""
        counts, names = self.network.counts, self.setting.counted
        messages = sum(counts[name] for name in names) - counts["elements: mark"]
        return messages, sum(counts[f"bytes of {name}"] for name in names)

    def routes(self) -> int:
        """Return the number of destinations that are connected."""
        return sum(len(broker.own) for broker in self.living())


def start(model: ClusterModel[Any]) -> float:
    for number in range(model.count):
        at = model.clock.now + model.draw.uniform(0.0, model.setting.startup)
        model.clock.at(at, model.start, number)
    model.wait(model.setting.startup)
    for number in range(model.count):
        model.fill(number)
    return model.filled()


def join(model: ClusterModel[Any]) -> float:
    model.start(model.count)
    model.fill(model.count, model.setting.joining)
    return model.filled()


def crash(model: ClusterModel[Any]) -> float:
    model.brokers[model.count].crash(silently=False)
    return model.until_whole()


def vanish(model: ClusterModel[Any]) -> float:
    model.brokers[model.count - 1].crash(silently=True)
    return model.until_whole()


def split(model: ClusterModel[Any]) -> float:
    model.away = set(model.half())
    rest = [number for number in model.brokers if number not in model.away]
    model.network.cut_all((one, other) for one in model.away for other in rest)
    began = model.clock.now
    model.wait(model.setting.step)
    took = model.until_whole() + model.setting.step
    model.clock.run(max(began + model.setting.partition, model.clock.now))
    return took


def heal(model: ClusterModel[Any]) -> float:
    model.network.heal()
    model.away = set()
    return model.until_whole()


def roll(model: ClusterModel[Any]) -> float:
    longest = 0.0
    for broker in model.rolled():
        there = len(broker.own)
        for connection in list(broker.own.values()):
            at = model.clock.now + model.draw.uniform(0.0, 1.0)
            model.clock.at(at, broker.close, connection)
        model.wait(1.5)
        broker.crash(silently=False)
        model.wait(1.0)
        model.start(broker.number)
        model.fill(broker.number, there)
        longest = max(longest, model.filled())
        model.wait(model.setting.pace)
    return longest


SCENES: Final[dict[str, Callable[[ClusterModel[Any]], float]]] = {
    "start": start,
    "join": join,
    "crash": crash,
    "silent crash": vanish,
    "partition of half": split,
    "its healing": heal,
    "rolling restart": roll,
}
"""What happens, one after the other; each returns how long it took, in seconds."""


@dataclass(frozen=True, slots=True)
class Scene:
    """The outcome of one thing that happened.

    Attributes:
        until: Time until all was as it has to be, in seconds.
        messages: Messages that were sent.
        size: Their bytes.
    """

    until: float
    messages: int
    size: int


def play(model: ClusterModel[Any], name: str) -> Scene:
    """Make one thing happen, and count what is sent until two seconds later."""
    messages, size = model.sent()
    until = SCENES[name](model)
    model.wait(2.0)
    after = model.sent()
    return Scene(until, after[0] - messages, after[1] - size)


def quiet(model: ClusterModel[Any], before: float) -> tuple[int, int]:
    """Return the messages and bytes of a minute in which nothing happens, marks not included.

    Args:
        model: The brokers.
        before: Time to wait before, in seconds.
    """
    model.wait(before)
    messages, size = model.sent()
    model.wait(60.0)
    after = model.sent()
    return after[0] - messages, after[1] - size
