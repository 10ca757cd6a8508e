"""`onward send` and `onward request`."""

from __future__ import annotations

import asyncio
import io
import re
import socket
import sys
import threading
from collections.abc import Iterator

import pytest

from onward.actors import Node, Worker
from onward.actors.broker import (
    ApplicationError,
    Broker,
    BrokerOptions,
    Handlers,
    Request,
    WaitingOptions,
)
from onward.cli import main
from onward.cli._status import Status
from onward.protocol import Message
from tests.support.commands import TIMEOUT, Far
from tests.support.fixtures import Capsys, Patch


class Other(Worker):
    """Answers with what is no BARE string."""

    def handle_message(self, message: Message) -> None:
        self.reply(message, b"\xff\xff")


def test_a_request_prints_the_answer(far: Far, capsys: Capsys) -> None:
    assert main(["request", f"1#{far.where} => echo", "hellö"]) == Status.OK
    assert capsys.readouterr() == ("hellö\n", "")


@pytest.mark.parametrize(
    ("option", "word"), [("--text", "plain"), ("--hex", "00ff"), ("--bare-string", "x" * 200)]
)
def test_the_answer_has_the_payloads_form(option: str, word: str, far: Far, capsys: Capsys) -> None:
    assert main(["request", f"1#{far.where} => echo", word, option]) == Status.OK
    assert capsys.readouterr().out == f"{word}\n"


def test_an_answer_of_another_form_is_shown_as_hex(far: Far, capsys: Capsys) -> None:
    far.background.start(Other, address="other")
    listener = far.background.listen("tcp://127.0.0.1:0", expose=["other"])
    where = listener.uri.removeprefix("tcp://")
    assert main(["request", f"1#{where} => other", "a", "--bare-string"]) == Status.OK
    out, err = capsys.readouterr()
    assert out == "ffff\n"
    assert "the answer cannot be read" in err


def test_a_payload_from_standard_input(far: Far, capsys: Capsys, monkeypatch: Patch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"from\nthere")))
    assert main(["request", f"1#{far.where} => echo", "-"]) == Status.OK
    assert capsys.readouterr().out == "from\nthere\n"


def test_both_messages_of_a_request_can_be_seen(far: Far, capsys: Capsys) -> None:
    assert main(["request", f"1#{far.where} => echo", "hi", "--verbose"]) == Status.OK
    sent, answered = re.sub(r"[0-9a-f]{32}", "?", capsys.readouterr().err).splitlines()
    assert sent == f"sent      onward 1#{far.where} => 0#echo  return 0#?  2 bytes"
    assert answered == "answered  onward 0#?  return 0#? => 0#echo  2 bytes"


@pytest.mark.slow
def test_no_answer_in_time_is_in_doubt(far: Far, capsys: Capsys) -> None:
    # The time includes that for connecting, which there has to be enough of.
    route = f"1#{far.where} => hidden"
    assert main(["request", route, "hi", "--timeout", "2"]) == Status.IN_DOUBT
    told = capsys.readouterr().err
    assert told.startswith("onward request: no answer in time: ")
    # The time asked for, and not what connecting has left of it.
    assert told.endswith(" (2 s)\n")


@pytest.mark.parametrize(("command", "promised"), [("send", False), ("request", True)])
def test_help_mentions_the_answer_if_any(command: str, promised: bool, capsys: Capsys) -> None:
    with pytest.raises(SystemExit):
        main([command, "--help"])
    _, _, statuses = capsys.readouterr().out.partition("exit status:\n")
    assert re.findall(r"^  (\d)  ", statuses, re.MULTILINE) == ["0", "1", "2", "3"]
    assert ("answer" in statuses) is promised


@pytest.mark.parametrize("command", ["send", "request"])
@pytest.mark.parametrize(
    ("route", "told"),
    [
        ("nobody", "no such worker: 0#nobody (begin with a node, as in 1#127.0.0.1:4000"),
        (
            "host:4000 => echo",
            (
                "no such worker: 0#host:4000 (to reach a node at this host and port, "
                "write `1#host:4000`)"
            ),
        ),
        ("200#x", "no rule for this type of address: 200#x"),
        ("1#127.0.0.1:1 => echo", "link down: 127.0.0.1:1 ("),
        ("1#a..b:1 => echo", "link down: a..b:1 ("),
    ],
)
def test_certainly_not_delivered_is_1(command: str, route: str, told: str, capsys: Capsys) -> None:
    assert main([command, route, "hi"]) == Status.FAILED
    printed = capsys.readouterr().err
    assert printed.startswith(f"onward {command}: {told}")
    assert printed.count("\n") == 1


