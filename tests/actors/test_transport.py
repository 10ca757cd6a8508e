from __future__ import annotations

import sys
import types
from importlib.metadata import EntryPoint, entry_points
from typing import Any, ClassVar

import pytest

from onward.actors import Listener, Node, UnknownScheme, _transport
from onward.actors._transport import GROUP, Transports
from onward.protocol import Address, Message, NodeStopped
from tests.support.virtual import virtual_time


class Plugged:
    scheme: ClassVar[str] = "plugged"
    address_type: ClassVar[int | None] = 210

    def __init__(self, node: Node) -> None:
        self.node = node

    async def listen(self, uri: str, *, expose: frozenset[Address], **options: Any) -> Listener:
        raise NotImplementedError

    async def connect(self, uri: str, *, expose: frozenset[Address], **options: Any) -> Address:
        raise NotImplementedError

    def resolve(self, message: Message) -> Message | None:
        return None

    async def stop(self) -> None: ...


class Other(Plugged):
    scheme: ClassVar[str] = "plugged"
    address_type: ClassVar[int | None] = 211


@pytest.fixture
def plugged(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have a good and a broken entry point, and only these."""
    module = types.ModuleType("plugged_transport")
    module.Plugged = Plugged  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "plugged_transport", module)
    entries = [
        EntryPoint("broken", "no_such_module:Broken", GROUP),
        EntryPoint("plugged", "plugged_transport:Plugged", GROUP),
    ]

    def fake(*, group: str, name: str | None = None) -> list[EntryPoint]:
        assert group == GROUP
        return [entry for entry in entries if name in (None, entry.name)]

    monkeypatch.setattr(_transport, "entry_points", fake)


@pytest.mark.usefixtures("plugged")
def test_found_by_scheme_and_made_once() -> None:
    node = Node()
    transports = Transports(node)
    made = transports.for_uri("plugged://x")
    assert type(made) is Plugged
    assert made.node is node
    assert transports.for_uri("plugged://y") is made
    assert transports.for_type(210) is made
    assert transports.take_all() == [made]
    assert transports.take_all() == []


@pytest.mark.usefixtures("plugged")
def test_found_by_type_though_another_is_broken(caplog: pytest.LogCaptureFixture) -> None:
    transports = Transports(Node())
    assert type(transports.for_type(210)) is Plugged
    assert transports.for_type(5) is None
    assert "the transport 'broken' cannot be loaded" in caplog.text
    # What is broken stays broken, and is said once.
    assert len(caplog.records) == 1


@pytest.mark.usefixtures("plugged")
def test_an_added_class_comes_before_the_entry_point() -> None:
    transports = Transports(Node())
    transports.add(Other)
    assert type(transports.for_uri("plugged://x")) is Other
    assert transports.for_type(210) is None


@pytest.mark.usefixtures("plugged")
def test_unknown_scheme() -> None:
    transports = Transports(Node())
    with pytest.raises(UnknownScheme) as raised:
        transports.for_uri("nonsense")
    assert raised.value.known == ("broken", "plugged")


@virtual_time
async def test_the_transport_of_a_node() -> None:
    async with Node() as node:
        made = node.transport("memory")
        assert made.scheme == "memory"
        assert node.transport("memory://anything") is made
        with pytest.raises(UnknownScheme):
            node.transport("nonsense")
    with pytest.raises(NodeStopped):
        node.transport("memory")


def test_the_transports_of_the_project_are_found() -> None:
    names = {entry.name for entry in entry_points(group=GROUP)}
    assert {"memory", "tcp", "rsocket+tcp"} <= names
