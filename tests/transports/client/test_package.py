"""What is used of the `rsocket` package, and what of its time-keeping is got around.

Where a new version makes a test here fail, look at `transports/client/_package.py` again.
"""

from __future__ import annotations

import asyncio
import importlib.metadata
import inspect
from datetime import timedelta

import pytest
from rsocket.datetime_helpers import to_milliseconds
from rsocket.frame import (
    CancelFrame,
    KeepAliveFrame,
    SetupFrame,
)
from rsocket.rsocket_client import RSocketClient
from rsocket.transports.transport import Transport

from onward.protocol.rsocket import Setup
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


async def test_defect_9_a_silent_server_leaves_a_client_that_never_recovers() -> None:
    source = inspect.getsource(RSocketClient)
    assert source.count("self._is_server_alive = True") == 1
    assert "self._is_server_alive = False" in source


def test_times_below_a_second_are_doubled() -> None:
    assert to_milliseconds(timedelta(milliseconds=500)) == 1000
