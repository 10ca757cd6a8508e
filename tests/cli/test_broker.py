"""`onward broker`."""

from __future__ import annotations

import asyncio
import gc
import socket
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from onward.actors import Node, ReloadFailed
from onward.actors.broker import BrokerOptions, ChoiceOptions, MulticastOptions, WaitingOptions
from onward.actors.security import Authentication, TokenAuthenticator
from onward.cli import _broker, _broker_serve, main
from onward.cli._access import Access
from onward.cli._broker_plan import Listening
from onward.cli._broker_serve import serve
from onward.cli._client import ask_broker
from onward.cli._run import StopRequest
from onward.cli._service import Service
from onward.cli._snapshots import load_routes
from onward.cli._status import CommandError, Status
from onward.protocol import Address
from onward.protocol.broker import SnapshotRoute, format_route, write_snapshot
from onward.protocol.rsocket import ResumeLimits
from onward.transports import TlsOptions
from onward.transports.client import RequestRejected, connect
from onward.transports.rsocket import (
    LeaseOptions,
    LinkOptions,
    ResumeOptions,
    UnixOptions,
    WebSocketOptions,
)
from tests.support.certificates import Certificates
from tests.support.commands import TIMEOUT, printed
from tests.support.fixtures import Capsys, Patch
from tests.support.transports import eventually
from tests.support.workers import Echo

ANY = "rsocket+tcp://127.0.0.1:0"
WS = "rsocket+ws://127.0.0.1:0/rsocket"


async def test_it_serves_at_each_uri_and_ends_with_totals() -> None:
    stop = StopRequest()
    with printed() as output:
        serving = asyncio.create_task(serve(stop, [ANY, ANY], BrokerOptions(), quiet=False))
        uris = [(await output.line()).removeprefix("listening ") for _ in range(2)]
        tables = [await ask_broker(uri, "routes", TIMEOUT) for uri in uris]
        stop.wish()
        await serving
    assert len(set(uris)) == 2
    # One broker: the same destination answers at both.
    assert tables[0][0]["route"] == tables[1][0]["route"]
    assert output.getvalue().splitlines()[2:] == [
        "stopped: 2 connections taken, 0 destinations left, 0 requests waited, 0 rejected, 0 lost"
    ]


async def test_it_can_be_quiet() -> None:
    stop = StopRequest()
    with printed() as output:
        serving = asyncio.create_task(serve(stop, [ANY], BrokerOptions(), quiet=True))
        await output.line()
        stop.wish()
        await serving
    assert len(output.getvalue().splitlines()) == 1


async def test_the_cycle_collector_passes_over_what_the_start_has_made() -> None:
    stop = StopRequest()
    with printed() as output:
        serving = asyncio.create_task(serve(stop, [ANY]))
        await ask_broker((await output.line()).removeprefix("listening "), "routes", TIMEOUT)
        assert gc.get_freeze_count() > 10_000
        stop.wish()
        await serving
    assert gc.get_freeze_count() == 0


async def test_it_stops_while_it_starts() -> None:
    stop = StopRequest()
    stop.wish()
    with printed() as output:
        await asyncio.wait_for(serve(stop, [ANY], BrokerOptions(), quiet=False), TIMEOUT)
    assert "stopped" not in output.getvalue()


def flags(*words: str, monkeypatch: Patch) -> tuple[BrokerOptions, Listening]:
    """Return the options that the command serves with."""
    seen = list[tuple[BrokerOptions, Listening]]()

    async def see(
        _stop: StopRequest,
        _uris: list[str],
        options: BrokerOptions,
        listening: Listening,
        *,
        own: Sequence[Listening],
        name: str,
        quiet: bool,
        expected: Sequence[SnapshotRoute],
        opened: object,
        service: object,
        admin: object,
        running: object,
        clustering: object,
        process: object,
    ) -> None:
        assert service is not None
        assert running is not None
        assert clustering is None
        assert process is None
        assert admin is None
        assert name == "broker"
        assert set(own) == {listening}
        assert not quiet
        assert opened is not None
        assert not expected
        seen.append((options, listening))

    monkeypatch.setattr(_broker, "serve", see)
    assert main(["broker", *words]) == Status.OK
    return seen[0]


