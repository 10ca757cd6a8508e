"""A worker that cannot start while its database is down: it is restarted after growing waits.

Time is virtual. It prints:

    1.0 s: cannot connect
    3.0 s: cannot connect
    7.0 s: connected
    answered: select 1
"""

from __future__ import annotations

from onward.actors import Node, OnFailure, RestartBackoff, Supervision, Worker
from onward.actors.testing import EPOCH, run_virtual
from onward.protocol import Message


class Database(Worker):
    up_from = 0.0

    def on_start(self) -> None:
        now = self.node.loop.time() - EPOCH
        if not now:
            return
        up = now >= self.up_from
        print(f"{now:.1f} s: {'connected' if up else 'cannot connect'}")
        if not up:
            raise ConnectionError

    def handle_message(self, message: Message) -> None:
        if message.payload == b"drop":
            raise ConnectionResetError
        self.reply(message, message.payload)


async def main() -> None:
    Database.up_from = 5.0
    async with Node() as node:
        # --8<-- [start:supervision]
        supervision = Supervision(
            OnFailure.RESTART,
            max_restarts=20,
            backoff=RestartBackoff(first=1.0, longest=30.0, jitter=0.0),
        )
        await node.start(Database, address="database", supervision=supervision)
        # --8<-- [end:supervision]
        node.send("database", b"drop")
        answer = await node.request("database", b"select 1", timeout=60)
        print("answered:", answer.payload.decode())


if __name__ == "__main__":
    import logging

    logging.disable()  # each failure is logged with its traceback
    run_virtual(main())
