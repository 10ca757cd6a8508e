"""The configuration of a running broker, changed by reloads."""

from __future__ import annotations

import argparse
import asyncio
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from onward.actors import ReloadFailed
from onward.actors.broker import Handlers
from onward.cli import main
from onward.cli._client import ask_broker
from onward.cli._config import configured
from onward.cli._main import parser_of
from onward.cli._node import serve
from onward.cli._reconfigure import Reconfiguration, changes, cold
from onward.cli._run import Pace, StopRequest
from onward.cli._service import Service
from onward.cli._status import Status
from onward.protocol.security import BearerToken, make_token, token_digest
from onward.transports import TlsOptions
from onward.transports.client import (
    Client,
    ClientOptions,
    CredentialsRefused,
    RequestRejected,
    connect,
)
from tests.support.certificates import Certificates
from tests.support.commands import TIMEOUT, onward, printed
from tests.support.configured import Told, broker_of, read
from tests.support.fixtures import Caplog, Capsys
from tests.support.transports import eventually

ANN, BOB = (make_token(bytes((each,)) * 32) for each in range(2))
LISTENER = '[[listener]]\nuri = "rsocket+tcp://127.0.0.1:0"\n'
OPEN = '[[rule]]\nnames = ["*"]\nrequest = "service=a"\nregister = "service=a"\n'


@pytest.fixture(autouse=True)
def same_level() -> Iterator[None]:
    root = logging.getLogger()
    level = root.level
    yield
    root.setLevel(level)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "onward.toml"


def token(name: str, secret: str, more: str = "") -> str:
    digest = token_digest(secret.encode()).hex()
    return f'[[principals.tokens]]\nname = "{name}"\nsha256 = "{digest}"\n{more}\n'


def trusting(uri: str, tls: TlsOptions) -> Client:
    return connect(uri, options=ClientOptions(tls=tls))


# --- what differs ---


def test_what_differs_is_named_with_both_values(file: Path) -> None:
    file.write_text("""\
[broker]
method = "random"
[connections]
max_connections = 5
origins = ["https://a", "https://b"]
[[listener]]
uri = "rsocket+tcp://127.0.0.1:1"
[[listener]]
uri = "rsocket+tcp://127.0.0.1:2"
max_connections = 6
""")
    old = read(file)
    file.write_text("""\
[broker]
quiet = true
max_wait = "1m"
[connections]
max_connections = 7
proxies = "10.0.0.1"
[[listener]]
uri = "rsocket+tcp://127.0.0.1:1"
[[listener]]
uri = "rsocket+tcp://127.0.0.1:2"
max_connections = 6
""")
    found = list(changes(old, read(file)))
    assert [str(each) for each in found if each.hot] == [
        "connections.origins of rsocket+tcp://127.0.0.1:1: https://a https://b -> none",
        "connections.origins of rsocket+tcp://127.0.0.1:2: https://a https://b -> none",
        "connections.max_connections of rsocket+tcp://127.0.0.1:1: 5 -> 7",
        "broker.max_wait: 300 -> 60",
    ]
    assert cold(found) == (
        "these need a restart: connections.proxies of rsocket+tcp://127.0.0.1:1: none -> 10.0.0.1; "
        "connections.proxies of rsocket+tcp://127.0.0.1:2: none -> 10.0.0.1; "
        "broker.method: random -> round-robin; broker.quiet: false -> true"
    )
    assert list(changes(old, old)) == []
    assert cold([]) == ""


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        (LISTENER, LISTENER + LISTENER, "listener.uri: rsocket+tcp://127.0.0.1:0 -> rsocket+tcp:"),
        (LISTENER, LISTENER + token("ann", ANN), "principals: none -> some"),
        (LISTENER + OPEN, LISTENER, "rules: some -> none"),
        (LISTENER, '[event_log]\nfolder = "/a"\n' + LISTENER, "event_log.folder: none -> /a"),
        ("", '[admin]\nuri = "unix:///a"\n', "admin.uri: none -> unix:///a"),
        ("", '[tls]\ncertificate = "/a"\n', "tls.certificate: none -> /a"),
        ("", '[authentication]\ncallout = "32#a=b"\n', "authentication.callout: none -> 32#a=b"),
        ("", '[jwt]\nkeys = "https://ida:pw@a/k"\n', "keys: none -> https://(hidden)@a/k"),
        ("", '[jwt]\nkeys = "https://a/k?key=pw&v=1"\n', "-> https://a/k?key=(hidden)&v=1"),
        ('[jwt]\nkeys = "/a"\n', '[jwt]\nkeys = "/b"\n', "jwt.keys: /a -> /b"),
    ],
)
def test_what_needs_a_restart(file: Path, old: str, new: str, told: str) -> None:
    file.write_text(old)
    before = read(file)
    file.write_text(new)
    assert told in cold(list(changes(before, read(file))))


