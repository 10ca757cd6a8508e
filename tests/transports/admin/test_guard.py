"""The checks of a request before its handler, and the credentials in it."""

from __future__ import annotations

import base64
from http import HTTPStatus

import pytest

from onward.actors.security import AnonymousAuthenticator, Authentication, Authenticator
from onward.protocol.security import (
    ANONYMOUS,
    BearerToken,
    Credentials,
    NotAuthenticated,
    PeerIdentity,
    Principal,
    UserPassword,
)
from onward.transports.admin import HttpError, HttpRequest
from onward.transports.admin._guard import RequestGuard, credentials_of, without_port
from onward.transports.admin._paths import Needs

PEER = PeerIdentity("http://127.0.0.1:1", "127.0.0.1")


class Passwords(Authenticator):
    method = "password"

    async def authenticate(
        self, credentials: Credentials | None, peer: PeerIdentity
    ) -> Principal | None:
        if not isinstance(credentials, UserPassword):
            return None
        if credentials.password != "right":
            raise NotAuthenticated("wrong")
        return Principal(credentials.username, self.method)


def basic(text: str) -> str:
    return f"Basic {base64.b64encode(text.encode()).decode()}"


def request(method: str = "GET", **headers: str) -> HttpRequest:
    fields = {name.replace("_", "-"): value for name, value in headers.items()}
    return HttpRequest(method, "/x", headers=fields)


@pytest.mark.parametrize(
    "host",
    [
        "localhost",
        "LOCALHOST:8601",
        "127.0.0.1",
        "127.0.0.1:1",
        "[::1]",
        "[::1]:8601",
        "broker.example",
        "Broker.Example:443",
        "10.0.0.7:8601",
    ],
)
def test_a_known_host_is_accepted(host: str) -> None:
    RequestGuard(("broker.example",), None, None).check_host(host, "10.0.0.7")


@pytest.mark.parametrize(
    "host",
    [
        "",
        "evil.example",
        "localhost.evil.example",
        "evil.example:8601",
        "127.0.0.1.evil.example",
        "localhost@evil.example",
        "localhost evil",
        "[::1].evil.example",
        "10.0.0.8",
        ":8601",
    ],
)
def test_another_host_is_refused(host: str) -> None:
    with pytest.raises(HttpError) as caught:
        RequestGuard(("broker.example",), None, None).check_host(host, "10.0.0.7")
    assert caught.value.status is HTTPStatus.MISDIRECTED_REQUEST


def test_a_socket_without_an_address_has_no_host_of_its_own() -> None:
    with pytest.raises(HttpError):
        RequestGuard((), None, None).check_host("", "")


@pytest.mark.parametrize(
    ("host", "name"),
    [("a:1", "a"), ("a", "a"), ("[::1]:1", "[::1]"), ("[::1]", "[::1]"), ("a:b", "a:b")],
)
def test_a_host_without_its_port(host: str, name: str) -> None:
    assert without_port(host) == name


@pytest.mark.parametrize(
    ("site", "mode", "refused"),
    [
        ("", "", ""),
        ("same-origin", "cors", ""),
        ("none", "navigate", ""),
        ("cross-site", "navigate", "operate"),
        ("same-site", "navigate", "operate"),
        ("cross-site", "no-cors", "read operate"),
        ("same-site", "no-cors", "read operate"),
        ("cross-site", "cors", "read operate"),
        ("cross-site", "", "read operate"),
        ("cross-site, same-origin", "cors", "read operate"),
    ],
)
def test_a_page_of_another_site_has_no_work_done(site: str, mode: str, refused: str) -> None:
    headers = {"sec_fetch_site": site, "sec_fetch_mode": mode}
    asked = request("GET", **{name: value for name, value in headers.items() if value})
    guard = RequestGuard((), None, None)
    levels: tuple[Needs, ...] = ("nothing", "read", "operate")
    for needs in levels:
        if needs in refused.split():
            with pytest.raises(HttpError, match="403 Forbidden: the request is of another site"):
                guard.check_site(asked, needs)
        else:
            guard.check_site(asked, needs)


