"""The node and the broker that a hostile soak attacks, in one process.

The process prints its addresses. It answers each line of standard input with its resources in use,
as JSON.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
import json
import sys
from typing import Any

from _loop_lag import LoopLag

from onward.actors import Node, Worker, new_event_loop
from onward.actors.broker import Broker
from onward.actors.workers import Forwarder
from onward.protocol import Message
from onward.transports.rsocket import RSocketListener


class Echo(Worker):
    """A worker that replies with the payload of each message."""

    def handle_message(self, message: Message) -> None:
        self.reply(message, message.payload)


class Relay(Worker):
    """A worker that forwards each message, subject to the listener's `allow`."""

    def handle_message(self, message: Message) -> None:
        self.forward(message)


class _MallocInfo(ctypes.Structure):
    """The `struct mallinfo2` of glibc."""

    _fields_ = tuple(
        (name, ctypes.c_size_t)
        for name in (
            *("arena", "ordblks", "smblks", "hblks", "hblkhd"),
            *("usmblks", "fsmblks", "uordblks", "fordblks", "keepcost"),
        )
    )


def in_use() -> int:
    """Return the bytes of large objects in use; 0 if the C library does not report them.

    Python allocates objects of more than 512 bytes with the C library.
    """
    mallinfo = getattr(ctypes.CDLL(None), "mallinfo2", None)  # glibc 2.33 and later
    if mallinfo is None:
        return 0
    mallinfo.restype = _MallocInfo
    info = mallinfo()
    return int(info.uordblks + info.hblkhd)


def held(node: Node, broker: Broker, listener: RSocketListener) -> dict[str, Any]:
    """Return the resources in use, after free memory was returned to the system."""
    gc.collect()
    if sys.platform == "linux":
        getattr(ctypes.CDLL(None), "malloc_trim", int)(0)
    objects = {"small objects": sys.getallocatedblocks(), "large objects": in_use()}
    brokers, listeners = broker.statistics(), listener.statistics()
    return {
        **objects,
        "tasks": len(asyncio.all_tasks()),
        "workers": node.statistics().worker_count,
        "requests": node.statistics().requests,
        "routes": brokers.routes,
        "waiting": brokers.waiting,
        "waiting bytes": brokers.waiting_bytes,
        "connections": listeners.connections,
        "streams": listeners.streams,
        "closed": listeners.closed,
        "turned away": listeners.turned_away,
        "dead letters": dict(node.statistics().dead_letter_reasons),
    }


async def serve() -> None:
    """Serve until standard input ends."""
    loop = asyncio.get_running_loop()
    lag = LoopLag(loop)
    ended = loop.create_future()
    async with Node("victim") as node:
        await node.start(Echo, address="echo")
        await node.start(Relay, address="relay")
        await node.start(Forwarder, address="forward")
        plain = await node.listen("tcp://127.0.0.1:0", expose=["echo", "relay"], allow=["forward"])
        broker = await Broker.attach(node)
        listener = await node.listen("rsocket+tcp://127.0.0.1:0", broker=broker)
        assert isinstance(listener, RSocketListener)

        def answer() -> None:
            if sys.stdin.readline():
                # Read before the garbage collection, which delays the loop too.
                said = {"lag": lag.taken(), **held(node, broker, listener)}
                print(json.dumps(said), flush=True)
                lag.begin()
            elif not ended.done():
                ended.set_result(None)

        loop.add_reader(sys.stdin.fileno(), answer)
        print(json.dumps({"node": plain.uri, "broker": listener.uri}), flush=True)
        await ended
        loop.remove_reader(sys.stdin.fileno())
        lag.stop()


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(serve())
