"""`onward dispatch`, `onward addresses` and `onward network`."""

from __future__ import annotations

import argparse
import asyncio
import importlib
import json
import re
import shlex
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from onward.actors import Node, Refused, ReloadFailed
from onward.actors.tracing import trace
from onward.cli import main
from onward.cli._dispatch import Dispatching
from onward.cli._dispatch_tables import picture_of_network
from onward.cli._main import parser_of
from onward.cli._node import serve
from onward.cli._run import StopRequest
from onward.cli._service import Service
from onward.cli._status import CommandError, Status
from onward.protocol import Address
from onward.protocol.drawing import draw
from tests.support.amqp import needs_proton
from tests.support.commands import TIMEOUT, onward, printed
from tests.support.fixtures import Capsys, Patch

ROOT = Path(__file__).resolve().parents[2]
SVG = "{http://www.w3.org/2000/svg}"


def arguments(*words: str) -> argparse.Namespace:
    return parser_of("dispatch").parse_args(["--listen", "tcp://127.0.0.1:0", "--quiet", *words])


class Running:
    """A node of the command."""

    def __init__(self, uri: str, part: Dispatching, service: Service) -> None:
        self.uri = uri
        self.where = uri.removeprefix("tcp://")
        self.part = part
        self.service = service

    async def answer(self, near: Node, question: str) -> list[dict[str, object]]:
        route = f"1#{self.where} => management"
        answer = await near.request(route, question.encode(), timeout=TIMEOUT)
        rows: list[dict[str, object]] = json.loads(answer.payload)["rows"]
        return rows


@asynccontextmanager
async def running(*words: str) -> AsyncGenerator[Running]:
    """Run the command; yield where it listens."""
    stop, service = StopRequest(), Service()
    given = arguments(*words)
    part = Dispatching(given)
    with printed() as output:
        serving = asyncio.create_task(serve(stop, given, service, part=part))
        line = await output.line()
    try:
        yield Running(line.removeprefix("listening "), part, service)
    finally:
        stop.wish()
        await asyncio.wait_for(serving, TIMEOUT)


async def until(holds: Callable[[], Awaitable[bool]]) -> None:
    """Ask again and again until something holds."""
    async with asyncio.timeout(TIMEOUT):
        while not await holds():  # noqa: ASYNC110 - another node is asked
            await asyncio.sleep(0.02)


async def test_a_name_is_reached_through_three_nodes() -> None:
    async with AsyncExitStack() as stack:
        first = await stack.enter_async_context(
            running("--name", "a", "--expose", "34#orders", "--management", "--trace")
        )
        words = ("--name", "b", "--neighbour", f"{first.uri}=2", "--trace")
        second = await stack.enter_async_context(running(*words))
        words = ("--name", "c", "--neighbour", second.uri, "--trace")
        await stack.enter_async_context(
            running(*words, "--worker", "shop=echo", "--consume", "orders=shop")
        )
        near = await stack.enter_async_context(Node(error_replies=True))

        async def known() -> bool:
            rows = await first.answer(near, "network")
            return [(row["node"], row["cost"], row["names"]) for row in rows] == [
                ("a", 0, 0),
                ("b", 2, 0),
                ("c", 3, 1),
            ]

        await until(known)
        route = f"1#{first.where} => 34#orders"
        answer = await near.request(route, b"hello", timeout=TIMEOUT)
        assert answer.payload == b"hello"
        (row,) = await first.answer(near, "addresses")
        assert (row["name"], row["nodes"], row["accepted"]) == ("orders", 1, 1)
        found = await trace(near, route, b"traced")
        assert found.answer is not None
        assert found.answer.payload == b"traced"
        print(found.clocks, found.hops, found.gaps)
        assert {"a", "b", "c"} <= {clock.name for clock in found.clocks}


async def test_a_client_is_told_that_no_consumer_took_a_message() -> None:
    async with running("--expose", "34#orders") as there, Node() as near:
        link = await near.connect(there.uri, error_replies=True)
        with pytest.raises(Refused, match="no consumer took it"):
            await near.request((link, "34#orders"), b"hello", timeout=TIMEOUT)


