"""The requester of the demo, written with the `rsocket` package as any client would be.

It reads one request a line from standard input and prints one result a line, both as JSON:

    {"id": 1, "interaction": "request/response", "to": "service=echo", "data": ["hi"]}
    {"id": 1, "answers": ["hi from alpha"]}

It ends with its input:

    python requester.py HOST PORT
"""

from __future__ import annotations

import asyncio
import json
import sys
import uuid
from collections.abc import AsyncGenerator, Generator
from typing import Any

from rsocket.awaitable.awaitable_rsocket import AwaitableRSocket
from rsocket.exceptions import RSocketProtocolError
from rsocket.extensions.composite_metadata import CompositeMetadata
from rsocket.extensions.helpers import metadata_item
from rsocket.extensions.mimetypes import WellKnownMimeTypes
from rsocket.payload import Payload
from rsocket.rsocket_client import RSocketClient
from rsocket.streams.stream_from_generator import StreamFromGenerator
from rsocket.transports.tcp import TransportTCP

from onward.protocol.broker import (
    MIME_BROKER_FRAME,
    AddressFrame,
    Dialect,
    RoutingType,
    make_tags,
)

COMPOSITE = WellKnownMimeTypes.MESSAGE_RSOCKET_COMPOSITE_METADATA
TEXT = WellKnownMimeTypes.TEXT_PLAIN

CREDIT = 2
"""Elements of a stream asked for at a time; small, so that the credit has to be renewed."""

TIMEOUT = 10.0
"""Seconds a request may take."""

ORIGIN = uuid.uuid4().bytes


def address(to: str) -> Any:
    """Return the entry of composite metadata that says where a request goes."""
    tags = dict(word.split("=") for word in to.split())
    frame = AddressFrame(ORIGIN, RoutingType.UNICAST, make_tags(tags))
    return metadata_item(frame.serialize(Dialect.REFERENCE), MIME_BROKER_FRAME)


async def perform(rsocket: Any, request: dict[str, Any]) -> list[str]:
    """Make the request of a line, and return the answers."""
    where = address(request["to"])
    first, *others = [text.encode() for text in request["data"]]
    payload = Payload(first, CompositeMetadata([where]).serialize())
    answers: list[Any] = []
    match request["interaction"]:
        case "request/response":
            answers = [await rsocket.request_response(payload)]
        case "fire-and-forget":
            await rsocket.fire_and_forget(payload)
        case "request/stream":
            answers = await rsocket.request_stream(payload, limit_rate=CREDIT)
        case "request/channel":

            def elements() -> Generator[tuple[Payload, bool]]:
                for position, data in enumerate(others, start=1):
                    yield Payload(data), position == len(others)

            rest = StreamFromGenerator(elements)
            answers = await rsocket.request_channel(payload, rest, limit_rate=CREDIT)
        case "metadata push":
            # A push is metadata and nothing else, so the text is an entry of its own.
            pushed = CompositeMetadata([where, metadata_item(first, TEXT)])
            await rsocket.metadata_push(pushed.serialize())
        case other:
            raise ValueError(f"no such interaction: {other}")
    return [answer.data.decode() for answer in answers]


async def handle(rsocket: Any, line: bytes) -> None:
    """Make the request of a line, and print the result."""
    request = json.loads(line)
    result: dict[str, Any] = {"id": request["id"]}
    try:
        result["answers"] = await asyncio.wait_for(perform(rsocket, request), TIMEOUT)
    except RSocketProtocolError as error:
        result["error"] = f"{error.error_code.name}: {error.data}"
    except TimeoutError:
        result["error"] = f"no answer in {TIMEOUT:g} s"
    except RuntimeError as error:  # what the package makes of an APPLICATION_ERROR
        result["error"] = str(error)
    print(json.dumps(result), flush=True)


async def main(host: str, port: str) -> None:
    lines = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(lines), sys.stdin
    )

    # Made here and not in the generator: the client would log a refusal and go on.
    transport = TransportTCP(*await asyncio.open_connection(host, int(port)))

    async def transports() -> AsyncGenerator[TransportTCP]:
        yield transport

    async with (
        RSocketClient(transports(), metadata_encoding=COMPOSITE) as client,
        asyncio.TaskGroup() as requests,
    ):
        rsocket = AwaitableRSocket(client)
        async for line in lines:
            requests.create_task(handle(rsocket, line))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
