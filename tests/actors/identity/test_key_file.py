"""Key files on a disk: who may read them, and what is there after a cut at any step."""

from __future__ import annotations

import fcntl
import itertools
import logging
import os
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from onward.actors.identity import (
    KEY_FILE_MODE,
    IdentityKeys,
    KeyFileRefused,
    load_key_file,
    make_key_file,
    new_lock,
    read_key_file,
    rotate_key_file,
    unfinished_rotations,
)
from onward.protocol.identity import (
    NO_REPLY,
    OLD_KEY_TIME,
    BadKey,
    BadRecord,
    InnerKind,
    Lock,
    PassphraseNeeded,
    RotatedLately,
    SealingKey,
    room_for,
    seal,
)

WORDS = "correct horse"
QUICK = Lock(bytes(16), bytes(12), log_n=1, r=1)

BOTH = pytest.mark.parametrize("passphrase", [None, WORDS], ids=["plain", "encrypted"])


def made(path: Path, passphrase: str | None = None) -> IdentityKeys:
    return make_key_file(path, name="relay in Oslo", passphrase=passphrase, lock=QUICK)


def values(keys: IdentityKeys) -> tuple[object, ...]:
    """Return what can be compared of keys: a signing key by its identity."""
    rest = [getattr(keys, each.name) for each in fields(keys) if each.name != "signing"]
    return keys.identity, *rest


def names(folder: Path) -> list[str]:
    return sorted(each.name for each in folder.iterdir())


@BOTH
def test_what_is_made_is_loaded(tmp_path: Path, passphrase: str | None) -> None:
    path = tmp_path / "node.key"
    keys = made(path, passphrase)
    assert path.stat().st_mode & 0o7777 == KEY_FILE_MODE
    assert values(load_key_file(path, passphrase)) == values(keys)
    seen = read_key_file(path)
    assert (seen.identity, seen.name, seen.created) == (keys.identity, keys.name, keys.created)
    assert (seen.lock is None) == (passphrase is None)
    assert seen.sealing_key == SealingKey(keys.sealing_seed).public
    assert values(made(tmp_path / "other.key")) != values(keys)
    assert names(tmp_path) == ["node.key", "other.key"]


def test_the_default_lock_is_new_each_time() -> None:
    one, two = new_lock(), new_lock()
    assert one.salt != two.salt
    assert one.nonce != two.nonce
    assert 128 * one.r * one.p << one.log_n == 128 << 20


def test_a_lock_is_made_if_none_is_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("onward.actors.identity._key_file.new_lock", lambda: QUICK)
    make_key_file(tmp_path / "node.key", passphrase=WORDS)
    assert read_key_file(tmp_path / "node.key").lock == QUICK


def test_a_mask_of_the_process_does_not_change_the_mode(tmp_path: Path) -> None:
    before = os.umask(0o777)
    try:
        made(tmp_path / "node.key")
    finally:
        os.umask(before)
    assert (tmp_path / "node.key").stat().st_mode & 0o7777 == KEY_FILE_MODE


def test_what_is_there_is_never_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "node.key"
    made(path)
    content = path.read_bytes()
    for taken in (path, tmp_path / "link", tmp_path / "dangling", tmp_path):
        if taken.name == "link":
            taken.symlink_to(path)
        elif taken.name == "dangling":
            taken.symlink_to(tmp_path / "nothing")
        with pytest.raises(FileExistsError):
            made(taken)
    assert path.read_bytes() == content
    assert not (tmp_path / "nothing").exists()


def test_nothing_is_made_by_wrong_arguments(tmp_path: Path) -> None:
    path = tmp_path / "node.key"
    with pytest.raises(BadRecord, match="a name has up to"):
        make_key_file(path, name="a\nb")
    with pytest.raises(BadKey, match="a passphrase has 1 to"):
        make_key_file(path, passphrase="", lock=QUICK)
    with pytest.raises(KeyFileRefused, match="cannot be written in UTF-8"):
        make_key_file(path, passphrase="\ud800", lock=QUICK)
    with pytest.raises(FileNotFoundError):
        make_key_file(tmp_path / "no" / "node.key")
    assert names(tmp_path) == []