async def test_a_print_worker_accepts_as_it_gets_a_message(tmp_path: Path) -> None:
    words = ("--worker", "out=print", "--consume", "orders=out", "--expose", "34#orders")
    async with running(*words) as there, Node() as near:
        with printed() as output:
            answer = await near.request(f"1#{there.where} => 34#orders", b"hi", timeout=TIMEOUT)
            assert await output.line() == "hi"
        assert answer.payload == b""


async def test_the_file_of_addresses_is_read_anew(tmp_path: Path) -> None:
    file = tmp_path / "names.toml"
    file.write_text('default = "unavailable"\n')
    words = ("--addresses", str(file), "--expose", "34#orders", "--management")
    async with running(*words) as there, Node() as near:
        link = await near.connect(there.uri, error_replies=True)
        with pytest.raises(Refused, match="not-found"):
            await near.request((link, "34#orders"), b"hello", timeout=TIMEOUT)
        file.write_text('[[name]]\npattern = "orders"\nlast = "reject"')
        assert "addresses" in await there.service.reload()
        with pytest.raises(Refused, match="undeliverable"):
            await near.request((link, "34#orders"), b"hello", timeout=TIMEOUT)
        file.write_text("nonsense = 1")
        with pytest.raises(Exception, match="nonsense"):
            await there.service.reload()


def test_a_file_has_the_options_of_the_command(tmp_path: Path) -> None:
    (tmp_path / "names.toml").write_text('default = "unavailable"\n[[name]]\npattern = "orders"\n')
    file = tmp_path / "onward.toml"
    file.write_text("""\
[dispatch]
name = "store"
listen = "tcp://127.0.0.1:0"
addresses = "names.toml"
workers = ["shop=echo"]
consumers = ["orders=shop"]
expose = ["34#orders"]
management = ""
""")
    with onward("dispatch", "--config", str(file)) as process:
        assert process.stdout is not None
        uri = process.stdout.readline().removeprefix("listening ").strip()
        where = uri.removeprefix("tcp://")
        assert main(["request", f"1#{where} => 34#orders", "hello"]) == Status.OK
        assert main(["addresses", "--node", uri]) == Status.OK


async def test_a_neighbour_may_start_later(caplog: pytest.LogCaptureFixture) -> None:
    async with running("--name", "a") as gone:
        uri = gone.uri
    async with running("--name", "b", "--neighbour", uri, "--management") as there, Node() as near:
        await until(lambda: _logged(caplog, "cannot be reached"))
        words = ("--name", "a", "--listen", uri)
        async with running(*words):

            async def joined() -> bool:
                return len(await there.answer(near, "network")) == 2

            await until(joined)


async def _logged(caplog: pytest.LogCaptureFixture, text: str) -> bool:
    return text in caplog.text


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("--name", "a/b"), "onward dispatch: --name: "),
        (("--name", ""), "onward dispatch: --name: bad name ''"),
        (("--cost", "99999999999"), "--cost: "),
        (("--settle-time", "0"), "--settle-time: "),
        (("--neighbour", "http://a"), "does not start with"),
        (("--neighbour", "all@tcp://a:1"), "--neighbour: "),
        (("--neighbour", "tcp://a"), "tcp://a: bad address 'a': not host:port"),
        (("--neighbour", "tcp://a:1=b"), "tcp://a:1=b: bad address 'a:1=b': the port is not a"),
        (("--consume", "orders=shop"), "there is no worker 0#shop to consume orders"),
    ],
)
def test_options_are_checked(words: tuple[str, ...], text: str, capsys: Capsys) -> None:
    assert main(["dispatch", *words]) == Status.USAGE
    assert text in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("--neighbour", "tcp://a:1=0"), "a cost is 1 to"),
        (("--neighbour", "@tcp://a:1"), "no name before the @"),
        (("--consume", "orders"), "is not NAME=WORKER"),
    ],
)
def test_words_that_cannot_be_read(words: tuple[str, ...], text: str, capsys: Capsys) -> None:
    with pytest.raises(SystemExit):
        main(["dispatch", *words])
    assert text in capsys.readouterr().err


def test_a_uri_with_a_query_has_no_cost() -> None:
    given = arguments("--neighbour", "tcp://a:1?x=y", "--neighbour", "tcp://a:1=7")
    assert given.neighbour == [("tcp://a:1?x=y", 1, ""), ("tcp://a:1", 7, "")]


