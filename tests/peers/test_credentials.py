"""Clients of every make at a broker that strangers may reach: TLS, credentials, rules.

Each presents a password, a token or a certificate in its SETUP, as its library does that. With the
right ones it does every interaction, with others it learns that it is refused, and a request that
no rule allows ends with an error.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncGenerator, Generator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest
import pytest_asyncio
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from websockets.exceptions import InvalidHandshake

from onward.protocol.security import hash_password, make_token, token_digest
from tests.peers.access import secured
from tests.peers.clients import INVALID, Ask, JavaRequester
from tests.peers.libraries import LIBRARIES
from tests.peers.makes import Makes
from tests.peers.programs import TIMEOUT, running_broker
from tests.peers.rsocket_client import CREDIT, Outcome, Received
from tests.support.certificates import Certificates

pytestmark = [pytest.mark.peer, pytest.mark.asyncio(loop_scope="module")]

on_the_module = pytest_asyncio.fixture(scope="module", loop_scope="module")

WAYS = [
    ("java", "tls"),
    ("java", "wss"),
    ("spring", "tls"),
    ("spring", "wss"),
    ("js-0.0.27", "wss"),
    ("js-alpha", "tls"),
    ("js-alpha", "wss"),
    ("javascript", "tls"),
    ("javascript", "wss"),
    ("python", "tls"),
    ("python", "wss"),
    ("go", "tls"),
    ("go", "wss"),
]
"""Each make, and what it reaches a broker with TLS by."""

CODES_LOST = {"js-alpha", "javascript"}
"""Makes whose requests end with an error without a code when the connection is refused."""

NO_PASSWORDS = {"javascript"}
"""Makes whose library sends tokens only."""

REJECTED_SETUP = 0x003
CONNECTION_ERROR = 0x101

TOKEN, EXPIRED, GUEST = (make_token(secrets.token_bytes(32)) for _ in range(3))
PASSWORD = "a long sentence is a good password"

PRINCIPALS = f"""
[[tokens]]
name = "shop"
sha256 = "{token_digest(TOKEN.encode()).hex()}"
roles = ["team"]

[[tokens]]
name = "shop"
sha256 = "{token_digest(EXPIRED.encode()).hex()}"
roles = ["team"]
expires = 2001-01-01T00:00:00Z

[[tokens]]
name = "guest"
sha256 = "{token_digest(GUEST.encode()).hex()}"
roles = ["guests"]

[[users]]
name = "ann"
password = "{hash_password(PASSWORD, secrets.token_bytes(16)).text}"
roles = ["team"]

[[certificates]]
name = "gateway"
certified = "DNS:client.example"
roles = ["team"]
"""

REQUESTERS = sorted({f"service={make}-requester" for make, _ in WAYS})
RULES = f"""
[[rule]]
roles = ["team"]
register = {["service=orders-*", *REQUESTERS]}
request = "service=orders-*"
"""

RIGHT = {"bearer": {"bearer": TOKEN}, "simple": {"simple": f"ann:{PASSWORD}"}}

WRONG = {
    "unknown token": {"bearer": "onw_guess"},
    "expired token": {"bearer": EXPIRED},
    "wrong password": {"simple": "ann:guess"},
    "unknown user": {"simple": "bob:guess"},
    "none": {},
}


@dataclass(frozen=True, slots=True)
class Guarded:
    """A broker with TLS, principals and rules.

    Attributes:
        uris: Where it listens, by transport.
        authority: Its authority's certificate.
        certificate: A client's certificate, with its key.
    """

    uris: dict[str, str]
    authority: Path
    certificate: Path

    def uri(self, transport: str, **credentials: str | Path) -> str:
        """Return the URI for a client with these credentials."""
        return secured(self.uris[transport], authority=self.authority, **credentials)


def with_readable_key(certificates: Certificates, folder: Path) -> Path:
    """Return the client's certificate with its key in PKCS #8: Java reads no other."""
    text = certificates.client.read_bytes()
    key = load_pem_private_key(text, None)
    written = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    chain = text[text.index(b"-----BEGIN CERTIFICATE-----") :]
    path = folder / "client-pkcs8.pem"
    path.write_bytes(written + chain)
    return path


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> tuple[Certificates, list[str]]:
    """Certificates, and the options of a broker with all but its listeners."""
    folder = tmp_path_factory.mktemp("guarded")
    certificates = Certificates.make(folder)
    (folder / "principals.toml").write_text(PRINCIPALS)
    (folder / "rules.toml").write_text(RULES)
    options = ["--certificate", str(certificates.server), "--authority"]
    options += [str(certificates.authority), "--rules", str(folder / "rules.toml")]
    options += ["--principals", str(folder / "principals.toml"), "--log", "error"]
    # All clients of the tests come from one address, and many are refused: it would be banned.
    return certificates, [*options, "--proxy", "127.0.0.1"]


