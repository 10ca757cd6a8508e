"""A destination of the demo, written with the `rsocket` package as any client would be.

It registers with the broker under a service name, prints a line for each request it gets, and
signs its answers with its name:

    python destination.py HOST PORT SERVICE NAME
"""

from __future__ import annotations

import asyncio
import signal
import sys
import uuid
from collections.abc import AsyncGenerator, Awaitable, Generator
from typing import Any

from reactivestreams.publisher import Publisher
from reactivestreams.subscriber import Subscriber
from reactivestreams.subscription import Subscription
from rsocket.extensions.composite_metadata import CompositeMetadata
from rsocket.extensions.helpers import metadata_item
from rsocket.extensions.mimetypes import WellKnownMimeTypes
from rsocket.payload import Payload
from rsocket.request_handler import BaseRequestHandler
from rsocket.rsocket_client import RSocketClient
from rsocket.streams.stream_from_generator import StreamFromGenerator
from rsocket.transports.tcp import TransportTCP

from onward.protocol.broker import MIME_BROKER_FRAME, Dialect, RouteSetup, make_tags

COMPOSITE = WellKnownMimeTypes.MESSAGE_RSOCKET_COMPOSITE_METADATA
TEXT = WellKnownMimeTypes.TEXT_PLAIN


class Destination(BaseRequestHandler):  # type: ignore[misc]
    """Answers requests; what it is asked to `hold` it never answers."""

    def __init__(self, name: str) -> None:
        self.name = name

    def sign(self, text: str) -> Payload:
        return Payload(f"{text} from {self.name}".encode())

    async def request_response(self, payload: Any) -> Awaitable[Payload]:
        text = seen("request/response", payload.data)
        # The package awaits this coroutine before it reads the next frame, so what takes
        # time belongs into the future that is returned.
        answer: asyncio.Future[Payload] = asyncio.get_running_loop().create_future()
        if text != "hold":
            answer.set_result(self.sign(text))
        return answer

    async def request_fire_and_forget(self, payload: Any) -> None:
        seen("fire-and-forget", payload.data)

    async def request_stream(self, payload: Any) -> Publisher:
        count = int(seen("request/stream", payload.data))

        def elements() -> Generator[tuple[Payload, bool]]:
            for number in range(1, count + 1):
                yield self.sign(str(number)), number == count

        return StreamFromGenerator(elements)

    async def request_channel(self, payload: Any) -> tuple[Publisher, Subscriber]:
        echo = Echo(self, payload)
        return echo, echo

    async def on_metadata_push(self, payload: Any) -> None:
        entries = CompositeMetadata().parse(payload.metadata)
        for item in entries.find_by_mimetype(TEXT):
            seen("metadata push", item.content or b"")


class Echo(Publisher, Subscriber, Subscription):  # type: ignore[misc]
    """Both halves of a channel: each element is answered by one.

    The requester's credit for answers is passed on as credit for elements, so that nothing
    has to wait here. The first element came with the request.
    """

    def __init__(self, destination: Destination, first: Any) -> None:
        self.destination = destination
        self.first: Any = first
        self.elements: Any = None
        self.answers: Any = None

    def answer(self, payload: Any, is_complete: bool = False) -> None:
        text = seen("request/channel", payload.data)
        self.answers.on_next(self.destination.sign(text), is_complete)

    # --- elements come from the requester ---------------------------------------------------

    def on_subscribe(self, subscription: Subscription) -> None:
        self.elements = subscription

    def on_next(self, value: Any, is_complete: bool = False) -> None:
        self.answer(value, is_complete)

    def on_complete(self) -> None:
        self.answers.on_complete()

    def on_error(self, exception: Exception) -> None:
        self.answers.on_error(exception)

    # --- answers go to the requester --------------------------------------------------------

    def subscribe(self, subscriber: Subscriber) -> None:
        self.answers = subscriber
        subscriber.on_subscribe(self)

    def request(self, n: int) -> None:
        if self.first is not None:
            first, self.first = self.first, None
            self.answer(first)
            n -= 1
        if n:
            self.elements.request(n)

    def cancel(self) -> None:
        self.elements.cancel()


def seen(interaction: str, data: bytes) -> str:
    """Print what came, and return it as text."""
    text = data.decode()
    print(f"{interaction} {text!r}", flush=True)
    return text


async def main(host: str, port: str, service: str, name: str) -> None:
    frame = RouteSetup(uuid.uuid4().bytes, service, make_tags({"instance": name}))
    setup = metadata_item(frame.serialize(Dialect.REFERENCE), MIME_BROKER_FRAME)

    # Made here and not in the generator: the client would log a refusal and go on.
    transport = TransportTCP(*await asyncio.open_connection(host, int(port)))

    async def transports() -> AsyncGenerator[TransportTCP]:
        yield transport

    told_to_stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, told_to_stop.set)

    async with RSocketClient(
        transports(),
        handler_factory=lambda _=None: Destination(name),
        metadata_encoding=COMPOSITE,
        setup_payload=Payload(b"", CompositeMetadata([setup]).serialize()),
    ):
        await told_to_stop.wait()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
