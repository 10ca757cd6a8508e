"""The routing document's four examples: the routes of every numbered message, as it has them.

The tables are written from the document by hand. How it is read where it leaves a choice:

- In the second example three messages are numbered 3, and there is no 4 and no 6. By the order they
  stand in, and by the numbers in the picture, the second of them is 4 and the third is 6.
- Messages 2 and 5 there, and 3 and 6 of the third example, are the transport's own. For the second
  example the document imagines a text, which is checked; for the third nothing is said.
- A message is what the worker at the head of its arrow gets, which is also what the one at its foot
  sends. Where the foot is a transport, the address of that is taken off and put on between the two.
- The fourth example's picture shows `Dev1` where its message 1 comes from `Dev`: the device's
  address, and the identity that the server puts in its place. After message 4 the document says
  no more than that the answer comes "using the established return route": what the device gets
  follows from forwarding, and is checked too.
"""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from onward.protocol import Address, Message, Route

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"

Shown = list[tuple[Any, Any]]
Routes = dict[str, tuple[list[str], list[str]]]

FORWARDING: Routes = {
    "1": (["B", "C"], ["A"]),
    "2": (["C"], ["B", "A"]),
    "3": (["B", "A"], ["C"]),
    "4": (["A"], ["B", "C"]),
}

TO_A = "{type: TransportType, data: AddressOfA}"
TO_C = "{type: TransportType, data: AddressOfC}"

TRANSPORTS: Routes = {
    "1": ([TO_C, "C1"], ["A1"]),
    "3": (["C1"], [TO_A, "A1"]),
    "4": ([TO_A, "A1"], ["C1"]),
    "6": (["A1"], [TO_C, "C1"]),
}

SESSION: Routes = {
    "1": (["{type: #TCP, data: AddressOfC}", "C1"], ["A1"]),
    "2": (["TCPClientConnectionA1", "C1"], ["A1"]),
    "4": (["C1"], ["TCPServerConnectionC1", "A1"]),
    "5": (["TCPServerConnectionC1", "A1"], ["C1"]),
    "7": (["A1"], ["TCPClientConnectionA1", "C1"]),
}

SERVER: Routes = {
    "1": (["DevServer", "Phone"], ["Dev"]),
    "2": (["Broker", "PhoneRegistry", "Phone"], ["DevServer", "Dev1"]),
    "3": (["Phone1"], ["PhoneRegistry", "Broker", "DevServer", "Dev1"]),
    "4": (["PhoneRegistry", "Broker", "DevServer", "Dev1"], ["Phone1"]),
    "-": (["Dev"], ["DevServer", "Broker", "PhoneRegistry", "Phone1"]),
}


def example(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


async def shown_by(name: str) -> Shown:
    """Run an example; return what it shows, in order, with the numbers it gives."""
    shown: Shown = []
    run: Callable[[Callable[[Any, Any], object]], Awaitable[None]] = example(name).run
    await run(lambda number, message: shown.append((number, message)))
    return shown


def local(address: Address) -> str:
    assert address.type == 0
    return address.value.decode()


def routes(shown: Shown, named: Callable[[Address], str] = local) -> Routes:
    def names(route: Route) -> list[str]:
        return [named(address) for address in route]

    return {
        str(number): (names(message.onward_route), names(message.return_route))
        for number, message in shown
        if isinstance(message, Message)
    }


async def test_forwarding_and_replies() -> None:
    shown = await shown_by("routing_forwarding")
    assert [number for number, _ in shown] == [1, 2, 3, 4]
    assert routes(shown) == FORWARDING


async def test_transports_and_nodes() -> None:
    def named(address: Address) -> str:
        if address.type == 200:
            return f"{{type: TransportType, data: {address.value.decode()}}}"
        return local(address)

    shown = await shown_by("routing_transports")
    assert [number for number, _ in shown] == [1, 2, 3, 4, 5, 6]
    assert routes(shown, named) == TRANSPORTS
    assert (shown[1][1], shown[4][1]) == ("or:C1,rr:A1,payload:hello", "or:A1,rr:C1,payload:hello")


async def test_session_establishment() -> None:
    shown = await shown_by("routing_session")
    assert [number for number, _ in shown] == [1, 2, 4, 5, 7]
    messages: dict[int, Message] = dict(shown)
    node_c = messages[1].onward_route[0]
    client, server = messages[2].onward_route[0], messages[4].return_route[0]
    assert re.fullmatch(r"1#127\.0\.0\.1:\d+", str(node_c))
    # They identify the session: nobody can guess them, and they are not the same.
    assert all(re.fullmatch(r"0#[0-9a-f]{32}", str(each)) for each in (client, server))
    assert client != server
    names = {
        node_c: "{type: #TCP, data: AddressOfC}",
        client: "TCPClientConnectionA1",
        server: "TCPServerConnectionC1",
    }
    assert routes(shown, lambda address: names.get(address) or local(address)) == SESSION


async def test_complex_server_side_routing() -> None:
    shown = await shown_by("routing_server")
    assert [number for number, _ in shown] == ["1", "2", "3", "4", "-"]
    assert routes(shown) == SERVER


@pytest.mark.parametrize("name", ["forwarding", "transports", "session", "server"])
async def test_nobody_on_the_way_changes_the_payload(name: str) -> None:
    payloads = [
        message.payload
        for _, message in await shown_by(f"routing_{name}")
        if isinstance(message, Message)
    ]
    # There, and back.
    assert len(set(payloads)) == (2 if name == "server" else 1)
