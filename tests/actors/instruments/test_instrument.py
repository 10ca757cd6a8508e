"""The instruments of a node: composition, faults, sampling, and messages with a tracing text."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager

import pytest

from onward.actors import Instrument, Node, ThreadWorker, TracedMessage, Watch, Worker
from onward.actors.routing._given import as_route
from onward.protocol import Address, Context, Message
from tests.support.fixtures import Caplog, Patch
from tests.support.workers import Echo, Failing, Gate, Recorder, spawn_worker

TRACED = Context(trace='{"a":"b"}')


class Handled(Instrument):
    def __init__(self) -> None:
        self.seen: list[tuple[str, bytes, str]] = []
        self.lost: list[str] = []

    def message_handled(
        self, worker: Worker, message: Message, seconds: float, error: BaseException | None
    ) -> None:
        assert seconds >= 0
        self.seen.append((str(worker.address), message.payload, type(error).__name__))

    def message_lost(self, message: Message, reason: str) -> None:
        self.lost.append(reason)


class Slow(ThreadWorker):
    def handle_message(self, message: Message) -> None:
        """Take the message on the thread."""


async def test_each_handled_and_each_lost_message_is_observed() -> None:
    handled = Handled()
    gate = Gate()
    async with Node(diagnostics=None) as node:
        node.spawn(Recorder, address="echo")
        node.send("echo", b"before")
        await asyncio.sleep(0)
        node.add_instrument(handled)
        node.add_instrument(handled)
        assert node.find_instrument(Handled) is handled
        assert node.find_instrument(Looks) is None
        node.spawn(lambda: gate, address="gate")
        node.spawn(Failing, address="failing")
        node.send("echo", b"1")
        node.send("gate", b"2")
        node.send("failing", b"!")
        assert not node.parts.router.dispatch_or_lose(Message(as_route("nobody"), (), b""))
        await asyncio.sleep(1)
        assert sorted(handled.seen) == [
            ("0#echo", b"1", "NoneType"),
            ("0#failing", b"!", "ValueError"),
        ]
        gate.opened.set()
        await asyncio.sleep(1)
        assert handled.seen[-1] == ("0#gate", b"2", "NoneType")
        assert sorted(handled.lost) == ["no such worker", "worker failed"]
        assert node.remove_instrument(handled)
        assert not node.remove_instrument(handled)
        assert node.instruments is None
        node.send("echo", b"after")
        await asyncio.sleep(1)
        assert len(handled.seen) == 3


@pytest.mark.real_time
async def test_a_message_of_a_thread_worker_is_observed_at_its_end(node: Node) -> None:
    handled = Handled()
    node.add_instrument(handled)
    await node.start(Slow, address="slow")
    node.send("slow", b"x")
    await node.stop_worker("slow")
    assert handled.seen == [("0#slow", b"x", "NoneType")]


def test_an_instrument_is_one() -> None:
    with pytest.raises(ValueError, match="instrument must be Instrument"):
        Node().add_instrument(object())  # type: ignore[arg-type]


# --- messages with a tracing text -----------------------------------------------------------
class Looks(Instrument):
    """Notes the hooks around the handling of a message, and adds a field to its text."""

    def __init__(self, name: str, notes: list[str]) -> None:
        self.name = name
        self.notes = notes

    def message_traced(self, worker: Worker, traced: TracedMessage) -> Watch | None:
        if traced.fields is None:
            self.notes.append(f"{self.name} none")
            return None
        assert traced.replace({**traced.fields, self.name: "x"})
        return Around(self.name, self.notes)


class Around(Watch):
    def __init__(self, name: str, notes: list[str]) -> None:
        self.name = name
        self.notes = notes

    def step(self) -> AbstractContextManager[object]:
        return self._step()

    @contextmanager
    def _step(self) -> Generator[None]:
        self.notes.append(f"{self.name} in")
        yield
        self.notes.append(f"{self.name} out")

    def suspended(self) -> None:
        self.notes.append(f"{self.name} suspended")

    def ended(self, error: BaseException | None) -> None:
        self.notes.append(f"{self.name} ended")


async def test_the_first_instrument_encloses_the_others(monkeypatch: Patch, node: Node) -> None:
    from onward.actors.instruments import _instrument

    texts: list[str] = []

    def read(text: str) -> Mapping[str, str] | None:
        texts.append(text)
        return {"a": "b"} if text != "broken" else None

    monkeypatch.setattr(_instrument, "read_tracing", read)
    notes: list[str] = []
    node.add_instrument(Looks("one", notes))
    node.add_instrument(Looks("two", notes))
    recorder = spawn_worker(node, Recorder(), "recorder")
    node.send("recorder", b"", context=TRACED)
    node.send("recorder", b"")
    await asyncio.sleep(1)
    assert notes == ["one in", "two in", "two out", "one out", "two ended", "one ended"]
    assert texts == [TRACED.trace]  # parsed once
    assert recorder.messages[0].context == Context(trace='{"a":"b","one":"x","two":"x"}')
    notes.clear()
    node.send("recorder", b"", context=Context(trace="broken"))
    await asyncio.sleep(1)
    assert notes == ["one none", "two none"]
    notes.clear()
    gate = spawn_worker(node, Gate(), "gate")
    node.send("gate", b"", context=TRACED)
    await asyncio.sleep(1)
    assert notes[4:6] == ["one suspended", "two suspended"]
    gate.opened.set()
    await asyncio.sleep(1)
    assert notes[-2:] == ["two ended", "one ended"]


async def test_a_text_that_cannot_be_written_is_not_replaced() -> None:
    message = Message((), (), b"", None, TRACED)
    traced = TracedMessage(message, TRACED)
    assert not traced.replace({})
    assert not traced.replace({"x": "y" * 5000})
    assert traced.message is message
    assert traced.fields == {"a": "b"}


class Takes(Instrument):
    def message_traced(self, worker: Worker, traced: TracedMessage) -> None:
        traced.taken = True


async def test_an_instrument_can_take_a_message(node: Node) -> None:
    notes: list[str] = []
    node.add_instrument(Looks("one", notes))
    node.add_instrument(Takes())
    node.add_instrument(Looks("two", notes))
    recorder = spawn_worker(node, Recorder(), "recorder")
    node.send("recorder", b"", context=TRACED)
    await asyncio.sleep(1)
    assert recorder.messages == []
    assert notes == ["one ended"]


# --- sampling -------------------------------------------------------------------------------
class Every(Instrument):
    """Marks each n-th message."""

    def __init__(self, count: int, mark: str) -> None:
        self.count = count
        self.mark = mark

    def sample_gap(self) -> int:
        return self.count

    def message_sampled(self, context: Context | None) -> Context | None:
        before = "" if context is None else context.trace or ""
        return Context(trace=before + self.mark)


@pytest.mark.real_time
async def test_instruments_sample_independently(node: Node) -> None:
    node.add_instrument(Every(2, "a"))
    node.add_instrument(Every(3, "b"))
    node.add_instrument(Every(0, "never"))
    recorder = spawn_worker(node, Recorder(), "recorder")
    for _ in range(4):
        node.send("recorder", b"")
    await node.send_wait("recorder", b"")
    await asyncio.to_thread(node.send, "recorder", b"")  # counted, and not marked
    for _ in range(2):
        node.send("recorder", b"")
    await node.stop_worker("recorder")
    marks = [message.context and message.context.trace for message in recorder.messages]
    assert marks == [None, "a", "b", "a", None, None, None, "a"]


# --- faults ---------------------------------------------------------------------------------
class Broken(Instrument):
    """Raises an exception in one of its hooks."""

    def __init__(self, hook: str) -> None:
        self.hook = hook

    def _fail(self, hook: str) -> None:
        if hook == self.hook:
            raise ValueError("on purpose")

    def message_handled(
        self, worker: Worker, message: Message, seconds: float, error: BaseException | None
    ) -> None:
        self._fail("message_handled")

    def sample_gap(self) -> int:
        self._fail("sample_gap")
        return 1

    def message_sampled(self, context: Context | None) -> Context | None:
        self._fail("message_sampled")
        return TRACED

    def message_traced(self, worker: Worker, traced: TracedMessage) -> Watch | None:
        self._fail("message_traced")
        return BrokenWatch(self)

    def messages_arrived(
        self, messages: Sequence[Message], waits_for: Callable[[Address], bool]
    ) -> Sequence[Message]:
        self._fail("messages_arrived")
        return messages

    def worker_suspended(self, worker: Worker) -> None:
        self._fail("worker_suspended")


class BrokenWatch(Watch):
    def __init__(self, broken: Broken) -> None:
        self.broken = broken

    def step(self) -> AbstractContextManager[object]:
        self.broken._fail("step")
        return super().step()

    def suspended(self) -> None:
        self.broken._fail("suspended")

    def ended(self, error: BaseException | None) -> None:
        self.broken._fail("ended")


@pytest.mark.parametrize(
    "hook",
    [
        "message_handled",
        "sample_gap",
        "message_sampled",
        "message_traced",
        "messages_arrived",
        "worker_suspended",
        "step",
        "suspended",
        "ended",
    ],
)
@pytest.mark.real_time
async def test_an_instrument_that_raises_is_logged_and_removed(hook: str, caplog: Caplog) -> None:
    broken = Broken(hook)
    gate = Gate()
    gate.opened.set()
    async with Node() as node, Node() as far:
        await far.start(Echo, address="echo")
        listener = await far.listen("tcp://127.0.0.1:0", expose=["echo"])
        node.add_instrument(broken)
        node.spawn(lambda: gate, address="gate")
        link = await node.connect(listener.uri)
        assert (await node.request((link, *as_route("echo")), b"hi")).payload == b"hi"
        node.send("gate", b"x")
        await node.stop_worker("gate")
        assert [message.payload for message in gate.messages] == [b"x"]
        assert node.find_instrument(Broken) is None
    assert {record.name for record in caplog.records} == {"onward.instruments"}
    assert f"is removed, as {hook} failed" in caplog.text


class Wrong(Instrument):
    """Returns `wrong`, of no hook's type, from one of its hooks."""

    def __init__(self, hook: str, wrong: object) -> None:
        def wrongly(*_about: object) -> object:
            return wrong

        setattr(self, hook, wrongly)
        if hook != "sample_gap":
            self._gap = 1

    _gap = 0

    def sample_gap(self) -> int:
        return self._gap

    def message_sampled(self, context: Context | None) -> Context | None:
        return TRACED

    def message_traced(self, worker: Worker, traced: TracedMessage) -> Watch | None:
        return None

    def messages_arrived(
        self, messages: Sequence[Message], waits_for: Callable[[Address], bool]
    ) -> Sequence[Message]:
        return messages


