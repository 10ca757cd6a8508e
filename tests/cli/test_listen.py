"""Listening, and what is said when it cannot be done."""

from __future__ import annotations

import errno
import socket

import pytest

from onward.actors import Node, UnknownScheme
from onward.cli._listen import listen, reason_of
from onward.cli._status import CommandError, Status


async def test_it_listens_at_a_free_port() -> None:
    async with Node() as node:
        listener = await listen(node, "tcp://127.0.0.1:0", "tcp:")
        assert not listener.uri.endswith(":0")


@pytest.mark.parametrize(
    ("uri", "told", "status"),
    [
        ("udp://127.0.0.1:0", "does not start with tcp:", Status.USAGE),
        ("tcp://127.0.0.1", "cannot listen at tcp://127.0.0.1: bad address", Status.USAGE),
        ("tcp://127.0.0.1:70000", "the port is not a number from 0 to 65535", Status.USAGE),
    ],
)
async def test_a_uri_that_is_wrong(uri: str, told: str, status: Status) -> None:
    async with Node() as node:
        with pytest.raises(CommandError, match=told) as caught:
            await listen(node, uri, "tcp:")
    assert caught.value.status is status


async def test_a_port_that_is_taken() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        uri = f"tcp://127.0.0.1:{server.getsockname()[1]}"
        async with Node() as node:
            with pytest.raises(CommandError) as caught:
                await listen(node, uri, "tcp:")
    assert str(caught.value) == f"cannot listen at {uri}: Address already in use"
    assert caught.value.status is Status.FAILED


async def test_a_scheme_without_a_transport() -> None:
    async with Node() as node:
        with pytest.raises(UnknownScheme, match="'tcp:x' is no URI of a transport"):
            await listen(node, "tcp:x", "tcp:")


def test_the_reason_of_an_error_is_the_same_on_every_loop() -> None:
    decorated = OSError(errno.EADDRINUSE, "error while attempting to bind on address")
    assert reason_of(decorated) == "Address already in use"
    assert reason_of(socket.gaierror(-2, "Name or service not known")).startswith("Name or")
    assert reason_of(OSError("something else")) == "something else"
