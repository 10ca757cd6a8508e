"""A broker that asks for credentials: a service with a token, a person, and a program with a JWT.

It prints:

    ann gets: 3 orders
    reports gets: 3 orders
    a wrong token: not authenticated
    accepted: token 1, password 1, jwt 1
    refused: unknown 1
"""

from __future__ import annotations

import asyncio
import json
import logging
import secrets
import tempfile
import time
from pathlib import Path

from joserfc import jwk, jws

from onward.actors import Node
from onward.actors.broker import Broker, Handlers, Request
from onward.actors.security import (
    Authentication,
    JwtAuthenticator,
    PasswordAuthenticator,
    PrincipalsFile,
    TokenAuthenticator,
)
from onward.protocol.security import (
    BearerToken,
    Credentials,
    UserPassword,
    hash_password,
    make_token,
    token_digest,
)
from onward.transports.client import CredentialsRefused, connect

TOKEN = make_token(secrets.token_bytes(32))
PASSWORD = "a long sentence is a good password"

# `onward token new orders` and `onward password ann` print such entries.
PRINCIPALS = f"""
[[tokens]]
name = "orders"
sha256 = "{token_digest(TOKEN.encode()).hex()}"
roles = ["services"]

[[users]]
name = "ann"
password = "{hash_password(PASSWORD, secrets.token_bytes(16)).text}"
"""

# --8<-- [start:issuer]
# The issuer has the private key; the broker gets the set of public keys.
KEY = jwk.ECKey.generate_key("P-256", {"kid": "2026-11"})
KEY_SET = {"keys": [KEY.as_dict(private=False)]}


def issue(name: str) -> bytes:
    claims = {
        "iss": "https://issuer.example",
        "aud": "onward",
        "sub": name,
        "roles": ["reports"],
        "exp": int(time.time()) + 600,
    }
    header = {"alg": "ES256", "kid": "2026-11"}
    return jws.serialize_compact(header, json.dumps(claims), KEY).encode()


# --8<-- [end:issuer]

orders = Handlers()


@orders.response
async def count(_request: Request) -> bytes:
    return b"3 orders"


async def main() -> None:
    logging.disable()  # both ends log a refusal, the broker with its cause
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "principals.toml").write_text(PRINCIPALS)
        (folder / "keys.json").write_text(json.dumps(KEY_SET))
        async with Node("edge") as node:
            await run(node, folder)


async def run(node: Node, folder: Path) -> None:
    # --8<-- [start:listener]
    file = PrincipalsFile(folder / "principals.toml")
    authentication = Authentication(
        [
            TokenAuthenticator(file),
            PasswordAuthenticator(file),
            JwtAuthenticator(
                folder / "keys.json", issuer="https://issuer.example", audience="onward"
            ),
        ]
    )
    broker = await Broker.attach(node)
    listener = await node.listen(
        "rsocket+tcp://127.0.0.1:0", broker=broker, authentication=authentication
    )
    # --8<-- [end:listener]
    uri = listener.uri

    # --8<-- [start:clients]
    service = BearerToken(TOKEN.encode())
    people: dict[str, Credentials] = {
        "ann": UserPassword("ann", PASSWORD),
        "reports": BearerToken(issue("reports")),
    }
    async with connect(uri, service="orders", handlers=orders, credentials=service):
        for name, credentials in people.items():
            async with connect(uri, credentials=credentials) as client:
                answer = await client.request("service=orders", b"")
                print(f"{name} gets:", answer.data.decode())
        try:
            async with connect(uri, credentials=BearerToken(b"onw_guess")):
                pass
        except CredentialsRefused:
            print("a wrong token: not authenticated")
    # --8<-- [end:clients]
    figures = authentication.statistics()
    for what, counted in (("accepted", figures.accepted), ("refused", figures.refused)):
        print(f"{what}:", ", ".join(f"{name} {number}" for name, number in counted.items()))
    await authentication.close()


if __name__ == "__main__":
    asyncio.run(main())
