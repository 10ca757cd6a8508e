"""The texts of the errors about identities."""

from __future__ import annotations

import pytest

from onward.protocol import ProtocolError
from onward.protocol.identity import (
    BadIdentity,
    BadKey,
    BadRecord,
    IdentityError,
    RecordTooBig,
)


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (BadIdentity("alice", "it is short"), "'alice' is no identity: it is short"),
        (BadIdentity(b"\x00", "it is short"), "b'\\x00' is no identity: it is short"),
        (BadIdentity("a" * 200, "it is long"), f"'{'a' * 79}… is no identity: it is long"),
        (BadKey("it is short"), "no key: it is short"),
        (BadRecord("it is cut short"), "bad record: it is cut short"),
        (RecordTooBig(1, 0), "bad record: 1 byte, over the limit of 0"),
        (RecordTooBig(11, 10), "bad record: 11 bytes, over the limit of 10"),
    ],
)
def test_an_error_says_what_is_wrong(error: IdentityError, text: str) -> None:
    assert str(error) == text
    assert isinstance(error, ProtocolError)
