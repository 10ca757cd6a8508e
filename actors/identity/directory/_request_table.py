"""The table of the requests that wait in the file of a directory for the node that has it open.

A row stays for a time after its answer, to be found by the process that has written it. That a row
is gone is no answer: the file may be another one.
"""

from __future__ import annotations

import secrets
import sqlite3
from collections.abc import Iterable
from enum import Enum
from typing import Final, NamedTuple, cast

from ....protocol.identity import IDENTITY_SIZE, Identity
from ..._errors import LimitReached

__all__ = [
    "MAX_TRUST_REQUESTS",
    "REQUEST_TABLE",
    "TrustAnswer",
    "TrustRequest",
    "add_request",
    "has_requests",
    "read_answer",
    "read_requests",
    "write_answers",
]

MAX_TRUST_REQUESTS: Final = 100
"""Most requests for a trust that wait in the file of a directory for its node. Beyond: a further
one raises `LimitReached`."""

# By AUTOINCREMENT the number of a row that is gone is not given to another one. The answer is the
# value of a `TrustAnswer`.
REQUEST_TABLE: Final = """\
CREATE TABLE IF NOT EXISTS request (
  number INTEGER PRIMARY KEY AUTOINCREMENT,
  identity BLOB NOT NULL,
  trust INTEGER NOT NULL,
  answer INTEGER NOT NULL DEFAULT 0
)"""

# What can be no identity or no trust is not read at all, however long it is.
_WAITING: Final = """\
SELECT number,
  CASE WHEN typeof(identity) = 'blob' AND length(identity) = ? THEN identity ELSE x'' END,
  CASE WHEN typeof(trust) = 'integer' THEN trust ELSE -1 END
FROM request WHERE answer = 0 ORDER BY number LIMIT ?"""
_SWEEP: Final = """\
DELETE FROM request WHERE answer <> 0 AND number <= (SELECT max(number) FROM request) - ?"""
_ANSWERED: Final = 10 * MAX_TRUST_REQUESTS
"""Requests after which one that was answered is removed. So many come in no time in which a process
waits for its answer, as the node takes no more than those that wait at each look."""
_FIRST: Final = 1 << 48
"""First numbers that there are, so few of all that they do not come to an end."""


class TrustRequest(NamedTuple):
    """A request of another process to set a trust, as it is in the file of a directory.

    Attributes:
        number: Its number: requests are taken in the order of these.
        identity: The bytes of an identity; empty if the row has none.
        trust: The trust, which may be none that there is.
    """

    number: int
    identity: bytes
    trust: int


class TrustAnswer(Enum):
    """The answer to a request for a trust."""

    WAITS = 0
    """There is none yet."""
    TAKEN = 1
    """The trust is set, and saved."""
    REFUSED = 2
    """The directory has no place for the identity. All is as before."""
    GONE = 3
    """There is no such request: the file is another one than that in which it was written."""


def has_requests(file: sqlite3.Connection) -> bool:
    """Whether there is the table, which a node makes when it opens the file."""
    query = "SELECT count(*) FROM sqlite_master WHERE type = 'table' AND name = 'request'"
    return bool(file.execute(query).fetchone()[0])


def add_request(file: sqlite3.Connection, identity: Identity, trust: int) -> int:
    """Write a request, and return its number.

    Raises:
        LimitReached: `MAX_TRUST_REQUESTS` wait already.
    """
    (waiting,) = file.execute("SELECT count(*) FROM request WHERE answer = 0").fetchone()
    if waiting >= MAX_TRUST_REQUESTS:
        raise LimitReached("requests for a trust that wait", MAX_TRUST_REQUESTS)
    file.execute(_SWEEP, (_ANSWERED,))
    numbered = file.execute("SELECT 1 FROM sqlite_sequence WHERE name = 'request'").fetchone()
    # The first number is by chance: a file that is made anew has no answer to a request before.
    number = None if numbered else secrets.randbelow(_FIRST) + 1
    add = "INSERT INTO request (number, identity, trust) VALUES (?, ?, ?)"
    return cast("int", file.execute(add, (number, identity, trust)).lastrowid)


def read_requests(file: sqlite3.Connection) -> list[TrustRequest]:
    """Return the requests that wait, in their order."""
    rows = file.execute(_WAITING, (IDENTITY_SIZE, MAX_TRUST_REQUESTS))
    return [TrustRequest._make(each) for each in rows]


def write_answers(file: sqlite3.Connection, answers: Iterable[tuple[int, TrustAnswer]]) -> None:
    """Write the answers to requests, by their numbers."""
    rows = ((answer.value, number) for number, answer in answers)
    file.executemany("UPDATE request SET answer = ? WHERE number = ?", rows)


def read_answer(file: sqlite3.Connection, number: int) -> TrustAnswer:
    """Return the answer to a request."""
    row = file.execute("SELECT answer FROM request WHERE number = ?", (number,)).fetchone()
    return TrustAnswer.GONE if row is None else TrustAnswer(row[0])
