"""The environment of a case: nodes with the transport, and a check of what they leave."""

from __future__ import annotations

import asyncio
import gc
import tempfile
from collections import deque
from collections.abc import Callable, Iterable
from itertools import count
from types import TracebackType
from typing import Any, Final, Self

from ...actors import Listener, MailboxOptions, Node, Worker
from ...actors.testing import Probe
from ...protocol import Address, AddressLike, Message
from .._base import Transport
from ._claims import Claims
from ._left import Resources

__all__ = ["EchoWorker", "RelayWorker", "Stage", "Stuck", "expect"]

_numbers: Final = count(1)

_UNCAUGHT: Final = 5  # uncaught errors in the text of a failure


def expect(condition: object, text: str) -> None:
    """Raise `AssertionError` with a text unless a condition is true."""
    if not condition:
        raise AssertionError(text)


class EchoWorker(Worker):
    """A worker that replies with the payload it received."""

    def handle_message(self, message: Message) -> None:
        """Reply with the payload."""
        self.reply(message, message.payload)


class RelayWorker(Worker):
    """A worker that forwards each message."""

    def handle_message(self, message: Message) -> None:
        """Forward the message."""
        self.forward(message)


class Stuck(Probe):
    """A probe that handles no message until `go_on` is set."""

    def __init__(self) -> None:
        super().__init__(limit=1_000_000)
        self.go_on = asyncio.Event()
        self.in_hand = False

    def handle_message(self, message: Message) -> Any:
        """Keep the message, once `go_on` is set."""
        if self.go_on.is_set():  # without a task, for the many messages that waited
            return super().handle_message(message)
        return self._later(message)

    async def _later(self, message: Message) -> None:
        self.in_hand = True
        await self.go_on.wait()
        super().handle_message(message)


class Stage:
    """Three nodes, and helpers for cases.

    Args:
        uri: A URI of the transport; `{n}` in it stands for a new number each time, `{tmp}` for a
            folder that exists during one case.
        claims: The claims of the transport.
        transport: The class of the transport, if it has no entry point.

    Attributes:
        claims: The claims of the transport.
        a: A node, which connects.
        b: A node, between the others.
        c: A node, which listens.
        may_fail: Whether a worker may fail in this case.
    """

    def __init__(self, uri: str, claims: Claims, transport: type[Transport] | None) -> None:
        self.claims = claims
        self._uri = uri
        self._transport = transport
        self._folder = tempfile.TemporaryDirectory(prefix="onward-")
        self._nodes: list[Node] = []
        self._stuck: list[Stuck] = []
        self._uncaught: deque[str] = deque(maxlen=_UNCAUGHT)
        self.may_fail = False

    async def __aenter__(self) -> Self:
        asyncio.get_running_loop().set_exception_handler(self._not_caught)
        self._before = Resources()
        self.a, self.b, self.c = [await self.node(name) for name in "abc"]
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            failed = {node.name: node.statistics(workers=False).failed for node in self._nodes}
            await self.stop()
            if error is None:
                await self.settle(self._before, alone=True)
                for name, number in failed.items():
                    expect(
                        self.may_fail or not number,
                        f"{number} times a worker of node {name} failed",
                    )
                uncaught = ", ".join(self._uncaught)
                expect(not uncaught, f"there were uncaught exceptions: {uncaught}")
        finally:
            self._folder.cleanup()

    def _not_caught(self, _: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        self._uncaught.append(f"{context['message']} {context.get('exception', '')!r}")

    async def stop(self) -> None:
        """Stop the nodes, the last first. Idempotent."""
        for each in self._stuck:
            each.go_on.set()  # else its node would wait for it
        for node in reversed(self._nodes):
            await node.stop()

    async def settle(self, before: Resources, *, alone: bool = False) -> None:
        """Wait until there are no more resources than before.

        Args:
            before: An earlier moment.
            alone: Whether each task and timer must be one of `before`.
        """

        def more() -> str:
            gc.collect(0)
            return Resources().more_than(before, alone=alone)

        await self.until(lambda: not more(), more)

    @property
    def scheme(self) -> str:
        """The scheme of the transport."""
        return self._uri.partition("://")[0]

    def place(self) -> str:
        """Return a URI without a listener."""
        return self._uri.replace("{n}", str(next(_numbers))).replace("{tmp}", self._folder.name)

    async def node(self, name: str, **options: Any) -> Node:
        """Start another node; it stops with the others."""
        node = Node(f"{name}-{next(_numbers)}", **options)
        self.equip(node)
        await node.__aenter__()
        self._nodes.append(node)
        return node

    def equip(self, node: Node) -> None:
        """Add the transport to a node, if it has no entry point."""
        if self._transport is not None:
            node.add_transport(self._transport)

    async def listen(self, node: Node, *expose: AddressLike, at: str = "", **more: Any) -> Listener:
        """Listen at a given URI, or at a new one."""
        options = {**self.claims.listen_options, **more}
        return await node.listen(at or self.place(), expose=expose, **options)

    async def connect(
        self, node: Node, uri: str, *expose: AddressLike, allow: Iterable[AddressLike] = ()
    ) -> Address:
        """Connect, within the claimed patience."""
        options = self.claims.connect_options
        async with asyncio.timeout(self.claims.patience):
            return await node.connect(uri, expose=expose, allow=allow, **options)

    async def link(self, *expose: AddressLike) -> Address:
        """Return a link from `a` to a new listener of `c`."""
        return await self.connect(self.a, (await self.listen(self.c, *expose)).uri)

    async def probe(self, node: Node, address: str) -> Probe:
        """Start a probe with a large limit."""
        return await Probe.on(node, address, limit=1_000_000)

    async def stuck(self, node: Node, limit: int = 1000) -> Stuck:
        """Start a worker `stuck` on a node, with a mailbox of the given size."""
        stuck = Stuck()
        self._stuck.append(stuck)
        await node.start(lambda: stuck, address="stuck", mailbox=MailboxOptions(limit=limit))
        return stuck

    async def next(self, probe: Probe) -> Message:
        """Wait for the next message of a probe, and return it."""
        try:
            return await probe.next(timeout=self.claims.patience)
        except TimeoutError as error:
            raise AssertionError(str(error)) from None

    async def come(self, probe: Probe, number: int) -> list[bytes]:
        """Wait until a probe has received so many messages, and return their payloads."""
        try:
            messages = await probe.count(number, timeout=self.claims.patience)
        except TimeoutError as error:
            raise AssertionError(str(error)) from None
        return [message.payload for message in messages]

    async def ask(self, node: Node, route: list[AddressLike], payload: bytes) -> Message:
        """Send a request, and return the response."""
        return await node.request(route, payload, timeout=self.claims.patience)

    async def until(self, condition: Callable[[], object], text: str | Callable[[], str]) -> None:
        """Wait until a condition is true.

        Args:
            condition: The condition.
            text: The text of the failure if it does not become true in time.
        """
        loop = asyncio.get_running_loop()
        end = loop.time() + self.claims.patience
        while not condition():  # polled, as conditions have no event
            said = text if isinstance(text, str) else text()
            expect(loop.time() < end, f"{said}, after {self.claims.patience:g} s")
            await asyncio.sleep(0.002)

    async def refused(self, node: Node, number: int, reason: str) -> None:
        """Wait until a node has so many dead letters with a reason, and no others."""
        wanted = {reason: number}
        await self.until(
            lambda: node.dead_letters.by_reason == wanted,
            lambda: f"not the dead letters {wanted} but {dict(node.dead_letters.by_reason)}",
        )
