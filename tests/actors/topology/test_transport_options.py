"""What a topology file may say to transports."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any

import pytest

from onward.actors import MailboxOptions, Overflow
from onward.actors.topology import Topology, TopologyFailed, read
from onward.actors.topology._transport_options import options_of, transport_options
from onward.protocol.topology import OptionType, TopologyError
from onward.transports import Backoff, TlsOptions
from tests.support.certificates import Certificates

LISTENER = """
[nodes.b.workers]
echo = "echo"
[nodes.b.listeners.main]
uri = "{0}://{1}"
expose = ["echo"]
[nodes.b.listeners.main.options]
{2}
"""


def options(scheme: str, written: str) -> dict[str, object]:
    return dict(read(LISTENER.format(scheme, "x:1", written)).listeners[0].options)


@pytest.mark.parametrize(
    ("scheme", "written", "expected"),
    [
        ("tcp", "heartbeat = false", {"heartbeat": None}),
        ("tcp", "tls.certificate = 'c.pem'", {"tls": TlsOptions(certificate="c.pem")}),
        ("tls", "tls.authority = 'a.pem'", {"tls": TlsOptions(authority="a.pem")}),
        ("wss", "tls = false", {"tls": None}),
        ("tcp", "backoff = { longest = 3 }", {"backoff": Backoff(longest=3)}),
        ("uds", "mode = 0o660", {"mode": 0o660}),
        (
            "tcp",
            "mailbox = { limit = 5, overflow = 'drop-oldest' }",
            {"mailbox": MailboxOptions(5, Overflow.DROP_OLDEST)},
        ),
        ("memory", "any = 'thing'", {"any": "thing"}),
        ("gopher", "any = 'thing'", {"any": "thing"}),
    ],
)
def test_options_of_a_transport(scheme: str, written: str, expected: dict[str, object]) -> None:
    assert options(scheme, written) == expected


@pytest.mark.parametrize(
    ("scheme", "written", "problem"),
    [
        ("tcp", "mailbox = 5", "mailbox: 5 is not a table"),
        (
            "tcp",
            "mailbox.limit = 0",
            "mailbox.limit: MailboxOptions.limit must be a whole number of at",
        ),
        ("tcp", "heartbeat = 'soon'", "heartbeat: 'soon' is not a number of seconds, 0 or more"),
        ("tcp", "backoff = 3", "backoff: 3 is not a table"),
        ("tcp", "backoff.random = 3", "backoff.random: unknown key; there are: first, longest"),
        ("tcp", "queue = -1", "queue: -1 is not a whole number of at least 0"),
        (
            "tls",
            "tls.key = 'k'",
            "tls.key: key needs certificate, the certificate it is the key of",
        ),
        ("ws", "websocket.origins = ['x']", "websocket.origins: origins must be like https://host"),
        (
            "wss",
            "websocket.max_handshake = 0",
            "websocket.max_handshake: WebSocketOptions.max_handshake must",
        ),
        ("uds", "mode = '0600'", "mode: '0600' is not a whole number of at least 0"),
        ("uds", "mode = 0o1000", "mode: UdsOptions.mode must be a whole number from 0 to 0o777"),
        (
            "tcp",
            "max_connections = 0",
            "max_connections: StreamOptions.max_connections must be a whole",
        ),
        ("udp", "max_peers = 0", "max_peers: UdpOptions.max_peers must be a whole number of"),
        (
            "udp",
            "datagrams.max_age = 0",
            "datagrams.max_age: DatagramLimits.max_age must be a number of",
        ),
        ("tcp", "expose = ['x']", "expose: unknown key; there are: "),
    ],
)
def test_what_a_transport_does_not_understand(scheme: str, written: str, problem: str) -> None:
    with pytest.raises(TopologyError) as caught:
        options(scheme, written)
    told = str(caught.value)
    assert told.startswith(f"topology:8: nodes.b.listeners.main.options.{problem}")


@pytest.mark.real_time
async def test_a_topology_can_have_certificates(tmp_path: Path) -> None:
    certificates = Certificates.make(tmp_path)
    text = LISTENER.format(
        "tls", "127.0.0.1:0", f"tls = {{ certificate = '{certificates.server}' }}"
    )
    link = f"""
[nodes.a]
[[links]]
from = "a"
to = "b"
options.tls.authority = '{certificates.authority}'
"""
    async with await Topology.start(read(text + link)) as topology:
        assert topology.uris["b.main"].startswith("tls://")
        assert (await topology.node("a").request("b => echo", b"hi")).payload == b"hi"


async def test_a_transport_that_raises_anything_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    async def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr("onward.transports.MemoryTransport.listen", broken)
    plan = read(LISTENER.format("memory", "options-b", ""), "t.toml")
    with pytest.raises(TopologyFailed) as caught:
        await Topology.start(plan)
    told = (
        "t.toml:4: nodes.b.listeners.main: cannot listen at memory://options-b: ZeroDivisionError"
    )
    assert str(caught.value) == told


# --- from a class to what can be written ------------------------------------------------------
class Colour(Enum):
    RED = 1
    LIGHT_BLUE = 2


@dataclass
class Size:
    width: int
    height: int = 1


@dataclass
class Everything:
    flag: bool = False
    count: int = 1
    time: float | None = 1.0
    name: str | Path | None = None
    names: tuple[str, ...] = ()
    colour: Colour = Colour.RED
    size: Size | Callable[[], int] | None = None
    call: Callable[[], int] | None = None
    path: Path | None = None
    any: Any = None
    made: list[int] = field(default_factory=list[int])
    hidden: int = field(default=1, init=False)


def test_fields_are_options_as_far_as_toml_goes() -> None:
    known = options_of(Everything).options
    assert {name: option.type for name, option in known.items()} == {
        "flag": OptionType.FLAG,
        "count": OptionType.SIZE,
        "time": OptionType.SECONDS,
        "name": OptionType.TEXT,
        "names": OptionType.TEXTS,
        "colour": OptionType.TEXT,
        "size": OptionType.TABLE,
    }
    assert [name for name in known if known[name].can_be_off] == ["time", "name", "size"]
    assert known["colour"].choices == ("red", "light-blue")
    inner = known["size"].table
    assert inner is not None
    assert {name: option.required for name, option in inner.options.items()} == {
        "width": True,
        "height": False,
    }


def test_a_transport_that_cannot_be_loaded_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    class Entry:
        def load(self) -> object:
            raise ImportError

    def found(**_: str) -> list[Entry]:
        return [Entry()]

    monkeypatch.setattr("onward.actors.topology._transport_options.entry_points", found)
    assert transport_options("broken") is None
