"""`onward bench`: a load of requests through a broker, and a destination for it."""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack, aclosing, suppress
from typing import TYPE_CHECKING, Any, Final

from ..protocol import counted
from ._access import access_of
from ._arguments import Commands, no_log, positive, seconds
from ._bench_report import as_csv, as_json, as_text
from ._broker_options import add_broker
from ._load import MAX_IN_FLIGHT, LoadPlan, Measured, Send, generate
from ._run import Interrupted, StopRequest, run
from ._show import printable
from ._status import CommandError, Status

if TYPE_CHECKING:
    from ..actors.broker import Handlers, Request
    from ..transports.client import Client, ClientOptions

__all__ = ["add_commands"]

_DESCRIPTION: Final = "Measure requests through a running broker."

_SERVE: Final = """\
Run a destination for the requests of `onward bench`, until Ctrl-C: it answers with the data that
came, or with --size bytes.
"""

_LOAD: Final = """\
Send requests of one kind through a running broker, and print how long they took and how they ended.

With --rate it is an open loop: requests are due at fixed times, and a latency counts from then, so
that a destination or a broker that stalls shows in all requests that were due meanwhile. Without,
it is a closed loop: each client has --window requests in flight, and sends the next one when one is
answered. That measures how much goes through; its latencies are those of a system that is full.
"""

_EPILOG: Final = """\
exit status:
  0  some were answered, or handed over
  1  none was, or there is no connection
  2  the command line is wrong

example:
  onward bench serve &
  onward bench request --rate 2000 --duration 30 --clients 4
"""

SERVICE: Final = "bench"

MAX_CLIENTS: Final = 1000
MAX_WINDOW: Final = 10_000
MAX_RATE: Final = 1e6
MAX_SIZE: Final = 8 * 1024 * 1024


def add_commands(commands: Commands) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "bench", help="measure requests through a running broker", description=_DESCRIPTION
    )
    actions: Commands = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    _add_serve(actions)
    for name, text in (
        ("request", "send requests with one answer (request/response)"),
        ("stream", "send requests with a stream of elements (request/stream)"),
        ("fnf", "send requests without an answer (fire-and-forget)"),
    ):
        _add_load(actions, name, text)


def _add_serve(actions: Commands) -> None:
    serve = actions.add_parser("serve", help="run a destination", description=_SERVE)
    add_broker(serve)
    serve.add_argument(
        "--service", metavar="NAME", default=SERVICE, help="its service (default %(default)s)"
    )
    serve.add_argument(
        "--tag",
        metavar="KEY=VALUE",
        action="append",
        default=[],
        help="a tag of the destination; may be repeated",
    )
    serve.add_argument(
        "--clients",
        metavar="N",
        type=positive,
        default=1,
        help="its connections, each a destination of its own (default %(default)s)",
    )
    serve.add_argument(
        "--size", metavar="BYTES", type=positive, help="bytes of an answer (default: as they came)"
    )
    serve.add_argument(
        "--elements",
        metavar="N",
        type=positive,
        default=100,
        help="elements of a stream (default %(default)s)",
    )
    serve.add_argument(
        "--delay",
        metavar="SECONDS",
        type=seconds,
        default=0.0,
        help="the time until an answer, or between two elements (default: none)",
    )
    serve.set_defaults(command=_serve)


def _add_load(actions: Commands, name: str, text: str) -> None:
    parser = actions.add_parser(
        name,
        help=text,
        description=_LOAD,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "query",
        metavar="TAG=VALUE",
        nargs="*",
        help=f"the tags of the destination (default service={SERVICE})",
    )
    add_broker(parser)
    parser.add_argument(
        "--rate", metavar="N", type=float, help="an open loop: requests a second of all clients"
    )
    parser.add_argument(
        "--window",
        metavar="N",
        type=positive,
        help="a closed loop: requests in flight of each client (default 16)",
    )
    parser.add_argument(
        "--clients",
        metavar="N",
        type=positive,
        default=1,
        help="clients, each with a connection of its own (default %(default)s)",
    )
    parser.add_argument(
        "--size",
        metavar="BYTES",
        type=positive,
        default=64,
        help="bytes of a request (default %(default)s)",
    )
    parser.add_argument(
        "--duration",
        metavar="SECONDS",
        type=seconds,
        help="the time in which requests are sent (default 10, or until --count)",
    )
    parser.add_argument("--count", metavar="N", type=positive, help="the number of requests")
    formats = parser.add_mutually_exclusive_group()
    formats.add_argument("--json", action="store_true", help="print the figures as JSON")
    formats.add_argument(
        "--csv", action="store_true", help="print the figures as a line of CSV, below its headings"
    )
    parser.set_defaults(command=_load, interaction=name)


# --- the destination ------------------------------------------------------------------------


def _serve(arguments: argparse.Namespace) -> None:
    access = access_of(arguments)
    tags: dict[str, str | None] = {}
    for given in arguments.tag:
        key, mark, value = given.partition("=")
        if not mark:
            raise CommandError(f"--tag {given!r} is not KEY=VALUE", Status.USAGE)
        tags[key] = value
    served = [0]

    async def work(stop: StopRequest) -> None:
        from ..transports.client import ClientOptions
        from ._client import connected

        options = ClientOptions(connect_timeout=max(arguments.timeout, 0.001), tls=access.tls)
        async with connected(
            arguments.broker,
            arguments.timeout,
            access,
            options,
            service=arguments.service,
            tags=tags,
            handlers=_handlers(arguments, served),
            connections=arguments.clients,
        ):
            print(printable(f"serving {arguments.service} at {arguments.broker}"), flush=True)
            await stop.wait()

    with suppress(Interrupted):
        run(work)
    print(f"{counted(served[0], 'request')} served")


