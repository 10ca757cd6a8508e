"""The makes that a machine has: asked for once, outside of any network, and left out one by one."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path

import pytest

from tests.peers import foreign, makes, trials
from tests.peers.foreign import PeerMissing
from tests.peers.jvm import JavaMissing
from tests.peers.makes import absent
from tests.peers.trials import absent_makes, trial_of

GONE = {"go": "go is not installed", "rust": "cargo build failed: no such crate"}
"""What the machine of these tests does not have."""


@pytest.fixture(autouse=True)
def machine(monkeypatch: pytest.MonkeyPatch) -> Generator[dict[str, str]]:
    """The makes that are absent, with the reasons; builds are asked for, and forgotten after."""
    gone = dict(GONE)

    def found(make: str) -> Path:
        if make in gone:
            raise PeerMissing(gone[make])
        return Path(make)

    def java() -> str:
        if "java" in gone:
            raise JavaMissing(gone["java"])
        return "java"

    monkeypatch.setenv(foreign.SWITCH, "1")
    monkeypatch.setattr(makes, "program", found)
    monkeypatch.setattr(makes, "rust_program", lambda: found("rust"))
    monkeypatch.setattr(makes, "node", lambda: found("javascript"))
    monkeypatch.setattr(makes, "spring_command", lambda: found("spring"))
    monkeypatch.setattr(makes, "build", java)
    makes.why_absent.cache_clear()
    yield gone
    makes.why_absent.cache_clear()


ALL = ("java", "spring", "javascript", "js-alpha", "js-0.0.27", "python", "onward", "go", "rust")


def test_makes_that_are_absent_have_reasons(machine: dict[str, str]) -> None:
    assert absent(ALL) == GONE
    machine["java"] = "java is older than 17"
    # It was there when it was asked for.
    assert absent(ALL) == GONE
    makes.why_absent.cache_clear()
    assert absent(ALL) == {"java": "java is older than 17", **GONE}


def test_nothing_is_there_unless_it_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(foreign.SWITCH)
    with pytest.raises(PeerMissing, match="make peers"):
        absent(["python"])
    with pytest.raises(pytest.skip.Exception, match="make peers"):
        absent_makes()


def test_a_trial_needs_one_foreign_make(machine: dict[str, str]) -> None:
    machine |= dict.fromkeys(trials.FOREIGN - {"js-alpha"}, "no network")
    assert absent_makes().keys() == trials.FOREIGN - {"js-alpha"}
    with pytest.raises(pytest.skip.Exception, match="java: no network"):
        absent_makes("java")
    machine["js-alpha"] = "no network"
    makes.why_absent.cache_clear()
    with pytest.raises(pytest.skip.Exception, match="js-alpha: no network"):
        absent_makes()


class EnteredError(Exception):
    """The network was entered."""


async def test_makes_are_built_before_the_network_is_entered(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    # In a network of namespaces no registry can be reached.
    asked: list[str] = []

    def build() -> str:
        asked.append("java")
        return "java"

    def enter(_: object) -> None:
        raise EnteredError(*asked)

    monkeypatch.setattr(makes, "build", build)
    monkeypatch.setattr(trials, "network_of", enter)
    with pytest.raises(EnteredError, match="java"):
        async with trial_of(3, tmp_path):
            pass
