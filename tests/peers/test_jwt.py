"""JSON Web Tokens that libraries of other languages have made, at a broker that knows the keys."""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path

import pytest

from onward.protocol.security import BearerToken
from onward.transports.client import ClientOptions, CredentialsRefused, connect
from tests.peers.foreign import PeerMissing
from tests.peers.libraries import program
from tests.peers.makes import spring_command
from tests.peers.programs import TIMEOUT, running_broker

pytestmark = pytest.mark.peer(requester="onward", destination="nobody")

ISSUER, AUDIENCE = "https://issuer.example", "onward"


@dataclass(frozen=True, slots=True)
class Issued:
    """A broker, and tokens of an issuer that it knows.

    Attributes:
        uri: Where the broker listens.
        tokens: The tokens, as `rsocket_js/jwt.js` names them.
    """

    uri: str
    tokens: dict[str, str]

    async def accepts(self, token: str) -> bool:
        """Whether the broker admits a client with a token."""
        options = ClientOptions(reconnect=False)
        try:
            credentials = BearerToken(token.encode())
            async with connect(self.uri, credentials=credentials, options=options) as client:
                await client.request("service=onward.management", b"statistics")
        except CredentialsRefused:
            return False
        return True


def command(library: str) -> list[str]:
    """Return the command that makes tokens, with a program that is built if need be."""
    try:
        if library == "jose":
            node = shutil.which("node")
            if node is None:
                raise PeerMissing("node is not installed")
            return [node, str(program("js-alpha").with_name("jwt.js"))]
        return [*spring_command()[:-1], "onward.peers.Tokens"]
    except PeerMissing as error:
        pytest.skip(f"{library}: {error}")


@pytest.fixture(scope="module", params=["jose", "nimbus-jose-jwt"])
def issued(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Generator[Issued]:
    pytest.importorskip("joserfc", reason="joserfc is not installed")
    words = [*command(request.param), ISSUER, AUDIENCE]
    done = subprocess.run(words, capture_output=True, text=True, check=True, timeout=TIMEOUT)
    made = json.loads(done.stdout.splitlines()[-1])
    keys: Path = tmp_path_factory.mktemp("jwt") / "keys.json"
    keys.write_text(json.dumps({"keys": made["keys"]}))
    options = ["--jwt-keys", str(keys), "--jwt-issuer", ISSUER, "--jwt-audience", AUDIENCE]
    # All clients come from one address, and many are refused: it would be banned.
    with running_broker(*options, "--proxy", "127.0.0.1", "--log", "error") as uris:
        yield Issued(f"rsocket+{uris['tcp']}", made["tokens"])


def tampered(token: str) -> str:
    """Return a token that names another subject, with the signature that it had."""
    head, claims, signature = token.split(".")
    text = base64.urlsafe_b64decode(claims + "=" * (-len(claims) % 4))
    assert b"billing" in text
    other = base64.urlsafe_b64encode(text.replace(b"billing", b"payroll"))
    return ".".join((head, other.decode().rstrip("="), signature))


async def test_tokens_of_each_algorithm_are_accepted(issued: Issued) -> None:
    signed = {name: token for name, token in issued.tokens.items() if name in {"ES256", "RS256"}}
    signed |= {name: token for name, token in issued.tokens.items() if name.startswith("Ed")}
    assert len(signed) >= 2
    assert {name: await issued.accepts(token) for name, token in signed.items()} == dict.fromkeys(
        signed, True
    )


async def test_tokens_that_were_tampered_with_are_refused(issued: Issued) -> None:
    signed = [
        token
        for name, token in issued.tokens.items()
        if name != "none" and not name.startswith("HS256")
    ]
    assert not [token for token in signed if await issued.accepts(tampered(token))]


async def test_tokens_without_a_signature_or_with_a_public_key_as_secret_are_refused(
    issued: Issued,
) -> None:
    forged = {name: issued.tokens[name] for name in issued.tokens if name.startswith("HS256")}
    assert len(forged) >= 2
    forged["none"] = issued.tokens["none"]
    assert not [name for name, token in forged.items() if await issued.accepts(token)]
