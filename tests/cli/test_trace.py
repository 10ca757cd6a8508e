"""`onward trace`."""

from __future__ import annotations

import json
import re
import socket
import xml.etree.ElementTree as ET
from asyncio import sleep
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from onward.actors import BackgroundNode, Node
from onward.actors.dispatch import DISPATCH, Dispatcher
from onward.actors.identity._carriage import ENGINE, Carriage, reply_address
from onward.actors.tracing import HopTracer, Trace, TraceGap, trace
from onward.actors.tracing._trace import ROOT
from onward.cli import main
from onward.cli._payload import TEXT
from onward.cli._status import CommandError, Status
from onward.cli._trace import raise_for, show
from onward.cli._trace_picture import brief, worker_of
from onward.protocol import DELIVERY, IDENTITY, Address, Message, address
from onward.protocol.identity import DestinationKind, identity_text, short_text
from onward.transports.simulated import SimulatedNetwork
from tests.support.commands import TIMEOUT, onward
from tests.support.fixtures import Capsys, Patch
from tests.support.identities import key_of
from tests.support.virtual import virtual_time
from tests.support.workers import Echo, Failing, Forwarder, start_worker


@dataclass
class Chain:
    """Two nodes in a row, behind the command's own, each in a thread.

    Attributes:
        middle: The one that is connected to; it forwards as `relay`.
        far: The one behind; it forwards as `relay2` and has `echo`.
        where: The host:port of each.
    """

    middle: BackgroundNode
    far: BackgroundNode
    where: tuple[str, str]

    def traced(self, *nodes: BackgroundNode) -> None:
        """Have nodes report hops."""
        for each in nodes:
            each.node.add_instrument(HopTracer(each.node))

    def route(self, end: str = "echo") -> str:
        middle, far = self.where
        return f"1#{middle} => relay => 1#{far} => relay2 => {end}"


@pytest.fixture
def chain() -> Iterator[Chain]:
    with ExitStack() as stack:
        middle = stack.enter_context(Node.in_background("middle"))
        far = stack.enter_context(Node.in_background("far"))
        middle.start(Forwarder, address="relay")
        far.start(Forwarder, address="relay2")
        far.start(Echo, address="echo")
        far.start(Failing, address="failing")
        uris = [
            middle.listen("tcp://127.0.0.1:0", expose=["relay"], allow=["1#*"]).uri,
            far.listen("tcp://127.0.0.1:0", expose=["relay2"], allow=["*"]).uri,
        ]
        yield Chain(middle, far, (uris[0][6:], uris[1][6:]))


def told(capsys: Capsys, *words: str, status: int = 0) -> str:
    """Run the command and return what it prints."""
    assert main(["trace", *words]) == status
    return capsys.readouterr().out


def same(text: str) -> str:
    """Leave out what differs from run to run: times, and addresses that nodes make up."""
    text = re.sub(r"0#[0-9a-f]{6}…", "0#……", text)
    return re.sub(r" +[0-9]+\.[0-9]{3}\b", " 0.000", text)


def test_it_prints_and_draws_each_hop(chain: Chain, capsys: Capsys) -> None:
    chain.traced(chain.middle, chain.far)
    table, drawing, remarks, answer = told(capsys, chain.route(), "hello").split("\n\n")
    assert [line.split()[:5] for line in same(table).splitlines()[1:]] == [
        ["1", "0", "trace", "0#……", "DialledLink"],
        ["2", "1", "middle", "0#relay", "Forwarder"],
        ["3", "2", "middle", "0#……", "DialledLink"],
        ["4", "3", "far", "0#relay2", "Forwarder"],
        ["5", "4", "far", "0#echo", "Echo"],
        ["6", "5", "far", "0#relay2", "Forwarder"],
        ["7", "6", "far", "0#……", "AcceptedLink"],
        ["8", "7", "middle", "0#relay", "Forwarder"],
        ["9", "8", "middle", "0#……", "AcceptedLink"],
    ]
    assert all(line.endswith("  handled") for line in table.splitlines()[1:])
    assert (
        same(drawing)
        == """\
    trace     middle    far
    ● sent
    ● 1 0#…… DialledLink
    ├────────▶│         │
    │         ● 2 0#relay Forwarder
    │         ● 3 0#…… DialledLink
    │         ├────────▶│
    │         │         ● 4 0#relay2 Forwarder
    │         │         ● 5 0#echo Echo
    │         │         ● 6 0#relay2 Forwarder
    │         │         ● 7 0#…… AcceptedLink
    │         │◀────────┤
    │         ● 8 0#relay Forwarder
    │         ● 9 0#…… AcceptedLink
    │◀────────┤         │
    ● answer, 5 bytes"""
    )
    first, *clocks = same(remarks).splitlines()
    assert first == "Times of trace are of the clock that all are compared with."
    assert clocks == [
        f"The clock of {name} is taken as ours, give or take 0.000 ms."
        for name in ("middle", "far")
    ]
    assert answer == "answer: hello\n"


