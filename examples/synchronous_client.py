"""A web application without an event loop that asks a service behind a broker, on four threads.

It prints:

    200 OK: hello, ann; hello, bob; hello, cid; hello, dee
    1 2 3
    no answer in time
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Generator, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

from onward.actors import Node
from onward.actors.broker import Broker, Handlers, Request
from onward.protocol import RequestTimeout
from onward.transports.client import BackgroundClient, connect

handlers = Handlers()


@handlers.response("greet")
async def greet(request: Request) -> bytes:
    return b"hello, " + request.data


@handlers.response("sleep")
async def sleep(_request: Request) -> bytes:
    await asyncio.sleep(60)
    return b""


@handlers.stream
async def count(request: Request) -> AsyncGenerator[bytes]:
    for number in range(1, int(request.data) + 1):
        yield str(number).encode()


# --8<-- [start:application]
class Application:
    """A WSGI application; a view of Django or Flask does the same."""

    def __init__(self, client: BackgroundClient) -> None:
        self._client = client

    def __call__(self, environ: dict[str, Any], respond: Callable[..., Any]) -> Iterable[bytes]:
        name: str = environ["QUERY_STRING"]
        answer = self._client.request("service=demo", name.encode(), route="greet", timeout=5)
        respond("200 OK", [("Content-Type", "text/plain")])
        return [answer.data]


# --8<-- [end:application]


def serve(application: Application) -> None:
    statuses = list[str]()

    def respond(status: str, _headers: list[tuple[str, str]]) -> None:
        statuses.append(status)

    def body(name: str) -> str:
        return b"".join(application({"QUERY_STRING": name}, respond)).decode()

    with ThreadPoolExecutor(4) as threads:
        bodies = list(threads.map(body, ["ann", "bob", "cid", "dee"]))
    print(f"{statuses[0]}: {'; '.join(bodies)}")


@contextmanager
def broker() -> Generator[str]:
    """Run a broker with a service, on a thread of its own; yield its URI."""
    with Node.in_background("edge") as background:

        async def start() -> str:
            made = await Broker.attach(background.node)
            listener = await background.node.listen("rsocket+tcp://127.0.0.1:0", broker=made)
            return listener.uri

        uri = background.call(start)
        with connect(uri, service="demo", handlers=handlers).in_background():
            yield uri


def main() -> None:
    # --8<-- [start:client]
    with broker() as uri, connect(uri).in_background() as client:
        serve(Application(client))

        with client.stream("service=demo", b"3") as numbers:
            print(*[each.data.decode() for each in numbers])

        try:
            client.request("service=demo", b"", route="sleep", timeout=0.2)
        except RequestTimeout as error:
            print(error.reason)
    # --8<-- [end:client]


if __name__ == "__main__":
    main()
