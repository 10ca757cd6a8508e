"""The method `token`."""

from __future__ import annotations

from pathlib import Path

import pytest

from onward.actors import ReloadFailed
from onward.actors.security import (
    AnonymousAuthenticator,
    Authentication,
    PasswordAuthenticator,
    TokenAuthenticator,
)
from onward.protocol.security import (
    BearerToken,
    Credentials,
    NotAuthenticated,
    PeerIdentity,
    UserPassword,
    make_token,
    token_digest,
)

PEER = PeerIdentity()
RIGHT, DISABLED, EXPIRED, OTHER = (make_token(bytes((each,)) * 32) for each in range(4))


def digest(token: str) -> str:
    return token_digest(token.encode()).hex()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "tokens.toml"
    path.write_text(
        f"""\
[[tokens]]
name = "billing"
sha256 = "{digest(RIGHT)}"
roles = ["orders"]
[[tokens]]
name = "old"
sha256 = "{digest(DISABLED)}"
disabled = true
[[tokens]]
name = "late"
sha256 = "{digest(EXPIRED)}"
expires = 2020-01-01T00:00:00Z
"""
    )
    return path


def bearer(token: str) -> BearerToken:
    return BearerToken(token.encode())


async def test_a_token_makes_a_principal(path: Path) -> None:
    found = await TokenAuthenticator(path).authenticate(bearer(RIGHT), PEER)
    assert found is not None
    assert (found.name, found.method, found.roles) == ("billing", "token", frozenset({"orders"}))


@pytest.mark.parametrize(
    ("token", "cause"),
    [
        (DISABLED, "disabled"),
        (EXPIRED, "expired"),
        (OTHER, "unknown"),
        (RIGHT[:-1], "unknown"),
        ("onw_", "unknown"),
    ],
)
async def test_other_tokens_of_this_kind_are_refused(path: Path, token: str, cause: str) -> None:
    authentication = Authentication([TokenAuthenticator(path)])
    with pytest.raises(NotAuthenticated) as caught:
        await authentication.authenticate(bearer(token), PEER)
    assert caught.value.cause == cause


@pytest.mark.parametrize("credentials", [None, bearer("eyJ0eXAi"), UserPassword("a", RIGHT)])
async def test_other_credentials_are_left_to_other_methods(
    path: Path, credentials: Credentials | None
) -> None:
    assert await TokenAuthenticator(path).authenticate(credentials, PEER) is None


@pytest.mark.real_time
async def test_a_reload_by_the_authentication(path: Path) -> None:
    method = TokenAuthenticator(path)
    authentication = Authentication([method, PasswordAuthenticator(path), AnonymousAuthenticator()])
    path.write_text("[[tokens")
    with pytest.raises(ReloadFailed, match=r"^token, password: .*tokens.toml:1: not TOML"):
        await authentication.prepare_reload()
    assert authentication.statistics().reloads_failed == 2
    assert await method.authenticate(bearer(RIGHT), PEER) is not None
    path.write_text("")
    replace = await authentication.prepare_reload()
    assert await method.authenticate(bearer(RIGHT), PEER) is not None
    replace()
    with pytest.raises(NotAuthenticated):
        await method.authenticate(bearer(RIGHT), PEER)
