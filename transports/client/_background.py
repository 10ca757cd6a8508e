"""A client of brokers for synchronous code: blocking calls, from any number of threads."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator
from contextlib import suppress
from typing import Any, Final, Self, TypeVar, cast, overload

from ...actors import BackgroundNode, Node
from ...actors.broker import Answer
from ...protocol import NodeStopped
from ...protocol.payloads import CBOR, Codec
from ._client import Client, ClientStatistics
from ._client_requests import UNSET, Timeout
from ._metadata import Destination, Entries
from ._sources import SourceElements, SourceLimit

__all__ = ["BackgroundClient", "BlockingElements"]

T = TypeVar("T")

_END: Final = object()


class BlockingElements(Iterator[T]):
    """The elements of a stream or a channel; each step blocks until the next one has come.

    Close it to leave before the end, which cancels the request; `with` does that:

        with client.stream("service=log", b"") as lines:
            for line in lines:
                if line.data == b"end":
                    break
    """

    def __init__(self, background: BackgroundNode, elements: AsyncGenerator[T]) -> None:
        self._background = background
        self._elements = elements

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc_info: object) -> None:
        self.close()

    def __next__(self) -> T:
        """Return the next element. It raises as `Client.stream`."""
        element = self._background.call(self._next)
        if element is _END:
            raise StopIteration
        return cast(T, element)

    async def _next(self) -> object:
        return await anext(self._elements, _END)

    def close(self) -> None:
        """Cancel the request, unless it has ended. Idempotent."""
        with suppress(NodeStopped):  # the client was closed, and the request with it
            self._background.call(self._close)

    async def _close(self) -> None:
        await self._elements.aclose()


class BackgroundClient:
    """A client with its event loop on a thread of its own. Made by `Client.in_background`.

        with connect("rsocket+tcp://127.0.0.1:7000").in_background() as client:
            answer = client.request("service=echo", b"hi", timeout=5)

    Each call blocks until it is done, for its timeout at most, and raises the errors of the
    client's own method. Several threads may make calls at once; they share the connections. On a
    thread that runs an event loop a call raises `WouldDeadlock`; after the client was closed, it
    raises `NodeStopped`. Handlers of the client run on its thread.

    A process that is forked does not have the thread, so open the client in the child.

    Attributes:
        client: The client. Its own methods are for its loop.
    """

    def __init__(
        self,
        client: Client,
        *,
        loop_factory: Callable[[], asyncio.AbstractEventLoop] | None = None,
    ) -> None:
        self.client: Final = client
        self._background: Final = Node.in_background("client", loop_factory=loop_factory)
        self._sources: Final = SourceLimit(client._options.load.max_sources)
        self._connected = False

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(self, *_exc_info: object) -> None:
        self.close()

    def open(self) -> None:
        """Start the thread, and connect to a broker.

        Raises:
            LinkDown: No broker accepted the client in `connect_timeout`, or all have refused it.
            RuntimeError: It was opened before.
            WouldDeadlock: This thread runs an event loop.
        """
        self._background.open()
        try:
            self._background.call(self.client.__aenter__)
        except BaseException:
            self._background.stop()
            raise
        self._connected = True

    def close(self) -> None:
        """Close the client and end its thread. See `Client.close`. Idempotent."""
        connected, self._connected = self._connected, False
        try:
            if connected:
                with suppress(NodeStopped):  # in the child of a fork
                    self._background.call(self.client.close)
        finally:
            self._background.stop()

    def statistics(self) -> ClientStatistics:
        """Return the client's figures at this moment."""

        async def figures() -> ClientStatistics:
            return self.client.statistics()

        return self._background.call(figures)

    def request(
        self,
        destination: Destination,
        data: bytes,
        metadata: bytes | None = None,
        *,
        route: str = "",
        entries: Entries = (),
        timeout: Timeout = UNSET,
    ) -> Answer:
        """Send a request, and wait for its answer. See `Client.request`."""
        return self._background.call(
            self.client.request,
            destination,
            data,
            metadata,
            route=route,
            entries=entries,
            timeout=timeout,
        )

    @overload
    def request_value(
        self,
        destination: Destination,
        value: Any,
        kind: type[T],
        *,
        codec: Codec = CBOR,
        route: str = "",
        timeout: Timeout = UNSET,
    ) -> T: ...
    @overload
    def request_value(
        self,
        destination: Destination,
        value: Any,
        kind: Any,
        *,
        codec: Codec = CBOR,
        route: str = "",
        timeout: Timeout = UNSET,
    ) -> Any: ...
    def request_value(
        self,
        destination: Destination,
        value: Any,
        kind: Any,
        *,
        codec: Codec = CBOR,
        route: str = "",
        timeout: Timeout = UNSET,
    ) -> Any:
        """Send a value, and wait for a value. See `Client.request_value`."""
        return self._background.call(
            self.client.request_value,
            destination,
            value,
            kind,
            codec=codec,
            route=route,
            timeout=timeout,
        )

    def send(
        self,
        destination: Destination,
        data: bytes,
        metadata: bytes | None = None,
        *,
        route: str = "",
        entries: Entries = (),
        timeout: Timeout = UNSET,
    ) -> None:
        """Send a request without an answer. See `Client.send`."""
        self._background.call(
            self.client.send,
            destination,
            data,
            metadata,
            route=route,
            entries=entries,
            timeout=timeout,
        )

    def stream(
        self,
        destination: Destination,
        data: bytes,
        metadata: bytes | None = None,
        *,
        route: str = "",
        entries: Entries = (),
        timeout: Timeout = UNSET,
        element_timeout: Timeout = UNSET,
    ) -> BlockingElements[Answer]:
        """Return the elements of a request/stream. See `Client.stream`."""
        elements = self.client.stream(
            destination,
            data,
            metadata,
            route=route,
            entries=entries,
            timeout=timeout,
            element_timeout=element_timeout,
        )
        return BlockingElements(self._background, elements)

    @overload
    def stream_values(
        self,
        destination: Destination,
        value: Any,
        kind: type[T],
        *,
        codec: Codec = CBOR,
        route: str = "",
        timeout: Timeout = UNSET,
        element_timeout: Timeout = UNSET,
    ) -> BlockingElements[T]: ...
    @overload
    def stream_values(
        self,
        destination: Destination,
        value: Any,
        kind: Any,
        *,
        codec: Codec = CBOR,
        route: str = "",
        timeout: Timeout = UNSET,
        element_timeout: Timeout = UNSET,
    ) -> BlockingElements[Any]: ...
    def stream_values(
        self,
        destination: Destination,
        value: Any,
        kind: Any,
        *,
        codec: Codec = CBOR,
        route: str = "",
        timeout: Timeout = UNSET,
        element_timeout: Timeout = UNSET,
    ) -> BlockingElements[Any]:
        """Send a value, and return the values of a request/stream. See `Client.stream_values`."""
        values = self.client.stream_values(
            destination,
            value,
            kind,
            codec=codec,
            route=route,
            timeout=timeout,
            element_timeout=element_timeout,
        )
        return BlockingElements(self._background, values)

    def channel(
        self,
        destination: Destination,
        source: Iterable[bytes | Answer],
        metadata: bytes | None = None,
        *,
        route: str = "",
        entries: Entries = (),
        timeout: Timeout = UNSET,
        element_timeout: Timeout = UNSET,
    ) -> BlockingElements[Answer]:
        """Send the elements of `source`, and return those of the destination.

        `source` is read by a thread of its own, so it may block; see `LoadOptions.max_sources`. A
        thread that it blocks for ever does not hold up the end of the process. See
        `Client.channel`.
        """
        elements = self.client.channel(
            destination,
            SourceElements(source, self._sources),
            metadata,
            route=route,
            entries=entries,
            timeout=timeout,
            element_timeout=element_timeout,
        )
        return BlockingElements(self._background, elements)
