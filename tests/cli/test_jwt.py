"""`onward jwt inspect`."""

from __future__ import annotations

import io
import json
import time
from pathlib import Path
from typing import Any

import pytest

from onward.cli import main
from onward.cli._status import Status
from tests.support.fixtures import Capsys, Patch

jwk: Any = pytest.importorskip("joserfc.jwk", reason="joserfc is not installed")
jws: Any = pytest.importorskip("joserfc.jws", reason="joserfc is not installed")

KEY = jwk.ECKey.generate_key("P-256", {"kid": "k"})
RULES = ["--jwt-issuer", "https://issuer.example", "--jwt-audience", "onward", "--jwt-keys"]


def token(**changes: Any) -> str:
    claims = {
        "iss": "https://issuer.example",
        "aud": "onward",
        "sub": "billing\x1b",
        "exp": int(time.time()) + 600,
        **changes,
    }
    return str(jws.serialize_compact({"alg": "ES256", "kid": "k"}, json.dumps(claims), KEY))


@pytest.fixture
def keys(tmp_path: Path) -> str:
    path = tmp_path / "keys.json"
    path.write_text(json.dumps({"keys": [KEY.as_dict(private=False)]}))
    return str(path)


def test_it_prints_the_header_and_the_claims(capsys: Capsys, monkeypatch: Patch) -> None:
    made = token(exp=1_798_761_600, nbf=1e300, iat=True, more=[1])
    monkeypatch.setattr("sys.stdin", io.StringIO(made + "\n"))
    assert main(["jwt", "inspect"]) == Status.OK
    assert capsys.readouterr().out.splitlines() == [
        "alg    ES256",
        "kid    k",
        "iss    https://issuer.example",
        "aud    onward",
        "sub    billing\\x1b",
        "exp    1798761600 (2027-01-01 00:00:00Z)",
        "nbf    1e+300",
        "iat    true",
        "more   [1]",
    ]


def test_it_verifies_as_a_broker_does(tmp_path: Path, keys: str, capsys: Capsys) -> None:
    path = tmp_path / "token"
    for changes, outcome, status in (
        ({"sub": "billing"}, "accepted as billing, for 6", Status.OK),
        ({"sub": "ann", "roles": ["b", "a"]}, "accepted as ann, with the roles a, b, for 6", 0),
        ({"aud": "other"}, "onward jwt: refused: audience", Status.FAILED),
        ({"exp": 1}, "onward jwt: refused: expired", Status.FAILED),
    ):
        path.write_text(token(**changes))
        assert main(["jwt", "inspect", str(path), *RULES, keys]) == status
        out, err = capsys.readouterr()
        assert (out + err).splitlines()[-1].startswith(outcome)


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("opaque", "it is not a JSON Web Token"),
        ("a.b.c", "it is not a JSON Web Token"),
        ("x" * 9000, "it has more than 8192 bytes"),
        ("e30.e30", "it is left to other methods"),
    ],
)
def test_what_is_no_token(
    content: str, told: str, tmp_path: Path, keys: str, capsys: Capsys
) -> None:
    path = tmp_path / "token"
    path.write_text(content)
    assert main(["jwt", "inspect", str(path), *RULES, keys]) == Status.FAILED
    assert told in capsys.readouterr().err
    assert main(["jwt", "inspect", str(tmp_path / "none")]) == Status.FAILED
    assert "No such file" in capsys.readouterr().err
