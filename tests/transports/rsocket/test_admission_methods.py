"""Each method of authentication at a real listener, with the Python client."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from onward.actors import Node, Worker
from onward.actors.broker import Broker
from onward.actors.security import (
    AnonymousAuthenticator,
    Authentication,
    AuthenticationOptions,
    Authenticator,
    CalloutAuthenticator,
    CertificateAuthenticator,
    PasswordAuthenticator,
    PrincipalsFile,
    TokenAuthenticator,
    UnixAuthenticator,
)
from onward.protocol import LinkDown, Message
from onward.protocol.security import (
    BearerToken,
    Credentials,
    CustomCredentials,
    Principal,
    UserPassword,
    format_callout_answer,
    hash_password,
    make_token,
    parse_callout,
    token_digest,
)
from onward.transports import TlsOptions
from onward.transports.client import ClientOptions, CredentialsRefused, connect
from onward.transports.rsocket import RSocketListener
from tests.support.certificates import Certificates

TCP = "rsocket+tcp://127.0.0.1:0"
TLS = "rsocket+tls://127.0.0.1:0"
TOKEN = make_token(bytes(range(32)))
ONCE = ClientOptions(reconnect=False)

PRINCIPALS = f"""\
[[tokens]]
name = "bot"
sha256 = "{token_digest(TOKEN.encode()).hex()}"

[[users]]
name = "ann"
password = "{hash_password("secret", bytes(16)).text}"

[[certificates]]
name = "gateway"
certified = "DNS:client.example"

[[unix]]
name = "me"
uid = {os.getuid()}
"""


class Register(Worker):
    """A worker that knows one ticket."""

    def handle_message(self, message: Message) -> None:
        credentials, _ = parse_callout(message.payload)
        known = credentials == CustomCredentials("ticket", b"42")
        self.reply(message, format_callout_answer(Principal("eve", "") if known else None))


@pytest.fixture
def file(tmp_path: Path) -> PrincipalsFile:
    path = tmp_path / "principals.toml"
    path.write_text(PRINCIPALS)
    return PrincipalsFile(path)


@asynccontextmanager
async def listening(
    uri: str,
    *methods: Authenticator,
    tls: TlsOptions | None = None,
    limits: AuthenticationOptions = AuthenticationOptions(timeout=10.0),  # noqa: B008 - is frozen
) -> AsyncGenerator[tuple[RSocketListener, Node]]:
    async with Node("edge") as node:
        await node.start(Register, address="register")
        broker = await Broker.attach(node)
        asked = (*methods, CalloutAuthenticator(node, "register"))
        authentication = Authentication(asked, limits)
        options: dict[str, Any] = {} if tls is None else {"tls": tls}
        listener = await node.listen(uri, broker=broker, authentication=authentication, **options)
        assert isinstance(listener, RSocketListener)
        yield listener, node
        await authentication.close()


def every(file: PrincipalsFile) -> tuple[Authenticator, ...]:
    return (
        CertificateAuthenticator(file),
        UnixAuthenticator(file),
        TokenAuthenticator(file),
        PasswordAuthenticator(file),
    )


async def accepted(listener: RSocketListener, uri: str, **given: Any) -> str:
    """Return the principal that a client becomes."""
    async with connect(uri, options=replace(ONCE, tls=given.pop("tls", None)), **given):
        (link,) = listener._links
        return str(link.session.principal)


@pytest.mark.parametrize(
    ("credentials", "principal"),
    [
        (BearerToken(TOKEN.encode()), "bot (token)"),
        (UserPassword("ann", "secret"), "ann (password)"),
        (CustomCredentials("ticket", b"42"), "eve (callout)"),
    ],
)
async def test_credentials(file: PrincipalsFile, credentials: Credentials, principal: str) -> None:
    async with listening(TCP, *every(file)) as (listener, _):
        assert await accepted(listener, listener.uri, credentials=credentials) == principal


@pytest.mark.parametrize(
    "credentials",
    [
        None,
        BearerToken(TOKEN[:-1].encode()),
        BearerToken(b"opaque"),
        UserPassword("ann", "Secret"),
        UserPassword("eve", "secret"),
        CustomCredentials("ticket", b"41"),
    ],
)
async def test_wrong_credentials(file: PrincipalsFile, credentials: Credentials | None) -> None:
    async with listening(TCP, *every(file)) as (listener, _):
        with pytest.raises(LinkDown):
            await accepted(listener, listener.uri, credentials=credentials)
        assert listener.statistics().connections == 0


async def test_a_certificate(file: PrincipalsFile, tmp_path: Path) -> None:
    made = Certificates.make(tmp_path)
    methods = (CertificateAuthenticator(file), AnonymousAuthenticator())
    async with listening(TLS, *methods, tls=made.lenient) as (listener, _):
        assert await accepted(listener, listener.uri, tls=made.named) == "gateway (certificate)"
        anonymous = "anonymous (anonymous)"
        assert await accepted(listener, listener.uri, tls=made.anonymous) == anonymous


async def test_the_user_of_a_unix_socket(file: PrincipalsFile, tmp_path: Path) -> None:
    uri = f"rsocket+unix://{tmp_path}/broker"
    async with listening(uri, *every(file)) as (listener, _):
        assert await accepted(listener, uri) == "me (unix)"


async def test_a_source_with_too_many_failures_is_closed_at_once(file: PrincipalsFile) -> None:
    limits = AuthenticationOptions(max_failures=3)
    async with listening(TCP, *every(file), limits=limits) as (listener, _):
        for _ in range(3):
            with pytest.raises(CredentialsRefused):
                await accepted(listener, listener.uri, credentials=BearerToken(b"onw_guess"))
        host, port = re.fullmatch(r"rsocket\+tcp://(.*):(\d+)", listener.uri).groups()  # type: ignore[union-attr]
        reader, writer = await asyncio.open_connection(host, int(port))
        assert await reader.read() == b""
        writer.close()
        figures = listener.statistics()
        assert figures.turned_away == 1
        assert figures.authentication is not None
        assert (figures.authentication.banned, figures.authentication.sources) == (1, 1)