def test_its_limits_are_the_library_s_by_default(monkeypatch: Patch) -> None:
    assert flags(monkeypatch=monkeypatch) == (BrokerOptions(), Listening())


def test_its_limits_can_be_said(monkeypatch: Patch) -> None:
    words: tuple[str, ...] = (
        "--no-management",
        "--max-connections",
        "7",
        "--no-route-timeout",
        "0",
    )
    words += ("--proxy", "10.0.0.5", "--proxy", "unix")
    options, listening = flags(*words, monkeypatch=monkeypatch)
    assert options == BrokerOptions(management=False, waiting=WaitingOptions(no_route_timeout=0.0))
    assert listening == Listening(LinkOptions(max_connections=7, proxies=("10.0.0.5", "unix")))
    _, listening = flags(*words, "--proxy-protocol", monkeypatch=monkeypatch)
    assert listening.links.proxy_protocol


def test_the_proxy_protocol_needs_proxies(capsys: Capsys) -> None:
    assert main(["broker", "--listen", ANY, "--proxy-protocol"]) == Status.USAGE
    assert "--proxy-protocol needs --proxy" in capsys.readouterr().err


def test_who_may_connect_can_be_said(monkeypatch: Patch) -> None:
    words = ("--listen", WS, "--origin", "https://a.example", "--origin", "http://b.example:81")
    _, listening = flags(*words, monkeypatch=monkeypatch)
    origins = ("https://a.example", "http://b.example:81")
    assert listening.options(WS)["websocket"] == WebSocketOptions(origins=origins)
    assert "websocket" not in listening.options(ANY)
    path = "rsocket+unix:///run/a"
    _, listening = flags("--listen", path, "--mode", "0660", monkeypatch=monkeypatch)
    assert listening.options(path)["unix"] == UnixOptions(0o660)


def test_nothing_can_be_named_by_default(monkeypatch: Patch) -> None:
    _, listening = flags(monkeypatch=monkeypatch)
    assert listening.options(ANY)["expose"] == ()
    _, listening = flags("--expose", "1#*", "--expose", "2#10.0.0.7:1", monkeypatch=monkeypatch)
    for uri in (ANY, WS):
        assert listening.options(uri)["expose"] == (Address(1, b"*"), Address(2, b"10.0.0.7:1"))


async def test_clients_name_the_workers_of_an_exposed_node() -> None:
    async with Node("far") as far:
        await far.start(Echo, address="echo")
        links = await far.listen("tcp://127.0.0.1:0", expose=["echo"])
        beside = await far.listen("tcp://127.0.0.1:0", expose=["echo"])
        exposed, other = (Address(1, at.uri[6:].encode()) for at in (links, beside))
        stop = StopRequest()
        with printed() as output:
            listening = Listening(expose=(exposed,))
            serving = asyncio.create_task(serve(stop, [ANY], BrokerOptions(), listening))
            uri = (await output.line()).removeprefix("listening ")
            async with connect(uri) as client:
                answer = await client.request((exposed, Address(0, b"echo")), b"hi")
                assert answer.data == b"hi"
                with pytest.raises(RequestRejected, match="not exposed"):
                    await client.request((other, Address(0, b"echo")), b"hi")
            stop.wish()
            await serving


def test_only_a_worker_that_exists_can_be_exposed(capsys: Capsys) -> None:
    assert main(["broker", "--listen", ANY, "--expose", "echo"]) == Status.USAGE
    assert "there is no worker 0#echo to expose" in capsys.readouterr().err


def test_certificates_are_for_listeners_with_tls(monkeypatch: Patch) -> None:
    secure = "rsocket+tls://127.0.0.1:0"
    words = ("--listen", secure, "--listen", ANY, "--certificate", "a.pem", "--authority", "b.pem")
    _, listening = flags(*words, monkeypatch=monkeypatch)
    tls = TlsOptions(certificate="a.pem", authority="b.pem", client="required")
    assert listening.options(secure)["tls"] == tls
    assert "tls" not in listening.options(ANY)
    _, listening = flags(*words, "--client-certificates", "optional", monkeypatch=monkeypatch)
    assert listening.options(secure)["tls"] == replace(tls, client="optional")


