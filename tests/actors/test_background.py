from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import uvloop

from onward.actors import (
    Node,
    Refused,
    Worker,
    WouldDeadlock,
    _background as background_module,
    new_event_loop,
    typed,
)
from onward.actors.access import Access, AccessDenied, deny_all
from onward.protocol import Address, Message, NodeStopped, UnknownAddress
from onward.protocol.payloads import JSON, PayloadError
from tests.support.commands import TIMEOUT
from tests.support.compiled import interpreted
from tests.support.loops import LoopFactory, on_each_loop
from tests.support.workers import Echo, Failing, Recorder

pytestmark = pytest.mark.real_time


@on_each_loop
def test_a_node_for_synchronous_code(loop_factory: LoopFactory) -> None:
    recorder = Recorder()
    with Node.in_background("somewhere", loop_factory=loop_factory) as background:
        assert background.start(Echo, address="echo") == Address(0, b"echo")
        background.start(lambda: recorder, address="recorder")
        assert background.request("echo", b"hi", timeout=10).payload == b"hi"
        background.send("recorder", b"1", return_route="echo")
        # FIFO: when this is answered, the one before it has been handled.
        background.node.ref("recorder").ask("settled")
        assert recorder.payloads == [b"1"]
        assert background.call(asyncio.sleep, 0, "result") == "result"
        assert background.node.name == "somewhere"
        with pytest.raises(UnknownAddress):
            background.request("nobody", b"")
        with pytest.raises(UnknownAddress):
            background.send("nobody", b"")
        background.start(Echo, address="closed", access=Access(incoming=deny_all))
        with pytest.raises(AccessDenied):
            background.send("closed", b"")
    assert recorder.events == ["start", "stop"]
    with pytest.raises(NodeStopped):
        background.send("recorder", b"")
    with pytest.raises(NodeStopped):
        background.request("recorder", b"")
    background.stop()