def test_a_neighbour_may_be_pinned_to_a_name() -> None:
    given = arguments("--neighbour", "b@tcp://a:1=7", "--neighbour", "tcp://ann@a:1")
    assert given.neighbour == [("tcp://a:1", 7, "b"), ("tcp://ann@a:1", 1, "")]


def test_the_time_in_which_a_consumer_has_to_settle() -> None:
    def seconds(*words: str) -> float:
        return Dispatching(arguments(*words))._options.deliveries.settle_time

    assert (seconds(), seconds("--settle-time", "2h")) == (1_800.0, 7_200.0)


def test_with_principals_a_neighbour_needs_a_role(tmp_path: Path) -> None:
    def roles(*words: str) -> object:
        return Dispatching(arguments(*words))._options.neighbour_roles

    principals = ("--principals", str(tmp_path / "principals.toml"))
    assert roles() == ()
    assert roles(*principals) == ("neighbour",)
    assert roles("--neighbour-role", "a", "--neighbour-role", "b", *principals) == ("a", "b")


@pytest.mark.parametrize("turns", range(6))
async def test_its_end_is_not_missed_as_a_link_is_closed(turns: int, monkeypatch: Patch) -> None:
    part, closed = Dispatching(arguments()), list[Callable[[], None]]()

    def watch(_link: Address, on_closed: Callable[[], None]) -> Callable[[], None]:
        closed.append(on_closed)
        return lambda: None

    there = SimpleNamespace(node=SimpleNamespace(watch=watch), nodes=list)
    monkeypatch.setattr(part, "_running", lambda: there)
    task = asyncio.create_task(part._until_closed("tcp://there", Address(0, b"link")))
    for _ in range(4):
        await asyncio.sleep(0)
    closed[0]()
    for _ in range(turns):
        await asyncio.sleep(0)
    was_under_way = task.cancel()
    await asyncio.wait({task})
    assert task.cancelled() is was_under_way


async def test_a_neighbour_of_another_name_is_closed(
    caplog: pytest.LogCaptureFixture, monkeypatch: Patch
) -> None:
    monkeypatch.setattr("onward.cli._dispatch.LONGEST", 0.01)
    async with running("--name", "a", "--management") as there, Node() as near:
        async with running("--name", "b", "--neighbour", f"c@{there.uri}"):
            other = "to neighbour 'a' is closed: it has another name than expected"
            await until(lambda: _logged(caplog, other))
            again = f"the link to neighbour {there.uri} is closed; it is joined again in 0.01 s"
            await until(lambda: _logged(caplog, again))
            caplog.clear()
            await until(lambda: _logged(caplog, other))
        rows = await there.answer(near, "network")
        assert [row["node"] for row in rows] == ["a"]


async def test_a_neighbour_that_does_not_join_is_told(
    caplog: pytest.LogCaptureFixture, monkeypatch: Patch
) -> None:
    monkeypatch.setattr("onward.cli._dispatch.JOINED", 0.05)
    async with AsyncExitStack() as stack:
        near = await stack.enter_async_context(Node())
        there = await stack.enter_async_context(running("--name", "a"))
        words = ("--name", "b", "--neighbour", there.uri, "--management")
        first = await stack.enter_async_context(running(*words))

        async def joined() -> bool:
            return len(await first.answer(near, "network")) == 2

        await until(joined)
        caplog.clear()  # on a busy machine the first one is told as well
        await stack.enter_async_context(running(*words))
        text = f"{there.uri} does not become a neighbour"
        await until(lambda: _logged(caplog, text))
        text = "neighbour 'b' is closed: another neighbour has its name"
        await until(lambda: _logged(caplog, text))


