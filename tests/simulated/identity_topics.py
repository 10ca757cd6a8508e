"""A topic between simulated nodes with identities: what was published, and what its readers have.

One node publishes it, its home; a worker at each node that is joined to it publishes too, and
another one reads. Whatever happens, a reader has each event once at most, as it was published and
of the one that has published it, in the order in which the home has it, and none that may not leave
its home. While a subscription holds, what is missing of it is told as lost.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from onward.actors import Node, Worker
from onward.protocol import Address, Message, OnwardError
from onward.protocol.identity import SCOPE_ANY, Identity, SigningKey, derived_engine, identity_text
from onward.transports.identity import Correspondent, Identities
from tests.simulated.identity_ledger import Ledger
from tests.support.identities import key_of

__all__ = ["Topic"]

TOPIC: Final[SigningKey] = key_of("topic")
_TEXT: Final = f"36#topic:{identity_text(TOPIC.identity)}"
_EVENT: Final = b"event---"
_HEAD: Final = len(_EVENT) + 4


class Published(NamedTuple):
    """What was published: by which identity, and whether it may not leave its node."""

    source: Identity
    payload: bytes
    stays: bool


@dataclass(slots=True, eq=False)
class Subscription:
    """A subscription of a reader, while it holds.

    Attributes:
        came: The numbers of the events that came.
        lost: How many it was told to be lost.
        excused: Whether its node had banned something meanwhile, so that more may be missing.
        holds: Whether it has not ended.
    """

    came: list[int] = field(default_factory=list[int])
    lost: int = 0
    excused: bool = False
    holds: bool = True


class Reader(Worker):
    """A worker that is subscribed to the topic.

    Args:
        topic: The topic.
        host: The name of its node.
    """

    def __init__(self, topic: Topic, host: str) -> None:
        super().__init__()
        self.host: Final = host
        self.subscription: Subscription | None = None
        self.asks: asyncio.Task[None] | None = None
        self._topic: Final = topic

    def handle_message(self, message: Message) -> None:
        """Note an event."""
        link = None if message.source is None else self.node.parts.table.worker_at(message.source)
        source = link.identity if isinstance(link, Correspondent) else None
        self._topic.came(self, message.payload, source)


class Topic:
    """The topic of a run.

    Args:
        draw: What is published, and where.
        ledger: Receives what is not as promised, and what has happened.
        hosts: The nodes.
        pairs: Those that are joined.
    """

    def __init__(
        self,
        draw: random.Random,
        ledger: Ledger,
        hosts: list[str],
        pairs: Iterable[tuple[str, str]],
    ) -> None:
        self.home: Final = draw.choice(hosts)
        joined = {each for pair in pairs if self.home in pair for each in pair}
        self.hosts: Final = [self.home, *sorted(joined - {self.home})]
        self._draw: Final = draw
        self._ledger: Final = ledger
        self._published: Final[list[Published]] = []
        self._readers: Final[dict[str, Reader]] = {}
        self._all: Final[dict[str, list[Subscription]]] = {each: [] for each in self.hosts}
        self._seen: Final[set[tuple[str, int]]] = set()
        self._banning: Final[set[str]] = set()

    # --- workers --------------------------------------------------------------------------------

    async def fill(self, node: Node, identities: Identities) -> None:
        """Start what has ended at a node, and at the home make the topic."""
        host = node.name
        if host not in self.hosts:
            return
        if not node.has("publisher"):
            await node.start(Worker, address="publisher")
            identities.engine("publisher")
            if host == self.home:
                others = [
                    derived_engine(key_of(each).identity, b"publisher") for each in self.hosts
                ]
                identities.create_topic(
                    TOPIC, engine="publisher", scope=SCOPE_ANY, publishers=others
                )
        if host not in self._readers:
            reader = self._readers[host] = Reader(self, host)
            await node.start(lambda: reader, address="reader")
            if host == self.home:  # it has all events, in their order
                self.subscribe(identities, host)

    def subscribe(self, identities: Identities, host: str) -> None:
        """Subscribe the reader at a node, if there is one that is not."""
        reader = self._readers.get(host)
        if reader is None or (reader.asks is not None and not reader.asks.done()):
            return
        before = reader.subscription
        if before is None or not before.holds:
            reader.asks = asyncio.create_task(self._subscribe(identities, reader))

    async def _subscribe(self, identities: Identities, reader: Reader) -> None:
        # Events may come with the answer.
        subscription = reader.subscription = Subscription(excused=reader.host in self._banning)
        self._all[reader.host].append(subscription)

        def lost(number: int | None) -> None:
            self._ledger.counts["events told as lost"] += number or 0
            subscription.lost += number or 0

        def ended(_: object) -> None:
            subscription.holds = False

        topic = TOPIC.identity
        try:
            await identities.subscribe(topic, "reader", on_lost=lost, on_end=ended)
        except OnwardError:
            subscription.holds = False

    def crashed(self, host: str) -> None:
        """Forget the reader at a node, which is gone."""
        reader = self._readers.pop(host, None)
        if reader is None:
            return
        if reader.asks is not None:
            reader.asks.cancel()
        if reader.subscription is not None:
            reader.subscription.holds = False

    async def end_reader(self, node: Node) -> None:
        """End the reader at a node that is not the home."""
        if node.name in self._readers and node.name != self.home:
            self.crashed(node.name)
            await node.stop_worker("reader")

    def banned(self, host: str) -> None:
        """Expect less of a node that has banned something, such as a publisher."""
        self._banning.add(host)
        for each in self._all.get(host, ())[-1:]:
            each.excused = True

    def unbanned(self, host: str) -> None:
        """Expect all again of a node that has banned something."""
        self._banning.discard(host)

    # --- events ---------------------------------------------------------------------------------

    def publish(self, node: Node) -> int | None:
        """Publish at a node; return the number of the event."""
        worker = (
            node.parts.table.worker_at(Address(0, b"publisher"))
            if node.name in self.hosts
            else None
        )
        if worker is None:
            return None
        number, stays = len(self._published), node.name == self.home and self._draw.random() < 0.1
        payload = _EVENT + number.to_bytes(4) + self._draw.randbytes(self._draw.choice((4, 60)))
        source = derived_engine(key_of(node.name).identity, b"publisher")
        self._published.append(Published(source, payload, stays))
        self._ledger.counts["events published"] += 1
        with suppress(OnwardError):
            worker.send(f"{_TEXT}?scope=local" if stays else _TEXT, payload, return_route=())
        return None if stays else number

    def came(self, reader: Reader, payload: bytes, source: Identity | None) -> None:
        """Note an event that has come to a reader."""
        complain, host = self._ledger.complain, reader.host
        number = int.from_bytes(payload[len(_EVENT) : _HEAD])
        if number >= len(self._published) or payload != self._published[number].payload:
            complain(f"the reader at {host} has {payload!r}, which was not published")
            return
        self._ledger.counts["events delivered"] += 1
        published = self._published[number]
        if (host, number) in self._seen:
            complain(f"the reader at {host} has the event {number} twice")
        self._seen.add((host, number))
        if published.stays and host != self.home:
            complain(f"the reader at {host} has the event {number}, which may not leave its node")
        if source is not None and source != published.source:
            complain(f"the event {number} has a wrong source at {host}")
        if reader.subscription is not None:
            reader.subscription.came.append(number)

    # --- what has to be true --------------------------------------------------------------------

    async def calm(self, nodes: dict[str, Node]) -> None:
        """Publish when all is well, and check all that has come."""
        numbers = [self.publish(nodes[host]) for host in (*self.hosts, *self.hosts)]
        await asyncio.sleep(1)
        expected = {each for each in numbers if each is not None}
        for host in self.hosts:
            subscription = self._readers[host].subscription
            if subscription is None or not subscription.holds:
                self._ledger.complain(f"the reader at {host} is not subscribed")
            elif missing := expected.difference(subscription.came):
                self._ledger.complain(f"the reader at {host} misses {missing} when all is well")
        for life in self._all[self.home]:
            for host in self.hosts[1:]:
                for each in self._all[host]:
                    self._compare(host, each, life)

    def _compare(self, host: str, subscription: Subscription, home: Subscription) -> None:
        """Compare what came by a subscription with what came to the reader at home."""
        here = [each for each in home.came if not self._published[each].stays]
        both = set(here) & set(subscription.came)
        places = [number for number, each in enumerate(here) if each in both]
        if [here[each] for each in places] != [each for each in subscription.came if each in both]:
            self._ledger.complain(f"the reader at {host} has events in another order than at home")
        if not places or subscription.excused or home.excused:
            return
        end = len(here) if home.holds and subscription.holds else places[-1] + 1
        missing = set(here[places[0] : end]) - both
        if len(missing) > subscription.lost:
            self._ledger.complain(
                f"the reader at {host} misses {missing}, and was told of {subscription.lost}"
            )
