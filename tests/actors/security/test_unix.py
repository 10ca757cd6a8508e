"""The method `unix`."""

from __future__ import annotations

from pathlib import Path

import pytest

from onward.actors.security import UnixAuthenticator
from onward.protocol.security import NotAuthenticated, PeerIdentity

FILE = """\
[[unix]]
name = "root"
uid = 0
roles = ["operators"]
[[unix]]
name = "gone"
uid = 1
disabled = true
"""


@pytest.mark.real_time
async def test_a_user_id_with_an_entry_makes_the_principal(tmp_path: Path) -> None:
    path = tmp_path / "principals.toml"
    path.write_text(FILE)
    method = UnixAuthenticator(path)
    found = await method.authenticate(None, PeerIdentity(user_id=0))
    assert found is not None
    assert (found.name, found.method, found.roles) == ("root", "unix", frozenset({"operators"}))
    assert await method.authenticate(None, PeerIdentity(user_id=2)) is None
    assert await method.authenticate(None, PeerIdentity()) is None
    with pytest.raises(NotAuthenticated):
        await method.authenticate(None, PeerIdentity(user_id=1))
    path.write_text("")
    await method.reload()
    assert await method.authenticate(None, PeerIdentity(user_id=0)) is None


async def test_without_a_file_the_user_id_is_the_name() -> None:
    method = UnixAuthenticator(roles=frozenset({"local"}))
    found = await method.authenticate(None, PeerIdentity(user_id=1000))
    assert found is not None
    assert (found.name, found.roles) == ("uid:1000", frozenset({"local"}))
    assert await method.authenticate(None, PeerIdentity()) is None
    await method.reload()