@pytest.mark.parametrize(
    ("hook", "wrong"),
    [
        ("sample_gap", "soon"),
        ("message_sampled", "junk"),
        ("message_traced", "junk"),
        ("messages_arrived", None),
        ("figures", None),
    ],
)
@pytest.mark.real_time
async def test_an_instrument_with_a_wrong_result(hook: str, wrong: object, caplog: Caplog) -> None:
    async with Node() as node, Node() as far:
        await far.start(Echo, address="echo")
        listener = await far.listen("tcp://127.0.0.1:0", expose=["echo"])
        await node.start(Echo, address="echo")
        node.add_instrument(Wrong(hook, wrong))
        link = await node.connect(listener.uri)
        assert (await node.request("echo", b"hi")).payload == b"hi"
        assert (await node.request((link, *as_route("echo")), b"hi")).payload == b"hi"
        assert node.instruments is None or node.instruments.figures() == {}
        assert node.find_instrument(Wrong) is None
    assert f"is removed, as {hook} failed" in caplog.text


class Unreadable(Instrument):
    """Raises an exception when it is asked for its figures or its part for brokers."""

    def __init__(self, hook: str) -> None:
        self.hook = hook

    def figures(self) -> Mapping[str, object]:
        if self.hook == "figures":
            raise ValueError("on purpose")
        return {}

    def broker_part(self) -> object:
        if self.hook == "broker_part":
            raise ValueError("on purpose")
        return None


class Readable(Instrument):
    def figures(self) -> Mapping[str, object]:
        return {"readable": True}

    def broker_part(self) -> object:
        return self


@pytest.mark.parametrize("hook", ["figures", "broker_part"])
async def test_an_instrument_with_unreadable_figures_is_removed(hook: str, caplog: Caplog) -> None:
    async with Node(diagnostics=None) as node:
        node.add_instrument(Unreadable(hook))
        readable = Readable()
        node.add_instrument(readable)
        assert node.instruments is not None
        assert node.instruments.figures() == {"readable": True}
        assert node.instruments.given == (readable,)
        assert node.instruments.broker is readable
    assert f"is removed, as {hook} failed" in caplog.text


class Unusable(Instrument):
    """Raises an exception when it is added."""

    @property
    def message_lost(self) -> None:  # type: ignore[override]
        raise ValueError("on purpose")


async def test_an_instrument_that_cannot_be_added_changes_nothing() -> None:
    handled = Handled()
    async with Node() as node:
        node.add_instrument(handled)
        with pytest.raises(ValueError, match="on purpose"):
            node.add_instrument(Unusable())
        assert node.find_instrument(Unusable) is None
        node.dead_letter(Message((), (), b""), "lost")
    assert handled.lost == ["lost"]