def test_a_peer_that_says_nothing_is_not_waited_for(capsys: Capsys) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        where = f"127.0.0.1:{server.getsockname()[1]}"
        assert main(["request", f"1#{where} => a", "", "--timeout", "0.1"]) == Status.FAILED
    told = f"onward request: link down: {where} (no connection in time)\n"
    assert capsys.readouterr().err == told


@pytest.mark.parametrize("where", ["1#127.0.0.1 => a", "1#127.0.0.1:99999 => a", "1#%FF:1 => a"])
def test_a_wrong_address_of_a_host_has_status_2(where: str, capsys: Capsys) -> None:
    assert main(["request", where]) == Status.USAGE
    assert capsys.readouterr().err.startswith("onward request: bad address")


@pytest.mark.parametrize("words", [["request", "X", "hi"], ["send", "X", "hi"], ["trace", "X"]])
def test_an_identity_without_a_node_to_join_is_said_so(words: list[str], capsys: Capsys) -> None:
    given = ["36#node:aera" if each == "X" else each for each in words]
    assert main(given) == Status.USAGE
    told = (
        f"onward {words[0]}: no node is joined that knows the way to 36#node:aera: add --join URI"
    )
    assert capsys.readouterr().err == f"{told}\n"


def test_a_message_is_sent(far: Far, capsys: Capsys) -> None:
    assert main(["send", f"1#{far.where} => silent", "hi", "--verbose"]) == Status.OK
    assert far.silent.came.wait(TIMEOUT)
    assert far.silent.payload == b"hi"
    told = f"sent      onward 1#{far.where} => 0#silent  return (none)  2 bytes\n"
    assert capsys.readouterr() == ("", told)


def test_a_message_is_sent_to_its_last_byte(far: Far) -> None:
    # More than a socket's buffers hold: the command may not end while some of it waits.
    word = "7f" * 8_000_000
    assert main(["send", f"1#{far.where} => silent", word, "--hex"]) == Status.OK
    assert far.silent.came.wait(TIMEOUT)
    assert far.silent.payload == b"\x7f" * 8_000_000


def test_a_route_that_ends_at_the_connection_is_not_delivered(far: Far, capsys: Capsys) -> None:
    assert main(["send", f"1#{far.where}", "hi"]) == Status.FAILED
    assert capsys.readouterr().err == f"onward send: empty route: 1#{far.where}\n"


def peer_that_greets(then: str) -> tuple[str, threading.Thread]:
    """Start a peer that speaks the wire as far as the greeting, and then closes or stalls."""
    server = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        with server:
            peer, _ = server.accept()
            with peer:
                peer.settimeout(TIMEOUT)
                peer.sendall(b"\x01")
                # More than the greeting: the message is on its way.
                assert len(peer.recv(1) + peer.recv(1)) == 2
                if then == "close":
                    return
                server.settimeout(TIMEOUT)
                # Reads nothing until it is told that the test is over.
                server.accept()[0].close()

    thread = threading.Thread(target=serve)
    thread.start()
    return f"127.0.0.1:{server.getsockname()[1]}", thread


def test_a_connection_lost_while_sending_is_in_doubt(capsys: Capsys) -> None:
    where, thread = peer_that_greets("close")
    word = "00" * 8_000_000
    assert main(["send", f"1#{where} => a", word, "--hex"]) == Status.IN_DOUBT
    thread.join()
    assert capsys.readouterr().err.startswith("onward send: link lost: ")


@pytest.mark.slow
def test_a_peer_that_does_not_read_leaves_it_in_doubt(capsys: Capsys) -> None:
    where, thread = peer_that_greets("stall")
    words = ["send", f"1#{where} => a", "00" * 8_000_000, "--hex", "--timeout", "2"]
    assert main(words) == Status.IN_DOUBT
    host, _, port = where.rpartition(":")
    socket.create_connection((host, int(port))).close()
    thread.join()
    told = f"onward send: link lost: {where} (the peer does not read)\n"
    assert capsys.readouterr().err == told