READ: list[Callable[[Path], object]] = [read_key_file, load_key_file, rotate_key_file]


@pytest.mark.parametrize("read", READ)
@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o602, 0o660, 0o644, 0o610])
def test_a_file_that_others_can_read_or_write_is_refused(
    tmp_path: Path, mode: int, read: Callable[[Path], object]
) -> None:
    path = tmp_path / "node.key"
    made(path)
    content = path.read_bytes()
    path.chmod(mode)
    with pytest.raises(KeyFileRefused, match=r"others may (read|write).*chmod 600") as caught:
        read(path)
    assert caught.value.path == path
    assert path.read_bytes() == content


@pytest.mark.parametrize("read", READ)
def test_a_file_of_another_user_is_refused(
    tmp_path: Path, read: Callable[[Path], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "node.key"
    made(path)
    real = os.fstat

    def other(handle: int) -> os.stat_result:
        state = list(real(handle))
        state[4] = os.getuid() + 1
        return os.stat_result(state)

    with monkeypatch.context() as patch:
        patch.setattr("os.fstat", other)
        with pytest.raises(KeyFileRefused, match="another user owns it"):
            read(path)


@pytest.mark.parametrize("read", READ)
@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"", "first line is not"),
        (b"onward identity key 2\n", "is of version 2"),
        (b"onward identity key 1\n", "is cut short"),
        (b"onward identity key 1\nidentity\nend of the identity key\n", "is damaged"),
        (bytes(1_000_000), "first line is not"),
    ],
)
def test_what_is_no_key_file_is_refused(
    tmp_path: Path, content: bytes, told: str, read: Callable[[Path], object]
) -> None:
    path = tmp_path / "node.key"
    path.write_bytes(content)
    path.chmod(0o600)
    with pytest.raises(KeyFileRefused, match=told):
        read(path)
    assert path.read_bytes() == content


@pytest.mark.parametrize("read", [load_key_file, rotate_key_file])
def test_a_passphrase_is_needed_and_has_to_be_right(tmp_path: Path, read: Any) -> None:
    path = tmp_path / "node.key"
    made(path, WORDS)
    content = path.read_bytes()
    with pytest.raises(PassphraseNeeded):
        read(path)
    with pytest.raises(KeyFileRefused, match="the passphrase is wrong, or it is damaged") as caught:
        read(path, "wrong horse")
    assert "wrong horse" not in repr(caught.value)
    with pytest.raises(KeyFileRefused, match="cannot be written in UTF-8"):
        read(path, "\ud800")
    with pytest.raises(BadKey):
        read(path, "")
    assert path.read_bytes() == content
    assert names(tmp_path) == ["node.key"]


@BOTH
def test_a_rotation_keeps_the_identity_and_the_key_before(
    tmp_path: Path, passphrase: str | None
) -> None:
    path = tmp_path / "node.key"
    before = made(path, passphrase)
    after = rotate_key_file(path, passphrase, now=1_790_000_000_000)
    assert values(load_key_file(path, passphrase)) == values(after)
    assert (after.identity, after.name, after.created) == (
        before.identity,
        before.name,
        before.created,
    )
    assert after.previous_seed == before.sealing_seed
    assert after.sealing_seed != before.sealing_seed
    assert path.stat().st_mode & 0o7777 == KEY_FILE_MODE
    assert names(tmp_path) == ["node.key"]
    lock = read_key_file(path).lock
    if passphrase is None:
        assert lock is None
    else:
        assert lock is not None
        assert (lock.log_n, lock.r, lock.p) == (QUICK.log_n, QUICK.r, QUICK.p)
        assert lock.salt != QUICK.salt
        assert lock.nonce != QUICK.nonce


def test_what_was_sealed_before_a_rotation_opens_for_the_rest_of_its_time(tmp_path: Path) -> None:
    path, now = tmp_path / "node.key", 1_790_000_000_000
    before = made(path).sealing_keys()
    room = room_for(b"hello")
    sealed = seal(before.public, InnerKind.ENGINE, NO_REPLY, b"hello", room=room, info=b"")
    keys = rotate_key_file(path, now=now).sealing_keys()
    assert keys.public == SealingKey(load_key_file(path).sealing_seed).public != before.public
    opened = keys.open(sealed, b"", now + OLD_KEY_TIME)
    assert opened is not None
    assert opened.inner == b"hello"
    assert keys.open(sealed, b"", now + OLD_KEY_TIME + 1) is None


