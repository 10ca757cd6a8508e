"""The bounded memory of decisions."""

from __future__ import annotations

from onward.protocol.security import Remembered


def test_a_value_is_kept_until_its_expiry() -> None:
    memory: Remembered[str] = Remembered(2)
    memory.put(b"a", "first", 10.0)
    assert memory.get(b"a", 9.9) == "first"
    assert memory.get(b"a", 10.0) is None
    assert len(memory) == 0
    assert memory.get(b"a", 0.0) is None


def test_the_first_is_forgotten_when_there_are_too_many() -> None:
    memory: Remembered[str] = Remembered(2)
    for each in (b"a", b"b", b"a", b"c"):
        memory.put(each, "", 10.0)
    assert [memory.get(each, 0.0) for each in (b"a", b"b", b"c")] == ["", None, ""]
    memory.clear()
    assert len(memory) == 0
