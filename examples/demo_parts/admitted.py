"""A broker for clients that it does not trust: TLS, tokens, rules, and what an operator sees.

The orders service and its customer have tokens; a rule lets the customer request the orders, and
nothing else. A client without a token is refused.
"""

from __future__ import annotations

import asyncio
import logging
import re
from pathlib import Path
from urllib.request import Request as HttpRequest, urlopen

import trustme

from onward.actors.broker import Handlers, Request
from onward.protocol.security import BearerToken
from onward.transports import TlsOptions
from onward.transports.client import ClientOptions, CredentialsRefused, connect
from onward.transports.rsocket import DestinationError

from .processes import ONWARD, WAIT, Child, child
from .stage import DemoFailed, Record, check, heading, say

RULES = """
[[rule]]
roles = ["shop"]
register = "service=orders"

[[rule]]
roles = ["customer"]
request = "service=orders"

[[rule]]
roles = ["operator"]
read = true
"""

handlers = Handlers()


@handlers.response
async def orders(request: Request) -> bytes:
    return b"two orders for " + request.data


async def token(principals: Path, role: str) -> BearerToken:
    """Make a token with `onward token new`, which adds its digest to the file of principals."""
    command = (*ONWARD, "token", "new", role, "--role", role, "--file", str(principals))
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    output, _ = await process.communicate()
    check(process.returncode == 0, f"no token for {role}")
    made = output.split()[0]
    say("operator", f"onward token new {role} --role {role}: {made[:8].decode()}…")
    return BearerToken(made)


async def requests(
    uri: str, options: ClientOptions, shop: BearerToken, customer: BearerToken, record: Record
) -> None:
    """Send a request that a rule allows, one that none allows, and connect without a token."""
    async with (
        connect(uri, service="orders", handlers=handlers, credentials=shop, options=options),
        connect(uri, credentials=customer, options=options) as client,
    ):
        answer = await client.request("service=orders", b"ann")
        say("customer", f"service=orders: {answer.data.decode()}")
        check(answer.data == b"two orders for ann", f"a wrong answer: {answer.data!r}")
        record.done.add("request over TLS, with a token", 1, "1 answer", "orders")
        try:
            await client.request("service=payroll", b"")
        except DestinationError as error:
            say("customer", f"service=payroll: {error}")
            check("not allowed" in str(error), f"a wrong error: {error}")
        else:
            raise DemoFailed("a request that no rule allows was answered")
    record.done.add("... that no rule allows", 1, "INVALID", "broker: not allowed")
    # The client warns of the refusal in its log, and raises it.
    logging.getLogger("onward").addHandler(logging.NullHandler())
    try:
        async with connect(uri, options=options):
            raise DemoFailed("a client without a token was admitted")
    except CredentialsRefused as error:
        say("stranger", f"without a token: {error}")
    record.done.add("... without a token", 1, "REJECTED_SETUP", "broker: not authenticated")


async def look(broker: Child, operator: BearerToken) -> None:
    """Ask the admin interface whether the broker is ready, and for a metric."""
    line = await broker.line(lambda line: line.startswith("admin http"), "its admin interface")
    uri = line.removeprefix("admin ")

    def get(path: str) -> str:
        bearer = {"Authorization": f"Bearer {operator.token.decode()}"}
        with urlopen(HttpRequest(f"{uri}{path}", headers=bearer), timeout=WAIT) as answer:
            return str(answer.read().decode())

    check(await asyncio.to_thread(get, "/readyz") == "ok\n", "the broker is not ready")
    metrics = await asyncio.to_thread(get, "/metrics")
    denied = re.search(r'^onward_denied_total\{.*action="request".*\} 1$', metrics, re.MULTILINE)
    check(denied is not None, "the refused request is not in the metrics")
    assert denied is not None
    say("operator", f"{uri}/metrics: {denied[0]}")
    check("<!doctype html>" in await asyncio.to_thread(get, "/"), "there is no console")
    say("operator", f"console for a browser, while the broker runs: {uri}/")


async def run(folder: Path, record: Record) -> None:
    """Run this part, with a broker of its own.

    Args:
        folder: Gets certificates, principals and rules.
        record: Gets what was done.
    """
    heading("A broker for clients that it does not trust: TLS, tokens and rules")
    authority = trustme.CA()
    authority.cert_pem.write_to_path(folder / "authority.pem")
    certificate = authority.issue_cert("127.0.0.1")
    certificate.private_key_and_cert_chain_pem.write_to_path(folder / "broker.pem")
    principals, rules = folder / "principals.toml", folder / "rules.toml"
    rules.write_text(RULES)
    shop, customer, operator = [
        await token(principals, role) for role in ("shop", "customer", "operator")
    ]
    command = (*ONWARD, "broker", "--listen", "rsocket+tls://127.0.0.1:0")
    files = ("--certificate", folder / "broker.pem", "--principals", principals, "--rules", rules)
    # The log has a warning for the client that is refused; it is printed here anyhow.
    more = ("--admin", "http://127.0.0.1:0", "--log", "error")
    async with child("guarded", *command, *map(str, files), *more) as broker:
        uri = f"rsocket+tls://{await broker.listening('rsocket+tls')}"
        options = ClientOptions(tls=TlsOptions(authority=folder / "authority.pem"))
        await requests(uri, options, shop, customer, record)
        await look(broker, operator)
        await broker.stop()
    record.cast.add("guarded", "a broker", "onward broker", "TLS", "refused 1 client, 1 request")
