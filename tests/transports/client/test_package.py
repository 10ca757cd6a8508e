"""What is used of the `rsocket` package, and that the defects that are got around are there.

A new version of the package that mends or changes something makes a test here fail. Then look
at `transports/client/_package.py` again.
"""

from __future__ import annotations

import asyncio
import importlib.metadata
import inspect
from datetime import timedelta
from typing import Any

import pytest
from rsocket.datetime_helpers import to_milliseconds
from rsocket.exceptions import RSocketProtocolError, RSocketUnknownMimetype
from rsocket.extensions.composite_metadata import CompositeMetadata
from rsocket.frame import (
    CancelFrame,
    KeepAliveFrame,
    PayloadFrame,
    SetupFrame,
    parse_or_ignore,
    serialize_prefix_with_frame_size_header,
)
from rsocket.frame_builders import to_payload_frame
from rsocket.frame_fragment_cache import FrameFragmentCache
from rsocket.frame_helpers import pack_string
from rsocket.handlers.request_channel_requester import RequestChannelRequester
from rsocket.payload import Payload
from rsocket.queue_peekable import QueuePeekable
from rsocket.rsocket_base import RSocketBase
from rsocket.rsocket_client import RSocketClient
from rsocket.transports.transport import Transport

from onward.protocol.rsocket import Setup, build_composite, error_frame, parse_frame
from onward.transports.client import KeepaliveOptions
from onward.transports.client._package import CleanTransport, PackageClient
from onward.transports.rsocket import LeaseOptions

from .peers import quick


class Wire:
    """A connection that keeps what it is told to send."""

    def __init__(self) -> None:
        self.setups: list[Setup] = []
        self.keepalives = 0
        self.news = asyncio.Event()

    def send_setup(self, setup: Setup) -> None:
        self.setups.append(setup)
        self.news.set()

    def send_keepalive(self) -> None:
        self.keepalives += 1
        self.news.set()


# --- what is used ---------------------------------------------------------------------------------


def test_the_version_is_one_that_was_looked_at() -> None:
    version = tuple(map(int, importlib.metadata.version("rsocket").split(".")))
    assert (0, 4, 20) <= version < (0, 5)


def test_a_transport_has_these_methods_and_no_others() -> None:
    assert Transport.__abstractmethods__ == {"send_frame", "next_frame_generator", "close"}
    names = {name for name in vars(Transport) if not name.startswith("_")}
    assert names == {
        "close",
        "connect",
        "next_frame_generator",
        "on_send_queue_empty",
        "requires_length_header",
        "send_frame",
    }


def test_a_client_is_made_with_these_arguments() -> None:
    assert {
        "transport_provider",
        "honor_lease",
        "data_encoding",
        "metadata_encoding",
        "keep_alive_period",
        "max_lifetime_period",
        "setup_payload",
    } <= set(inspect.signature(RSocketClient).parameters)


async def test_the_setup_says_what_the_options_say_and_keepalives_follow() -> None:
    wire = Wire()
    options = quick(
        data_mime="text/plain",
        keepalive=KeepaliveOptions(interval=0.002, lifetime=0.5),
        lease=LeaseOptions(requests=1),
    )
    client = PackageClient(wire, b"metadata", options)
    before = asyncio.all_tasks()
    await client.open()
    async with asyncio.timeout(5):
        while wire.keepalives < 2:
            await wire.news.wait()
            wire.news.clear()
    await client.close()
    await client.close()
    assert asyncio.all_tasks() <= before
    assert wire.setups == [
        Setup(data_mime="text/plain", keepalive=2, lifetime=500, lease=True, metadata=b"metadata")
    ]


async def test_who_closes_it_can_be_cancelled() -> None:
    client = PackageClient(Wire(), None, quick())
    await client.open()
    closing = [asyncio.create_task(client.close()) for _ in range(2)]
    await asyncio.sleep(0)
    closing[0].cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing[0]
    await closing[1]


