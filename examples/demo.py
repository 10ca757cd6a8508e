"""The main job, from end to end: `make demo`.

First the broker, `onward broker`, which listens for TCP, for WebSocket and at a Unix socket:

- *one of them*: two destinations and a requester, written with the `rsocket` package. Every
  interaction runs once or more, one destination is killed, and the other takes over;
- *all of them, and the responsible one*: three shops made of handlers, and a customer, written
  with Onward's client. Each interaction goes to all shops; then each user has one shop that
  is responsible, a shop is killed, only its users move, and it opens again.

Then a broker for clients that it does not trust, with TLS, tokens and rules: what it refuses, and
what its operator sees.

Then three brokers that form a cluster: one is killed, one is cut off from the others, and both come
back. A table shows what their clients saw of it.

Then routed messages: a worker in this process sends one through a forwarder on a node in the
middle to a worker on a far node, both `onward node`, over TCP, and each hop prints both routes.

Then three nodes that dispatch by name: a consumer moves from one to another while a producer sends,
there is none for a while, and a client of AMQP takes part if Proton is installed. A table shows
what the producers saw: each message has one outcome.

Then nodes that are reached by public keys: two that only dial out, with a relay between them that
cannot read what it passes on, a topic with ten readers, and a domain of three members, of which one
is killed. A table shows what each hop can see.

Everything goes through real sockets of this machine and is checked. The last line is `demo: ok`,
or what failed, with exit status 1. Every wait has a limit, and so has the whole.
"""

from __future__ import annotations

import asyncio
import signal
import sys
import tempfile
from pathlib import Path

from demo_parts import admitted, cluster, hops, identities, names, one, processes, shops
from demo_parts.stage import DemoFailed, Record, heading

from onward.protocol import OnwardError

OVERALL = 100.0
"""Seconds the whole may take."""


async def brokered(folder: str, record: Record) -> None:
    """Start a broker, and run what needs one.

    Args:
        folder: Where its Unix socket may be.
        record: Gets what was done.
    """
    heading("A broker listens: TCP, WebSocket, Unix socket")
    uris = ("rsocket+tcp://127.0.0.1:0", "rsocket+ws://127.0.0.1:0", f"rsocket+unix://{folder}/on")
    listen = [word for uri in uris for word in ("--listen", uri)]
    async with processes.child("broker", *processes.ONWARD, "broker", *listen) as broker:
        tcp, ws, unix = [
            await broker.listening(scheme)
            for scheme in ("rsocket+tcp", "rsocket+ws", "rsocket+unix")
        ]
        record.cast.add("broker", "the broker", "onward broker", "all three", "routed all of it")
        async with processes.routes(f"rsocket+tcp://{tcp}") as routes:
            await one.run(tcp, routes, record)
            await shops.run(
                f"rsocket+tcp://{tcp}",
                f"rsocket+ws://{ws}",
                f"rsocket+unix://{unix}",
                routes,
                record,
            )
        await broker.stop()


async def main() -> None:
    # A signal ends the demo like a failure, so that no process is left behind.
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    record = Record()
    try:
        with tempfile.TemporaryDirectory() as folder:
            async with asyncio.timeout(OVERALL):
                await brokered(folder, record)
                await admitted.run(Path(folder), record)
                await cluster.run(record)
                await hops.run(record)
                await names.run(record)
                await identities.run(record)
    except TimeoutError:
        raise DemoFailed(f"not done in {OVERALL:g} s") from None
    record.print()


def run() -> int:
    """Run the demo and return its exit status."""
    try:
        asyncio.run(main())
    except (DemoFailed, OnwardError, OSError) as error:
        print(f"demo: FAILED: {error}", flush=True)
        return 1
    except (KeyboardInterrupt, asyncio.CancelledError):
        print("demo: interrupted", flush=True)
        return 1
    print("\ndemo: ok")
    return 0


if __name__ == "__main__":
    sys.exit(run())
