"""The method `certificate`."""

from __future__ import annotations

from pathlib import Path

import pytest

from onward.actors.security import CertificateAuthenticator, PrincipalsFile
from onward.protocol.security import NotAuthenticated, PeerIdentity, UserPassword

FILE = """\
[[certificates]]
name = "gateway"
certified = "DNS:gateway.example"
roles = ["edge"]
[[certificates]]
name = "second"
certified = "URI:spiffe://example/second"
[[certificates]]
name = "gone"
certified = "DNS:gone.example"
disabled = true
"""


@pytest.fixture
def method(tmp_path: Path) -> CertificateAuthenticator:
    path = tmp_path / "principals.toml"
    path.write_text(FILE)
    return CertificateAuthenticator(path)


@pytest.mark.parametrize(
    ("names", "principal"),
    [
        (("DNS:gateway.example",), "gateway"),
        (("DNS:other", "URI:spiffe://example/second", "DNS:gateway.example"), "second"),
        (("DNS:GATEWAY.example",), None),
        (("URI:gateway.example",), None),
        ((), None),
    ],
)
async def test_a_name_with_an_entry_makes_the_principal(
    method: CertificateAuthenticator, names: tuple[str, ...], principal: str | None
) -> None:
    found = await method.authenticate(None, PeerIdentity(names=names))
    assert (found and found.name) == principal


async def test_a_disabled_name_refuses_the_peer(method: CertificateAuthenticator) -> None:
    peer = PeerIdentity(names=("DNS:gateway.example", "DNS:gone.example"))
    with pytest.raises(NotAuthenticated) as caught:
        await method.authenticate(UserPassword("ann", "right"), peer)
    assert caught.value.cause == "disabled"


async def test_without_a_file_the_first_name_is_that_of_the_principal() -> None:
    method = CertificateAuthenticator(roles=frozenset({"edge"}))
    found = await method.authenticate(None, PeerIdentity(names=("DNS:a", "DNS:b")))
    assert found is not None
    assert (found.name, found.method, found.roles) == ("DNS:a", "certificate", frozenset({"edge"}))
    assert await method.authenticate(None, PeerIdentity()) is None
    await method.reload()


@pytest.mark.parametrize(
    ("account", "certificate", "end"),
    [(None, None, None), (None, 5.0, 5.0), (4.0, 5.0, 4.0), (6.0, 5.0, 5.0), (4.0, None, 4.0)],
)
async def test_a_principal_expires_with_its_certificate(
    tmp_path: Path, account: float | None, certificate: float | None, end: float | None
) -> None:
    path = tmp_path / "principals.toml"
    expires = "" if account is None else f"expires = 1970-01-01T00:00:{account:02.0f}Z"
    path.write_text(f'[[certificates]]\nname = "a"\ncertified = "DNS:a"\n{expires}\n')
    peer = PeerIdentity(names=("DNS:a",), expires=certificate)
    found = await CertificateAuthenticator(path).authenticate(None, peer)
    assert found is not None
    assert found.expires == end
    found = await CertificateAuthenticator().authenticate(None, peer)
    assert found is not None
    assert found.expires == certificate


@pytest.mark.real_time
async def test_a_reload(tmp_path: Path) -> None:
    path = tmp_path / "principals.toml"
    path.write_text(FILE)
    method = CertificateAuthenticator(PrincipalsFile(path))
    path.write_text("")
    await method.reload()
    assert await method.authenticate(None, PeerIdentity(names=("DNS:gateway.example",))) is None