# --- what a reload changes ---


async def test_cold_keys_refuse_the_whole_reload(file: Path) -> None:
    text = LISTENER + "[drain]\ntimeout = 60\n"
    async with broker_of(file, text) as broker:
        before = broker.running.current
        with pytest.raises(ReloadFailed) as caught:
            await broker.reload(
                LISTENER + '[drain]\ntimeout = 50\n[broker]\nquiet = true\nmethod = "random"\n'
            )
        assert str(caught.value) == (
            "configuration: these need a restart: broker.method: round-robin -> random; "
            "broker.quiet: false -> true"
        )
        assert broker.running.current is before
        figures = broker.service.reloads.statistics()
        assert (figures.done, figures.failed) == (0, 1)
        assert broker.told.sent[-1][1].endswith(f"the last reload was refused: {figures.error}")
        # The one after that is compared with what is in force.
        assert await broker.reload(text) == ("configuration",)


async def test_a_reload_changes_the_seeds_and_the_allowed_brokers(file: Path) -> None:
    start = LISTENER + '[cluster]\nseeds = ["rsocket+tcp://127.0.0.1:9"]\n'
    async with broker_of(file, start) as broker:
        more = 'allowed_peers = ["rsocket+tls://*"]\n'
        await broker.reload(start.replace(":9", ":10") + more)
        assert broker.running.current.cluster_seed == ["rsocket+tcp://127.0.0.1:10"]
        answer = await ask_broker(broker.uris[0], "/api/v1/peers", TIMEOUT)
        assert [row["uri"] for row in answer["rows"]] == ["rsocket+tcp://127.0.0.1:10"]
        with pytest.raises(ReloadFailed, match=r"cluster\.hold: 30 -> 5"):
            await broker.reload(start + "hold = 5\n")
        with pytest.raises(ReloadFailed, match="cluster: some -> none"):
            await broker.reload(LISTENER)


@pytest.mark.parametrize("cut", [1, 20, 45, 60])
async def test_a_half_written_file_changes_nothing(file: Path, cut: int) -> None:
    text = LISTENER + '[broker]\nmax_wait = "100s"\n[log]\nlevel = "error"\n'
    async with broker_of(file, text) as broker:
        with pytest.raises(ReloadFailed, match=r"onward\.toml:"):
            await broker.reload(text[:cut])
        assert broker.running.current.max_wait == 100
        assert broker.service.reloads.statistics().failed == 1
        await broker.reload(text)


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ('[connections]\norigins = ["https://a.example"]\n', "--origin goes with --listen"),
        ("[connections]\nlease_time = 0\n", "LeaseOptions.interval must be"),
        ("[drain]\ntimeout = 1\n[event_log]\nsample = 1\n", "goes with --event-log DIR"),
        ('[tls]\nauthority = "/a"\nclient = "optional"\n', "certificates go with --listen"),
    ],
)
async def test_what_a_start_refuses_a_reload_refuses_too(file: Path, more: str, told: str) -> None:
    async with broker_of(file, LISTENER) as broker:
        with pytest.raises(ReloadFailed) as caught:
            await broker.reload(LISTENER.replace("[[", more + "[[", 1))
        assert told in str(caught.value) or "event_log.sample: 0.01 -> 1" in str(caught.value)
        assert broker.running.current.drain_timeout == 60


async def test_levels_and_times_change(file: Path, caplog: Caplog) -> None:
    async with broker_of(file, LISTENER) as broker:
        with caplog.at_level(logging.INFO):
            await broker.reload(
                LISTENER + '[broker]\nno_route_timeout = 0\n[drain]\ntimeout = "7s"\n'
                "[log]\nlevel = 'error'\n"
            )
            assert logging.getLogger().level == logging.ERROR
        told = [each.getMessage() for each in caplog.records if "changed" in each.getMessage()]
        assert told == [
            "the configuration has changed: broker.no_route_timeout: 5 -> 0",
            "the configuration has changed: drain.timeout: 60 -> 7",
            "the configuration has changed: log.level: warning -> error",
        ]
        async with connect(broker.uris[0]) as client:
            with pytest.raises(RequestRejected):  # at once
                await asyncio.wait_for(client.request("service=nowhere", b""), 4)


