"""The `rsocket` package's client, and the transport of ours beneath it.

How much of the package is used. Its `RSocketClient` opens a connection: it puts the SETUP
together, sends it before anything else, keeps the rhythm of the KEEPALIVE frames, and ends its
tasks when the connection is closed. It knows the connection by a `Transport`, an abstract class
that the package offers for deriving from, and ours, `CleanTransport`, is the only way between
the two. Nothing of the package is patched, and nothing with an underscore is touched.

Streams do not pass through the package. `ClientLink` has them, with the state machine that
the broker also uses (`protocol.rsocket.Connection`). This is how it gets around these defects of
version 0.4.20, which all are in how the package reads, writes and serves streams:

- 1: an element without data and metadata is sent without the N flag: it vanishes;
- 2: fragments lose their F and N flags when they are made of frames that have some;
- 4: metadata of no bytes become no metadata;
- 5: a frame over 16 MiB - 1 is sent with a length cut to 24 bits;
- 10: leases are neither enforced nor sent in time;
- 11: handlers are awaited by the task that reads, which reads nothing else meanwhile;
- 12: a fire-and-forget that fails is answered by an ERROR;
- 13: a second request with the id of a live stream ends that stream with an ERROR;
- 14: a CANCEL of a channel that sends nothing raises, and an ERROR leaves half of it behind;
- 19: what is to be sent queues up without a bound, and so do fragments that came.

The rest concern the connection, and are got around here:

- 3: an ERROR with a code of the application's own is not even read. No frame of the peer
  reaches the package's parser;
- 9: after a time-out of the keepalive `reconnect` does nothing. It is never called: a connection
  that ends has ended, `ClientLink` sees by itself that a broker is silent, and the supervisor
  makes a new client of the package for each connection;
- 18: a MIME type of more than 127 bytes cannot be written. Of the SETUP only its values are
  taken; the frame is written by `protocol.rsocket`;
- another: `close` of a client that never connected logs a traceback. There is no client of
  the package before there is a socket;
- one that was found here: times below a second are announced doubled, as their milliseconds
  are counted twice. The SETUP says what the options say.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from datetime import timedelta
from typing import Any, Final, Protocol

from rsocket.frame import KeepAliveFrame, SetupFrame
from rsocket.payload import Payload
from rsocket.rsocket_client import RSocketClient
from rsocket.transports.transport import Transport

from ...protocol.rsocket import COMPOSITE_MIME, Setup
from ._options import ClientOptions

__all__ = ["CleanTransport", "PackageClient"]

_NEVER: Final = timedelta(days=3650)
"""So long may a broker be silent for all the package cares; see defect 9."""


class Wire(Protocol):
    """What the transport needs of a connection."""

    def send_setup(self, setup: Setup) -> None:
        """Send SETUP."""

    def send_keepalive(self) -> None:
        """Send a KEEPALIVE that has to be answered."""


class CleanTransport(Transport):  # type: ignore[misc]
    """Takes two kinds of frames from the package, and gives it none.

    Args:
        wire: The connection.
        options: The times of the SETUP.
    """

    def __init__(self, wire: Wire, options: ClientOptions) -> None:
        super().__init__()
        self._wire = wire
        self._options = options

    async def send_frame(self, frame: Any) -> None:
        """Send the SETUP or a KEEPALIVE.

        Raises:
            AssertionError: The package wants to send something else.
        """
        if isinstance(frame, SetupFrame):
            self._wire.send_setup(self._setup(frame))
            return
        if not isinstance(frame, KeepAliveFrame):
            raise AssertionError(f"unexpected {frame} of the rsocket package")  # noqa: TRY004
        self._wire.send_keepalive()

    def _setup(self, frame: Any) -> Setup:
        options = self._options
        metadata: bytes | None = frame.metadata
        return Setup(
            metadata_mime=frame.metadata_encoding.decode("ascii"),
            data_mime=frame.data_encoding.decode("ascii"),
            keepalive=max(1, round(options.keepalive * 1000)),
            lifetime=max(1, round(options.lifetime * 1000)),
            lease=bool(frame.flags_lease),
            metadata=metadata or None,
            data=bytes(frame.data or b""),
        )

    async def next_frame_generator(self) -> Any:
        """Wait; the package is cancelled here when the connection is closed."""
        await asyncio.get_running_loop().create_future()

    async def close(self) -> None:
        """Do nothing: the connection is closed by who has it."""


class PackageClient:
    """One client of the package, for one connection.

    Args:
        wire: The connection.
        metadata: The metadata of the SETUP; `None` for none.
        options: MIME types and times.
    """

    def __init__(self, wire: Wire, metadata: bytes | None, options: ClientOptions) -> None:
        self._wire = wire
        self._metadata = metadata
        self._options = options
        self._closing: asyncio.Task[None] | None = None
        self._client: Any = None

    async def open(self) -> None:
        """Have the SETUP sent, soon, and KEEPALIVE frames from then on."""
        options, metadata = self._options, self._metadata
        # Not made before: it starts a task at once, and cannot be closed unless connected.
        self._client = RSocketClient(
            _once(CleanTransport(self._wire, options)),
            honor_lease=options.leases,
            data_encoding=options.data_mime.encode(),
            metadata_encoding=COMPOSITE_MIME.encode(),
            keep_alive_period=timedelta(seconds=options.keepalive),
            max_lifetime_period=_NEVER,
            setup_payload=None if metadata is None else Payload(b"", metadata),
        )
        await self._client.connect()

    async def close(self) -> None:
        """End the package's tasks. Idempotent.

        In a task of its own: while it waits for its tasks, the package takes a cancellation of
        whoever closes it for one of theirs, and swallows it; and it is not made to be closed
        by two at once.
        """
        if self._client is None:
            return
        if self._closing is None:
            self._closing = asyncio.get_running_loop().create_task(self._client.close())
        await asyncio.wait({self._closing})


async def _once(transport: CleanTransport) -> AsyncGenerator[CleanTransport]:
    yield transport