def test_a_second_rotation_waits_or_loses_the_key_before(tmp_path: Path) -> None:
    path, now = tmp_path / "node.key", 1_790_000_000_000
    made(path)
    rotate_key_file(path, now=now)
    content = path.read_bytes()
    with pytest.raises(RotatedLately):
        rotate_key_file(path, now=now + OLD_KEY_TIME - 1)
    assert path.read_bytes() == content
    assert rotate_key_file(path, now=now + 1, lose_previous=True).rotated == now + 1
    # The clock of the machine is behind that time, so it has to be told as well.
    with pytest.raises(RotatedLately):
        rotate_key_file(path, now=now)


def test_a_rotation_replaces_what_a_link_leads_to(tmp_path: Path) -> None:
    path, link = tmp_path / "node.key", tmp_path / "link"
    made(path)
    link.symlink_to(path)
    assert values(rotate_key_file(link)) == values(load_key_file(path))
    assert link.is_symlink()


def test_one_rotation_at_a_time_in_a_folder(tmp_path: Path) -> None:
    path = tmp_path / "node.key"
    made(path)
    folder = os.open(tmp_path, os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        with pytest.raises(KeyFileRefused, match="another process rotates a key in its folder"):
            rotate_key_file(path)
    finally:
        os.close(folder)
    rotate_key_file(path)


def test_what_is_no_file_can_be_loaded_and_not_rotated(tmp_path: Path) -> None:
    # As by `<(pass show node.key)` in a shell.
    keys = made(tmp_path / "node.key")
    content = (tmp_path / "node.key").read_bytes()
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = Thread(target=pipe.write_bytes, args=(content,))
    writer.start()
    assert values(load_key_file(pipe)) == values(keys)
    writer.join()
    ends = os.open(pipe, os.O_RDWR)
    try:
        with pytest.raises(KeyFileRefused, match="it is no file on a disk"):
            rotate_key_file(pipe)
    finally:
        os.close(ends)


class Cut(BaseException):
    """The end of the process, which no code of it outlives."""


class CutDisk:
    """The calls by which files change; after a number of them the process is cut off.

    A write that is cut has written half. After the cut no call has an effect, so nothing is tidied.
    """

    CALLS = ("open", "fchmod", "write", "fsync", "replace", "unlink")

    def __init__(self, patch: pytest.MonkeyPatch, after: int) -> None:
        self.left = after
        self.done: list[str] = []
        for name in self.CALLS:
            patch.setattr(os, name, self._call(name, getattr(os, name)))

    def _call(self, name: str, real: Any) -> Any:
        def call(*arguments: Any) -> Any:
            if not self.left:
                if name == "write" and "cut" not in self.done:
                    handle, data = arguments
                    real(handle, data[: len(data) // 2])
                self.done.append("cut")
                raise Cut
            self.left -= 1
            self.done.append(name)
            return real(*arguments)

        return call


def cut_at_each_step(
    monkeypatch: pytest.MonkeyPatch, act: Callable[[int], object]
) -> list[list[str]]:
    """Do something with a cut after 0, 1, 2… calls, until it is done without one."""
    cuts: list[list[str]] = []
    for after in itertools.count():
        with monkeypatch.context() as patch:
            disk = CutDisk(patch, after)
            try:
                act(after)
            except Cut:
                cuts.append(disk.done)
                continue
        return [*cuts, disk.done]
    raise AssertionError("the loop has no end of its own")


@BOTH
def test_a_rotation_that_is_cut_at_any_step_leaves_the_old_or_the_new_keys(
    tmp_path: Path,
    passphrase: str | None,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    befores = dict[int, IdentityKeys]()

    def path_of(after: int) -> Path:
        return tmp_path / str(after) / "node.key"

    for after in range(12):
        path_of(after).parent.mkdir()
        befores[after] = made(path_of(after), passphrase)
    *cuts, whole = cut_at_each_step(
        monkeypatch, lambda after: rotate_key_file(path_of(after), passphrase, now=1)
    )
    # The content is on the disk before the name leads to it, and the name before it is told.
    assert whole == ["open", "open", "fchmod", "write", "fsync", "replace", "fsync"]
    assert len(cuts) == len(whole)
    for after in range(len(cuts)):
        before = befores[after]
        now = load_key_file(path_of(after), passphrase)
        assert now.identity == before.identity
        if after > whole.index("replace"):
            assert now.previous_seed == before.sealing_seed
        else:
            assert values(now) == values(before)
        left = unfinished_rotations(path_of(after))
        assert bool(left) == (2 <= after <= whole.index("replace"))
        for each in left:
            assert each.stat().st_mode & 0o077 == 0
            assert f"{each} was left by a rotation that was cut off" in caplog.text
        # The next one is not hindered, and does not touch what is left.
        again = rotate_key_file(path_of(after), passphrase, lose_previous=True)
        assert values(load_key_file(path_of(after), passphrase)) == values(again)
        assert unfinished_rotations(path_of(after)) == left


def test_a_file_whose_making_is_cut_off_is_none_or_is_refused_or_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def path_of(after: int) -> Path:
        return tmp_path / f"{after}.key"

    *cuts, whole = cut_at_each_step(monkeypatch, lambda after: made(path_of(after)))
    assert whole == ["open", "open", "fchmod", "write", "fsync", "fsync"]
    for after in range(len(cuts)):
        if after < 2:
            assert not path_of(after).exists()
        elif after <= whole.index("write"):
            with pytest.raises(KeyFileRefused):
                load_key_file(path_of(after))
        else:
            load_key_file(path_of(after))
        if after >= 2:
            assert path_of(after).stat().st_mode & 0o077 == 0


class FailingDisk(CutDisk):
    """A disk with one call that fails: it is full, or broken."""

    def _call(self, name: str, real: Any) -> Any:
        def call(*arguments: Any) -> Any:
            self.left -= 1
            if self.left == -1:
                if name == "write":
                    return 0
                raise OSError(28, "No space left on device")
            return real(*arguments)

        return call


@pytest.mark.parametrize("after", range(7))
def test_a_rotation_that_fails_leaves_nothing_behind(
    tmp_path: Path, after: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "node.key"
    before = made(path)
    with monkeypatch.context() as patch:
        FailingDisk(patch, after)
        with pytest.raises(OSError, match=r"No space left|Input/output error"):
            rotate_key_file(path)
    assert names(tmp_path) == ["node.key"]
    now = load_key_file(path)
    # The folder is synced when the new file has its name already.
    assert (values(now) == values(before)) == (after < 6)


@pytest.mark.parametrize("after", range(6))
def test_a_making_that_fails_leaves_nothing_behind(
    tmp_path: Path, after: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        FailingDisk(patch, after)
        with pytest.raises(OSError, match=r"No space left|Input/output error"):
            made(tmp_path / "node.key")
    assert names(tmp_path) == []


def test_what_others_left_is_not_of_this_file(tmp_path: Path) -> None:
    path = tmp_path / "node.key"
    made(path)
    for name in (".node.key.rotating", ".other.key.1234.rotating", ".node.key.1234", "a.rotating"):
        (tmp_path / name).touch()
    assert unfinished_rotations(path) == ()
    left = tmp_path / ".node.key.12345678.rotating"
    left.touch()
    assert unfinished_rotations(path) == (left,)
    assert unfinished_rotations(tmp_path / "no" / "node.key") == ()


@BOTH
def test_no_key_is_in_a_representation_or_a_log(
    tmp_path: Path, passphrase: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    path = tmp_path / "node.key"
    made(path, passphrase)
    (tmp_path / ".node.key.12345678.rotating").touch()
    rotate_key_file(path, passphrase)
    keys = load_key_file(path, passphrase)
    shown = repr(keys) + str(keys) + repr(read_key_file(path)) + caplog.text
    assert "was left by a rotation" in caplog.text
    assert keys.previous_seed is not None
    for secret in (keys.sealing_seed, keys.previous_seed, read_key_file(path).secret):
        assert secret.hex()[:8] not in shown
        assert repr(secret)[2:14] not in shown