def test_the_examples_of_the_page() -> None:
    file = Path(__file__).parents[2] / "examples/tutorial/synchronous.py"
    done = subprocess.run(
        [sys.executable, "-W", "error", str(file)],
        check=True,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stdout.splitlines() == ["b'hello'", "[b'42', b'42']", "{'to': 2, 'be': 1}"]


@typed
def length(text: str) -> int:
    return len(text)


@typed(codec=JSON)
def note(text: str) -> None:
    assert text


def test_values_from_synchronous_code() -> None:
    with Node.in_background() as background:
        background.start(length, address="length")
        background.start(note, address="note")
        assert background.request_value("length", "four", int) == 4
        background.request_value("note", "four", None, codec=JSON)
        with pytest.raises(PayloadError, match="Expected str, got int"):
            background.request_value("length", "four", str)
        with pytest.raises(Refused, match="Expected str, got int"):
            background.request_value("length", 4, int)


def test_not_open_and_open_twice() -> None:
    background = Node.in_background()
    background.stop()
    with pytest.raises(RuntimeError, match="has not been started"):
        background.call(asyncio.sleep, 0)
    with background, pytest.raises(RuntimeError, match="started already"):
        background.open()


def test_no_call_on_a_loop() -> None:
    async def main() -> None:
        with pytest.raises(WouldDeadlock):
            background.request("echo", b"")

    with Node.in_background() as background:
        asyncio.run(main())


async def test_nothing_is_started_on_a_loop() -> None:
    made = list[asyncio.AbstractEventLoop]()

    def loop_factory() -> asyncio.AbstractEventLoop:
        made.append(new_event_loop())
        return made[-1]

    background = Node.in_background("refused", loop_factory=loop_factory)
    with pytest.raises(WouldDeadlock, match="open"):
        background.open()
    with pytest.raises(WouldDeadlock), background:
        pass
    assert made == []
    assert not any(thread.name == "refused" for thread in threading.enumerate())
    # It was not spoilt by that: a thread without a loop can still start it.
    await asyncio.to_thread(background.open)
    await asyncio.to_thread(background.stop)
    assert [loop.is_closed() for loop in made] == [True]


def test_listen_and_connect() -> None:
    with Node.in_background() as background:
        background.start(Echo, address="echo")
        listener = background.listen("memory://background", expose=["echo"])
        connection = background.connect("memory://background")
        answer = background.request((connection, Address(0, b"echo")), b"hi")
        assert answer.payload == b"hi"
        assert listener.uri == "memory://background"


def test_a_handler_that_exits_does_not_end_the_loop(caplog: pytest.LogCaptureFixture) -> None:
    class Exiting(Worker):
        def handle_message(self, message: Message) -> None:
            raise SystemExit(3)

    with Node.in_background() as background:
        background.start(Exiting, address="exiting")
        background.start(Echo, address="echo")
        background.send("exiting", b"")
        assert background.request("echo", b"hi").payload == b"hi"
        assert not background.node.has("exiting")
    assert "which continues" in caplog.text


@interpreted
def test_a_node_that_does_not_stop_is_left_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    with Node.in_background("left") as background:
        background.start(Failing, address="failing")

        async def broken(*, timeout: float) -> None:
            raise ValueError(timeout)

        monkeypatch.setattr(background.node, "stop", broken)
        with pytest.raises(ValueError, match="5"):
            background.stop()
        assert not any(thread.name == "left" for thread in threading.enumerate())


@on_each_loop
def test_calls_of_a_stopping_node(
    loop_factory: LoopFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(background_module, "_LAST_STEPS", 0.05)
    background = Node.in_background(loop_factory=loop_factory)
    background.open()
    begun, cut, over = threading.Semaphore(0), threading.Event(), threading.Event()

    async def willing() -> None:
        begun.release()
        await asyncio.sleep(1000)

    async def stubborn() -> None:
        # It does not end, of which asyncio would tell as of a mistake.
        asyncio.current_task()._log_destroy_pending = False  # type: ignore[union-attr]
        begun.release()
        while True:
            try:
                await asyncio.sleep(1000)
            except asyncio.CancelledError:
                cut.set()
                over.wait(TIMEOUT)

    with ThreadPoolExecutor(3) as threads:
        calls = [threads.submit(background.call, each) for each in (willing, stubborn)]
        for _ in calls:
            assert begun.acquire(timeout=TIMEOUT)
        stop = threads.submit(background.stop)
        assert cut.wait(TIMEOUT)  # the last steps have begun
        with pytest.raises(NodeStopped):
            background.call(willing)
        over.set()
        background.stop()
        stop.result(TIMEOUT)
        for call in calls:
            with pytest.raises(NodeStopped):
                call.result(TIMEOUT)


def test_the_loop_is_uvloop_s_where_there_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = new_event_loop()
    assert isinstance(loop, uvloop.Loop)
    loop.close()
    monkeypatch.setitem(sys.modules, "uvloop", None)
    loop = new_event_loop()
    assert isinstance(loop, asyncio.SelectorEventLoop)
    loop.close()


def run_script(script: str) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", script],
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout


def test_the_default_node_stops_at_exit() -> None:
    script = """
from onward.actors import Worker

class Ending(Worker):
    def on_receive(self, message):
        return message

    def on_stop(self):
        print("stopped")

print(Ending.start().ask("asked"))
"""
    assert run_script(script) == "asked\nstopped\n"


def test_the_default_node_after_a_fork() -> None:
    script = """
import os
from onward.actors import Worker

class Adding(Worker):
    def on_receive(self, message):
        return message + 1

assert Adding.start().ask(1) == 2
child = os.fork()
if child == 0:
    os._exit(Adding.start().ask(40))
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    assert run_script(script) == "41\n"


FORKED = """
import os, sys
from onward.actors import Node, Worker
from onward.protocol import NodeStopped

class Echo(Worker):
    def handle_message(self, message):
        self.reply(message, message.payload)

    def on_receive(self, message):
        return message

    def on_stop(self):
        print("stopped", flush=True)

with Node.in_background("before") as background:
    background.start(Echo, address="echo")
    node, ref = background.node, background.node.ref("echo")
    assert ref.is_alive()
    child = os.fork()
    if child == 0:
        calls = {
            "send": lambda: background.send("echo", b""),
            "request": lambda: background.request("echo", b"hi"),
            "start": lambda: background.start(Echo),
            "listen": lambda: background.listen("memory://x"),
            "call": lambda: background.call(node.stop_worker, "echo"),
            "node.send": lambda: node.send("echo", b""),
            "node.spawn": lambda: node.spawn(Echo),
        }
        for name, call in calls.items():
            try:
                call()
            except NodeStopped as error:
                assert "forked" in str(error), error
            else:
                print(name, "did not raise")
        assert not ref.is_alive()
        try:
            ref.ask("hi")
        except Exception as error:
            print(type(error).__name__)
        assert node.statistics().worker_count == 0
        assert node.dead_letters.total == 0
        with Node.in_background("after") as other:
            other.start(Echo, address="echo")
            print(other.request("echo", b"from the child").payload.decode(), flush=True)
        background.stop()  # there is nothing to stop
        sys.exit(7)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    print(status, background.request("echo", b"from the parent").payload.decode(), ref.ask("hi"))
"""


def test_a_background_node_in_the_child_of_a_fork_raises_at_once() -> None:
    assert run_script(FORKED).splitlines() == [
        "ActorDeadError",
        "from the child",
        "stopped",
        "7 from the parent hi",
        "stopped",
    ]


async def test_the_default_node_is_not_started_on_a_loop() -> None:
    default = background_module._Default()
    with pytest.raises(WouldDeadlock):
        default.get()
    node = await asyncio.to_thread(default.get)
    assert default.get() is node
    assert default._background is not None
    await asyncio.to_thread(default._background.stop)


def test_forget() -> None:
    default = background_module._Default()
    default._background = Node.in_background()
    default.forget()
    assert default._background is None
