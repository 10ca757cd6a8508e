"""A transport that an entry point makes known is taken by each command that listens or connects."""

from __future__ import annotations

import sys
import types
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import ClassVar

import pytest

from onward.actors import Node
from onward.cli import main
from onward.cli._reach import Via, reach, schemes
from onward.cli._status import CommandError
from onward.protocol import parse_route
from onward.transports import TcpTransport, TlsOptions
from tests.support.workers import Echo


class Installed(TcpTransport):
    scheme: ClassVar[str] = "other"
    schemes: ClassVar[Mapping[str, bool]] = {"other": False}
    address_type: ClassVar[int | None] = 210


@pytest.fixture(autouse=True)
def distribution(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Install a distribution with two transports, as a wheel's metadata are."""
    module = types.ModuleType("other_transport")
    vars(module).update(Installed=Installed)
    monkeypatch.setitem(sys.modules, "other_transport", module)
    about = tmp_path / "other-1.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: other\nVersion: 1\n")
    (about / "entry_points.txt").write_text(
        "[onward.transports]\nother = other_transport:Installed\n"
        "[onward.address_types]\n210 = other_transport:Installed\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))  # pyright: ignore[reportUnknownMemberType]
    return iter([None])


def test_its_scheme_is_among_those_of_nodes() -> None:
    assert "other:" in schemes()
    assert not {"memory:", "sim:", "rsocket+tcp:"} & set(schemes())


@pytest.mark.parametrize("way", ["connect", "route"])
async def test_it_is_connected_to(way: str) -> None:
    async with Node() as node, Node() as near:
        node.spawn(Echo, address="echo")
        listener = await node.listen("other://127.0.0.1:0", expose=["echo"])
        where = listener.uri.partition("://")[2]
        if way == "connect":
            _, route = await reach(near, parse_route("echo"), 5.0, Via(f"other://{where}"))
        else:
            link, route = await reach(near, parse_route(f"210#{where} => echo"), 5.0)
            assert link is not None
        assert (await near.request(route, b"hi")).payload == b"hi"


async def test_certificates_are_refused_where_there_is_no_place_for_them() -> None:
    async with Node() as near:
        with pytest.raises(CommandError, match="udp takes no certificates"):
            await reach(near, parse_route("echo"), 5.0, Via("udp://127.0.0.1:1", TlsOptions()))


def test_it_is_listened_by(capsys: pytest.CaptureFixture[str]) -> None:
    # A port that cannot be: the scheme was found, and its transport read the URI.
    assert main(["node", "--listen", "other://127.0.0.1:99999"]) == 2
    assert "cannot listen at other://127.0.0.1:99999" in capsys.readouterr().err
