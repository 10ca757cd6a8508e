"""Functions called over TCP, and what an error says about a retry.

Onward moves bytes that only the two ends interpret, here as JSON. The error of a failed call says
whether it may be repeated. After `NotDelivered` it may: it was not handed over. `InDoubt` means
that it was handed over and no reply came: it may have been executed.

It prints, with the port as `…`:

    add(2, 3) = 5
    divide(1, 0): the other side says: division by zero
    sleep(0.5): in doubt, ask before calling again: no answer in time
    add(2, 3): not delivered, safe to call again: link down
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

from onward.actors import Node, Worker
from onward.protocol import DeliveryError, InDoubt, Message, NotDelivered


async def add(a: float, b: float) -> float:
    return a + b


async def divide(a: float, b: float) -> float:
    return a / b


FUNCTIONS: dict[str, Callable[..., Awaitable[Any]]] = {
    "add": add,
    "divide": divide,
    "sleep": asyncio.sleep,
}


class Calculator(Worker):
    """Calls the function a message names, and answers with the result or the error."""

    async def handle_message(self, message: Message) -> None:
        # While this awaits, the worker takes no other message; the rest of the node goes on.
        call = json.loads(message.payload)
        try:
            answer = {"result": await FUNCTIONS[call["function"]](*call["arguments"])}
        except ArithmeticError as error:
            answer = {"error": str(error)}
        # The requester may have gone meanwhile. That is not a failure of this worker.
        with suppress(DeliveryError):
            self.reply(message, json.dumps(answer).encode())


class CallFailed(Exception):
    """The function was called and raised."""


async def call(node: Node, route: str, function: str, *arguments: Any, timeout: float) -> Any:
    """Call a function at the end of a route and return its result."""
    payload = json.dumps({"function": function, "arguments": arguments}).encode()
    answer = json.loads((await node.request(route, payload, timeout=timeout)).payload)
    if "error" in answer:
        raise CallFailed(answer["error"])
    return answer["result"]


async def try_call(
    node: Node, route: str, function: str, *arguments: Any, timeout: float = 10
) -> None:
    text = f"{function}({', '.join(map(str, arguments))})"
    try:
        print(f"{text} = {await call(node, route, function, *arguments, timeout=timeout)}")
    except CallFailed as error:
        print(f"{text}: the other side says: {error}")
    except NotDelivered as error:
        print(f"{text}: not delivered, safe to call again: {error.reason}")
    except InDoubt as error:
        print(f"{text}: in doubt, ask before calling again: {error.reason}")
    except DeliveryError as error:
        print(f"{text}: {error}")


async def main() -> None:
    async with Node("far") as far, Node("near") as near:
        far.spawn(Calculator, address="calculator")
        # Nothing is reachable from outside but what is exposed.
        listener = await far.listen("tcp://127.0.0.1:0", expose=["calculator"])
        # An address of type 1 is host:port; the node connects when it is first used.
        route = f"1#{listener.uri.removeprefix('tcp://')} => calculator"

        await try_call(near, route, "add", 2, 3)
        await try_call(near, route, "divide", 1, 0)
        await try_call(near, route, "sleep", 0.5, timeout=0.1)

    # The far node has stopped, and its listener with it.
    async with Node("late") as late:
        await try_call(late, route, "add", 2, 3)


if __name__ == "__main__":
    asyncio.run(main())