# --- through a broker -------------------------------------------------------------------------
@pytest.fixture
def shop() -> Iterator[str]:
    """The URI of a broker with services that answer, refuse, and take their time."""
    handlers = Handlers()

    @handlers.response
    async def answer(request: Request) -> bytes:
        if request.data == b"fail":
            raise ApplicationError(0x301, "out of\nstock")
        if request.data == b"wait":
            await asyncio.Event().wait()
        return b"for " + request.data

    with Node.in_background("shop") as background:

        async def start() -> str:
            broker = await Broker.attach(
                background.node, BrokerOptions(waiting=WaitingOptions(no_route_timeout=0.0))
            )
            for region in ("eu", "us"):
                broker.serve(handlers, service="orders", tags={"region": region})
            return (await background.node.listen("rsocket+tcp://127.0.0.1:0", broker=broker)).uri

        yield background.call(start)


@pytest.mark.parametrize(
    "query",
    [
        "service=orders region=eu",
        "@multicast service=orders",
        "@shard=user service=orders user=7",
        "@sticky=user service=orders user=7",
        "@method=random @no-route=reject service=orders",
    ],
)
def test_a_destination_is_asked_through_a_broker(query: str, shop: str, capsys: Capsys) -> None:
    assert main(["request", "--broker", shop, query, "ann"]) == Status.OK
    assert capsys.readouterr() == ("for ann\n", "")


def test_what_went_through_a_broker_can_be_seen(shop: str, capsys: Capsys) -> None:
    words = ["request", "service=orders", "6f", "--hex", "--verbose", "--broker", shop]
    assert main(words) == Status.OK
    told = "sent      service=orders  1 byte\nanswered  5 bytes\n"
    assert capsys.readouterr() == (b"for o".hex() + "\n", told)


@pytest.mark.parametrize(
    ("query", "word", "status", "told"),
    [
        ("service=orders", "fail", Status.FAILED, r"0x301: out of\\nstock"),
        ("service=nobody", "a", Status.FAILED, "REJECTED: .*nobody.*"),
        ("@shard=user service=orders", "a", Status.USAGE, "bad address 'user': .*"),
        ("@often service=orders", "a", Status.USAGE, "bad address '@often': .*"),
        ("1#127.0.0.1:1 => echo", "a", Status.USAGE, "bad address .*"),
    ],
)
def test_no_answer_through_a_broker_is_said_in_a_line(
    query: str, word: str, status: Status, told: str, shop: str, capsys: Capsys
) -> None:
    assert main(["request", query, word, "--broker", shop]) == status
    out, err = capsys.readouterr()
    assert out == ""
    assert re.fullmatch(f"onward request: {told}\n", err)


@pytest.mark.slow
def test_no_answer_in_time_through_a_broker_is_in_doubt(shop: str, capsys: Capsys) -> None:
    words = ["request", "service=orders", "wait", "--broker", shop, "--timeout", "2"]
    assert main(words) == Status.IN_DOUBT
    told = "onward request: no answer in time: service=orders (2 s)\n"
    assert capsys.readouterr() == ("", told)


def test_a_broker_that_is_not_there(capsys: Capsys) -> None:
    where = "rsocket+tcp://127.0.0.1:1"
    assert main(["request", "service=orders", "--broker", where]) == Status.FAILED
    told = capsys.readouterr().err
    assert told.startswith(f"onward request: {where}: cannot connect: ")
    assert told.count("\n") == 1
    assert main(["request", "service=orders", "--broker", "http://a"]) == Status.USAGE


def test_a_broker_that_says_nothing(capsys: Capsys) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        where = f"rsocket+tcp://127.0.0.1:{server.getsockname()[1]}"
        words = ["request", "service=orders", "--broker", where, "--timeout", "0.1"]
        assert main(words) == Status.FAILED
    assert capsys.readouterr().err == f"onward request: no answer from {where} in 0.1 s\n"
