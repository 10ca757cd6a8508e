"""`onward node --identity`: a node with an identity, its engines, and the nodes that it joins."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from subprocess import Popen
from typing import IO

import pytest

from onward.actors import Node, ReloadFailed, Unresolved
from onward.actors.identity import (
    ROUTER,
    PeerRefused,
    make_key_file,
    rotate_key_file,
    write_trust_request,
)
from onward.actors.workers import Echo
from onward.cli import main
from onward.cli._logs import SeldomFilter
from onward.cli._main import parser_of
from onward.cli._node import serve
from onward.cli._node_identity import identity_of
from onward.cli._run import StopRequest
from onward.cli._service import Service
from onward.cli._status import Status
from onward.protocol.identity import (
    TRUST_BANNED,
    Identity,
    Lock,
    PeelOutcome,
    RelayPolicy,
    SealingKey,
    identity_text,
    parse_identity,
)
from onward.transports.identity import Identities
from tests.support.commands import TIMEOUT, Output, onward, printed
from tests.support.fixtures import Capsys
from tests.support.identities import engine_text, key_of, node_text


def key_file(folder: Path, name: str) -> tuple[Path, Identity]:
    path = folder / f"{name}.key"
    return path, make_key_file(path).identity


class Served:
    """A node of the command: its identity, those of its engines, and where it listens."""

    def __init__(self, output: Output) -> None:
        self.output = output
        self.identity: Identity
        self.engines: dict[str, Identity] = {}
        self.uri = ""

    def take(self, line: str) -> None:
        name, _, rest = line.partition(" ")
        if name == "identity":
            self.identity = parse_identity(rest)
        elif name == "engine":
            text, _, worker = rest.partition(" ")
            self.engines[worker] = parse_identity(text)
        else:
            assert name == "listening"
            self.uri = rest


@asynccontextmanager
async def served(*words: str) -> AsyncGenerator[Served]:
    """Run the command; yield what it has printed."""
    stop, given = StopRequest(), ["--listen", "tcp://127.0.0.1:0", "--quiet", *words]
    arguments = parser_of("node").parse_args(given)
    with printed() as output:
        made = Served(output)
        identity = identity_of(arguments)
        serving = asyncio.create_task(serve(stop, arguments, identity=identity))
        while not made.uri:
            made.take(await output.line())
        try:
            yield made
        finally:
            stop.wish()
            await asyncio.wait_for(serving, TIMEOUT)


async def until(holds: Callable[[], bool]) -> None:
    """Look again and again until something holds, of another node or of the log."""
    async with asyncio.timeout(TIMEOUT):
        while not holds():  # noqa: ASYNC110 - no event tells it
            await asyncio.sleep(0.01)


def text_of(name: str) -> str:
    return identity_text(key_of(name).identity)


@asynccontextmanager
async def near_to(far: Served) -> AsyncGenerator[Node]:
    """Yield a node that has joined another."""
    async with Node("near") as node:
        identities = await Identities.attach(node, key_of("near"))
        await identities.join(far.uri, identity=far.identity)
        yield node


async def test_its_engines_and_what_it_exposes_are_reached_by_identities(tmp_path: Path) -> None:
    path, own = key_file(tmp_path, "far")
    words = ("--identity", str(path), "--worker", "orders=echo", "--engine", "orders")
    more = ("--worker", "shop=echo", "--identity-expose", "shop", "--worker", "hidden=echo")
    async with served(*words, *more, "--verbose") as far, near_to(far) as near:
        assert far.identity == own
        assert list(far.engines) == ["0#orders"]
        answer = await near.request(engine_text(far.engines["0#orders"]), b"5", timeout=TIMEOUT)
        assert answer.payload == b"5"
        assert (await far.output.line()).startswith("0#orders  ")
        answer = await near.request(f"{node_text(own)} => shop", b"hello", timeout=TIMEOUT)
        assert answer.payload == b"hello"
        assert (await far.output.line()).startswith("0#shop  ")
        near.send(f"{node_text(own)} => hidden", b"hello")
        assert (await far.output.line()).startswith("dropped (not exposed)")


async def test_it_joins_a_node_again_and_again_until_it_is_there(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("onward.cli._node_identity.FIRST", 0.01)
    path, own = key_file(tmp_path, "far")
    async with Node("near") as near:
        identities = await Identities.attach(near, key_of("near"))
        listener = await near.listen("tcp://127.0.0.1:0")
        uri = listener.uri
        await listener.close()
        async with served("--identity", str(path), "--join", f"{uri}={text_of('near')}"):
            await until(lambda: f"the node at {uri} cannot be joined" in caplog.text)
            await near.listen(uri, expose=[ROUTER])
            await until(lambda: own in identities.peers())


async def test_each_node_that_cannot_be_joined_is_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("onward.cli._node_identity.FIRST", 0.01)
    path, _ = key_file(tmp_path, "far")
    joins = [f"tcp://127.0.0.1:{port}" for port in (1, 2)]
    words = ("--identity", str(path), *(word for uri in joins for word in ("--join", uri)))
    with caplog.filtering(SeldomFilter()):  # as the log of the command is
        async with served(*words):
            told = [f"the node at {uri} cannot be joined" for uri in joins]
            await until(lambda: all(each in caplog.text for each in told))


async def test_it_listens_nowhere_and_only_connects(tmp_path: Path) -> None:
    path, own = key_file(tmp_path, "far")
    async with Node("near") as near:
        identities = await Identities.attach(near, key_of("near"))
        uri = (await near.listen("tcp://127.0.0.1:0", expose=[ROUTER])).uri
        given = ["--listen", "none", "--quiet", "--identity", str(path), "--join", uri]
        stop, arguments = StopRequest(), parser_of("node").parse_args(given)
        identity = identity_of(arguments)
        assert identity is not None
        with printed() as output:
            serving = asyncio.create_task(serve(stop, arguments, identity=identity))
            await until(lambda: own in identities.peers())
            assert await output.line() == f"identity {identity_text(own)}"
            assert [
                each.kind for each in identity.node.statistics().workers if "Listen" in each.kind
            ] == []
            stop.wish()
            await asyncio.wait_for(serving, TIMEOUT)


async def test_it_closes_the_link_to_a_node_that_is_not_the_one_that_is_expected(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path, _ = key_file(tmp_path, "far")
    async with Node("near") as near:
        identities = await Identities.attach(near, key_of("near"))
        uri = (await near.listen("tcp://127.0.0.1:0", expose=[ROUTER])).uri
        async with served("--identity", str(path), "--join", f"{uri}={text_of('other')}"):
            told = f"cannot be joined: no link between nodes to {uri}: another node is there"
            await until(lambda: told in caplog.text)
            assert identities.peers() == ()


async def test_it_joins_again_where_it_has_closed_the_link(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("onward.cli._node_identity.LONGEST", 0.01)
    path, _ = key_file(tmp_path, "far")
    stop, near = StopRequest(), Node("near")
    async with near:
        identities = await Identities.attach(near, key_of("near"))
        uri = (await near.listen("tcp://127.0.0.1:0", expose=[ROUTER])).uri
        words = ["--listen", "tcp://127.0.0.1:0", "--quiet", "--identity", str(path)]
        given = parser_of("node").parse_args([*words, "--join", uri])
        identity = identity_of(given)
        assert identity is not None
        with printed():
            serving = asyncio.create_task(serve(stop, given, identity=identity))
            await until(lambda: hasattr(identity, "identities"))
            both = identities, identity.identities
            await until(lambda: all(len(each.peers()) == 1 for each in both))
            far = identity.node
            for worker in far.statistics().workers:
                if worker.kind.endswith("Link"):
                    await far.stop_worker(worker.address)
            await until(lambda: "it is joined again in 0.01 s" in caplog.text)
            await until(lambda: len(identities.peers()) == 1)
            stop.wish()
            await asyncio.wait_for(serving, TIMEOUT)


async def test_it_reserves_at_a_relay_once_it_has_joined(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("onward.cli._node_identity.FIRST", 0.01)
    path, own = key_file(tmp_path, "far")
    other, relay = key_file(tmp_path, "relay")
    policy = ("--relay-policy", "reserved", "--relay-policy", f"to:{identity_text(own)}")
    async with served("--identity", str(other), *policy) as hub:
        words = ["--listen", "tcp://127.0.0.1:0", "--quiet", "--identity", str(path)]
        words += ["--join", f"{hub.uri}={identity_text(relay)}", "--reserve", identity_text(relay)]
        given = parser_of("node").parse_args(words)
        identity, stop = identity_of(given), StopRequest()
        assert identity is not None
        serving = asyncio.create_task(serve(stop, given, identity=identity))
        await until(lambda: hasattr(identity, "identities"))
        await until(lambda: identity.identities.reserved_at() == (relay,))
        assert caplog.text == ""
        stop.wish()
        await asyncio.wait_for(serving, TIMEOUT)


async def test_it_reserves_at_a_relay_that_joins_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("onward.cli._node_identity.FIRST", 0.01)
    path, own = key_file(tmp_path, "far")
    async with (
        Node("hub") as hub,
        served("--identity", str(path), "--reserve", text_of("hub")) as far,
    ):
        relay = await Identities.attach(hub, key_of("hub"), relay=RelayPolicy(to_reserved=True))
        await until(lambda: "; no --join names it, so it has to join this node" in caplog.text)
        await relay.join(far.uri, identity=own)
        await until(lambda: relay.relay_statistics().reservations == 1)


@asynccontextmanager
async def running(*words: str) -> AsyncGenerator[Identities]:
    """Run the command, and yield what a worker of its node would send by."""
    given = parser_of("node").parse_args(["--listen", "tcp://127.0.0.1:0", "--quiet", *words])
    identity, stop = identity_of(given), StopRequest()
    assert identity is not None
    with printed():
        serving = asyncio.create_task(serve(stop, given, identity=identity))
        await until(lambda: hasattr(identity, "identities"))
        try:
            yield identity.identities
        finally:
            stop.wish()
            await asyncio.wait_for(serving, TIMEOUT)


@pytest.mark.parametrize("dials", [True, False])
async def test_it_dials_nodes_by_their_adverts_if_it_may(tmp_path: Path, dials: bool) -> None:
    path, _ = key_file(tmp_path, "own")
    async with Node("hub") as hub, Node("far") as far:
        known = await Identities.attach(hub, key_of("hub"))
        uri = (await hub.listen("tcp://127.0.0.1:0", expose=[ROUTER])).uri
        distant = await Identities.attach(far, key_of("far"))
        distant.advertise((await far.listen("tcp://127.0.0.1:0", expose=[ROUTER])).uri)
        await far.start(Echo, address="echo")
        engine = distant.engine("echo")
        await distant.join(uri, identity=known.own)
        words = ("--identity", str(path), "--join", f"{uri}={identity_text(known.own)}")
        async with running(*words, *(("--dial", "tcp") if dials else ())) as ours:
            await until(lambda: ours.peers() == (known.own,))
            if not dials:
                with pytest.raises(
                    Unresolved, match="it is known, and not reached: its node has no "
                ):
                    await ours.request(engine, b"x", timeout=TIMEOUT)
                return
            assert (await ours.request(engine, b"x", timeout=TIMEOUT)).payload == b"x"
            assert set(ours.peers()) == {known.own, distant.own}


@pytest.mark.parametrize("anonymous", [True, False])
async def test_it_signs_for_relays_by_keys_of_one_use_if_it_is_to(
    tmp_path: Path, anonymous: bool
) -> None:
    path, own = key_file(tmp_path, "own")
    async with Node("hub") as hub, Node("far") as far:
        policy = RelayPolicy(sources=frozenset({own}))
        relay = await Identities.attach(hub, key_of("hub"), relay=policy)
        uri = (await hub.listen("tcp://127.0.0.1:0", expose=[ROUTER])).uri
        distant = await Identities.attach(far, key_of("far"))
        await distant.join(uri, identity=relay.own)
        words = ("--identity", str(path), "--join", f"{uri}={identity_text(relay.own)}")
        async with running(*words, *(("--identity-anonymous",) if anonymous else ())) as ours:
            await until(lambda: ours.peers() == (relay.own,))
            assert await ours.lookup(distant.own)
            ours.send(node_text(distant.own).removeprefix("36#"), b"x", relays=[relay.own])
            await until(lambda: bool(relay.relay_statistics().outcomes))
            seen = PeelOutcome.REFUSED if anonymous else PeelOutcome.NEXT
            assert relay.relay_statistics().outcomes == {seen: 1}


async def test_a_reload_reads_a_key_file_that_was_rotated(tmp_path: Path) -> None:
    path, _ = key_file(tmp_path, "own")
    stop, service = StopRequest(), Service()
    words = ["--listen", "tcp://127.0.0.1:0", "--quiet", "--identity", str(path)]
    given = parser_of("node").parse_args(words)
    identity = identity_of(given)
    assert identity is not None
    with printed() as output:
        serving = asyncio.create_task(serve(stop, given, service, identity=identity))
        while not (await output.line()).startswith("listening"):
            pass
        before = identity.identities.sealing_key
        keys = rotate_key_file(path)
        assert await service.reload() == ("identity",)
        assert identity.identities.sealing_key == SealingKey(keys.sealing_seed).public != before
        path.unlink()
        key_file(tmp_path, "own")
        with pytest.raises(ReloadFailed, match="is of another identity, which needs a restart"):
            await service.reload()
        stop.wish()
        await asyncio.wait_for(serving, TIMEOUT)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--engine", "a"), "--engine needs --identity"),
        (("--identity-expose", "a"), "--identity-expose needs --identity"),
        (("--identity-directory", "f"), "--identity-directory needs --identity"),
        (("--join", "tcp://h:1"), "--join needs --identity"),
        (("--passphrase-file", "f"), "--passphrase-file needs --identity"),
        (("--relay-policy", "any"), "--relay-policy needs --identity"),
        (("--reserve", "aera"), "--reserve needs --identity"),
        (("--advertise", "tcp://h:1"), "--advertise needs --identity"),
        (("--dial", "tcp"), "--dial needs --identity"),
        (("--identity-anonymous",), "--identity-anonymous needs --identity"),
        (("--identity", "KEY", "--dial", "tpc"), "--dial: no transport 'tpc'; there are: tcp, "),
        (
            ("--identity", "KEY", "--advertise", "foo"),
            "--advertise: 'foo' is no URI, such as tcp://host:4000, and no 36#relay:IDENTITY",
        ),
        (("--identity", "KEY", "--advertise", "tpc://h:1"), "--advertise: no transport 'tpc'; "),
        (("--identity", "KEY", "--advertise", ""), "--advertise: '' is no URI"),
        (("--identity", "KEY", "--reserve", "aera"), "--reserve: "),
        (
            ("--identity", "KEY", "--listen", "none", "--reserve", text_of("relay")),
            "--reserve needs a link to the relay: add --join URI=IDENTITY",
        ),
        (("--identity", "KEY", "--relay-policy", "all"), "--relay-policy: 'all' is not one of"),
        (("--identity", "KEY", "--engine", "a"), "--engine: there is no worker 0#a"),
        (("--identity", "KEY", "--engine", "34#a"), "--engine: 34#a is not a local address"),
        (("--identity", "KEY", "--identity-expose", "b"), "there is no worker 0#b"),
        (("--identity", "KEY", "--join", "h:1"), "--join: 'h:1' does not start with tcp:, tls:"),
        (("--identity", "KEY", "--join", "tcp://h"), "tcp://h: "),
        (("--identity", "KEY", "--join", "tcp://h:1=aera"), "--join 'tcp://h:1=aera': "),
    ],
)
def test_what_is_wrong_on_the_command_line_is_told(
    words: tuple[str, ...], told: str, tmp_path: Path, capsys: Capsys
) -> None:
    path, _ = key_file(tmp_path, "own")
    given = [str(path) if each == "KEY" else each for each in words]
    assert main(["node", "--listen", "tcp://127.0.0.1:0", *given]) == Status.USAGE
    assert told in capsys.readouterr().err


async def test_it_remembers_what_it_knows_in_a_file(tmp_path: Path) -> None:
    path, _ = key_file(tmp_path, "far")
    directory = str(tmp_path / "far.directory")
    words = ("--identity", str(path), "--identity-directory", directory)
    async with served(*words) as far, near_to(far):
        pass
    assert main(["identity", "ban", text_of("near"), "--directory", directory]) == Status.OK
    async with served(*words) as far:
        with pytest.raises(PeerRefused):
            async with near_to(far):
                pass


async def line_with(output: IO[str] | None, *texts: str) -> str:
    """Read lines of a process until each text was in one, in any order; return the last line."""
    assert output is not None
    missing, line = set(texts), ""
    async with asyncio.timeout(TIMEOUT):
        while missing:
            line = await asyncio.to_thread(output.readline)
            assert line
            missing = {each for each in missing if each not in line}
    return line


async def printed_uri(process: Popen[str]) -> str:
    """Return where a node that is a process listens."""
    return (await line_with(process.stdout, "listening ")).split()[1]


async def test_another_command_bans_in_a_node_that_runs(tmp_path: Path) -> None:
    path, own = key_file(tmp_path, "far")
    directory = tmp_path / "far.directory"
    node = ["node", "--listen", "tcp://127.0.0.1:0", "--quiet", "--identity", str(path)]
    node += ["--identity-directory", str(directory)]

    def change(action: str) -> tuple[int, str]:
        with onward("identity", action, text_of("near"), "--directory", str(directory)) as process:
            output, errors = process.communicate(timeout=TIMEOUT)
            return process.returncode, output + errors

    async with Node("near") as near:
        identities = await Identities.attach(near, key_of("near"))
        with onward(*node) as process:
            uri = await printed_uri(process)
            await identities.join(uri, identity=own)
            status, told = await asyncio.to_thread(change, "ban")
            assert (status, told.endswith("in the node that has the file open\n")) == (0, True)
            short = text_of("near")[:12]
            told = f"another process has set the trust in {short} to "
            # The other node is told nothing.
            await line_with(process.stderr, f"{told}0", f"{short} is closed: it is banned")
            with pytest.raises(PeerRefused):
                await identities.join(uri, identity=own)
            status, _ = await asyncio.to_thread(change, "unban")
            assert status == Status.OK
            # It is written each time, not once in a minute.
            await line_with(process.stderr, f"{told}128")
            await identities.join(uri, identity=own)
            # What comes while it stands still is taken by the one that is started after it.
            process.send_signal(signal.SIGSTOP)
            write_trust_request(directory, key_of("near").identity, TRUST_BANNED)
            process.kill()
        with onward(*node) as process:
            uri = await printed_uri(process)
            with pytest.raises(PeerRefused):
                await identities.join(uri, identity=own)


def test_a_directory_that_cannot_be_used_is_told(tmp_path: Path, capsys: Capsys) -> None:
    path, _ = key_file(tmp_path, "far")
    file = tmp_path / "far.directory"
    file.write_text("hello")
    file.chmod(0o600)
    words = ["node", "--listen", "tcp://127.0.0.1:0", "--identity", str(path)]
    assert main([*words, "--identity-directory", str(file)]) == Status.FAILED
    assert f"{file}: file is not a database" in capsys.readouterr().err


def test_a_key_file_that_cannot_be_used_is_told(tmp_path: Path, capsys: Capsys) -> None:
    words = tmp_path / "words"
    words.write_text("wrong horse\n")
    words.chmod(0o600)
    path, _ = key_file(tmp_path, "own")
    missing, locked = tmp_path / "missing", tmp_path / "locked.key"
    make_key_file(locked, passphrase="correct horse", lock=Lock(bytes(16), bytes(12), log_n=1, r=1))
    for file, more, told in (
        (missing, (), "No such file or directory"),
        (locked, (), "a passphrase is needed"),
        (locked, ("--passphrase-file", str(words)), "the passphrase is wrong"),
    ):
        status = main(["node", "--identity", str(file), *more])
        assert status == (Status.USAGE if "needed" in told else Status.FAILED)
        assert told in capsys.readouterr().err
    path.chmod(0o644)
    assert main(["node", "--identity", str(path)]) == Status.FAILED
    assert "others may read the secret in it" in capsys.readouterr().err


def test_a_configuration_has_it_too(tmp_path: Path, capsys: Capsys) -> None:
    path, _ = key_file(tmp_path, "own")
    file = tmp_path / "node.toml"
    file.write_text(
        '[node]\nworkers = ["orders=echo"]\n[identity]\nkey_file = "own.key"\n'
        'engines = ["orders"]\njoins = ["tcp://127.0.0.1:4000"]\n'
    )
    assert main(["config", "check", "--node", str(file)]) == Status.OK
    path.unlink()
    assert main(["config", "check", "--node", str(file)]) == Status.USAGE
    assert "No such file" in capsys.readouterr().err


def test_a_process_shows_its_identity(tmp_path: Path) -> None:
    path, own = key_file(tmp_path, "own")
    with onward("node", "--listen", "tcp://127.0.0.1:0", "--identity", str(path)) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == f"identity {identity_text(own)}\n"
        assert process.stdout.readline().startswith("listening tcp://127.0.0.1:")
        process.terminate()
        assert process.wait(TIMEOUT) == 0
