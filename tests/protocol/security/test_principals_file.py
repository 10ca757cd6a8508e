"""The file of principals: each entry, and each fault with its line."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from onward.protocol.broker import make_tags, tag_set
from onward.protocol.security import (
    Account,
    Principal,
    Principals,
    PrincipalsLimits,
    join_principals,
    make_token,
    parse_password_hash,
    read_principals,
)
from onward.protocol.toml import FileError

DIGEST = "ab" * 32
HASH = "$scrypt$ln=14,r=8,p=1$c2FsdHNhbHQ$aGFzaGhhc2hoYXNoaGFzaA"
BCRYPT = "$2b$12$" + "." * 53

WHOLE = f"""\
[[tokens]]
name = "billing"
sha256 = "{DIGEST}"
roles = ["orders", "reports"]
tags = {{ tenant = "a", "io.x" = "y" }}
expires = 2027-01-01T00:00:00Z

[[tokens]]
name = "billing"
sha256 = "{"cd" * 32}"
disabled = true

[[users]]
name = "ann"
password = "{HASH}"

[[certificates]]
name = "gateway"
certified = "DNS:gateway.example"

[[unix]]
name = "backup"
uid = 34
"""


def test_each_kind_of_entry() -> None:
    tags = tag_set(make_tags({"tenant": "a", "io.x": "y"}))
    roles = frozenset({"orders", "reports"})
    assert read_principals(WHOLE) == Principals(
        {
            bytes.fromhex(DIGEST): Account(
                Principal("billing", "token", roles, tags, expires=1_798_761_600.0)
            ),
            b"\xcd" * 32: Account(Principal("billing", "token"), disabled=True),
        },
        {"ann": Account(Principal("ann", "password"), password=parse_password_hash(HASH))},
        {"DNS:gateway.example": Account(Principal("gateway", "certificate"))},
        {34: Account(Principal("backup", "unix"))},
    )
    assert read_principals("") == Principals()


def faults(content: str, **given: object) -> list[str]:
    with pytest.raises(FileError) as caught:
        read_principals(content, "p.toml", **given)  # type: ignore[arg-type]
    return str(caught.value).splitlines()


def test_all_faults_are_told_with_their_lines() -> None:
    told = faults(
        f"""\
[[tokens]]
name = ""
sha256 = "{DIGEST.upper()}"
role = ["x"]

[[tokens]]
name = "a"
sha256 = "{DIGEST}"
expires = 2027-01-01
disabled = 1
tags = {{ tenant = 1 }}

[[tokens]]
name = "a"
sha256 = "{DIGEST}"

[[users]]
name = "ann\\n"
password = "plain"

[[unix]]
name = "b"
uid = -1

[[certificates]]
certified = "gateway"

[user]
"""
    )
    assert told == [
        "p.toml:2: tokens[0].name: a name has 1 to 255 bytes",
        "p.toml:3: tokens[0].sha256: it is not a SHA-256 in 64 lower-case hexadecimal digits",
        (
            "p.toml:4: tokens[0].role: unknown key; there are: disabled, expires, name, roles, "
            "sha256, tags; did you mean 'roles'?"
        ),
        (
            "p.toml:9: tokens[1].expires: 2027-01-01 is not a time with an offset: "
            "2027-01-01T00:00:00Z"
        ),
        "p.toml:10: tokens[1].disabled: 1 is not true or false",
        "p.toml:11: tokens[1].tags: 1 is not text",
        "p.toml:15: tokens[2].sha256: an entry before has the same",
        "p.toml:18: users[0].name: a name has printable characters only",
        (
            "p.toml:19: users[0].password: it is no hash of scrypt, argon2id or bcrypt; "
            "`onward password` makes one"
        ),
        "p.toml:23: unix[0].uid: -1 is not a user id",
        "p.toml:25: certificates[0]: name is missing",
        (
            "p.toml:26: certificates[0].certified: 'gateway' is not KIND:NAME, as in "
            "DNS:gateway.example"
        ),
        (
            "p.toml:28: user: unknown key; there are: certificates, tokens, unix, users; "
            "did you mean 'users'?"
        ),
    ]


def test_a_kind_of_hash_has_to_be_installed() -> None:
    entry = f'[[users]]\nname = "ann"\npassword = "{BCRYPT}"\n'
    assert faults(entry) == [
        "p.toml:3: users[0].password: a hash of bcrypt needs bcrypt: onward[passwords]"
    ]
    assert read_principals(entry, hashes={"bcrypt"}).users["ann"].password is not None


def test_two_users_have_two_names() -> None:
    entry = f'[[users]]\nname = "ann"\npassword = "{HASH}"\n'
    assert faults(entry * 2) == ["p.toml:5: users[1].name: an entry before has the same"]


def test_the_size_and_the_entries_are_limited() -> None:
    limits = PrincipalsLimits(entries=4)
    assert faults(WHOLE, limits=limits) == ["p.toml:21: unix: more than 4 entries"]
    assert faults("#" * 9, limits=PrincipalsLimits(size=8)) == [
        "p.toml:1: 9 bytes are over the limit of 8"
    ]


def test_the_entries_of_two_files_are_joined() -> None:
    first = read_principals(f'[[users]]\nname = "ann"\npassword = "{HASH}"\n')
    second = read_principals('[[unix]]\nname = "backup"\nuid = 34\n')
    joined = join_principals(first, second)
    assert joined == Principals(users=first.users, unix=second.unix)
    with pytest.raises(TypeError):
        joined.users["bob"] = joined.users["ann"]  # type: ignore[index]
    assert join_principals(Principals(), Principals()) == Principals()


def test_two_files_do_not_have_the_same_entry() -> None:
    entries = read_principals(WHOLE)
    tokens = Principals(tokens=entries.tokens)
    with pytest.raises(ValueError, match=r"^tokens: .* the same key: billing$") as caught:
        join_principals(entries, tokens)
    assert DIGEST not in str(caught.value)
    for kind in ("users", "certificates", "unix"):
        one = Principals(**{kind: getattr(entries, kind)})
        with pytest.raises(ValueError, match=f"^{kind}: there are two entries"):
            join_principals(one, entries)


TOKEN = make_token(bytes(32))


@pytest.mark.parametrize(
    "content",
    [
        f'tokens = "{TOKEN}"',
        f'tokens = ["{TOKEN}"]',
        f'users = ["{TOKEN}"]',
        f'[[tokens]]\nname = "a"\nsha256 = "{TOKEN}"',
        f'[[users]]\nname = "a"\npassword = "{TOKEN}"',
        f'[[users]]\nname = "a"\npassword = ["{TOKEN}"]',
    ],
)
def test_no_secret_is_in_an_error_or_a_text(content: str) -> None:
    assert TOKEN[:12] not in " ".join(faults(content))
    assert "scrypt" not in repr(read_principals(WHOLE))


@given(st.text(max_size=200))
def test_any_text_is_read_or_refused(content: str) -> None:
    try:
        read_principals(content)
    except FileError:
        return
