"""`onward trace --broker`: a client's request through a broker."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from onward.actors import Node
from onward.actors.broker import Broker, BrokerOptions, Handlers, Request, WaitingOptions
from onward.actors.tracing import HopTracer
from onward.cli import main
from onward.cli._status import Status
from onward.transports.client import Client, connect
from tests.support.fixtures import Capsys

SHARD = "@shard=user service=orders user=42"


@pytest.fixture
def uri() -> Iterator[str]:
    """The URI of a broker that traces, with two connections that serve orders."""
    handlers = Handlers()

    @handlers.response
    async def answer(request: Request) -> bytes:
        return b"for " + request.data

    clients: list[Client] = []

    with Node.in_background("shop") as background:

        async def start() -> str:
            node = background.node
            node.add_instrument(HopTracer(node))
            broker = await Broker.attach(
                node, BrokerOptions(waiting=WaitingOptions(no_route_timeout=0.0))
            )
            listener = await node.listen("rsocket+tcp://127.0.0.1:0", broker=broker)
            client = connect(listener.uri, service="orders", handlers=handlers, connections=2)
            clients.append(await client.__aenter__())
            return listener.uri

        yield background.call(start)
        background.call(clients[0].close)


def told(capsys: Capsys, *words: str, status: int = 0) -> str:
    """Run the command; return what it prints, without times and without random addresses."""
    assert main(["trace", *words]) == status
    text = re.sub(r"0#[0-9a-f]{6}…", "0#……", capsys.readouterr().out)
    return re.sub(r" +[0-9]+\.[0-9]{3}\b", " 0.000", text)


def test_a_shard_request_of_a_client(uri: str, capsys: Capsys) -> None:
    table, drawing, _, answer = told(capsys, SHARD, "ann", "--broker", uri).split("\n\n")
    assert [line.split()[:5] for line in table.splitlines()[1:]] == [
        ["1", "0", "shop", "0#……", "ConnectionWorker"],
        ["2", "1", "shop", "0#broker/tags", "TagIndexWorker"],
        ["3", "2", "shop", "0#broker/tags/unicast", "Unicast"],
        ["4", "3", "shop", "0#……", "RouteWorker"],
        ["5", "4", "shop", "0#……", "ConnectionWorker"],
    ]
    assert all(line.endswith("  handled") for line in table.splitlines()[1:])
    assert (
        drawing
        == """\
    trace    shop
    ● sent
    ├───────▶│
    │        ● 1 0#…… ConnectionWorker
    │        ● 2 0#broker/tags TagIndexWorker
    │        ● 3 0#broker/tags/unicast Unicast
    │        ● 4 0#…… RouteWorker
    │        ● 5 0#…… ConnectionWorker
    │◀───────┤
    ● answer, 7 bytes"""
    )
    assert answer == "answer: for ann\n"


def test_a_request_without_an_answer(uri: str, capsys: Capsys) -> None:
    out = told(capsys, "service=tea", "a", "--broker", uri, status=Status.FAILED)
    assert "nothing was heard of that" in out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["1#127.0.0.1:1 => echo"], "bad address"),
        (["service=a", "--connect", "tcp://127.0.0.1:1"], "do not go together"),
    ],
)
def test_words_that_do_not_fit(words: list[str], said: str, uri: str, capsys: Capsys) -> None:
    assert main(["trace", *words, "--broker", uri]) == Status.USAGE
    assert said in capsys.readouterr().err


def test_a_broker_that_is_not_there(capsys: Capsys) -> None:
    words = ["trace", "service=a", "--broker", "rsocket+tcp://127.0.0.1:1", "--timeout", "5"]
    assert main(words) == Status.FAILED
    assert "cannot connect" in capsys.readouterr().err
