"""Tokens and their digests."""

from __future__ import annotations

import hashlib
import re

import pytest

from onward.protocol.security import TOKEN_BYTES, is_token, make_token, token_digest


def test_a_token_is_32_random_bytes_in_text() -> None:
    token = make_token(bytes(range(TOKEN_BYTES)))
    assert re.fullmatch(r"onw_[A-Za-z0-9_-]{43}", token)
    assert token != make_token(bytes(TOKEN_BYTES))
    assert token_digest(token.encode()) == hashlib.sha256(token.encode()).digest()


@pytest.mark.parametrize("random", [b"", bytes(31), bytes(33)])
def test_other_sizes_are_refused(random: bytes) -> None:
    with pytest.raises(ValueError, match="32 random bytes"):
        make_token(random)


def test_tokens_are_told_from_others_by_their_first_characters() -> None:
    assert is_token(b"onw_x")
    assert not is_token(b"eyJhbGciOi")
    assert not is_token(b"ONW_x")