def test_it_says_who_was_silent(chain: Chain, capsys: Capsys) -> None:
    chain.traced(chain.far)
    out = same(told(capsys, chain.route()))
    assert "After hop 1 and before hop 2, no report came of 0#…… => 0#relay." in out
    assert "and before the answer, no report came of 0#…… => 0#relay." in out
    assert f"├{'─' * 28}▶│\n" in out
    assert "● 0#…… => 0#relay\n" in out
    assert "    trace          far            (no report)\n" in out


def test_it_says_where_nothing_was_heard(chain: Chain, capsys: Capsys) -> None:
    chain.traced(chain.middle, chain.far)
    words = (chain.route("nobody"), "--timeout", "0.2")
    out = told(capsys, *words, status=Status.IN_DOUBT)
    assert "After hop 4 it was to go to 0#nobody: nothing was heard of that." in out
    assert "● to 0#nobody: nothing was heard\n    ● no answer\n" in out
    assert "Times of far are of its own clock, which could not be compared" in out


def test_no_answer_is_in_doubt(chain: Chain, capsys: Capsys) -> None:
    chain.traced(chain.far)
    words = ("--timeout", "0.2", chain.route("failing"), "!on purpose")
    assert main(["trace", *words]) == Status.IN_DOUBT
    out, error = capsys.readouterr()
    assert "failed\n" in out
    assert error == "onward trace: no answer in 0.2 s\n"


def test_an_error_reply_says_why(capsys: Capsys) -> None:
    with Node.in_background("far", error_replies=True) as far:
        far.start(Forwarder, address="relay")
        uri = "tcp://127.0.0.1:0"
        listener = far.call(far.node.listen, uri, expose=["relay"], allow=["*"], error_replies=True)
        where = listener.uri[6:]
        far.node.add_instrument(HopTracer(far.node))
        assert main(["trace", f"1#{where} => relay => nobody"]) == Status.FAILED
    out, error = capsys.readouterr()
    assert "0#relay" in out
    assert "answer:" not in out
    assert error == "onward trace: no such worker: 0#nobody\n"


def test_what_its_own_node_drops_is_not_delivered(capsys: Capsys) -> None:
    traced = Trace(
        trace="0" * 32,
        route=(address("echo"),),
        hops=(),
        gaps=(TraceGap(ROOT, None, (), (address("echo"),)),),
        clocks=(),
        answer=None,
        answered_after=None,
        took=1.0,
        lost="no connection",
    )
    text = show(traced, TEXT)
    assert "No node reported a hop" in text
    assert "From the start it was to go to 0#echo: nothing was heard of that." in text
    assert "● no answer: no connection" in text
    with pytest.raises(CommandError, match="not delivered: no connection") as raised:
        raise_for(traced, 1.0)
    assert raised.value.status is Status.FAILED
    lost = replace(traced, gaps=(TraceGap("1" * 16, "2" * 16, (), ()),))
    assert "Before the answer, at least one report was lost." in show(lost, TEXT)


def test_it_connects_first(chain: Chain, capsys: Capsys) -> None:
    words = (
        "--connect",
        f"tcp://{chain.where[0]}",
        f"relay => 1#{chain.where[1]} => relay2 => echo",
    )
    out = told(capsys, *words, "hi")
    assert out.splitlines()[1].split()[4] == "DialledLink"
    assert out.endswith("answer: hi\n")
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))  # and does not listen
        missing = f"tcp://127.0.0.1:{silent.getsockname()[1]}"
        assert main(["trace", "--connect", missing, "echo"]) == Status.FAILED
        assert main(["trace", "--connect", missing, "--timeout", "0", "echo"]) == Status.FAILED
    assert main(["trace", "--connect", "no://where", "echo"]) == Status.USAGE


def test_what_cannot_be_sent_is_not_delivered(capsys: Capsys) -> None:
    assert main(["trace", "nobody"]) == Status.FAILED
    assert "no such worker: 0#nobody" in capsys.readouterr().err


