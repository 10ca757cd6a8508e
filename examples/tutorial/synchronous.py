"""A node for code that has no event loop, a worker that may block, and a typed call."""

from __future__ import annotations

import sqlite3

from onward.actors import Node, ThreadWorker, Worker, typed
from onward.protocol import Message


class Echo(Worker):
    def handle_message(self, message: Message) -> None:
        self.reply(message, message.payload)


# --8<-- [start:thread]
class Database(ThreadWorker):
    def on_start(self) -> None:
        self.connection = sqlite3.connect(":memory:")

    def on_stop(self) -> None:
        self.connection.close()

    def handle_message(self, message: Message) -> None:
        (answer,) = self.connection.execute(message.payload.decode()).fetchone()
        self.reply(message, str(answer).encode())


# --8<-- [end:thread]


# --8<-- [start:main]
def main() -> None:
    with Node.in_background() as background:
        background.start(Echo, address="echo")
        answer = background.request("echo", b"hello", timeout=5)
        print(answer.payload)


# --8<-- [end:main]


# --8<-- [start:call]
def call() -> None:
    async def ask_twice(node: Node) -> list[bytes]:
        return [(await node.request("database", b"select 6 * 7")).payload for _ in range(2)]

    with Node.in_background() as background:
        background.start(Database, address="database")
        print(background.call(ask_twice, background.node))


# --8<-- [end:call]


# --8<-- [start:typed]
@typed
def count(words: list[str]) -> dict[str, int]:
    return {word: words.count(word) for word in words}


def typed_call() -> None:
    with Node.in_background() as background:
        background.start(count, address="count")
        counts = background.request_value("count", ["to", "be", "to"], dict[str, int])
        print(counts)


# --8<-- [end:typed]

if __name__ == "__main__":
    main()
    call()
    typed_call()