@pytest.mark.parametrize("joins", [True, False])
async def test_whether_a_neighbour_joins_is_told_once(
    joins: bool, caplog: pytest.LogCaptureFixture, monkeypatch: Patch
) -> None:
    link, closed = Address(1, b"a:1"), list[Callable[[], None]]()
    row = SimpleNamespace(link=str(link))
    # It is away later, or joins and is away then.
    looks = [[row] if joins else [], [], [row], []]

    def nodes() -> list[SimpleNamespace]:
        found = looks.pop(0)
        if not looks:
            closed[0]()
        return found

    def watch(_: Address, callback: Callable[[], None]) -> Callable[[], None]:
        closed.append(callback)
        return closed.clear

    part = Dispatching(arguments("--name", "b"))
    dispatcher = SimpleNamespace(node=SimpleNamespace(watch=watch), nodes=nodes)
    monkeypatch.setattr(part, "_running", lambda: dispatcher)
    monkeypatch.setattr("onward.cli._dispatch.JOINED", 0)
    waiting = asyncio.create_task(part._until_closed("tcp://a:1", link))
    for _ in range(20):
        await asyncio.sleep(0)
    for callback in closed:
        callback()
    await waiting
    assert not closed
    assert caplog.text.count("does not become a neighbour") == (0 if joins else 1)
    assert len(looks) == 3


@pytest.mark.parametrize(
    ("content", "text"),
    [(None, "cannot read"), (b"\xff", "not UTF-8"), (b"nonsense = 1", "nonsense")],
)
async def test_a_file_that_cannot_be_used(content: bytes | None, text: str, tmp_path: Path) -> None:
    file = tmp_path / "names.toml"
    if content is not None:
        file.write_bytes(content)
    given = arguments("--addresses", str(file))
    with pytest.raises(CommandError, match=text):
        await asyncio.wait_for(serve(StopRequest(), given, part=Dispatching(given)), TIMEOUT)


async def test_the_file_of_containers_is_read_anew(tmp_path: Path) -> None:
    file = tmp_path / "containers.toml"
    file.write_text("")
    async with running("--containers", str(file)) as there:
        assert "containers" in await there.service.reload()
        file.write_text("nonsense = 1")
        with pytest.raises(ReloadFailed, match="nonsense"):
            await there.service.reload()
        file.unlink()
        with pytest.raises(ReloadFailed, match="cannot read"):
            await there.service.reload()


async def test_a_file_of_containers_that_cannot_be_used(tmp_path: Path) -> None:
    file = tmp_path / "containers.toml"
    file.write_text("nonsense = 1")
    given = arguments("--containers", str(file))
    with pytest.raises(CommandError, match="nonsense"):
        Dispatching(given).check()
    with pytest.raises(CommandError, match="nonsense"):
        await asyncio.wait_for(serve(StopRequest(), given, part=Dispatching(given)), TIMEOUT)


async def test_a_file_that_cannot_hold_messages(tmp_path: Path) -> None:
    given = arguments("--hold-file", str(tmp_path))
    with pytest.raises(CommandError, match="--hold-file: messages cannot be held in"):
        await asyncio.wait_for(serve(StopRequest(), given, part=Dispatching(given)), TIMEOUT)


async def test_clients_of_amqp_use_the_names() -> None:
    needs_proton()
    utils: Any = importlib.import_module("proton.utils")
    proton: Any = importlib.import_module("proton")
    words = ("--worker", "shop=echo", "--consume", "orders=shop", "--listen", "tcp://127.0.0.1:0")
    stop, given = StopRequest(), arguments(*words, "--amqp", "amqp://127.0.0.1:0")
    with printed() as output:
        serving = asyncio.create_task(serve(stop, given, part=Dispatching(given)))
        lines = [await output.line() for _ in range(2)]
    (uri,) = (line.removeprefix("listening ") for line in lines if "amqp:" in line)

    def send() -> int:
        connection = utils.BlockingConnection(uri, timeout=TIMEOUT)
        state: int = connection.create_sender("orders").send(proton.Message("a")).remote_state
        connection.close()
        return state

    try:
        sent = await asyncio.wait_for(asyncio.to_thread(send), 2 * TIMEOUT)
        assert sent == proton.Delivery.ACCEPTED
    finally:
        stop.wish()
        await asyncio.wait_for(serving, TIMEOUT)


