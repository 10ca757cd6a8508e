"""The sources of keys: a file, and a URL that is fetched at its times."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from onward.protocol.security import BadKeySet, NotAuthenticated, UnverifiedJwt

pytest.importorskip("joserfc", reason="joserfc is not installed")

from onward.actors.security._jwt_keys import FileKeys, UrlKeys

X = "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"


def document(*ids: str) -> bytes:
    keys = [{"kty": "OKP", "crv": "Ed25519", "x": X, "kid": each} for each in ids]
    return json.dumps({"keys": keys}).encode()


def jwt(key_id: str | None) -> UnverifiedJwt:
    return UnverifiedJwt("Ed25519", key_id, b"", b"", b"")


class Server:
    """A server of keys: it counts the fetches, and can be held or broken."""

    def __init__(self, answer: bytes) -> None:
        self.answer: bytes | Exception = answer
        self.fetches = 0
        self.go_on = asyncio.Event()
        self.go_on.set()

    async def __call__(self) -> bytes:
        self.fetches += 1
        await self.go_on.wait()
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


async def test_keys_are_fetched_once_at_the_first_look_up() -> None:
    server = Server(document("a"))
    keys = UrlKeys(server, 600.0, 60.0)
    found = await asyncio.gather(keys.find(jwt("a")), keys.find(jwt(None)), keys.find(jwt("a")))
    assert [len(each) for each in found] == [1, 1, 1]
    assert server.fetches == 1
    await keys.close()


async def test_they_are_fetched_again_at_each_interval() -> None:
    server = Server(document("a"))
    keys = UrlKeys(server, 600.0, 60.0)
    await keys.find(jwt("a"))
    before = keys.keys
    await asyncio.sleep(601.0)
    assert server.fetches == 2
    assert keys.keys is before
    server.answer = document("b")
    await asyncio.sleep(600.0)
    assert not await keys.find(jwt("a"))
    assert await keys.find(jwt("b"))
    await keys.close()


async def test_an_unknown_key_id_leads_to_one_fetch_a_minute() -> None:
    server = Server(document("a"))
    keys = UrlKeys(server, 600.0, 60.0)
    for key_id in ("a", "b", "c"):
        await keys.find(jwt(key_id))
    assert server.fetches == 1
    await asyncio.sleep(61.0)
    server.answer = document("a", "b")
    for key_id in ("b", "c", "d"):
        assert len(await keys.find(jwt(key_id))) == (key_id == "b")
    assert server.fetches == 2
    await keys.close()


@pytest.mark.parametrize("fault", [OSError("unreachable"), BadKeySet("broken")])
async def test_a_failure_leaves_the_keys_as_they_are(
    fault: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    server = Server(document("a"))
    keys = UrlKeys(server, 600.0, 60.0)
    await keys.find(jwt("a"))
    server.answer = fault
    with pytest.raises(type(fault)):
        await keys.fetch()
    (await keys.prepare_reload())()
    assert await keys.find(jwt("a"))
    await asyncio.sleep(601.0)
    assert "could not be fetched" in caplog.text
    assert await keys.find(jwt("a"))
    assert not await keys.find(jwt("b"))
    server.answer = document("b")
    await asyncio.sleep(60.0)
    assert await keys.find(jwt("b"))
    await keys.close()


async def test_without_any_keys_no_peer_is_blamed() -> None:
    server = Server(b"nonsense")
    keys = UrlKeys(server, 600.0, 60.0)
    for _ in range(2):
        with pytest.raises(NotAuthenticated) as caught:
            await keys.find(jwt("a"))
        assert caught.value.cause == "no keys"
    assert server.fetches == 1
    server.answer = document("a")
    await asyncio.sleep(61.0)
    assert await keys.find(jwt("a"))
    await keys.close()


async def test_a_decision_that_is_cancelled_leaves_the_fetch_to_others() -> None:
    server = Server(document("a"))
    server.go_on.clear()
    keys = UrlKeys(server, 600.0, 60.0)
    first, second = (asyncio.create_task(keys.find(jwt("a"))) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()
    await asyncio.sleep(1.0)
    server.go_on.set()
    assert len(await second) == 1
    assert first.cancelled()
    assert server.fetches == 1
    await keys.close()


async def test_to_close_ends_a_fetch() -> None:
    server = Server(document("a"))
    server.go_on.clear()
    keys = UrlKeys(server, 600.0, 60.0)
    finding = asyncio.create_task(keys.find(jwt("a")))
    await asyncio.sleep(1.0)
    await keys.close()
    with pytest.raises(asyncio.CancelledError):
        await finding
    await UrlKeys(server, 600.0, 60.0).close()


@pytest.mark.real_time
async def test_a_file(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    path.write_bytes(document("a"))
    keys = FileKeys(path, 1000)
    path.write_bytes(document("b"))
    assert await keys.find(jwt("a"))
    (await keys.prepare_reload())()
    assert not await keys.find(jwt("a"))
    for broken in (b"{", document(*map(str, range(20)))):
        path.write_bytes(broken)
        with pytest.raises(BadKeySet):
            await keys.prepare_reload()
        assert await keys.find(jwt("b"))
    await keys.close()
