"""A requester of the demo, with Onward's client.

It reads one request a line from standard input and prints one result a line, both as JSON:

    {"id": 1, "interaction": "request/response", "to": "service=shop", "data": ["hi"]}
    {"id": 1, "answers": ["hi from lyon"]}

Several data of a request/response are so many requests, made at once; `{}` in `to` becomes the
data of each. It ends with its input:

    python customer.py URI
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncGenerator
from typing import Any

from onward.protocol import OnwardError
from onward.protocol.rsocket import ErrorCode
from onward.transports.client import Client, ClientOptions, connect
from onward.transports.rsocket import DestinationError

OPTIONS = ClientOptions(request_timeout=10.0, stream_window=2)
"""A small window, so that the credit of a stream has to be renewed."""


async def elements(data: list[bytes]) -> AsyncGenerator[bytes]:
    for each in data:
        yield each


async def perform(client: Client, request: dict[str, Any]) -> list[str]:
    """Make the request of a line, and return the answers."""
    to, route = request["to"], request.get("route", "")
    data = [text.encode() for text in request["data"]]
    match request["interaction"]:
        case "request/response":
            asked = [
                client.request(to.replace("{}", each.decode()), each, route=route) for each in data
            ]
            answers = await asyncio.gather(*asked)
        case "fire-and-forget":
            await client.send(to, data[0], route=route)
            answers = []
        case "metadata push":
            await client.push(to, data[0])
            answers = []
        case "request/stream":
            answers = [each async for each in client.stream(to, data[0])]
        case "request/channel":
            answers = [each async for each in client.channel(to, elements(data))]
        case other:
            raise ValueError(f"no such interaction: {other}")
    return [answer.data.decode() for answer in answers]


async def handle(client: Client, line: bytes) -> None:
    """Make the request of a line, and print the result."""
    request = json.loads(line)
    result: dict[str, Any] = {"id": request["id"]}
    try:
        result["answers"] = await perform(client, request)
    except DestinationError as error:
        result["error"] = f"{ErrorCode(error.code).name}: {error.text}"
    except OnwardError as error:
        result["error"] = str(error)
    print(json.dumps(result), flush=True)


async def main(uri: str) -> None:
    lines = asyncio.StreamReader(limit=1024 * 1024)
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(lines), sys.stdin
    )
    async with connect(uri, options=OPTIONS) as client, asyncio.TaskGroup() as requests:
        async for line in lines:
            requests.create_task(handle(client, line))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
