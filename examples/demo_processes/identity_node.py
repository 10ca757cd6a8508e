"""A node with an identity, of the demo.

It reads one command a line from standard input, and prints one result a line, both as JSON:

    {"id": 1, "do": "ask", "to": "engine:aerc…", "data": ["hello"]}
    {"id": 1, "answers": ["hello from bea"]}

Its workers are engines: `desk` answers with what it got and the name of the node, and `reader-1`
and so on print what is published. It ends with its input:

    python identity_node.py NAME [relay] [listen]
"""

from __future__ import annotations

import asyncio
import json
import secrets
import sys
from typing import Any

from onward.actors import Node, Worker
from onward.actors.identity import ROUTER, PassedOn
from onward.protocol import Message, OnwardError
from onward.protocol.identity import (
    SCOPE_ANY,
    SEED_SIZE,
    Identity,
    RelayPolicy,
    SigningKey,
    identity_text,
    parse_identity,
    short_text,
)
from onward.transports.identity import Identities

WAIT = 2.0
"""Seconds that an answer takes which is asked to wait."""


class Desk(Worker):
    """A worker that answers, a while later if it is asked to wait."""

    def handle_message(self, message: Message) -> None:
        """Answer with the name of the node behind what came."""
        answer = message.payload + f" from {self.node.name}".encode()
        if message.payload == b"wait":
            show("waits", "")
            self.after(WAIT, lambda: self.reply(message, answer))
        else:
            self.reply(message, answer)


class Reader(Worker):
    """A worker that prints what is published."""

    def handle_message(self, message: Message) -> None:
        """Print what came."""
        show("read", f"{self.address.value.decode()} {message.payload.decode()}")


def show(event: str, text: str) -> None:
    """Print an event of this node."""
    print(json.dumps({"event": event, "text": text}), flush=True)


def show_passed(seen: PassedOn) -> None:
    """Print what this node has seen of something that it relays."""
    what = "answer" if seen.is_answer else "message"
    text = [short_text(seen.previous), short_text(seen.following), what, seen.size]
    print(json.dumps({"event": "passed", "text": text}), flush=True)


class Commands:
    """The commands of the demo.

    Args:
        node: The node.
        identities: Its identities.
    """

    def __init__(self, node: Node, identities: Identities) -> None:
        self._node = node
        self._identities = identities

    async def join(self, uri: str, identity: str) -> str:
        """Join another node."""
        await self._identities.join(uri, identity=parse_identity(identity))
        return "joined"

    async def reserve(self, relay: str) -> str:
        """Reserve at a relay, so that others reach this node through it."""
        reservation = await self._identities.reserve(parse_identity(relay))
        return f"{reservation.messages} messages"

    async def ask(self, to: str, data: list[str]) -> list[str]:
        """Send requests, all at once, and return the answers, or how each failed."""

        async def one(text: str) -> str:
            try:
                answer = await self._identities.request(to, text.encode(), timeout=10)
            except OnwardError as error:
                return f"{type(error).__name__}"
            return answer.payload.decode()

        return list(await asyncio.gather(*map(one, data)))

    async def found(self, key: str, members: list[str]) -> str:
        """Found a domain."""
        nodes = [parse_identity(each) for each in members]
        return identity_text(self._identities.found_domain(_key(key), nodes))

    async def serve(self, domain: str) -> str:
        """Serve a domain by the desk."""
        self._identities.serve(parse_identity(domain), "desk")
        return "served"

    async def create(self, key: str, publishers: list[str]) -> str:
        """Create a topic that reaches other nodes."""
        others = [parse_identity(each) for each in publishers]
        topic = self._identities.create_topic(
            _key(key), engine="desk", scope=SCOPE_ANY, publishers=others
        )
        return identity_text(topic)

    async def subscribe(self, topic: str, count: int) -> str:
        """Start readers of a topic."""
        for number in range(1, count + 1):
            name = f"reader-{number}"
            await self._node.start(Reader, address=name)
            await self._identities.subscribe(parse_identity(topic), name)
        return f"{count} readers"

    async def publish(self, topic: str, data: list[str]) -> str:
        """Publish to a topic, as the desk."""
        for text in data:
            self._identities.publish(parse_identity(topic), text.encode(), source="desk")
        return "published"

    async def refused(self) -> dict[str, int]:
        """Return what was refused."""
        return self._identities.refused()


def _key(seed: str) -> SigningKey:
    return SigningKey(bytes.fromhex(seed))


async def main(name: str, *roles: str) -> None:
    lines = asyncio.StreamReader(limit=1024 * 1024)
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(lines), sys.stdin
    )
    relay = RelayPolicy(to_reserved=True) if "relay" in roles else None
    async with Node(name) as node:
        key = SigningKey(secrets.token_bytes(SEED_SIZE))
        identities = await Identities.attach(node, key, relay=relay)
        await node.start(Desk, address="desk")
        desk: Identity = identities.engine("desk")
        identities.watch_relay(show_passed)
        print(f"node {identity_text(identities.own)}", flush=True)
        print(f"desk {identity_text(desk)}", flush=True)
        if "listen" in roles:
            listener = await node.listen("tcp://127.0.0.1:0", expose=[ROUTER])
            print(f"listening {listener.uri}", flush=True)
        commands = Commands(node, identities)
        async with asyncio.TaskGroup() as tasks:
            async for line in lines:
                tasks.create_task(perform(commands, json.loads(line)))


async def perform(commands: Commands, command: dict[str, Any]) -> None:
    """Perform a command, and print its result."""
    number, do = command.pop("id"), command.pop("do")
    result: dict[str, Any] = {"id": number}
    try:
        result["answers"] = await getattr(commands, do)(**command)
    except OnwardError as error:
        result["error"] = f"{type(error).__name__}: {error}"
    print(json.dumps(result), flush=True)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
