"""`onward check-access`."""

from __future__ import annotations

from pathlib import Path

import pytest

from onward.cli import main
from onward.cli._status import Status
from tests.support.fixtures import Capsys

RULES = """
[[rule]]
roles = ["shop"]
register = "service=shop region=*"
request = "service=orders tenant=a"

[[rule]]
names = ["ops-*"]
read = true
"""

NEAREST = "the nearest rule also asks for tenant=a: allow request service=orders tenant=a (RULES:2)"
UNCOVERED = (
    "the nearest rule does not cover tenant=a: allow register region=* service=shop (RULES:2)"
)


@pytest.fixture
def rules(tmp_path: Path) -> str:
    path = tmp_path / "rules.toml"
    path.write_text(RULES)
    return str(path)


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (
            ["--role", "shop", "request", "service=orders", "tenant=a"],
            "decided by: allow request service=orders tenant=a (RULES:2)",
        ),
        (
            ["--role", "shop", "--tag", "tenant=a", "request", "service=orders"],
            "decided by: allow request service=orders tenant=a (RULES:2)",
        ),
        (
            ["--role=shop", "--tag=tenant=a", "register", "service=shop", "region=eu"],
            "decided by: allow register region=* service=shop (RULES:2)",
        ),
        (["--name", "ops-1", "read"], "decided by: allow read (RULES:7)"),
    ],
)
def test_what_is_allowed(words: list[str], why: str, rules: str, capsys: Capsys) -> None:
    assert main(["check-access", rules, *words]) == Status.OK
    assert capsys.readouterr().out == why.replace("RULES", rules) + "\n"


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (
            ["--role", "shop", "request", "service=orders"],
            NEAREST,
        ),
        (
            ["--role", "shop", "request", "@sticky=tenant", "service=orders", "tenant=a"],
            NEAREST,
        ),
        (
            ["--role", "shop", "register", "service=shop", "tenant=a"],
            UNCOVERED,
        ),
        (["read"], "no rule of this principal allows the action"),
    ],
)
def test_what_is_not_allowed(words: list[str], why: str, rules: str, capsys: Capsys) -> None:
    assert main(["check-access", rules, *words]) == Status.FAILED
    out, err = capsys.readouterr()
    assert out == why.replace("RULES", rules) + "\n"
    assert err == "onward check-access: not allowed\n"


@pytest.mark.parametrize("action", ["register", "request"])
def test_another_value_of_a_forced_tag(action: str, rules: str, capsys: Capsys) -> None:
    words = ["--role=shop", "--tag=tenant=a", action, "service=orders", "tenant=b"]
    assert main(["check-access", rules, *words]) == Status.FAILED
    told = "not allowed: the principal is forced to have tenant=a"
    assert capsys.readouterr().err == f"onward check-access: {told}\n"


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["request"], "request needs tags"),
        (["read", "service=x"], "read has no tags"),
        (["request", "@service"], "bad address '@service'"),
        (["--tag", "@x", "read"], "bad address '@x'"),
    ],
)
def test_what_cannot_be_read_has_status_2(
    words: list[str], told: str, rules: str, capsys: Capsys
) -> None:
    assert main(["check-access", rules, *words]) == Status.USAGE
    assert told in capsys.readouterr().err


def test_a_file_with_problems_has_status_2(tmp_path: Path, capsys: Capsys) -> None:
    path = tmp_path / "rules.toml"
    assert main(["check-access", str(path), "read"]) == Status.USAGE
    assert "No such file" in capsys.readouterr().err
    path.write_text("[[rule]]\nrole = 1")
    assert main(["check-access", str(path), "read"]) == Status.USAGE
    assert "did you mean 'roles'?" in capsys.readouterr().err