async def test_a_requester_has_no_metadata_in_its_setup() -> None:
    wire = Wire()
    client = PackageClient(wire, None, quick())
    await client.open()
    await asyncio.wait_for(wire.news.wait(), 5)
    await client.close()
    assert wire.setups == [Setup(keepalive=20_000, lifetime=60_000)]


async def test_nothing_else_of_the_package_is_sent() -> None:
    with pytest.raises(AssertionError, match="unexpected"):
        await CleanTransport(Wire(), quick()).send_frame(CancelFrame())


def test_the_frames_that_are_have_these_types() -> None:
    assert SetupFrame().frame_type.name == "SETUP"
    assert KeepAliveFrame().frame_type.name == "KEEPALIVE"


# --- the defects ----------------------------------------------------------------------------------


def flags_of(frame: Any) -> int:
    data = serialize_prefix_with_frame_size_header(frame)
    return int.from_bytes(data[7:9]) & 0x3FF


def test_defect_1_an_empty_element_loses_its_flag() -> None:
    frame = to_payload_frame(1, Payload(b""), is_next=True)
    assert flags_of(frame.get_next_fragment(True)) == 0


def test_defect_2_a_fragment_loses_its_flags() -> None:
    frame = PayloadFrame()
    frame.stream_id, frame.data, frame.flags_follows = 1, b"x", True
    assert flags_of(frame.get_next_fragment(True)) & 0x80 == 0


def test_defect_3_an_error_of_the_application_cannot_be_read() -> None:
    with pytest.raises(RSocketProtocolError):
        parse_or_ignore(error_frame(1, 0x301, "own")[3:])


def test_defect_4_empty_metadata_are_dropped() -> None:
    frame = to_payload_frame(1, Payload(b"x", b""))
    assert flags_of(frame.get_next_fragment(True)) & 0x100 == 0


def test_defect_5_a_long_frame_gets_a_short_length() -> None:
    frame = to_payload_frame(1, Payload(bytes(16 * 1024 * 1024)))
    assert int.from_bytes(serialize_prefix_with_frame_size_header(frame)[:3]) == 6


async def test_defect_9_a_silent_server_leaves_a_client_that_never_recovers() -> None:
    source = inspect.getsource(RSocketClient)
    assert source.count("self._is_server_alive = True") == 1
    assert "self._is_server_alive = False" in source


def test_defect_10_leases_of_the_responder_are_not_looked_at() -> None:
    source = inspect.getsource(RSocketBase)
    assert "_responder_lease.is_request_allowed" not in source


def test_defects_11_to_13_handlers_are_awaited_in_the_loop_that_reads() -> None:
    source = inspect.getsource(RSocketBase.handle_fire_and_forget)
    assert "await self._handler.request_fire_and_forget" in source
    assert "assert_stream_id_available" in source


def test_defect_14_a_channel_that_sends_nothing_cannot_be_cancelled() -> None:
    nothing: Any = None
    channel = RequestChannelRequester(nothing, Payload(b""))
    channel.stream_id = 1
    channel.setup()
    with pytest.raises(AttributeError):
        channel.frame_received(CancelFrame())


def test_defect_16_an_unknown_id_spoils_all_metadata() -> None:
    with pytest.raises(RSocketUnknownMimetype):
        CompositeMetadata().parse(build_composite([(0x50, b"odd")]))


def test_defect_18_a_long_mime_type_cannot_be_written() -> None:
    with pytest.raises(Exception, match="byte format requires"):
        pack_string(b"x" * 200)


def test_defect_19_queues_and_fragments_have_no_bound() -> None:
    assert QueuePeekable().maxsize == 0
    assert FrameFragmentCache.__slots__ == "_frames_by_stream_id"


def test_times_below_a_second_are_doubled() -> None:
    assert to_milliseconds(timedelta(milliseconds=500)) == 1000


def test_what_the_package_cannot_read_we_can() -> None:
    assert parse_frame(error_frame(1, 0x301, "own")).error_code == 0x301
