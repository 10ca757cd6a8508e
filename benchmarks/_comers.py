"""Connections that send SETUP with credentials and are closed, as clients that come back do.

A process of its own: its work is not in the figures of the load that it disturbs. It prints
`began`, and at the end `done NUMBER` with the connections that had an answer. Each connection sends
KEEPALIVE behind SETUP, so that one which is accepted has an answer too. They come from
the addresses 127.1.0.1 and so on in turn.

    python benchmarks/_comers.py PORT NUMBER AT_A_TIME ENTRY [SOURCES]

`ENTRY` is the authentication entry in hexadecimal digits, or `-`. A `*` at its end stands for the
number of the connection, so that each guess is another one.
"""

from __future__ import annotations

import asyncio
import sys

from _rivals import raise_file_limit
from _wire import KEEPALIVE_RESPOND, frame, setup_frame


async def come(port: int, entry: bytes, source: str) -> bool:
    """Make one connection; return whether there was an answer.

    Raises:
        OSError: There is no local port left: closed connections keep theirs for a minute.
    """
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=(source, 0))
        writer.write(setup_frame("comer", credentials=entry))
        writer.write(frame(0, KEEPALIVE_RESPOND, bytes(8)))
        answer = await reader.read(1000)
        writer.close()
    except ConnectionError:
        return False
    return bool(answer)


async def main(port: int, number: int, at_a_time: int, entry: str, sources: int) -> None:
    left, answered = iter(range(number)), 0

    async def some() -> None:
        nonlocal answered
        for each in left:
            text = entry.removesuffix("*")
            guess = f"{each:08d}".encode() if entry.endswith("*") else b""
            credentials = b"" if text == "-" else bytes.fromhex(text) + guess
            source = f"127.1.{each % sources // 250}.{each % sources % 250 + 1}"
            if await come(port, credentials, source):
                answered += 1

    print("began", flush=True)
    await asyncio.gather(*(some() for _ in range(at_a_time)))
    print("done", answered, flush=True)


if __name__ == "__main__":
    raise_file_limit(20_000)
    given = sys.argv[1:]
    sources = int(given[4]) if len(given) > 4 else 1
    asyncio.run(main(int(given[0]), int(given[1]), int(given[2]), given[3], sources))
