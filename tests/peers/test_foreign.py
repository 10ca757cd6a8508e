"""The building of programs: once, of a copy, and with a reason where it cannot be done."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.peers import foreign
from tests.peers.foreign import PeerMissing, built

APPEND = "open('made', 'a').write('x')"


@pytest.fixture(autouse=True)
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder of sources, and where to build them."""
    monkeypatch.setattr(foreign, "HERE", tmp_path / "sources")
    monkeypatch.setattr(foreign, "BUILD", tmp_path / "build")
    monkeypatch.setenv(foreign.SWITCH, "1")
    (tmp_path / "sources" / "peer").mkdir(parents=True)
    (tmp_path / "sources" / "peer" / "main.txt").write_text("one")


def build(script: str, timeout: float = 20.0) -> Path:
    return built("peer", [[sys.executable, "-c", script]], timeout=timeout)


def test_what_has_not_changed_is_built_once(tmp_path: Path) -> None:
    assert build(APPEND) == build(APPEND) == tmp_path / "build" / "peer"
    assert (tmp_path / "build" / "peer" / "made").read_text() == "x"
    (tmp_path / "sources" / "peer" / "main.txt").write_text("two")
    place = build(APPEND)
    assert (place / "made").read_text() == "xx"
    assert (place / "main.txt").read_text() == "two"
    assert [path.name for path in (tmp_path / "sources" / "peer").iterdir()] == ["main.txt"]


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("print('so far'); print('error: no such crate'); raise SystemExit(3)", "no such crate"),
        ("print('the last word'); raise SystemExit(3)", "the last word"),
        ("raise SystemExit(3)", "no message"),
        ("print('error ' + 'x' * 1000); raise SystemExit(3)", "error xxx"),
    ],
)
def test_a_build_that_fails_says_why(script: str, reason: str) -> None:
    for _ in range(2):  # what has failed is tried again
        with pytest.raises(PeerMissing, match=reason) as caught:
            build(script)
        assert len(str(caught.value)) < 300 + len(sys.executable)


def test_a_build_that_does_not_end_is_given_up() -> None:
    with pytest.raises(PeerMissing, match="did not end within"):
        build("while True: pass", timeout=0.05)


def test_a_tool_that_is_missing_is_named() -> None:
    with pytest.raises(PeerMissing, match="no-such-tool is not installed"):
        built("peer", [["no-such-tool", "build"]], timeout=1.0)


def test_nothing_is_built_unless_it_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(foreign.SWITCH)
    with pytest.raises(PeerMissing, match="make peers"):
        build(APPEND)