@pytest.mark.parametrize(
    ("uri", "text"),
    [
        ("http://127.0.0.1:0", "does not start with amqp:, amqps:"),
        ("amqps://127.0.0.1:0", "amqps://127.0.0.1:0 needs a certificate"),
        ("amqp://127.0.0.1:0", r"--amqp: .* pip install 'onward\[amqp\]'"),
    ],
)
async def test_where_clients_of_amqp_cannot_be_listened_for(
    uri: str, text: str, monkeypatch: Patch
) -> None:
    def fail(name: str) -> None:
        raise ModuleNotFoundError(name=name)

    monkeypatch.setattr("onward.transports.amqp._proton.import_module", fail)
    given = arguments("--amqp", uri)
    with pytest.raises(CommandError, match=text):
        await asyncio.wait_for(serve(StopRequest(), given, part=Dispatching(given)), TIMEOUT)


async def test_a_name_that_takes_no_consumer(tmp_path: Path) -> None:
    words = ("--worker", "shop=echo", "--consume", "_topo/other/x=shop")
    given = arguments(*words)
    with pytest.raises(CommandError, match="--consume _topo/other/x: "):
        await asyncio.wait_for(serve(StopRequest(), given, part=Dispatching(given)), TIMEOUT)


def test_the_tables_of_a_running_node(capsys: Capsys, tmp_path: Path) -> None:
    words = ("--listen", "tcp://127.0.0.1:0", "--management", "--worker", "shop=echo")
    with onward("dispatch", *words, "--consume", "orders=shop", "--name", "a") as process:
        assert process.stdout is not None
        uri = process.stdout.readline().removeprefix("listening ").strip()
        assert main(["addresses", "--node", uri]) == Status.OK
        heading, row = capsys.readouterr().out.splitlines()
        assert heading.split()[:4] == ["NAME", "ROUTING", "PATTERN", "CONSUMERS"]
        assert row.split()[:4] == ["orders", "balanced", "-", "1"]
        assert main(["network", "--node", uri, "--json"]) == Status.OK
        (row,) = json.loads(capsys.readouterr().out)["rows"]
        assert (row["node"], row["cost"], row["names"]) == ("a", 0, 1)
        picture = tmp_path / "network.svg"
        assert main(["network", "--node", uri, "--svg", str(picture)]) == Status.OK
        assert ET.parse(picture).getroot().tag == f"{SVG}svg"
        assert main(["network", "--node", uri, "--svg", str(tmp_path)]) == Status.FAILED
        assert "cannot write" in capsys.readouterr().err


def test_a_node_without_management_is_told(capsys: Capsys) -> None:
    with onward("dispatch", "--listen", "tcp://127.0.0.1:0") as process:
        assert process.stdout is not None
        uri = process.stdout.readline().removeprefix("listening ").strip()
        assert main(["addresses", "--node", uri]) == Status.FAILED
    text = f"refused: 0#management (not exposed): was {uri} started with --management"
    assert text in capsys.readouterr().err


async def test_a_name_to_expose_has_its_type() -> None:
    given = arguments("--expose", "orders")
    text = "no worker 0#orders to expose; a name is exposed by --expose '34#orders'"
    with pytest.raises(CommandError, match=text):
        await asyncio.wait_for(serve(StopRequest(), given, part=Dispatching(given)), TIMEOUT)


async def test_semantics_that_are_not_served_are_told_by_file_and_pattern(tmp_path: Path) -> None:
    file = tmp_path / "names.toml"
    file.write_text(
        "default = { undeliverable = [{ hold = 10, disk = true }] }\n"
        '[[name]]\npattern = "a"\nundeliverable = [{ hold = 10, disk = true }]\n'
        '[[name]]\nprefix = "b"\ntags = "service=x"\n'
    )
    given = arguments("--addresses", str(file))
    with pytest.raises(CommandError, match=f"{file}: a: a hold on disk needs a file") as caught:
        Dispatching(given).check()
    assert f"{file}: b/#: tags are for one name" in str(caught.value)
    assert f"{file}: default: a hold on disk" in str(caught.value)
    file.write_text('[[name]]\npattern = "c"\ntags = "service=x"\n')
    with pytest.raises(CommandError, match="c: tags need a broker at this node"):
        await asyncio.wait_for(serve(StopRequest(), given, part=Dispatching(given)), TIMEOUT)