def guarded(
    files: tuple[Certificates, list[str]], certificates: str, folder: Path
) -> Generator[Guarded]:
    made, options = files
    asks = ("--client-certificates", certificates)
    with running_broker(*options, *asks, transports=("tls", "wss")) as uris:
        yield Guarded(uris, made.authority, with_readable_key(made, folder))


@pytest.fixture(scope="module")
def broker(
    files: tuple[Certificates, list[str]], tmp_path_factory: pytest.TempPathFactory
) -> Generator[Guarded]:
    """A broker for clients with a certificate or without."""
    yield from guarded(files, "optional", tmp_path_factory.mktemp("optional"))


@pytest.fixture(scope="module")
def strict_broker(
    files: tuple[Certificates, list[str]], tmp_path_factory: pytest.TempPathFactory
) -> Generator[Guarded]:
    """A broker for clients with a certificate."""
    yield from guarded(files, "required", tmp_path_factory.mktemp("required"))


@on_the_module
async def makes() -> AsyncGenerator[Makes]:
    async with AsyncExitStack() as stack:
        yield Makes(stack)


@pytest_asyncio.fixture(loop_scope="module")
async def stack() -> AsyncGenerator[AsyncExitStack]:
    async with AsyncExitStack() as stack:
        yield stack


def each_way(*values: str, passwords: bool = False) -> pytest.MarkDecorator:
    """Parametrize with each make and transport, and each value for it."""
    cases = [
        pytest.param(
            make,
            transport,
            value,
            id=f"{make}-{transport}-{value}",
            marks=pytest.mark.peer(requester=make, destination=make, transport=transport),
        )
        for make, transport in WAYS
        for value in values
        if not (passwords and make in NO_PASSWORDS and value in PASSWORDS)
    ]
    return pytest.mark.parametrize(("make", "transport", "value"), cases)


PASSWORDS = {"simple", "wrong password", "unknown user"}


# --- accepted -----------------------------------------------------------------------------------
async def every_interaction(
    makes: Makes, make: str, uri: str, service: str, stack: AsyncExitStack
) -> Ask:
    """Ask by each interaction; both are of the make, with the same credentials."""
    destination = await makes.destination(make, uri, service, stack)
    ask = await makes.requester(make, uri, service, stack)
    assert await ask("request_response", "hello") == Outcome([f"hello from {make}"])
    assert await destination.received() == Received("request_response", "hello", "echo")
    assert await ask("fire_and_forget", "note") == Outcome([])
    assert (await destination.received()).data == "note"
    assert await ask("request_stream", "12") == Outcome([f"{n} from {make}" for n in range(1, 13)])
    assert (await destination.received()).data == "12"
    assert await ask("first_of_stream", "3") == Outcome([f"{n} from {make}" for n in range(1, 4)])
    await destination.received()
    assert 3 <= await destination.canceled() <= 3 + CREDIT
    outcome = await ask("request_channel", "a,b,c,d,e,f,g,h")
    assert outcome == Outcome([f"{letter} from {make}" for letter in "abcdefgh"])
    assert await destination.received() == Received("request_channel", "a", "echo")
    if pushes(make):
        assert await ask("metadata_push", "news") == Outcome([])
        assert await destination.received() == Received("metadata_push", "", "news")
    return ask


def pushes(make: str) -> bool:
    """Whether a make can push metadata, and take it."""
    library = LIBRARIES.get(make)
    return make != "javascript" and (not library or (library.pushes and library.takes_pushes))


@each_way(*RIGHT, passwords=True)
async def test_every_interaction_once_accepted(
    makes: Makes,
    broker: Guarded,
    make: str,
    transport: str,
    value: str,
    service: str,
    stack: AsyncExitStack,
) -> None:
    uri = broker.uri(transport, **RIGHT[value])
    await every_interaction(makes, make, uri, service, stack)


@each_way("certificate")
async def test_every_interaction_with_a_certificate(
    makes: Makes,
    strict_broker: Guarded,
    make: str,
    transport: str,
    value: str,
    service: str,
    stack: AsyncExitStack,
) -> None:
    uri = strict_broker.uri(transport, certificate=strict_broker.certificate)
    await every_interaction(makes, make, uri, service, stack)


