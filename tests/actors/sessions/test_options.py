from __future__ import annotations

from typing import Any

import pytest

from onward.actors.sessions import SessionOptions, SessionServiceOptions


@pytest.mark.parametrize(
    ("kind", "field"),
    [
        (SessionOptions, "max_kept"),
        (SessionOptions, "max_kept_bytes"),
        (SessionOptions, "max_returns"),
        (SessionOptions, "keep_for"),
        (SessionServiceOptions, "max_sessions"),
        (SessionServiceOptions, "max_closed"),
        (SessionServiceOptions, "max_interval"),
    ],
)
def test_a_limit_that_cannot_be(kind: type, field: str) -> None:
    given: dict[str, Any] = {field: 0}
    with pytest.raises(ValueError, match=field):
        kind(**given)
