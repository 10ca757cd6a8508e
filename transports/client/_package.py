"""The `rsocket` package's client, and its transport.

The package's `RSocketClient` opens a connection: it builds the SETUP, sends it first, sends the
KEEPALIVE frames, and ends its tasks when the connection is closed. It reaches the connection
through a `Transport`, an abstract class of the package; `CleanTransport` implements it. Nothing of
the package is patched, and no private name is used.

Streams bypass the package. `ClientLink` has them, with the state machine that the broker also
uses (`protocol.rsocket.Connection`). That avoids these defects of version 0.4.20, in how the
package reads, writes and serves streams:

- 1: an element without data and metadata is sent without the N flag, and is lost;
- 2: fragments lose the F and N flags of the frame that they are made of;
- 4: metadata of no bytes become no metadata;
- 5: a frame over 16 MiB - 1 is sent with a length truncated to 24 bits;
- 10: leases are neither enforced nor sent in time;
- 11: handlers are awaited by the task that reads, which reads nothing else meanwhile;
- 12: a fire-and-forget that fails is answered by an ERROR;
- 13: a second request with the id of a live stream ends that stream with an ERROR;
- 14: a CANCEL of a channel that sends nothing raises, and an ERROR ends one direction only;
- 19: the output and the received fragments are queued without a bound.

The others concern the connection, and are avoided here:

- 3: an ERROR with an application's code is not parsed. No frame of the peer reaches the
  package's parser;
- 9: after a keepalive timeout `reconnect` does nothing. It is never called: `ClientLink` detects
  a silent broker, and the pool makes a new client of the package for each connection;
- 18: a MIME type of more than 127 bytes cannot be written. Only the values of the SETUP are
  used; the frame is written by `protocol.rsocket`;
- another: `close` of a client that never connected logs a traceback. The package's client is made
  after the socket;
- another: times below a second are doubled, as their milliseconds are counted twice. The SETUP
  has the times of the options.
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
"""The package's own limit on a broker's silence, which must not be reached; see defect 9."""


class Wire(Protocol):
    """The connection as seen by the transport."""

    def send_setup(self, setup: Setup) -> None:
        """Send SETUP."""

    def send_keepalive(self) -> None:
        """Send a KEEPALIVE that has to be answered."""


class CleanTransport(Transport):  # type: ignore[misc]
    """A transport that accepts two kinds of frames from the package, and passes it none.

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
            AssertionError: The package sends another kind of frame.
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
            keepalive=max(1, round(options.keepalive.interval * 1000)),
            lifetime=max(1, round(options.keepalive.lifetime * 1000)),
            lease=bool(frame.flags_lease),
            metadata=metadata or None,
            data=bytes(frame.data or b""),
        )

    async def next_frame_generator(self) -> Any:
        """Wait until the package cancels its reader, when the connection is closed."""
        await asyncio.get_running_loop().create_future()

    async def close(self) -> None:
        """Ignore the call: the owner of the connection closes it."""


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

    def add_metadata(self, entry: bytes) -> None:
        """Add an entry of composite metadata to the SETUP; nothing if it is empty."""
        if entry:
            self._metadata = entry + (self._metadata or b"")

    async def open(self) -> None:
        """Start the package's client, which sends the SETUP and then KEEPALIVE frames."""
        options, metadata = self._options, self._metadata
        # Made here, as it starts a task at once, and cannot be closed unless connected.
        self._client = RSocketClient(
            _once(CleanTransport(self._wire, options)),
            honor_lease=options.lease is not None,
            data_encoding=options.data_mime.encode(),
            metadata_encoding=COMPOSITE_MIME.encode(),
            keep_alive_period=timedelta(seconds=options.keepalive.interval),
            max_lifetime_period=_NEVER,
            setup_payload=None if metadata is None else Payload(b"", metadata),
        )
        await self._client.connect()

    async def close(self) -> None:
        """End the package's tasks. Idempotent.

        They are ended in a task: while it waits for its tasks, the package swallows a cancellation
        of its caller, and it does not support two concurrent calls of `close`.
        """
        if self._client is None:
            return
        if self._closing is None:
            self._closing = asyncio.get_running_loop().create_task(self._client.close())
        await asyncio.wait({self._closing})


async def _once(transport: CleanTransport) -> AsyncGenerator[CleanTransport]:
    yield transport