def test_it_writes_json(chain: Chain, capsys: Capsys) -> None:
    chain.traced(chain.far)
    given = json.loads(told(capsys, "--json", "--hex", chain.route(), "00ff"))
    assert given["route"] == chain.route().replace(" => r", " => 0#r").replace(" => e", " => 0#e")
    assert given["answer"]["payload"] == "00ff"
    assert [hop["kind"] for hop in given["hops"]][:3] == ["DialledLink", "Forwarder", "Echo"]
    assert given["hops"][2]["before"] == given["hops"][1]["hop"]
    assert given["silent"][0]["passed"].endswith(" => 0#relay")
    assert [clock["node"] for clock in given["clocks"]] == ["trace", "far"]
    tracer = chain.far.node.find_instrument(HopTracer)
    assert tracer is not None
    chain.far.node.remove_instrument(tracer)
    given = json.loads(
        told(capsys, "--json", "--timeout", "0.1", chain.route("nobody"), status=Status.IN_DOUBT)
    )
    assert given["answer"] is None


def test_an_answer_of_another_form_is_printed_as_hex(chain: Chain, capsys: Capsys) -> None:
    out = told(capsys, "--bare-string", chain.route(), "hi")
    assert out.endswith("answer: hi\n")
    chain.far.start(Strange, address="strange")
    out = told(capsys, "--bare-string", chain.route("strange"), "hi")
    assert out.endswith("answer: ff (as hex)\n")


class Strange(Echo):
    """Answers with what is no text."""

    def handle_message(self, message: Message) -> None:
        self.reply(message, b"\xff")


def test_it_draws_a_picture(chain: Chain, capsys: Capsys, tmp_path: Path) -> None:
    chain.traced(chain.far)
    file = tmp_path / "trace.svg"
    told(capsys, "--svg", str(file), chain.route())
    root = ET.fromstring(file.read_text("utf-8"))
    space = "{http://www.w3.org/2000/svg}"
    texts = ["".join(each.itertext()) for each in root.iter(f"{space}text")]
    assert texts[1:4] == ["trace", "far", "(no report)"]
    assert "3 0#echo Echo" in texts
    circles = list(root.iter(f"{space}circle"))
    assert len(circles) == 1 + 5 + 2 + 1  # sent, five hops, two parts in silence, answered


def test_a_picture_that_cannot_be_written_costs_no_trace(
    chain: Chain, capsys: Capsys, tmp_path: Path, monkeypatch: Patch
) -> None:
    # Before anything is sent.
    assert main(["trace", chain.route(), "--svg", str(tmp_path)]) == Status.FAILED
    assert f"cannot write {tmp_path}: " in capsys.readouterr().err
    assert chain.middle.node.statistics().handled == 0

    def full(*_: object, **__: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_text", full)
    file = tmp_path / "trace.svg"
    assert main(["trace", chain.route(), "--svg", str(file)]) == Status.IN_DOUBT
    out, error = capsys.readouterr()
    assert out.startswith("HOP")
    assert error == f"onward trace: cannot write {file}: No space left on device\n"


@pytest.mark.parametrize("name", ["trace", "(no report)"])
def test_a_node_may_be_called_what_it_likes(name: str, chain: Chain, capsys: Capsys) -> None:
    with Node.in_background(name) as odd:
        odd.node.add_instrument(HopTracer(odd.node))
        odd.start(Echo, address="echo")
        where = odd.listen("tcp://127.0.0.1:0", expose=["echo"]).uri[6:]
        _, drawing, *_ = told(capsys, f"1#{where} => echo").split("\n\n")
        assert drawing.splitlines()[0].split("  ")[-1].strip() == f"{name} (2)"
        assert [line.strip()[0] for line in drawing.splitlines()[1:]] == list("●●├│││●")
        # Beside a node that is silent.
        drawing = told(capsys, f"1#{chain.where[0]} => relay => 1#{where} => echo")
        heads = drawing.split("\n\n")[1].splitlines()[0]
        assert re.split("   +", heads.strip()) == ["trace", f"{name} (2)", "(no report)"]


def test_names_are_escaped_in_a_picture(capsys: Capsys, tmp_path: Path) -> None:
    with Node.in_background("<a & b> with a name that is longer than its box") as far:
        far.node.add_instrument(HopTracer(far.node))
        far.start(Echo, address="<&>")
        where = far.listen("tcp://127.0.0.1:0", expose=["<&>"]).uri[6:]
        file = tmp_path / "trace.svg"
        told(capsys, "--svg", str(file), f"1#{where} => <&>")
    texts = ["".join(each.itertext()) for each in ET.fromstring(file.read_text("utf-8")).iter()]
    assert any(text.startswith("<a & b> with a ") and text.endswith("…") for text in texts)


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("echo", "0#echo"),
        ("0123456789abcdef" * 2, "0#012345…"),
        ("1#localhost:4000", "1#localhost:4000"),
        ("a-worker-with-a-very-long-name", "0#a-worker-with-a-very-…"),
    ],
)
def test_addresses_are_shown_in_few_characters(given: str, shown: str) -> None:
    made: Address = address(given)
    assert brief(made) == shown


