"""Which way commands take to another node, and with which certificates."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from onward.actors import Node
from onward.cli import main
from onward.cli._main import parser_of
from onward.cli._node import serve
from onward.cli._run import StopRequest
from onward.cli._status import Status
from onward.protocol import LinkDown, OnwardError
from onward.transports import TlsOptions
from tests.support.certificates import Certificates
from tests.support.commands import TIMEOUT, Far, printed
from tests.support.fixtures import Capsys


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates.make(tmp_path_factory.mktemp("tls"))


@pytest.mark.parametrize("scheme", ["tcp", "ws", "udp", "uds"])
def test_an_address_of_each_type_and_a_uri_of_each_scheme(
    scheme: str, far: Far, tmp_path_factory: pytest.TempPathFactory, capsys: Capsys
) -> None:
    where = f"{tmp_path_factory.mktemp('s')}/s" if scheme == "uds" else "127.0.0.1:0"
    listener = far.background.listen(f"{scheme}://{where}", expose=["echo"])
    number = {"tcp": 1, "udp": 2, "ws": 3, "uds": 5}[scheme]
    place = listener.uri.removeprefix(f"{scheme}://")
    assert main(["request", f"{number}#{place} => echo", "a"]) == Status.OK
    assert main(["request", "echo", "b", "--connect", listener.uri]) == Status.OK
    assert capsys.readouterr().out == "a\nb\n"
    assert main(["send", "echo", "c", "--connect", listener.uri]) == Status.OK


def test_certificates_both_ways(far: Far, certificates: Certificates, capsys: Capsys) -> None:
    listener = far.background.listen("tls://127.0.0.1:0", expose=["echo"], tls=certificates.strict)
    to = ["request", "echo", "hi", "--connect", listener.uri]
    trust = ["--authority", str(certificates.authority)]
    assert main([*to, *trust, "--certificate", str(certificates.client)]) == Status.OK
    assert capsys.readouterr().out == "hi\n"
    assert main([*to, *trust]) == Status.FAILED
    assert "it may want a certificate of ours" in capsys.readouterr().err
    assert main(to) == Status.FAILED
    assert "certificate is not accepted" in capsys.readouterr().err
    named = [*to, *trust, "--certificate", str(certificates.client), "--server-name"]
    assert main([*named, "localhost"]) == Status.OK
    assert main([*named, "other"]) == Status.FAILED
    capsys.readouterr()
    assert main(["trace", *named[1:], "localhost"]) == Status.OK
    assert capsys.readouterr().out.endswith("answer: hi\n")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--connect", "http://a:1"], "does not start with tcp:, tls:, ws:"),
        (["--connect", "tcp://a"], "bad address 'a': not host:port"),
        (["--connect", "uds:///"], "cannot connect to uds:///"),
        (["--connect", "tls://a:1", "--authority", "/no/file.pem"], "/no/file.pem"),
        (["--authority", "x.pem"], "certificates are for --connect"),
        (["--connect", "tls://a:1", "--key", "x.pem"], "--key needs certificate"),
    ],
)
def test_what_does_not_go_together(options: list[str], said: str, capsys: Capsys) -> None:
    for command in ("send", "request", "trace"):
        assert main([command, "echo", "hi", *options]) == Status.USAGE
        assert said in capsys.readouterr().err


def test_connect_and_broker(capsys: Capsys) -> None:
    more = ["--connect", "tcp://a:1", "--broker", "rsocket+tcp://a:1"]
    assert main(["request", "service=a", "hi", *more]) == Status.USAGE
    assert "do not go together" in capsys.readouterr().err


def test_a_peer_that_is_not_there(capsys: Capsys) -> None:
    assert main(["request", "5#/no/such/socket => echo", "hi"]) == Status.FAILED
    assert main(["request", "5#%ff => echo", "hi"]) == Status.USAGE
    assert "the value is not text" in capsys.readouterr().err


@asynccontextmanager
async def served(**given: object) -> AsyncGenerator[str]:
    arguments = parser_of("node").parse_args(["--worker", "echo=echo", "--expose", "echo"])
    for name, value in {"quiet": True, **given}.items():
        assert hasattr(arguments, name)
        setattr(arguments, name, value)
    stop = StopRequest()
    with printed() as output:
        serving = asyncio.create_task(serve(stop, arguments))
        try:
            yield (await output.line()).removeprefix("listening ")
        finally:
            stop.wish()
            await asyncio.wait_for(serving, TIMEOUT)


PRINCIPALS = """\
[[certificates]]
name = "gateway"
certified = "DNS:client.example"
[[unix]]
name = "root"
uid = 4294967294
"""


async def test_a_node_that_knows_its_peers(certificates: Certificates, tmp_path: Path) -> None:
    principals = tmp_path / "principals.toml"
    principals.write_text(PRINCIPALS)
    async with (
        served(
            listen="tls://127.0.0.1:0",
            certificate=str(certificates.server),
            authority=str(certificates.authority),
            client_certificates="optional",
            management=f"uds://{tmp_path}/s",
            principals=principals,
        ) as uri,
        Node("near") as near,
    ):

        async def asked(where: str, tls: TlsOptions | None) -> bytes:
            link = await near.connect(where, tls=tls, reconnect=False)
            return (await near.request([link, "echo"], b"hi", timeout=TIMEOUT)).payload

        assert await asked(uri, certificates.named) == b"hi"
        for where, tls in ((uri, certificates.anonymous), (f"uds://{tmp_path}/s", None)):
            with pytest.raises(OnwardError):
                await asked(where, tls)


@pytest.mark.parametrize(
    ("listen", "content", "text"),
    [
        ("tls://127.0.0.1:0", None, "No such file"),
        ("tls://127.0.0.1:0", "[[users]]", "users"),
        ("udp://127.0.0.1:0", "", "udp takes no principals"),
    ],
)
def test_principals_of_no_use(
    listen: str, content: str | None, text: str, tmp_path: Path, capsys: Capsys
) -> None:
    path = tmp_path / "principals.toml"
    if content is not None:
        path.write_text(content)
    assert main(["node", "--listen", listen, "--principals", str(path)]) == Status.USAGE
    assert text in capsys.readouterr().err


@pytest.mark.parametrize("scheme", ["tls", "wss"])
async def test_a_node_with_certificates(scheme: str, certificates: Certificates) -> None:
    async with (
        served(
            listen=f"{scheme}://127.0.0.1:0",
            certificate=str(certificates.server),
            authority=str(certificates.authority),
        ) as uri,
        Node() as near,
    ):
        link = await near.connect(uri, tls=certificates.named)
        assert (await near.request([link, "echo"], b"hi")).payload == b"hi"
        with pytest.raises(LinkDown, match="it may want a certificate of ours"):
            await near.connect(uri, tls=TlsOptions(authority=certificates.authority))


def test_a_node_with_certificates_that_are_none(tmp_path: Path, capsys: Capsys) -> None:
    assert main(["node", "--listen", "tls://127.0.0.1:0"]) == Status.USAGE
    assert "needs a certificate" in capsys.readouterr().err
    missing = str(tmp_path / "none.pem")
    tls = ["node", "--listen", "tls://127.0.0.1:0", "--certificate", missing]
    assert main(tls) == Status.FAILED
    assert main(["node", "--listen", "http://127.0.0.1:0"]) == Status.USAGE
    assert "does not start with tcp:, tls:, ws:, wss:, uds:, udp:" in capsys.readouterr().err
