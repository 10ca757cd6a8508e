"""What connections of one peer have in common."""

from __future__ import annotations

import pytest

from onward.transports._source import source_of


@pytest.mark.parametrize(
    ("peername", "source"),
    [
        (("10.0.0.1", 5000), "10.0.0.1"),
        (("::ffff:10.0.0.1", 5000, 0, 0), "10.0.0.1"),
        (("2001:db8:1:2:3:4:5:6", 5000, 0, 0), "2001:db8:1:2::/64"),
        (("2001:db8:1:2:ffff::1", 1, 0, 0), "2001:db8:1:2::/64"),
        (("fe80::1%eth0", 1, 0, 2), "fe80::/64"),
        (("::1", 1, 0, 0), "::/64"),
        (("a name", 1), "a name"),
        ("", ""),
        (b"\0abstract", ""),
        (None, ""),
    ],
)
def test_source(peername: object, source: str) -> None:
    assert source_of(peername) == source