async def test_the_number_of_connections_changes(file: Path) -> None:
    limit = "max_connections = {}\nmax_connections_per_source = {}\n"
    async with broker_of(file, LISTENER + limit.format(1, 1)) as broker:
        handlers = Handlers()
        async with connect(broker.uris[0], service="a", handlers=handlers):
            host, _, port = broker.uris[0].removeprefix("rsocket+tcp://").rpartition(":")
            reader, writer = await asyncio.open_connection(host, int(port))
            assert await reader.read() == b""
            writer.close()
            await broker.reload(LISTENER + limit.format(2, 2))
            async with connect(broker.uris[0], service="b", handlers=handlers):
                # A lower limit closes no connection.
                await broker.reload(LISTENER + limit.format(1, 1))


async def test_certificates_of_another_name_are_used(file: Path, tmp_path: Path) -> None:
    first, second = tmp_path / "1", tmp_path / "2"
    first.mkdir()
    second.mkdir()
    one, two = Certificates.make(first), Certificates.make(second)
    listener = '[[listener]]\nuri = "rsocket+tls://127.0.0.1:0"\ntls = {{ certificate = "{}" }}\n'
    async with broker_of(file, listener.format(one.server)) as broker:
        async with trusting(broker.uris[0], TlsOptions(authority=one.authority)):
            parts = await broker.reload(listener.format(two.server))
            assert parts == ("configuration", f"certificates of {broker.uris[0]}")
        async with trusting(broker.uris[0], TlsOptions(authority=two.authority)):
            pass
        with pytest.raises(ReloadFailed, match="certificate cannot be read"):
            await broker.reload(listener.format(tmp_path / "none.pem"))
        # The failed files are forgotten.
        await broker.reload(listener.format(two.server))
        async with trusting(broker.uris[0], TlsOptions(authority=two.authority)):
            pass


# --- who is connected ---


@pytest.mark.parametrize(
    "after",
    [
        pytest.param(token("bob", BOB), id="removed"),
        pytest.param(token("ann", ANN, "disabled = true") + token("bob", BOB), id="disabled"),
        pytest.param(token("ann", ANN, 'tags = { a = "1" }') + token("bob", BOB), id="other tags"),
        pytest.param(token("ann", BOB), id="another token of the name"),
    ],
)
async def test_peers_that_are_no_longer_admitted_are_disconnected(file: Path, after: str) -> None:
    text = LISTENER + token("ann", ANN)
    async with broker_of(file, text) as broker:
        ended = list[str]()
        ann = BearerToken(ANN.encode())
        async with connect(broker.uris[0], service="a", credentials=ann, handlers=Handlers()):
            (listener,) = broker.running._listeners
            await broker.reload(text)
            assert listener.statistics().connections == 1
            await broker.reload(LISTENER + after)
            await eventually(lambda: listener.statistics().closed != {})
            assert listener.statistics().closed == {"no longer admitted": 1}
            ended += [each["reason"] for each in listener.closed_connections()]
        assert ended[0] == "no longer admitted"
        if "tags" not in after:
            with pytest.raises(CredentialsRefused):
                async with connect(broker.uris[0], credentials=ann):
                    pass


async def test_other_roles_hold_at_once_and_end_what_they_do_not_allow(file: Path) -> None:
    rule = '[[rule]]\nroles = ["{}"]\nregister = "service=a"\nrequest = "service=a"\n'
    text = LISTENER + rule.format("shop") + token("ann", ANN, 'roles = ["shop"]')
    ann = BearerToken(ANN.encode())
    async with broker_of(file, text) as broker:
        (listener,) = broker.running._listeners
        async with connect(broker.uris[0], service="a", credentials=ann, handlers=Handlers()):
            await broker.reload(text.replace('roles = ["shop"]', 'roles = ["mail"]', 2))
            # Both the rule and the entry have changed: it is still allowed.
            assert listener.statistics().connections == 1
            await broker.reload(LISTENER + rule.format("mail") + token("ann", ANN))
            await eventually(lambda: listener.statistics().closed != {})


# --- reloads amid other things ---


