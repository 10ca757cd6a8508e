"""The method `password`: verified on threads, bounded, and remembered."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from onward.actors.security import PasswordAuthenticator, PasswordOptions, _password as module
from onward.protocol.security import (
    BearerToken,
    NotAuthenticated,
    PasswordHash,
    PeerIdentity,
    UserPassword,
    hash_password,
)

pytestmark = pytest.mark.real_time

PEER = PeerIdentity()
SALT = b"0123456789abcdef"
CHEAP = "$scrypt$ln=1,r=1,p=1$MDEyMzQ1Njc4OWFiY2RlZg$"


class Verifications:
    """A substitute for the verification: it counts, and can be held."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str]] = []
        self.go_on = threading.Event()
        self.go_on.set()

    def __call__(self, password: str, stored: PasswordHash) -> bool:
        self.asked.append((password, stored.text))
        self.go_on.wait(10)
        return stored.text.endswith(password)


def stored(password: str) -> str:
    """A hash for the substitute: it ends with the password, of 22 characters."""
    return f"{CHEAP}{password}"


RIGHT = "RightRightRightRightRA"
WRONG = "WrongWrongWrongWrongWA"


@pytest.fixture
def verifications(monkeypatch: pytest.MonkeyPatch) -> Iterator[Verifications]:
    made = Verifications()
    monkeypatch.setattr(module, "verify_password", made)
    yield made
    made.go_on.set()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "users.toml"
    write(path, ann=stored(RIGHT), bob=stored(RIGHT) + '"\ndisabled = true\n# "')
    return path


def write(path: Path, **users: str) -> None:
    entries = (f'[[users]]\nname = "{name}"\npassword = "{text}"' for name, text in users.items())
    path.write_text("\n".join(entries))


@asynccontextmanager
async def passwords(
    path: Path, clock: Callable[[], float] = lambda: 0.0, **options: float
) -> AsyncGenerator[PasswordAuthenticator]:
    made = PasswordAuthenticator(path, PasswordOptions(**options), clock)  # type: ignore[arg-type]
    try:
        yield made
    finally:
        await made.close()


async def outcome(method: PasswordAuthenticator, name: str, password: str) -> str:
    try:
        found = await method.authenticate(UserPassword(name, password), PEER)
    except NotAuthenticated as error:
        return error.cause
    assert found is not None
    return found.name


async def test_each_outcome(path: Path, verifications: Verifications) -> None:
    async with passwords(path) as method:
        assert await outcome(method, "ann", RIGHT) == "ann"
        assert await outcome(method, "ann", WRONG) == "unknown"
        assert await outcome(method, "bob", RIGHT) == "disabled"
        assert await outcome(method, "bob", WRONG) == "unknown"
        assert await outcome(method, "carl", RIGHT) == "unknown"
        assert await method.authenticate(BearerToken(b"x"), PEER) is None
        assert await method.authenticate(None, PEER) is None


async def test_an_unknown_user_is_verified_as_a_known_one(
    path: Path, verifications: Verifications
) -> None:
    async with passwords(path) as method:
        await outcome(method, "carl", WRONG)
        await outcome(method, "carl", RIGHT)
        assert verifications.asked == [(WRONG, stored(RIGHT)), (RIGHT, stored(RIGHT))]
    path.write_text("")
    async with passwords(path) as method:
        assert await outcome(method, "carl", WRONG) == "unknown"
        assert verifications.asked[2][1].startswith("$scrypt$ln=14,r=8,p=1$")


async def test_a_right_password_is_remembered_for_a_time(
    path: Path, verifications: Verifications
) -> None:
    now = [0.0]
    async with passwords(path, lambda: now[0], remember_time=300.0) as method:
        for now[0] in (0.0, 299.0, 300.0):
            assert await outcome(method, "ann", RIGHT) == "ann"
        assert len(verifications.asked) == 2
        for _ in range(2):
            assert await outcome(method, "ann", WRONG) == "unknown"
        assert len(verifications.asked) == 4


async def test_a_changed_password_is_not_remembered(
    path: Path, verifications: Verifications
) -> None:
    async with passwords(path) as method:
        assert await outcome(method, "ann", RIGHT) == "ann"
        write(path, ann=stored(WRONG))
        await method.reload()
        assert await outcome(method, "ann", RIGHT) == "unknown"
        assert await outcome(method, "ann", WRONG) == "ann"


async def test_beyond_the_queue_peers_are_refused(path: Path, verifications: Verifications) -> None:
    verifications.go_on.clear()
    async with passwords(path, threads=1, queue=1) as method:
        waiting = [asyncio.create_task(outcome(method, "ann", each)) for each in (RIGHT, WRONG)]
        await asyncio.sleep(0)
        assert await outcome(method, "ann", "third") == "busy"
        # An attempt equal to one in the queue needs no place of its own.
        waiting.append(asyncio.create_task(outcome(method, "ann", RIGHT)))
        await asyncio.sleep(0)
        verifications.go_on.set()
        assert await asyncio.gather(*waiting) == ["ann", "unknown", "ann"]
        assert len(verifications.asked) == 2
        assert await outcome(method, "ann", "third") == "unknown"


async def test_a_verification_outlasts_the_time_of_its_decision(
    path: Path, verifications: Verifications
) -> None:
    verifications.go_on.clear()
    async with passwords(path) as method:
        first = asyncio.create_task(outcome(method, "ann", RIGHT))
        await asyncio.sleep(0)
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        second = asyncio.create_task(outcome(method, "ann", RIGHT))
        await asyncio.sleep(0)
        verifications.go_on.set()
        assert await second == "ann"
        assert len(verifications.asked) == 1