def test_containers_and_their_links_are_printed(tmp_path: Path, capsys: Capsys) -> None:
    needs_proton()
    (tmp_path / "containers.toml").write_text(
        '[[container]]\nname = "shop"\nuri = "amqp://127.0.0.1:1"\n'
        '[[container.in]]\naddress = "new-orders"\nname = "orders"\n'
        '[[container.route]]\naddress = "queue"\nname = "jobs"\n'
    )
    words = ("--listen", "tcp://127.0.0.1:0", "--management")
    file = str(tmp_path / "containers.toml")
    with onward("dispatch", *words, "--containers", file) as process:
        assert process.stdout is not None
        uri = process.stdout.readline().removeprefix("listening ").strip()

        def table(*more: str) -> list[str]:
            assert main(["containers", "--node", uri, *more]) == Status.OK
            return capsys.readouterr().out.splitlines()

        heading, row = table("--sort", "name")
        assert heading.split()[:4] == ["NAME", "URI", "STATE", "SINCE"]
        assert row.split()[:2] == ["shop", "amqp://127.0.0.1:1"]
        assert "0 of 1" in row
        heading, *rows = table("--links", "--sort", "kind")
        assert heading.split()[:4] == ["CONTAINER", "KIND", "ADDRESS", "NAME"]
        assert [each.split()[:4] for each in rows] == [
            ["shop", "in", "new-orders", "orders"],
            ["shop", "route", "queue", "jobs"],
        ]
        assert main(["containers", "--node", uri, "--links", "--filter", "kind=in"]) == Status.OK
        assert len(capsys.readouterr().out.splitlines()) == 2


def test_the_picture_of_a_network() -> None:
    rows: list[dict[str, object]] = [
        {"node": "a", "cost": 0, "next_hop": "", "names": 1, "peers": {"b": 2, "c": 1}},
        {"node": "b", "cost": 2, "next_hop": "b", "names": 0, "peers": {"a": 3}},
        {"node": "c", "cost": 1, "next_hop": "c", "names": 2, "peers": {"a": 1, "gone": 1}},
        {"node": "d", "cost": None, "next_hop": "", "names": 0, "peers": {"c": 1}},
    ]
    picture = picture_of_network(rows)
    assert draw(picture) == draw(picture_of_network(rows))
    text = " ".join(ET.fromstring(draw(picture)).itertext())
    assert "network of a" in text
    assert "2 / 3" in text
    assert "no path" in text
    assert "gone" not in text


def test_the_commands_of_the_page_run(tmp_path: Path, capsys: Capsys, monkeypatch: Patch) -> None:
    page = (ROOT / "docs" / "how-to" / "dispatch-by-name.md").read_text()
    (file,) = re.findall(r"<!-- file: names.toml -->\n```toml\n(.*?)```", page, re.DOTALL)
    nodes, client = re.findall(r"<!-- run: \w+ -->\n```bash\n(.*?)```", page, re.DOTALL)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "names.toml").write_text(file)
    ports: dict[str, str] = {}

    def words(line: str) -> list[str]:
        # All at once: a given port may begin as another written one does.
        line = re.sub(r":(\d+)\b", lambda found: f":{ports.get(found[1], found[1])}", line)
        return shlex.split(line)[1:]

    with ExitStack() as stack:
        for line in nodes.splitlines():
            (written,) = re.findall(r"--listen tcp://127.0.0.1:(\d+)", line)
            free = line.replace(f"--listen tcp://127.0.0.1:{written}", "--listen tcp://127.0.0.1:0")
            process = stack.enter_context(onward(*words(free)))
            assert process.stdout is not None
            ports[written] = process.stdout.readline().rpartition(":")[2].strip()
        request, addresses, network, picture = map(words, client.splitlines())
        assert main(request) == Status.OK  # it is held until the consumer is known
        assert capsys.readouterr().out == "12 apples\n"
        assert main(addresses) == Status.OK
        assert capsys.readouterr().out.splitlines()[1].split()[:3] == [
            "orders",
            "closest",
            "orders",
        ]
        assert main(network) == Status.OK
        rows = capsys.readouterr().out.splitlines()[1:]
        assert [row.split()[:3] for row in rows] == [
            ["a", "0", "-"],
            ["b", "1", "b"],
            ["c", "2", "b"],
        ]
        assert main(picture) == Status.OK
        assert (tmp_path / "network.svg").exists()
