from __future__ import annotations

import subprocess
import sys
import types
from importlib.metadata import EntryPoint, entry_points
from typing import Any, ClassVar

import pytest

from onward.actors import Listener, Node, RuleInUse, UnknownScheme, _transports
from onward.actors._transports import GROUP, TYPES_GROUP
from onward.protocol import Address, Message, NodeStopped
from tests.support.fixtures import Caplog, Patch


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
def plugged(monkeypatch: Patch) -> None:
    """Have a good and a broken entry point, and only these."""
    module = types.ModuleType("plugged_transport")
    module.Plugged = Plugged  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "plugged_transport", module)
    entries = [
        EntryPoint("broken", "no_such_module:Broken", GROUP),
        EntryPoint("plugged", "plugged_transport:Plugged", GROUP),
        EntryPoint("5", "no_such_module:Broken", TYPES_GROUP),
        EntryPoint("210", "plugged_transport:Plugged", TYPES_GROUP),
        EntryPoint("212", "plugged_transport:Plugged", TYPES_GROUP),
    ]

    def fake(*, group: str, name: str | None = None) -> list[EntryPoint]:
        return [each for each in entries if each.group == group and name in (None, each.name)]

    monkeypatch.setattr(_transports, "entry_points", fake)


@pytest.mark.usefixtures("plugged")
def test_found_by_scheme_and_made_once() -> None:
    node = Node()
    transports = node.parts.transports
    made = transports.for_uri("plugged://x")
    assert type(made) is Plugged
    assert made.node is node
    assert transports.for_uri("plugged://y") is made
    assert transports.for_type(210) is made
    assert transports.take_all() == [made]
    assert transports.take_all() == []


@pytest.mark.usefixtures("plugged")
def test_found_by_type_and_nothing_else_is_loaded(caplog: Caplog) -> None:
    transports = Node().parts.transports
    made = transports.for_type(210)
    assert type(made) is Plugged
    assert transports.for_type(210) is made
    assert transports.for_uri("plugged://x") is made
    assert transports.for_type(211) is None
    assert caplog.records == []


@pytest.mark.usefixtures("plugged")
def test_a_broken_transport_is_logged_once(caplog: Caplog) -> None:
    transports = Node().parts.transports
    assert transports.for_type(5) is None
    assert transports.for_type(5) is None
    assert [record.getMessage() for record in caplog.records] == [
        "the transport for addresses of type 5 cannot be loaded"
    ]


@pytest.mark.usefixtures("plugged")
def test_a_transport_of_another_type_than_its_entry_point_says(caplog: Caplog) -> None:
    assert Node().parts.transports.for_type(212) is None
    (record,) = caplog.records
    assert record.getMessage() == (
        "plugged_transport:Plugged is registered for addresses of type 212 and resolves those of "
        "type 210"
    )


def test_a_transport_whose_type_no_entry_point_names(monkeypatch: Patch, caplog: Caplog) -> None:
    module = types.ModuleType("plugged_transport")
    module.Plugged = Plugged  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "plugged_transport", module)
    entry = EntryPoint("plugged", "plugged_transport:Plugged", GROUP)

    def entry_points(group: str, name: str | None = None) -> list[EntryPoint]:
        return [entry] if group == GROUP else []

    monkeypatch.setattr(_transports, "entry_points", entry_points)
    transports = Node().parts.transports
    assert transports.for_type(210) is None
    made = transports.for_uri("plugged://x")
    (record,) = caplog.records
    assert record.getMessage() == (
        "plugged_transport:Plugged resolves addresses of type 210, but no entry point '210' in the "
        "group onward.address_types names it: before its first use by URI, messages to them raise "
        "UnknownAddressType"
    )
    assert transports.for_type(210) is made


@pytest.mark.parametrize(
    ("attributes", "text"),
    [
        ({"address_type": None}, "its `scheme` is None, not a text"),
        ({"scheme": ""}, "its `scheme` is '', not a text"),
        ({"scheme": "x"}, "its `address_type` is neither None nor a number from 1 to 255"),
        ({"scheme": "x", "address_type": 0}, "its `address_type` is neither None nor a number"),
    ],
)
def test_a_class_that_declares_too_little(attributes: dict[str, object], text: str) -> None:
    made: Any = type("Bare", (), attributes)
    with pytest.raises(TypeError, match=f"Bare is no transport: {text}"):
        Node().parts.transports.add(made)


@pytest.mark.usefixtures("plugged")
def test_an_added_class_comes_before_the_entry_point() -> None:
    transports = Node().parts.transports
    transports.add(Other)
    assert type(transports.for_uri("plugged://x")) is Other
    assert transports.for_type(210) is None


def test_a_class_does_not_replace_another_of_its_scheme() -> None:
    transports = Node().parts.transports
    transports.add(Plugged)
    transports.add(Plugged)
    with pytest.raises(ValueError, match="uses Plugged for plugged:// already, so not Other"):
        transports.add(Other)
    assert type(transports.for_uri("plugged://x")) is Plugged


def test_a_transport_does_not_replace_a_rule() -> None:
    class Same(Plugged):
        scheme: ClassVar[str] = "same"

    node = Node()
    transports = node.parts.transports
    transports.add(Plugged)
    transports.add(Same)
    first = transports.for_uri("plugged://x")
    for _ in range(2):
        with pytest.raises(RuleInUse, match="type 210 are resolved by the Plugged of the node"):
            transports.for_uri("same://x")
    assert transports.take_all() == [first]


def test_the_first_message_to_an_address_loads_one_transport() -> None:
    program = """
import asyncio, sys
from onward.actors import Node

async def main():
    async with Node() as node:
        before = set(sys.modules)
        node.send("1#127.0.0.1:1 => x", b"")
        print(*sorted(set(sys.modules) - before))

asyncio.run(main())
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    loaded = set(done.stdout.split())
    assert "onward.transports.node._tcp" in loaded
    others = ("node._memory", "node._udp", "node._uds", "node._ws")
    for other in (*others, "rsocket", "client", "simulated"):
        assert f"onward.transports.{other}" not in loaded
    # The identity of the peer, and the digest of its certificate.
    few = {"onward.protocol._principal", "hashlib", "_hashlib", "_blake2"}
    assert {name for name in loaded if not name.startswith("onward.transports")} <= few


@pytest.mark.usefixtures("plugged")
def test_unknown_scheme() -> None:
    transports = Node().parts.transports
    with pytest.raises(UnknownScheme) as raised:
        transports.for_uri("nonsense")
    assert raised.value.known == ("broken", "plugged")


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


def test_each_type_that_a_transport_of_the_project_resolves_has_an_entry_point() -> None:
    ours = [each for each in entry_points(group=GROUP) if each.value.startswith("onward.")]
    classes = {each.load() for each in ours}
    types = {each.address_type: each for each in classes if each.address_type is not None}
    found = {int(each.name): each.load() for each in entry_points(group=TYPES_GROUP)}
    assert found == types
