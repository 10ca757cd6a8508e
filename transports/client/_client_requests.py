"""The requests of a client, of all interactions."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterable, Sequence
from contextlib import aclosing
from enum import Enum
from typing import Any, Final, TypeAlias, TypeVar, cast, overload
from uuid import UUID

from ...actors._values import reader, writer
from ...actors.broker import Answer
from ...actors.broker.local._service import as_bytes
from ...protocol.options import check_timeout
from ...protocol.payloads import CBOR, Codec
from ...protocol.rsocket import FrameType
from ._calls import Calls, Tries
from ._elements import Patience, channel_elements, stream_elements
from ._metadata import Destination, Entries, address_metadata, says_no_route
from ._options import ClientOptions
from ._pending_response import PendingResponse

__all__ = ["UNSET", "ClientRequests", "Timeout"]

T = TypeVar("T")


class _Unset(Enum):
    """The marker of a timeout that was not given, as `None` means no limit."""

    UNSET = "the option"


UNSET: Final = _Unset.UNSET
Timeout: TypeAlias = float | _Unset | None


class ClientRequests:
    """The requests of a client; see `Client`.

    Args:
        route_ids: The route ids of the connections; the first is the origin of requests.
        options: The limits and times.
    """

    def __init__(self, route_ids: Sequence[UUID], options: ClientOptions) -> None:
        self._route_ids = tuple(route_ids)
        self._options = options
        self._made: Calls | None = None

    @property
    def _calls(self) -> Calls:
        if self._made is None:
            raise RuntimeError("the client is not connected: use `async with`")
        return self._made

    async def request(
        self,
        destination: Destination,
        data: bytes,
        metadata: bytes | None = None,
        *,
        route: str = "",
        entries: Entries = (),
        timeout: Timeout = UNSET,
    ) -> Answer:
        """Send a request, and return its one answer (request/response).

        Args:
            destination: The destination.
            data: The data.
            metadata: Metadata for the destination, wrapped in the ADDRESS; not in the
                reference dialect.
            route: The route name for the destination's `Handlers`; at most 255 bytes.
            entries: More entries of metadata, as (MIME type, content).
            timeout: Seconds for the request; `None`: no limit; by default `request_timeout`.

        Raises:
            OnwardError: The request failed; see `Client`.
            AddressError: The destination cannot be parsed.
            PayloadTooBig: It is over `max_request`, or the answer is over `max_answer`.
            PayloadNotBytes: Data, metadata or an entry are no `bytes`.
            ValueError: The route is no text, or over 255 bytes.
        """
        data = as_bytes(data, "data")
        wrapped = self._metadata(destination, metadata, route, entries)

        async def outcome(asked: PendingResponse) -> Answer:
            try:
                return await asked.answer
            finally:
                asked.cancel()

        answer = await self._calls.ask(
            _tries(destination),
            self._timeout(timeout),
            lambda link: link.request(data, wrapped),
            outcome,
        )
        return cast(Answer, answer)

    @overload
    async def request_value(
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
    async def request_value(
        self,
        destination: Destination,
        value: Any,
        kind: Any,
        *,
        codec: Codec = CBOR,
        route: str = "",
        timeout: Timeout = UNSET,
    ) -> Any: ...
    async def request_value(
        self,
        destination: Destination,
        value: Any,
        kind: Any,
        *,
        codec: Codec = CBOR,
        route: str = "",
        timeout: Timeout = UNSET,
    ) -> Any:
        """Send a value, and return the value of the answer, as the client of `TypedHandlers`.

        Args:
            destination: As for `request`, and so are route and timeout.
            value: The value; any that `msgspec` or the codec can encode.
            kind: The type of the answer, which is checked.
            codec: The codec of both.
            route: The route name for the destination.
            timeout: Seconds for the request.

        Raises:
            PayloadError: The value cannot be encoded, and was not sent. Or the answer is not of
                the type; then the request has been handled.
            MissingExtra: `msgspec` is not installed.
            OnwardError: As `request`. `DestinationError` with the code INVALID: the value is not
                of the type that the destination takes.
        """
        read = reader(kind, codec)
        data = writer(codec)(value)
        return read((await self.request(destination, data, route=route, timeout=timeout)).data)

    async def send(
        self,
        destination: Destination,
        data: bytes,
        metadata: bytes | None = None,
        *,
        route: str = "",
        entries: Entries = (),
        timeout: Timeout = UNSET,
    ) -> None:
        """Send a request without an answer (fire-and-forget).

        Returns when it has been handed to a socket. It is not known whether a destination takes it.
        See `request`.
        """
        data = as_bytes(data, "data")
        wrapped = self._metadata(destination, metadata, route, entries)
        kind = FrameType.REQUEST_FNF
        await self._calls.ask(
            _tries(destination),
            self._timeout(timeout),
            lambda link: link.ask(kind, data, wrapped),
        )

    async def push(
        self,
        destination: Destination,
        metadata: bytes | None = None,
        *,
        route: str = "",
        entries: Entries = (),
        timeout: Timeout = UNSET,
    ) -> None:
        """Send a metadata push, which has neither data nor an answer. See `send`."""
        wrapped = self._metadata(destination, metadata, route, entries)
        await self._calls.ask(
            _tries(destination), self._timeout(timeout), lambda link: link.push(wrapped)
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
    ) -> AsyncGenerator[Answer]:
        """Return the elements of a request/stream as an asynchronous generator.

        The request is sent when the first element is awaited. At most `stream_window` elements are
        ahead of the consumer. Closing the generator cancels the stream; leaving a loop early does
        not, as long as the generator is referred to:

            async with aclosing(client.stream("service=log", b"")) as lines:
                async for line in lines:
                    if line.data == b"end":
                        break

        Args:
            destination: As for `request`, and so are the others.
            data: The data.
            metadata: Metadata for the destination.
            route: The route name for the destination.
            entries: More entries of metadata.
            timeout: Seconds until the first element; as for `request`.
            element_timeout: Seconds from one element to the next; `None`: no limit; by default the
                option of that name.
        """
        data = as_bytes(data, "data")
        wrapped = self._metadata(destination, metadata, route, entries)
        patience = self._patience(timeout, element_timeout)
        return stream_elements(self._calls, _tries(destination), data, wrapped, patience)

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
    ) -> AsyncGenerator[T]: ...
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
    ) -> AsyncGenerator[Any]: ...
    async def stream_values(
        self,
        destination: Destination,
        value: Any,
        kind: Any,
        *,
        codec: Codec = CBOR,
        route: str = "",
        timeout: Timeout = UNSET,
        element_timeout: Timeout = UNSET,
    ) -> AsyncGenerator[Any]:
        """Send a value, and yield the values of a request/stream.

        See `stream` and `request_value`. An element that is not of the type ends the stream with
        `PayloadError`.
        """
        read = reader(kind, codec)
        elements = self.stream(
            destination,
            writer(codec)(value),
            route=route,
            timeout=timeout,
            element_timeout=element_timeout,
        )
        async with aclosing(elements):
            async for element in elements:
                yield read(element.data)

    def channel(
        self,
        destination: Destination,
        source: AsyncIterable[bytes | Answer],
        metadata: bytes | None = None,
        *,
        route: str = "",
        entries: Entries = (),
        timeout: Timeout = UNSET,
        element_timeout: Timeout = UNSET,
    ) -> AsyncGenerator[Answer]:
        """Send the elements of `source`, and return those of the destination (request/channel).

        The first element is sent with the request; without one, nothing is sent and no element is
        returned. The others are taken from `source` within the destination's credit. An error of
        `source` is raised here, and the destination is sent an ERROR. `timeout` limits the wait for
        the first element of `source` too, which is `NotDelivered`; time in which another one is
        awaited does not count. See `stream`.

        Args:
            destination: As for `request`.
            source: The elements. Metadata of the first one replace `metadata`.
            metadata: Metadata for the destination, wrapped in the ADDRESS.
            route: The route name for the destination.
            entries: More entries of metadata.
            timeout: Seconds until the first element; as for `request`.
            element_timeout: Seconds from one element to the next; `None`: no limit; by default
                the option of that name.
        """

        def wrap(first: bytes | None) -> bytes:
            return self._metadata(destination, metadata if first is None else first, route, entries)

        wrap(None)  # refuses wrong values at once
        patience = self._patience(timeout, element_timeout)
        return channel_elements(self._calls, _tries(destination), source, wrap, patience)

    def _metadata(
        self, destination: Destination, metadata: bytes | None, route: str, entries: Entries
    ) -> bytes:
        origin = self._route_ids[0].bytes
        return address_metadata(destination, origin, metadata, route, entries, self._options)

    def _timeout(self, timeout: Timeout) -> float | None:
        if isinstance(timeout, _Unset):
            return self._options.request_timeout
        return None if timeout is None else check_timeout(timeout)

    def _patience(self, first: Timeout, other: Timeout) -> Patience:
        between = self._options.element_timeout if isinstance(other, _Unset) else other
        if between is not None:
            check_timeout(between, "element_timeout")
        return Patience(self._timeout(first), between)


def _tries(destination: Destination) -> Tries:
    return Tries(once=says_no_route(destination))