def test_certificates_of_clients_need_an_authority(capsys: Capsys) -> None:
    assert main(["broker", "--listen", ANY, "--client-certificates", "optional"]) == Status.USAGE
    assert "--client-certificates needs --authority" in capsys.readouterr().err


def test_leases_can_be_said(monkeypatch: Patch) -> None:
    words = ("--lease-requests", "9", "--lease-time", "2.5")
    _, listening = flags(*words, monkeypatch=monkeypatch)
    assert listening.links == LinkOptions(lease=LeaseOptions(9, 2.5))
    _, listening = flags("--no-lease", monkeypatch=monkeypatch)
    assert listening.links == LinkOptions(lease=None)


def test_sessions_can_be_resumed(monkeypatch: Patch) -> None:
    assert flags(monkeypatch=monkeypatch)[1].links.resume is None
    _, listening = flags("--resume", monkeypatch=monkeypatch)
    assert listening.links.resume == ResumeOptions()
    words = ("--resume-time", "5", "--resume-bytes", "64 KiB", "--resume-bytes-total", "1MiB")
    _, listening = flags("--resume", *words, "--resume-sessions", "9", monkeypatch=monkeypatch)
    session = ResumeLimits(time=5, max_kept=64 * 1024)
    assert listening.links.resume == ResumeOptions(session, 1024 * 1024, 9)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--origin", "https://a.example"), "--origin goes with --listen rsocket+ws://"),
        (("--mode", "600"), "--mode goes with --listen rsocket+unix://"),
        (("--certificate", "a.pem"), "certificates go with --listen rsocket+tls://"),
        (("--listen", WS, "--origin", "https://a.example/path"), "https://a.example/path"),
        (("--lease-time", "0"), "LeaseOptions.interval"),
    ],
)
def test_options_that_fit_no_listener(words: tuple[str, ...], told: str, capsys: Capsys) -> None:
    assert main(["broker", *words]) == Status.USAGE
    assert told in capsys.readouterr().err


@pytest.mark.parametrize("mode", ["", "8", "rw", "1000", "-1", "00660"])
def test_a_mode_is_in_octal(mode: str, capsys: Capsys) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["broker", f"--mode={mode}"])
    assert ended.value.code == Status.USAGE
    assert f"{mode!r} is not 0 to 777 in octal" in capsys.readouterr().err


def test_how_long_destinations_are_expected_can_be_said(monkeypatch: Patch) -> None:
    options, _ = flags("--expect-for", "7", monkeypatch=monkeypatch)
    assert options.expected_seconds == 7.0


EXPECTED = [SnapshotRoute(bytes((0,) * 15 + (n,)), "store", (("zone", "b"),)) for n in range(3)]


@pytest.mark.parametrize("text", [False, True])
async def test_it_expects_the_destinations_of_a_file(tmp_path: Path, text: bool) -> None:
    file = tmp_path / "table"
    lines = "\n".join(map(format_route, EXPECTED)).encode()
    file.write_bytes(lines if text else b"".join(write_snapshot(EXPECTED)))
    stop = StopRequest()
    with printed() as output:
        serving = asyncio.create_task(
            serve(stop, [ANY], BrokerOptions(), quiet=False, expected=load_routes(file))
        )
        uri = (await output.line()).removeprefix("listening ")
        table = await ask_broker(uri, "routes", TIMEOUT)
        stop.wish()
        await serving
    assert [row["expected"] for row in table] == [False, True, True, True]
    assert "0 destinations left" in output.getvalue()


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (None, "No such file or directory"),
        (b"", "it is empty"),
        (b"x" * 1000, "begins as no snapshot does"),
        (b'{"route": 1}', "line 1: 'route' is a text"),
        (b"".join(write_snapshot(EXPECTED))[:-1], "and should have"),
    ],
)
def test_a_bad_table_is_an_error(
    data: bytes | None, told: str, tmp_path: Path, capsys: Capsys
) -> None:
    file = tmp_path / "table"
    if data is not None:
        file.write_bytes(data)
    assert main(["broker", "--index", str(file)]) == Status.FAILED
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith(f"onward broker: {file}: ")
    assert told in printed.err