# --- refused ------------------------------------------------------------------------------------
async def refusal(
    makes: Makes, make: str, uri: str, service: str, stack: AsyncExitStack
) -> Outcome:
    """Return what a client sees that is refused, by its first request."""
    async with asyncio.timeout(TIMEOUT):
        try:
            ask = await makes.requester(make, uri, service, stack)
            return await ask("request_response", "hello")
        except (OSError, InvalidHandshake) as error:  # of our own process
            return Outcome([], None, str(error))


@each_way(*WRONG, passwords=True)
async def test_a_client_learns_that_it_is_refused(
    makes: Makes,
    broker: Guarded,
    make: str,
    transport: str,
    value: str,
    service: str,
    stack: AsyncExitStack,
    caplog: pytest.LogCaptureFixture,
) -> None:
    uri = broker.uri(transport, **WRONG[value])
    outcome = await refusal(makes, make, uri, service, stack)
    if make in CODES_LOST:
        # Either the error of the connection, or that of a request, which names it in its text.
        assert outcome.elements == []
        assert outcome.code in {REJECTED_SETUP, None}
        assert "not authenticated" in (outcome.message or "")
    elif make == "python":
        assert outcome == Outcome([], CONNECTION_ERROR, "")
        # `on_error` of its handler is told the rest; by default it logs the code.
        assert "REJECTED_SETUP" in caplog.text
    else:
        assert outcome == Outcome([], REJECTED_SETUP, "not authenticated")


@each_way("none")
async def test_a_client_without_a_certificate_is_refused(
    makes: Makes,
    strict_broker: Guarded,
    make: str,
    transport: str,
    value: str,
    service: str,
    stack: AsyncExitStack,
) -> None:
    uri = strict_broker.uri(transport, **RIGHT["bearer"])
    outcome = await refusal(makes, make, uri, service, stack)
    # TLS ends the connection, so there is no error of RSocket to see.
    assert outcome.elements == []
    assert outcome.code == (CONNECTION_ERROR if (make, transport) == ("python", "tls") else None)


# --- not allowed --------------------------------------------------------------------------------
@each_way("bearer")
async def test_a_request_that_is_not_allowed_ends_with_an_error(
    makes: Makes,
    broker: Guarded,
    make: str,
    transport: str,
    value: str,
    service: str,
    stack: AsyncExitStack,
) -> None:
    uri = broker.uri(transport, **RIGHT[value])
    await makes.destination(make, uri, service, stack)
    ask = await makes.requester(make, uri, service, stack)
    for interaction, argument in (
        ("request_response", "hello"),
        ("request_stream", "12"),
        ("request_channel", "a,b,c"),
    ):
        outcome = await ask(f"{interaction}@payroll", argument)
        refused = Outcome([], INVALID, "not allowed: request service=payroll")
        assert outcome == refused, interaction
    assert await ask("fire_and_forget@payroll", "note") == Outcome([])
    # The connection is as good as before.
    assert await ask("request_response", "hello") == Outcome([f"hello from {make}"])


# --- per request --------------------------------------------------------------------------------
@pytest.mark.peer(requester="java", destination="java", transport="tls")
async def test_the_credentials_of_a_request_decide_on_it(
    makes: Makes, files: tuple[Certificates, list[str]], service: str, stack: AsyncExitStack
) -> None:
    certificates, options = files
    optional = ("--client-certificates", "optional", "--per-request", "check")
    with running_broker(*options, *optional, transports=["tls"]) as uris:
        uri = secured(uris["tls"], authority=certificates.authority, bearer=TOKEN)
        destination = await makes.destination("java", uri, service, stack)
        gateway = await JavaRequester.start(await makes.java(), uri)
        stack.push_async_callback(gateway.close)

        async def ask(bearer: str | None) -> Outcome:
            return await gateway.ask(service, "request_response", "hello", bearer=bearer)

        answered = Outcome(["hello from java"])
        assert await ask(None) == answered
        assert await ask(TOKEN) == answered
        for wrong in ("onw_guess", EXPIRED):
            assert await ask(wrong) == Outcome([], INVALID, "not authenticated")
        refused = f"not allowed: request service={service}"
        assert await ask(GUEST) == Outcome([], INVALID, refused)
        assert await ask(None) == answered
        for _ in range(3):
            assert await destination.received() == Received("request_response", "hello", "echo")
        await stack.aclose()