async def test_to_close_is_to_refuse_those_that_wait(
    path: Path, verifications: Verifications
) -> None:
    verifications.go_on.clear()
    async with passwords(path, threads=1) as method:
        waiting = [asyncio.create_task(outcome(method, "ann", each)) for each in (RIGHT, WRONG)]
        await asyncio.sleep(0)
        await method.close()
        verifications.go_on.set()
        assert await asyncio.gather(*waiting) == ["ann", "stopped"]


@pytest.mark.skipif(sys.platform != "linux", reason="a thread has a priority of its own on Linux")
async def test_verifications_give_way_to_the_loop(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def priority(_password: str, _stored: PasswordHash) -> bool:
        seen.append(os.getpriority(os.PRIO_PROCESS, threading.get_native_id()))
        return True

    seen = list[int]()
    monkeypatch.setattr(module, "verify_password", priority)
    async with passwords(path) as method:
        assert await outcome(method, "ann", RIGHT) == "ann"
    own = os.getpriority(os.PRIO_PROCESS, threading.get_native_id())
    assert seen == [min(own + 10, 19)]


@pytest.mark.skipif(sys.platform != "linux", reason="a thread has a priority of its own on Linux")
async def test_passwords_are_verified_where_priorities_must_not_change(
    path: Path, verifications: Verifications, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_arguments: int) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "setpriority", refuse)
    async with passwords(path) as method:
        assert await outcome(method, "ann", RIGHT) == "ann"


@pytest.mark.parametrize(
    ("after", "found"),
    [
        (stored(RIGHT) + '"\ndisabled = true\n# "', "disabled"),
        (stored(WRONG), "unknown"),
        (None, "unknown"),
        (stored(RIGHT) + '"\nroles = ["guests"]\n# "', "guests"),
    ],
)
async def test_a_reload_during_a_verification_counts(
    path: Path, verifications: Verifications, after: str | None, found: str
) -> None:
    verifications.go_on.clear()
    async with passwords(path) as method:
        deciding = asyncio.create_task(method.authenticate(UserPassword("ann", RIGHT), PEER))
        await asyncio.sleep(0)
        write(path, **({} if after is None else {"ann": after}))
        await method.reload()
        verifications.go_on.set()
        if found == "guests":
            principal = await deciding
            assert principal is not None
            assert principal.roles == {found}
        else:
            with pytest.raises(NotAuthenticated) as caught:
                await deciding
            assert caught.value.cause == found


async def test_a_reload_refuses_the_peers_of_a_user_with_another_password(
    path: Path, verifications: Verifications
) -> None:
    method = PasswordAuthenticator(path)
    ann = await method.authenticate(UserPassword("ann", RIGHT), PEER)
    assert ann is not None
    assert method.readmit(ann, PEER) == ann
    for text, stays in ((stored(RIGHT) + '"\nroles = ["x"]\n# "', True), (stored(WRONG), False)):
        write(path, ann=text)
        (await method.prepare_reload())()
        assert (method.readmit(ann, PEER) is not None) == stays
    await method.close()


async def test_scrypt_itself(tmp_path: Path) -> None:
    write(path := tmp_path / "users.toml", ann=hash_password("pässwörd", SALT).text)
    async with passwords(path) as method:
        assert await outcome(method, "ann", "pässwörd") == "ann"
        assert await outcome(method, "ann", "passwort") == "unknown"


async def test_hashes_of_argon2(tmp_path: Path) -> None:
    argon2 = pytest.importorskip("argon2", reason="argon2-cffi is not installed")
    made = argon2.PasswordHasher(time_cost=1, memory_cost=8, parallelism=1).hash("secret")
    write(path := tmp_path / "users.toml", ann=made)
    async with passwords(path) as method:
        assert await outcome(method, "ann", "secret") == "ann"
        assert await outcome(method, "ann", "other") == "unknown"


async def test_hashes_of_bcrypt(tmp_path: Path) -> None:
    bcrypt = pytest.importorskip("bcrypt", reason="bcrypt is not installed")
    made = bcrypt.hashpw(b"secret", bcrypt.gensalt(4)).decode()
    write(path := tmp_path / "users.toml", ann=made)
    async with passwords(path) as method:
        assert await outcome(method, "ann", "secret") == "ann"
        assert await outcome(method, "ann", "other") == "unknown"
        assert await outcome(method, "ann", "x" * 73) == "unknown"


async def test_bcrypt_does_not_accept_the_beginning_of_a_password(tmp_path: Path) -> None:
    bcrypt = pytest.importorskip("bcrypt", reason="bcrypt is not installed")
    made = bcrypt.hashpw(b"x" * 72, bcrypt.gensalt(4)).decode()
    write(path := tmp_path / "users.toml", ann=made)
    async with passwords(path) as method:
        assert await outcome(method, "ann", "x" * 72) == "ann"
        assert await outcome(method, "ann", "x" * 73) == "unknown"


async def test_a_password_that_bcrypt_cannot_have_costs_a_verification(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bcrypt = pytest.importorskip("bcrypt", reason="bcrypt is not installed")
    made = bcrypt.hashpw(b"a?b" + b"x" * 69, bcrypt.gensalt(4)).decode()
    write(path := tmp_path / "users.toml", ann=made)
    looked_at: list[bytes] = []
    check = bcrypt.checkpw

    def count(octets: bytes, stored: bytes) -> bool:
        looked_at.append(octets)
        return bool(check(octets, stored))

    monkeypatch.setattr(bcrypt, "checkpw", count)
    impossible = "a\0b" + "x" * 69, "a?b" + "x" * 70, "x" * 1000, "\0"
    async with passwords(path) as method:
        for password in impossible:
            for user in ("ann", "nobody"):
                assert await outcome(method, user, password) == "unknown"
    assert len(looked_at) == 2 * len(impossible)
    assert all(len(octets) <= 72 for octets in looked_at)