async def test_reloads_at_the_same_time_follow_one_another(file: Path) -> None:
    async with broker_of(file, LISTENER) as broker:
        file.write_text(LISTENER + "[drain]\ntimeout = 7\n")
        await asyncio.gather(*(broker.reload() for _ in range(5)))
        assert broker.running.current.drain_timeout == 7
        assert broker.service.reloads.statistics().done == 5


async def test_a_stop_amid_a_reload_ends_both(file: Path) -> None:
    text = LISTENER + "[drain]\ngrace = 0\nspread = 0\n"
    async with broker_of(file, text) as broker:
        reloading = asyncio.create_task(broker.reload())
        await asyncio.sleep(0)
        broker.stop.wish(Pace.ORDERLY)
        await asyncio.wait_for(reloading, TIMEOUT)
        await eventually(lambda: any("STOPPING=1" in each for each in broker.told.sent))
    said = [each[0] for each in broker.told.sent]
    # systemd knows no way from STOPPING=1 back.
    assert "READY=1" not in said[said.index("STOPPING=1") :]


async def test_a_reload_during_a_drain_is_applied(file: Path) -> None:
    text = LISTENER + "[drain]\ngrace = 50\n" + token("ann", ANN)
    ann = BearerToken(ANN.encode())
    async with broker_of(file, text) as broker:
        (listener,) = broker.running._listeners
        async with connect(broker.uris[0], credentials=ann):
            broker.stop.wish(Pace.CONFIGURED)
            await eventually(lambda: ("STATUS=draining: 1 connection left",) in broker.told.sent)
            await broker.reload(text.replace("ann", "eve"))
            await eventually(lambda: listener.statistics().connections == 0)
    assert listener.statistics().closed == {"no longer admitted": 1}


# --- processes ---


def test_operators_see_what_a_reload_refuses(file: Path, capsys: Capsys, tmp_path: Path) -> None:
    text = (
        LISTENER
        + token("ann", ANN, 'roles = ["operators"]')
        + '[[rule]]\nroles = ["operators"]\noperate = true\n'
        + 'request = "service=onward.management"\n'
    )
    file.write_text(text)
    (tmp_path / "ann").write_text(ANN)
    with onward("broker", "--config", str(file)) as process:
        assert process.stdout is not None
        uri = process.stdout.readline().removeprefix("listening ").strip()
        words = ["reload", "--broker", uri, "--token-file", str(tmp_path / "ann")]
        assert main(words) == Status.OK
        assert capsys.readouterr().out == (
            "reloaded: configuration\nreloaded: rules\nreloaded: authentication\n"
        )
        file.write_text(text + "[broker]\nquiet = true\nmax_wait = 3\n")
        assert main(words) == Status.FAILED
        assert capsys.readouterr().err == (
            "onward reload: configuration: these need a restart: broker.quiet: false -> true\n"
        )
        file.write_text(text + "[broker]\nmax_wiat = 3\n")
        assert main(words) == Status.FAILED
        assert "did you mean 'max_wait'?" in capsys.readouterr().err


async def test_a_node_reloads_its_file_too(tmp_path: Path) -> None:
    certificates = Certificates.make(tmp_path)
    file = tmp_path / "node.toml"
    parser = parser_of("node")

    def text(more: str = "") -> str:
        return (
            '[node]\nlisten = "tls://127.0.0.1:0"\n'
            f'[tls]\ncertificate = "{certificates.server}"\n' + more + token("ann", ANN)
        )

    def read_node() -> argparse.Namespace:
        return configured(parser, "node", parser.parse_args(["--config", str(file)]))

    file.write_text(text())
    running, told = Reconfiguration(read_node(), read_node), Told()
    service, stop = Service(told), StopRequest()
    service.reloads.add("configuration", running.prepare)
    with printed() as output:
        serving = asyncio.ensure_future(serve(stop, running.current, service, running))
        uri = (await output.line()).removeprefix("listening ")
        await asyncio.wait_for(told.ready_once.wait(), TIMEOUT)
        file.write_text(text(f'authority = "{certificates.authority}"\n'))
        parts = await service.reload()
        assert set(parts) == {"configuration", "authentication", f"certificates of {uri}"}
        assert running.current.authority == str(certificates.authority)
        file.write_text(text().replace("ann", "eve").replace("[tls]", "trace = true\n[tls]"))
        with pytest.raises(ReloadFailed, match=r"node\.trace: false -> true"):
            await service.reload()
        stop.wish()
        await asyncio.wait_for(serving, TIMEOUT)
