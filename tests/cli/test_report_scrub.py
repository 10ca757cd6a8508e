"""What a report hides."""

from __future__ import annotations

import time
from typing import Any

import pytest

from onward.cli._report_scrub import HIDDEN, scrubbed, scrubbed_text
from onward.protocol.security import make_token

SECRET = "s3cr3t-value-of-ida"
JWT = "eyJhbGciOiJFUzI1NiJ9.eyJzdWIiOiJpZGEifQ.c2lnbmF0dXJl-x_y"
KEY = "-----BEGIN EC PRIVATE KEY-----\nMHcCAQEE\n-----END EC PRIVATE KEY-----"


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        (f"token {make_token(b'1' * 32)} is known", make_token(b"1" * 32)),
        (f"refused {JWT}.", JWT),
        (f"Authorization: Bearer {SECRET}", SECRET),
        (f"basic {'aWRhOnNlY3JldA=='}", "aWRhOnNlY3JldA=="),
        (f"cannot fetch https://ida:{SECRET}@id.example/jwks", SECRET),
        (f"https://id.example/jwks?access_token={SECRET}&x=1", SECRET),
        (f"https://id.example/?a=1&sig={SECRET}", SECRET),
        (f"the key is {KEY} here", "MHcCAQEE"),
        ("-----BEGIN PRIVATE KEY-----\nMHcCAQEE", "MHcCAQEE"),
        ("hash $scrypt$ln=14,r=8,p=1$c2FsdHNhbHQ$aGFzaGhhc2g end", "aGFzaGhhc2g"),
        ("$argon2id$v=19$m=65536,t=3,p=4$c2FsdA$aGFzaA", "aGFzaA"),
        (f"ONWARD_PASSWORD: password={SECRET}", SECRET),
        (f"secret: {SECRET}", SECRET),
    ],
)
def test_secrets_in_texts(text: str, secret: str) -> None:
    found = scrubbed_text(text)
    assert secret not in found
    assert HIDDEN in found
    assert scrubbed_text(found) == found


@pytest.mark.parametrize(
    "text",
    [
        "rsocket+tcp://127.0.0.1:8001",
        "service=orders region=eu",
        "not allowed: operate",
        "accepted: 3 token, 1 unix",
        "sha256 of the certificate",
        'onward_auth_total{listener="rsocket+tcp://a:1",method="token",result="accepted"} 3',
        "/etc/onward/tokens/eu.token",
    ],
)
def test_other_texts_stay(text: str) -> None:
    assert scrubbed_text(text) == text


def test_values_of_secret_fields() -> None:
    value: dict[str, Any] = {
        "tags": {"password": SECRET, "api-key": SECRET, "region": "eu", "secret": ""},
        "pairs": [["password", SECRET], ["region", "eu"]],
        "accepted": {"token": 3, "password": 0},
        "token_file": "/etc/token",
        "list": [{"client_secret": SECRET}, f"Bearer {SECRET}", None, True, 1.5],
        f"https://ida:{SECRET}@a/": 1,
    }
    found = scrubbed(value)
    assert SECRET not in str(found)
    assert found["accepted"] == value["accepted"]
    assert found["token_file"] == "/etc/token"
    assert found["tags"]["region"] == "eu"
    assert found["pairs"][1] == ["region", "eu"]
    assert found["list"][2:] == [None, True, 1.5]


def test_depth_is_bounded() -> None:
    value: Any = "deep"
    for _ in range(10_000):
        value = [value]
    assert "deep" not in str(scrubbed(value))


@pytest.mark.parametrize("word", ["a", "eyJ", "?", "?a", "?token", "onw_", "$argon2", "password "])
def test_a_long_text_takes_time_by_its_length(word: str) -> None:
    text = word * (200_000 // len(word))
    began = time.process_time()
    scrubbed_text(text)
    # By its length squared it would take some minutes.
    assert time.process_time() - began < 20