def _handlers(arguments: argparse.Namespace, served: list[int]) -> Handlers:
    from ..actors.broker import Handlers

    size: int | None = arguments.size
    elements: int = arguments.elements
    delay: float = arguments.delay
    fixed = None if size is None else b"x" * size
    handlers = Handlers()

    @handlers.response
    async def answer(request: Request) -> bytes:
        served[0] += 1
        if delay:
            await asyncio.sleep(delay)
        return request.data if fixed is None else fixed

    @handlers.stream
    async def stream(request: Request) -> AsyncGenerator[bytes]:
        served[0] += 1
        for _ in range(elements):
            if delay:
                await asyncio.sleep(delay)
            yield request.data if fixed is None else fixed

    @handlers.fire_and_forget
    async def take(_: Request) -> None:
        served[0] += 1

    return handlers


# --- the load -------------------------------------------------------------------------------


def plan_of(arguments: argparse.Namespace) -> LoadPlan:
    """Return the plan that the options describe.

    Raises:
        CommandError: They contradict each other, or are out of their range.
    """
    rate: float | None = arguments.rate
    if rate is not None and arguments.window is not None:
        raise CommandError("--rate is an open loop, --window a closed one", Status.USAGE)
    if rate is not None and not 0 < rate <= MAX_RATE:
        raise CommandError(f"--rate is above 0, and at most {MAX_RATE:.0f}", Status.USAGE)
    for name, most in (("clients", MAX_CLIENTS), ("window", MAX_WINDOW), ("size", MAX_SIZE)):
        if (getattr(arguments, name) or 0) > most:
            raise CommandError(f"--{name} is at most {most}", Status.USAGE)
    if arguments.duration == 0:
        raise CommandError("--duration takes more than 0 seconds", Status.USAGE)
    duration: float | None = arguments.duration
    if duration is None and arguments.count is None:
        duration = 10.0
    return LoadPlan(rate, arguments.window or 16, duration, arguments.count)


def _load(arguments: argparse.Namespace) -> None:
    access = access_of(arguments)
    plan = plan_of(arguments)
    measured = Measured()
    query = " ".join(arguments.query) or f"service={SERVICE}"

    async def work(stop: StopRequest) -> None:
        async def load() -> None:
            from ._client import connected

            async with AsyncExitStack() as stack:
                senders: list[Send] = []
                options = _options(arguments.timeout, plan, access.tls)
                for _ in range(arguments.clients):
                    entered = connected(arguments.broker, arguments.timeout, access, options)
                    client = await stack.enter_async_context(entered)
                    senders.append(_SENDERS[arguments.interaction](client, query, arguments.size))
                await generate(plan, senders, time.perf_counter, measured)

        # What was measured until Ctrl-C is printed.
        with suppress(Interrupted):
            await stop.unless(load())

    with no_log("onward"):
        run(work)
    described = {
        "interaction": arguments.interaction,
        "query": query,
        "broker": arguments.broker,
        "clients": arguments.clients,
        "rate": plan.rate,
        "window": plan.window if plan.rate is None else None,
        "size": arguments.size,
    }
    report = as_json if arguments.json else as_csv if arguments.csv else as_text
    print(report(described, measured))
    if not measured.latencies.count:
        raise CommandError("no request was answered")


def _options(timeout: float, plan: LoadPlan, tls: Any) -> ClientOptions:
    from ..transports.client import ClientOptions, LoadOptions, RetryOptions

    most = MAX_IN_FLIGHT if plan.rate is not None else plan.window
    return ClientOptions(
        connect_timeout=max(timeout, 0.001),
        request_timeout=timeout,
        element_timeout=timeout,
        drain_timeout=1.0,
        # One try: a request that is rejected is to be seen.
        retry=RetryOptions(max_tries=1),
        load=LoadOptions(max_in_flight=most, max_waiting=most),
        tls=tls,
    )


def _request(client: Client, query: str, size: int) -> Send:
    data = b"x" * size

    async def send(_: int, measured: Measured) -> None:
        answer = await client.request(query, data)
        measured.received += len(answer.data)

    return send


def _stream(client: Client, query: str, size: int) -> Send:
    data = b"x" * size

    async def send(_: int, measured: Measured) -> None:
        began = time.perf_counter()
        first = True
        async with aclosing(client.stream(query, data)) as elements:
            async for element in elements:
                if first:
                    measured.firsts.add(time.perf_counter() - began)
                    first = False
                measured.elements += 1
                measured.received += len(element.data)

    return send


def _fire_and_forget(client: Client, query: str, size: int) -> Send:
    data = b"x" * size

    async def send(_: int, __: Measured) -> None:
        await client.send(query, data)

    return send


_SENDERS: Final[dict[str, Callable[[Client, str, int], Send]]] = {
    "request": _request,
    "stream": _stream,
    "fnf": _fire_and_forget,
}