R, S = (key_of(name).identity for name in "rs")


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        (
            Carriage(DestinationKind.NODE, (R, S)).address,
            f"(way over {short_text(R)}, {short_text(S)})",
        ),
        (Carriage(DestinationKind.ENGINE).address, "(way to that engine)"),
        (Carriage(DestinationKind.NODE, topic=S).address, f"(way to the topic {short_text(S)})"),
        (Address(IDENTITY, b"by:made up"), "(way of a router)"),
        (ENGINE, "(that engine)"),
        (reply_address(DestinationKind.RELAY, bytes(16)), "(return way)"),
        (
            Address(IDENTITY, f"node:{identity_text(R)}".encode()),
            f"36#node:{identity_text(R)[:15]}…",
        ),
    ],
)
def test_what_a_router_of_identities_has_written_is_shown_as_text(
    written: Address, shown: str
) -> None:
    assert brief(written) == shown


@pytest.mark.slow
def test_processes_trace_as_they_are_told() -> None:
    with ExitStack() as stack:
        words = ("--listen", "tcp://127.0.0.1:0", "--trace")
        allow = ("--allow", "1#*")
        far = stack.enter_context(
            onward("node", *words, "--worker", "echo=echo", "--expose", "echo")
        )
        near = stack.enter_context(
            onward("node", *words, "--worker", "relay=forward", "--expose", "relay", *allow)
        )
        where: list[str] = []
        for process in (near, far):
            assert process.stdout is not None
            where.append(process.stdout.readline().strip().removeprefix("listening tcp://"))
        route = f"1#{where[0]} => relay => 1#{where[1]} => echo"
        with onward("trace", route, "hello") as tracing:
            out, error = tracing.communicate(timeout=TIMEOUT)
        assert (tracing.returncode, error) == (0, "")
    assert "● 4 0#echo VerboseEcho" in out
    assert "no report" not in out
    assert out.endswith("answer: hello\n")


@virtual_time
async def test_names_are_shown_with_the_dispatchers() -> None:
    async with SimulatedNetwork() as network:
        nodes = [await network.node(name) for name in ("a", "b", "trace")]
        for node in nodes:
            node.add_instrument(HopTracer(node))
        dispatchers = [await Dispatcher.attach(node) for node in nodes[:2]]
        for node in nodes[:2]:
            await node.listen(f"sim://{node.name}", expose=[DISPATCH, "34#orders"])
        await dispatchers[0].neighbour("sim://b")
        await start_worker(nodes[1], Echo(), "shop")
        await dispatchers[1].consume("orders", "shop")
        await sleep(10)
        link = await nodes[2].connect("sim://a")
        found = await trace(nodes[2], (link, address("34#orders")), b"12 apples")
    table, drawing, remarks, answer = show(found, TEXT).split("\n\n")
    assert "0#dispatch 34#orders  DispatchWorker" in table
    labels = [each.partition("●")[2] for each in same(drawing).splitlines() if "●" in each]
    assert labels == [
        " sent",
        " 1 0#…… DiallingLink",
        " 34#orders, dispatched",
        " 2 0#…… DiallingLink",
        " 3 0#dispatch 34#orders DispatchWorker",
        " 4 0#shop Echo",
        " answer, 9 bytes",
    ]
    assert "no report" not in remarks
    assert answer == "answer: 12 apples"
    # What cannot be read, as of a later version, is shown without a name.
    report = found.hops[2].report
    later = (report.worker, Address(DELIVERY, b"t"))
    assert worker_of(report) == "0#dispatch 34#orders"
    assert worker_of(replace(report, onward_route=later)) == "0#dispatch"