def test_every_flipped_bit_of_a_table_is_an_error_before_it_listens(tmp_path: Path) -> None:
    file = tmp_path / "table"
    whole = b"".join(write_snapshot(EXPECTED))
    for at in range(len(whole)):
        data = bytearray(whole)
        data[at] ^= 1 << at % 8
        file.write_bytes(data)
        with pytest.raises(CommandError, match=r"table: bad snapshot"):
            load_routes(file)


def test_a_table_that_is_too_long_is_refused_unread(tmp_path: Path, monkeypatch: Patch) -> None:
    file = tmp_path / "table"
    file.write_bytes(b"".join(write_snapshot(EXPECTED)))
    assert len(load_routes(file, 3)) == 3

    def never(_: object) -> None:
        raise AssertionError("a route was read")

    monkeypatch.setattr("onward.protocol.broker.Snapshot.routes", never)
    with pytest.raises(CommandError, match="it has 3 routes, and there is room for 2"):
        load_routes(file, 2)


async def test_it_expects_a_slice_at_a_time(monkeypatch: Patch) -> None:
    monkeypatch.setattr(_broker_serve, "EXPECT_SLICE", 2)
    stop = StopRequest()
    with printed() as output:
        serving = asyncio.create_task(
            serve(stop, [ANY], BrokerOptions(), quiet=True, expected=EXPECTED)
        )
        uri = (await output.line()).removeprefix("listening ")
        table = await ask_broker(uri, "routes", TIMEOUT)
        stop.wish()
        await serving
    assert [row["expected"] for row in table] == [False, True, True, True]


async def test_it_does_not_expect_more_than_it_has_room_for() -> None:
    options = BrokerOptions(max_routes=3)
    with pytest.raises(CommandError, match=r"--index: .*routes"):
        await serve(StopRequest(), [ANY], options, quiet=True, expected=EXPECTED)


async def test_it_is_asked_by_any_of_its_listeners() -> None:
    stop = StopRequest()
    with printed() as output, tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "socket"
        uris = [ANY, WS, f"rsocket+unix://{path}"]
        listening = Listening(unix=UnixOptions(0o640))
        serving = asyncio.create_task(serve(stop, uris, listening=listening, quiet=True))
        uris = [(await output.line()).removeprefix("listening ") for _ in uris]
        assert path.stat().st_mode & 0o777 == 0o640
        for at, uri in enumerate(uris):
            figures = await ask_broker(uri, "statistics", TIMEOUT)
            assert [each["uri"] for each in figures["listeners"]] == uris
            assert figures["listeners"][at]["streams"] == figures["streams"] == 1
            assert figures["listeners"][at]["connections"] == 1
        stop.wish()
        await serving


async def test_it_listens_with_tls(tmp_path: Path) -> None:
    certificates = Certificates.make(tmp_path)
    stop, uris = StopRequest(), ["rsocket+tls://localhost:0", "rsocket+wss://localhost:0/path"]
    listening = Listening(tls=certificates.strict)
    with printed() as output:
        serving = asyncio.create_task(serve(stop, uris, listening=listening, quiet=True))
        for uri in uris:
            at = (await output.line()).removeprefix("listening ")
            assert at.startswith(uri.partition("0")[0])
            figures = await ask_broker(at, "statistics", TIMEOUT, Access(certificates.named))
            assert figures["listeners"][uris.index(uri)]["connections"] == 1
            with pytest.raises(CommandError, match="certificate"):
                await ask_broker(at, "statistics", TIMEOUT, Access(certificates.anonymous))
        stop.wish()
        await serving


