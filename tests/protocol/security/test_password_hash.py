"""Hashes of passwords as texts."""

from __future__ import annotations

import pytest

from onward.protocol.security import (
    PasswordHash,
    hash_password,
    parse_password_hash,
    verify_scrypt,
)

PASSLIB = "$scrypt$ln=16,r=8,p=1$aM15713r3Xsvxbi31lqr1Q$nFNh2CVHVjNldFVKDHDlm4CbdRSCdEBsjjJxD+iCs5E"
"""The example of the documentation of passlib, for the password `password`."""

SALT, DIGEST = "c2FsdHNhbHQ", "aGFzaGhhc2hoYXNoaGFzaA"
BCRYPT = "$2b$12$" + "." * 53
ARGON2 = f"$argon2id$v=19$m=65536,t=3,p=4${SALT}${DIGEST}"


def test_a_hash_of_another_program_is_verified() -> None:
    assert verify_scrypt("password", parse_password_hash(PASSLIB))


def test_a_password_and_its_hash() -> None:
    made = hash_password("pässwörd", b"0123456789abcdef")
    assert made.text.startswith("$scrypt$ln=14,r=8,p=1$MDEyMzQ1Njc4OWFiY2RlZg$")
    assert parse_password_hash(made.text) == made
    assert verify_scrypt("pässwörd", made)
    assert not verify_scrypt("passwort", made)
    assert made.text not in repr(made)


@pytest.mark.parametrize(("text", "kind"), [(ARGON2, "argon2id"), (BCRYPT, "bcrypt")])
def test_other_kinds_are_known(text: str, kind: str) -> None:
    assert parse_password_hash(text) == PasswordHash(kind, text)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("secret", "no hash of"),
        ("$1$abc$def", "no hash of"),
        ("$argon2i$v=19$m=1,t=1,p=1$a$b", "no hash of"),
        ("$2b$12$short", "no hash of"),
        ("$scrypt$ln=14", "it is not .scrypt"),
        (f"$scrypt$ln=14,r=8,p=1${SALT}=${DIGEST}", "it is not .scrypt"),
        (f"$scrypt$ln=0,r=8,p=1${SALT}${DIGEST}", "MiB"),
        (f"$scrypt$ln=14,r=0,p=1${SALT}${DIGEST}", "MiB"),
        (f"$scrypt$ln=19,r=8,p=1${SALT}${DIGEST}", "MiB"),
        (f"$scrypt$ln=99,r=8,p=1${SALT}${DIGEST}", "MiB"),
        (f"$scrypt$ln=14,r=8,p=0${SALT}${DIGEST}", "p is not 1 to 16"),
        (f"$scrypt$ln=14,r=8,p=17${SALT}${DIGEST}", "p is not 1 to 16"),
        (f"$scrypt$ln=14,r=8,p=1$c2Fsd${DIGEST}", "not base64"),
        (f"$scrypt$ln=14,r=8,p=1$c2FsdA${DIGEST}", "8 to 64 bytes"),
        (f"$scrypt$ln=14,r=8,p=1${SALT}$c2FsdA", "16 to 64"),
    ],
)
def test_a_broken_hash_is_refused_and_not_shown(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason) as caught:
        parse_password_hash(text)
    assert text not in str(caught.value)
