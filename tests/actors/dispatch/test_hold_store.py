"""The file of messages on hold."""

from __future__ import annotations

import sqlite3
import stat
from pathlib import Path

import pytest

from onward.actors.dispatch import HoldStoreFailed, HoldStoreInUse
from onward.actors.dispatch._hold_store import HoldStore, StoredMessage


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "held.db"


def opened(path: Path, messages: int = 1000, size: int = 1_000_000) -> HoldStore:
    return HoldStore(path, messages, size)


def put(store: HoldStore, name: str = "orders", payload: bytes = b"1") -> int:
    return store.put(name, "0#a => 0#b", payload, entered=1.0, expires=2.0)


def test_what_was_put_is_there_when_it_is_opened_again(path: Path) -> None:
    store = opened(path)
    numbers = [put(store, payload=b"%d" % each) for each in range(3)]
    put(store, "mail", b"four")
    store.remove(numbers[1])
    store.remove(numbers[1])
    store.close()
    store.close()
    assert put(store) == 0
    store.remove(numbers[0])
    store = opened(path)
    assert [store.read(each) for each in store.numbers()["orders"]] == [
        StoredMessage(numbers[0], "orders", "0#a => 0#b", b"0", 1.0, 2.0),
        StoredMessage(numbers[2], "orders", "0#a => 0#b", b"2", 1.0, 2.0),
    ]
    assert sorted(store.numbers()) == ["mail", "orders"]
    assert (len(store), store.size) == (3, 6)
    assert (store.of_name("orders"), store.of_name("news")) == ((2, 2), (0, 0))
    assert put(store) > numbers[2]


def test_a_message_that_has_gone_or_went_bad_is_not_read(path: Path) -> None:
    store = opened(path)
    numbers = [put(store) for _ in range(4)]
    store.remove(numbers[0])
    assert store.read(numbers[0]) is None
    assert store.known(numbers[0]) == ("", 0)
    file = store._file
    assert file is not None
    file.execute("UPDATE message SET payload = 'text' WHERE number = 2")
    file.execute("UPDATE message SET name = CAST(x'ff' AS TEXT) WHERE number = 3")
    assert store.read(2) is None
    store.close()
    assert store.read(4) is None
    store = opened(path)
    assert store.numbers() == {"orders": [2, 4], "\ufffd": [3]}
    assert store.known(2) == ("orders", 4)


def test_its_bounds(path: Path) -> None:
    store = opened(path, messages=2, size=10)
    assert put(store, payload=b"x" * 11) == 0
    first = put(store, payload=b"x" * 9)
    assert put(store, payload=b"xx") == 0
    assert put(store, payload=b"x")
    assert put(store, payload=b"") == 0
    store.remove(first)
    assert put(store, payload=b"x" * 9)


def test_one_at_a_time_has_it_open(path: Path) -> None:
    store = opened(path)
    with pytest.raises(HoldStoreInUse, match=r"another process holds messages in .*held\.db"):
        opened(path)
    store.close()
    opened(path).close()


def test_it_is_for_this_user_only(path: Path) -> None:
    opened(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_full_disk_is_an_error_and_what_is_there_stays(path: Path) -> None:
    store = opened(path)
    put(store)
    file = store._file
    assert file is not None
    (pages,) = file.execute("PRAGMA page_count").fetchone()
    file.execute(f"PRAGMA max_page_count={pages}")
    with pytest.raises(HoldStoreFailed, match=r"held\.db: database or disk is full"):
        put(store, payload=b"x" * 100_000)
    assert len(store) == 1
    assert store.numbers() == {"orders": [1]}


def test_errors_of_a_file_that_is_gone_bad(path: Path) -> None:
    store = opened(path)
    number = put(store)
    file = store._file
    assert file is not None
    file.execute("DROP TABLE message")
    with pytest.raises(HoldStoreFailed, match="no such table"):
        store.remove(number)
    with pytest.raises(HoldStoreFailed, match="no such table"):
        store.read(number)


def other(path: Path, *statements: str) -> None:
    file = sqlite3.connect(path, isolation_level=None)
    for each in statements:
        file.execute(each)
    file.close()


@pytest.mark.parametrize(
    ("statements", "reason"),
    [
        (("CREATE TABLE other (a)",), "a file of something else"),
        (("PRAGMA application_id=1869510500", "PRAGMA user_version=2"), "of version 2, not 1"),
    ],
)
def test_other_files_are_refused(statements: tuple[str, ...], reason: str, path: Path) -> None:
    other(path, *statements)
    with pytest.raises(HoldStoreFailed, match=reason):
        opened(path)


def test_what_is_no_file_of_sqlite_is_refused(path: Path) -> None:
    path.write_bytes(b"hello " * 1000)
    with pytest.raises(HoldStoreFailed, match="not a database"):
        opened(path)
    with pytest.raises(HoldStoreFailed, match="Not a directory"):
        opened(path / "deeper" / "held.db")
    with pytest.raises(HoldStoreFailed, match="Is a directory"):
        opened(path.parent)