@pytest.mark.parametrize(
    ("headers", "secure", "status"),
    [
        ({"content_type": "application/json"}, False, 200),
        ({"content_type": "Application/JSON; charset=utf-8"}, False, 200),
        ({"content_type": "application/json", "origin": "http://a:1"}, False, 200),
        ({"content_type": "application/json", "origin": "https://A:1"}, True, 200),
        ({}, False, 415),
        ({"content_type": "text/plain"}, False, 415),
        ({"content_type": "application/x-www-form-urlencoded"}, False, 415),
        ({"content_type": "application/json-seq"}, False, 415),
        ({"content_type": "application/json", "origin": "null"}, False, 403),
        ({"content_type": "application/json", "origin": "http://a"}, False, 403),
        ({"content_type": "application/json", "origin": "https://a:1"}, False, 403),
        ({"content_type": "application/json", "origin": "http://a:1"}, True, 403),
        ({"content_type": "application/json", "origin": "http://evil"}, False, 403),
    ],
)
def test_a_post_is_json_of_the_same_origin(
    headers: dict[str, str], secure: bool, status: int
) -> None:
    guard = RequestGuard((), None, None)
    try:
        guard.check_post(request("POST", **headers), "a:1", secure=secure)
        found = 200
    except HttpError as error:
        found = error.status.value
    assert found == status


@pytest.mark.parametrize(
    ("field", "credentials"),
    [
        ("", None),
        ("Bearer onw_abc", BearerToken(b"onw_abc")),
        ("bearer   a.b.c ", BearerToken(b"a.b.c")),
        (basic("ann:secret:with:colons"), UserPassword("ann", "secret:with:colons")),
        (basic("ä:ö"), UserPassword("ä", "ö")),
        (basic("ann:"), UserPassword("ann", "")),
    ],
)
def test_credentials_are_read(field: str, credentials: Credentials | None) -> None:
    assert credentials_of(field) == credentials


@pytest.mark.parametrize(
    "field",
    [
        "Digest x",
        "Bearer",
        "Bearer ",
        "Bearer ä",
        "Bearer " + "x" * 8193,
        "Basic !!!",
        "Basic YQ",
        basic("no colon"),
        basic(":no user"),
        basic("u" * 256 + ":p"),
        basic("u:" + "p" * 1025),
        "Basic " + base64.b64encode(b"a:\xff").decode(),
        "Basic " + "a" * 10_000,
    ],
)
def test_broken_credentials_are_refused_like_wrong_ones(field: str) -> None:
    with pytest.raises(NotAuthenticated, match=r"^not authenticated$"):
        credentials_of(field)


async def test_a_request_is_authenticated_unless_it_needs_nothing() -> None:
    guard = RequestGuard((), Authentication([Passwords()]), None)
    right = request(authorization=basic("ann:right"))
    assert await guard.principal(right, "read", PEER) == Principal("ann", "password")
    assert await guard.principal(request(), "nothing", PEER) is None
    for wrong in (request(), request(authorization=basic("ann:no")), request(authorization="X")):
        with pytest.raises(HttpError, match="401") as caught:
            await guard.principal(wrong, "read", PEER)
        assert caught.value.headers["www-authenticate"].startswith('Basic realm="onward"')


async def test_guesses_are_limited_and_requests_without_credentials_are_none() -> None:
    guard = RequestGuard((), Authentication([Passwords()]), None)
    for _ in range(30):
        with pytest.raises(HttpError, match="401"):
            await guard.principal(request(), "read", PEER)
    right = request(authorization=basic("ann:right"))
    assert await guard.principal(right, "read", PEER) is not None
    for _ in range(30):
        with pytest.raises(HttpError, match="401"):
            await guard.principal(request(authorization=basic("ann:guess")), "read", PEER)
    with pytest.raises(HttpError, match="401"):
        await guard.principal(right, "read", PEER)
    assert await guard.principal(request(), "nothing", PEER) is None


async def test_without_authentication_each_peer_may_do_all() -> None:
    assert await RequestGuard((), None, None).principal(request(), "operate", PEER) is None


async def test_without_authentication_each_peer_is_anonymous_for_the_rules() -> None:
    guard = RequestGuard((), None, lambda who, needs: (who, needs) == (ANONYMOUS, "read"))
    assert await guard.principal(request(), "read", PEER) == ANONYMOUS
    assert await guard.principal(request(), "nothing", PEER) is None
    with pytest.raises(HttpError, match="not allowed: operate"):
        await guard.principal(request(), "operate", PEER)


async def test_a_principal_may_do_what_is_permitted() -> None:
    guard = RequestGuard(
        (), Authentication([AnonymousAuthenticator()]), lambda _, needs: needs == "read"
    )
    assert await guard.principal(request(), "read", PEER) is not None
    with pytest.raises(HttpError, match="not allowed: operate") as caught:
        await guard.principal(request(), "operate", PEER)
    assert caught.value.status is HTTPStatus.FORBIDDEN
