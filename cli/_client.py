"""A question to a running broker, as any RSocket client would ask it."""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import AsyncGenerator
from typing import Any, Final
from urllib.parse import urlsplit

from rsocket.awaitable.awaitable_rsocket import AwaitableRSocket
from rsocket.error_codes import ErrorCode
from rsocket.exceptions import RSocketError, RSocketProtocolError
from rsocket.extensions.composite_metadata import CompositeMetadata
from rsocket.extensions.helpers import metadata_item
from rsocket.extensions.mimetypes import WellKnownMimeTypes
from rsocket.payload import Payload
from rsocket.rsocket_client import RSocketClient
from rsocket.transports.tcp import TransportTCP

from ..actors.broker import MANAGEMENT_SERVICE
from ..protocol.broker import (
    MIME_BROKER_FRAME,
    AddressFrame,
    Dialect,
    RoutingType,
    make_tags,
)
from ._arguments import no_log
from ._listen import reason_of
from ._status import CommandError, Status

__all__ = ["ask_broker"]

SCHEME: Final = "rsocket+tcp"


async def ask_broker(uri: str, question: str, timeout: float) -> Any:
    """Ask a broker about itself.

    Args:
        uri: Where it listens: `rsocket+tcp://host:port`.
        question: `routes` or `statistics`.
        timeout: How long it may take, in seconds.

    Returns:
        What its JSON says.

    Raises:
        CommandError: Nobody is there, or somebody who does not answer as a broker does.
    """
    host, port = _host_and_port(uri)
    try:
        # The package logs tracebacks of what it raises anyway.
        with no_log("pyrsocket"):
            async with asyncio.timeout(timeout):
                answer = await _ask(host, port, question)
    except TimeoutError as error:
        raise CommandError(f"no answer from {uri} in {timeout:g} s") from error
    except OSError as error:
        raise CommandError(f"cannot connect to {uri}: {reason_of(error)}") from error
    except (RSocketError, RuntimeError) as error:
        if isinstance(error, RSocketProtocolError) and error.error_code is ErrorCode.REJECTED:
            # A broker, but one that was told to keep its table to itself.
            raise CommandError(f"{uri} does not tell its routes: {error}") from error
        raise CommandError(f"{uri} does not answer as a broker does: {error}") from error
    try:
        return json.loads(answer)
    except ValueError as error:
        raise CommandError(f"{uri} is not a broker that tells its routes") from error


def _host_and_port(uri: str) -> tuple[str, int]:
    try:
        parts = urlsplit(uri)
        port = parts.port
    except ValueError as error:
        raise CommandError(f"{uri!r}: {error}", Status.USAGE) from error
    if parts.scheme != SCHEME or not parts.hostname or port is None or parts.path.strip("/"):
        raise CommandError(f"{uri!r} is not {SCHEME}://host:port", Status.USAGE)
    return parts.hostname, port


async def _ask(host: str, port: int, question: str) -> bytes:
    address = AddressFrame(
        uuid.uuid4().bytes, RoutingType.UNICAST, make_tags({"service": MANAGEMENT_SERVICE})
    )
    item = metadata_item(address.serialize(Dialect.REFERENCE), MIME_BROKER_FRAME)
    request = Payload(question.encode(), CompositeMetadata([item]).serialize())
    # Made here and not in the generator: the client would log a refusal and go on.
    transport = TransportTCP(*await asyncio.open_connection(host, port))
    async with RSocketClient(
        _once(transport),
        metadata_encoding=WellKnownMimeTypes.MESSAGE_RSOCKET_COMPOSITE_METADATA,
    ) as client:
        answer: Payload = await AwaitableRSocket(client).request_response(request)
        return bytes(answer.data or b"")


async def _once(transport: TransportTCP) -> AsyncGenerator[TransportTCP]:
    yield transport