async def test_a_reload_replaces_all_files_or_none(tmp_path: Path) -> None:
    certificates, principals = Certificates.make(tmp_path), tmp_path / "principals.toml"
    principals.write_text("")
    authentication = Authentication([TokenAuthenticator(principals)])
    listening = Listening(tls=certificates.listener, authentication=authentication)
    stop, service = StopRequest(), Service()
    with printed() as output:
        uris = ["rsocket+tls://localhost:0"]
        serving = asyncio.create_task(
            serve(stop, uris, listening=listening, quiet=True, service=service)
        )
        await eventually(lambda: service.reloads.statistics().parts == 2)
        assert await service.reloads.reload() == (
            f"certificates of {output.getvalue().split()[-1]}",
            "authentication",
        )
        principals.write_text("[[tokens")
        certificates.server.write_bytes(certificates.server.read_bytes()[:100])  # half written
        with pytest.raises(ReloadFailed, match=r"certificates of .*; authentication: token: "):
            await service.reloads.reload()
        assert (service.reloads.statistics().done, service.reloads.statistics().failed) == (1, 1)
        stop.wish()
        await serving


def test_how_it_chooses_can_be_said(monkeypatch: Patch) -> None:
    words = ("--method", "peak-ewma", "--shard-method", "jump", "--max-wait", "9")
    options, _ = flags(*words, "--multicast-on-leave", "error", monkeypatch=monkeypatch)
    assert options == BrokerOptions(
        choice=ChoiceOptions(method="peak-ewma", shard_method="jump"),
        waiting=WaitingOptions(max_wait=9.0),
        multicast=MulticastOptions(on_leave="error"),
    )


def test_a_method_that_nobody_knows_has_status_2(capsys: Capsys) -> None:
    assert main(["broker", "--listen", ANY, "--method", "best"]) == Status.USAGE
    assert "method: 'best' is none of" in capsys.readouterr().err


@pytest.mark.parametrize("number", ["0", "-1", "1.5", "many"])
def test_a_number_of_connections_is_at_least_one(number: str, capsys: Capsys) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["broker", "--max-connections", number])
    assert ended.value.code == Status.USAGE
    assert f"{number!r} is not a number of at least 1" in capsys.readouterr().err


async def test_it_can_keep_its_table_to_itself() -> None:
    stop = StopRequest()
    options = BrokerOptions(management=False, waiting=WaitingOptions(no_route_timeout=0.0))
    with printed() as output:
        serving = asyncio.create_task(serve(stop, [ANY], options, quiet=True))
        uri = (await output.line()).removeprefix("listening ")
        with pytest.raises(CommandError, match="does not tell its routes"):
            await ask_broker(uri, "routes", TIMEOUT)
        stop.wish()
        await serving


async def test_it_takes_so_many_connections_and_no_more() -> None:
    stop = StopRequest()
    with printed() as output:
        listening = Listening(LinkOptions(max_connections=1))
        serving = asyncio.create_task(serve(stop, [ANY], listening=listening, quiet=True))
        uri = (await output.line()).removeprefix("listening ")
        host, _, port = uri.removeprefix("rsocket+tcp://").rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        second, other = await asyncio.open_connection(host, int(port))
        # Closed without a word, and the first one not.
        assert await asyncio.wait_for(second.read(), TIMEOUT) == b""
        assert not reader.at_eof()
        for each in (writer, other):
            each.close()
            await each.wait_closed()
        stop.wish()
        await serving


def test_a_port_that_is_taken_has_status_1(capsys: Capsys) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        uri = f"rsocket+tcp://127.0.0.1:{server.getsockname()[1]}"
        assert main(["broker", "--listen", uri]) == Status.FAILED
    told = f"onward broker: cannot listen at {uri}: Address already in use\n"
    assert capsys.readouterr().err == told


@pytest.mark.parametrize("uri", ["tcp://127.0.0.1:0", "rsocket+carrier://x", "rsocket+tcp://x"])
def test_a_wrong_uri_has_status_2(uri: str, capsys: Capsys) -> None:
    assert main(["broker", "--listen", uri]) == Status.USAGE
    told = capsys.readouterr().err
    assert told.startswith("onward broker: ")
    assert uri in told
    assert told.count("\n") == 1
