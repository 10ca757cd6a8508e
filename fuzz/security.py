"""Send random and mutated bytes to the decoders of authentication.

Each target is one decoder: the authentication entry, the header in front of the wire, the parts
and the claims of JSON Web Tokens, sets of keys, the file of principals, hashes of passwords, and
the question and the answer of a callout. The invariant: a value, or the decoder's documented error
with a short printable text that has no secret in it; no other error is raised. What has one form
only is written as it was read. The process does not grow.

    python fuzz/security.py --count 1000000 --seed 1 --target jwt
"""

from __future__ import annotations

import json
import sys
from base64 import urlsafe_b64encode
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any, Final

from _fuzzing import MAX_ERROR_TEXT, arguments_of, mutated, noise, run

from onward.protocol.broker import make_tags, tag_set
from onward.protocol.ockam import BadHeader, read_header, write_header
from onward.protocol.payloads import PayloadError
from onward.protocol.security import (
    BadCredentials,
    BadKeySet,
    BearerToken,
    CustomCredentials,
    JwtPolicy,
    NotAuthenticated,
    PeerIdentity,
    Principal,
    PrincipalsLimits,
    UserPassword,
    format_callout,
    format_callout_answer,
    format_credentials,
    parse_callout,
    parse_callout_answer,
    parse_credentials,
    parse_jwt,
    parse_key_set,
    parse_password_hash,
    read_claims,
    read_principals,
)
from onward.protocol.toml import FileError

SECRET: Final = "S3cret"
"""A part of each secret, which no text of an error may have."""

POLICY: Final = JwtPolicy(
    "https://issuer.example",
    "onward",
    ("ES256", "Ed25519"),
    role_tags={"orders": tag_set(make_tags({"tenant": "a"}))},
    claim_tags={"sub": "owner"},
)
NOW: Final = 1_000_000.0
LIMITS: Final = PrincipalsLimits(problems=10)


@dataclass(frozen=True, slots=True)
class Target:
    """A decoder with its seeds, its mutations and its invariant.

    Attributes:
        seeds: Inputs that are valid, or nearly so.
        pieces: Bytes that a mutation puts anywhere.
        check: Reads an input; raises one of `errors`, or anything else if the invariant is broken.
        errors: The documented errors.
    """

    seeds: list[bytes]
    pieces: list[bytes]
    check: Callable[[bytes], object]
    errors: type[Exception]


def checked(target: Target, data: bytes) -> bool:
    """Read one input; return whether it was accepted."""
    try:
        target.check(data)
    except target.errors as error:
        lines = str(error).split("\n")
        if len(lines) > LIMITS.problems + 1 or SECRET in str(error):
            raise AssertionError(f"the error's text: {error}") from error
        for line in lines:
            if not (0 < len(line) <= MAX_ERROR_TEXT and line.isprintable()):
                raise AssertionError(f"the error's text: {line!r}") from error
        return False
    return True


def check_entry(data: bytes) -> None:
    found = parse_credentials(data)
    if format_credentials(found) != data:
        raise AssertionError("it is written in another way")


def check_header(data: bytes) -> None:
    """Read a header, and write it as it was read."""
    found = read_header(data)
    if found is not None:
        content, size = found
        assert write_header(content) == data[:size]


def check_jwt(data: bytes) -> None:
    found = parse_jwt(data, POLICY)
    if found.algorithm not in POLICY.algorithms or not data.startswith(found.signed):
        raise AssertionError(f"{found}")


def check_hash(data: bytes) -> None:
    text = data.decode("utf-8", "replace")
    if parse_password_hash(text).text != text:
        raise AssertionError("it is another text")


def check_claims(data: bytes) -> None:
    found = read_claims(data, POLICY, NOW)
    if found.expires is None or found.expires <= NOW or not found.name:
        raise AssertionError(f"{found}")


def check_principals(data: bytes) -> None:
    found = read_principals(data, "p.toml", limits=LIMITS)
    kinds = (found.tokens, found.users, found.certificates, found.unix)
    for account in (each for kind in kinds for each in kind.values()):
        if not account.principal.name:
            raise AssertionError(f"{account}")


def check_question(data: bytes) -> None:
    credentials, peer = parse_callout(data)
    if parse_callout(format_callout(credentials, peer)) != (credentials, peer):
        raise AssertionError("it is read in another way again")


def check_answer(data: bytes) -> None:
    found = parse_callout_answer(data)
    if parse_callout_answer(format_callout_answer(found)) != found:
        raise AssertionError("it is read in another way again")


def base64(value: Any) -> bytes:
    data = value if isinstance(value, bytes) else json.dumps(value).encode()
    return urlsafe_b64encode(data).rstrip(b"=")


CLAIMS: Final = {
    "iss": POLICY.issuer,
    "aud": ["other", POLICY.audience],
    "exp": NOW + 60,
    "nbf": NOW,
    "sub": "billing",
    "roles": ["orders"],
}
JWT: Final = b".".join((base64({"alg": "ES256", "kid": "k"}), base64(CLAIMS), base64(b"sig")))
KEYS: Final[dict[str, Any]] = {
    "keys": [
        {"kty": "EC", "crv": "P-256", "x": "AA", "y": "AA", "kid": "a", "use": "sig"},
        {"kty": "RSA", "n": base64(bytes(256)).decode(), "e": "AQAB", "key_ops": ["verify"]},
        {"kty": "oct", "k": base64(bytes(32)).decode()},
    ]
}
HASH: Final = b"$scrypt$ln=14,r=8,p=1$c2FsdHNhbHQ$aGFzaGhhc2hoYXNoaGFzaA"
PRINCIPALS: Final = b"""\
[[tokens]]
name = "billing"
sha256 = "%s"
roles = ["orders", "reports"]
tags = { tenant = "a", "io.x" = "y" }
expires = 2027-01-01T00:00:00Z
[[users]]
name = "ann"
password = "%s"
[[certificates]]
name = "gateway"
certified = "DNS:gateway.example"
[[unix]]
name = "backup"
uid = 34
disabled = true
""" % (b"ab" * 32, HASH)
PEER: Final = PeerIdentity("rsocket+tls://[::]:1", "::/64", ("DNS:a",), b"\x01", 2e9, 5, "p")
ANN: Final = Principal("ann", "callout", frozenset({"a"}), tag_set(make_tags({"t": "a"})), 2e9)

JSON_PIECES: Final = [
    *(b"{", b"}", b"[", b"]", b",", b":", b'"', b"\\", b"\\ud800", b"null", b"true", b"NaN"),
    *(b"Infinity", b"1e999", b"9" * 40, b"\x00", b"\xc3", b"\xed\xa0\x80", b"[" * 2000),
]
TOML_PIECES: Final = [
    *(
        b"[[tokens]]\n",
        b"[[users]]\n",
        b"[unix]\n",
        b"[",
        b"]",
        b"{",
        b"}",
        b"=",
        b'"',
        b"'",
        b"\n",
    ),
    *(b'sha256 = "S3cret"\n', b'password = "S3cret"\n', b'tokens = ["S3cret"]\n', b"\\u0000"),
    *(b"1979-05-27T07:32:00", b"07:32:00", b"nan", b"-1", b"9" * 40, b"a." * 60, b"\x7f", b"\xc3"),
]
BYTES: Final = [b"\x00", b"\x01", b"\x7f", b"\x80", b"\x81", b"\x82", b"\xff", b"\xff\xff"]
CBOR_PIECES: Final = [
    bytes.fromhex(text)
    for text in (
        "40",
        "60",
        "61ff",
        "7f",
        "80",
        "9f",
        "a0",
        "bf",
        "f4",
        "f6",
        "f97e00",
        "1bff",
        "20",
    )
]

TARGETS: Final[dict[str, Target]] = {
    "entry": Target(
        [
            format_credentials(each)
            for each in (
                UserPassword("ann", SECRET),
                BearerToken(SECRET.encode()),
                CustomCredentials("key", SECRET.encode()),
            )
        ],
        BYTES,
        check_entry,
        BadCredentials,
    ),
    "header": Target(
        [write_header(b""), write_header(b"\x81" + SECRET.encode())],
        [b"\xc0", b"\x00", b"\xff\xff", b"\x21\x00", b"\x01"],
        check_header,
        BadHeader,
    ),
    "jwt": Target([JWT], [b".", b"=", b"e30", b"_-", b"\n"], check_jwt, NotAuthenticated),
    "claims": Target([json.dumps(CLAIMS).encode()], JSON_PIECES, check_claims, NotAuthenticated),
    "keys": Target([json.dumps(KEYS).encode()], JSON_PIECES, parse_key_set, BadKeySet),
    "principals": Target([PRINCIPALS], TOML_PIECES, check_principals, FileError),
    "hash": Target([HASH], [b"$", b"=", b",", b"99", b"S3cret"], check_hash, ValueError),
    "question": Target(
        [
            format_callout(each, PEER)
            for each in (None, UserPassword("ann", SECRET), CustomCredentials("key", b"x"))
        ],
        CBOR_PIECES,
        check_question,
        PayloadError,
    ),
    "answer": Target(
        [format_callout_answer(each) for each in (None, ANN)],
        CBOR_PIECES,
        check_answer,
        PayloadError,
    ),
}


def made(random: Random, target: Target) -> bytes:
    if random.random() < 0.05:
        return noise(random)
    return mutated(random, target.seeds, target.pieces, changes=1)


def tried(name: str, target: Target, count: int, seed: int) -> bool:
    """Try inputs on a target; return whether the invariant held for all."""

    def make(random: Random, number: int) -> bytes:
        return target.seeds[number] if number < len(target.seeds) else made(random, target)

    return run(name, count, seed, make, lambda _, data: checked(target, data))


def main(arguments: list[str] | None = None) -> int:
    parser = arguments_of(__doc__, count=20_000)
    parser.add_argument("--target", choices=sorted(TARGETS), help="only this one")
    options = parser.parse_args(arguments)
    chosen = {options.target: TARGETS[options.target]} if options.target else TARGETS
    held = [tried(name, target, options.count, options.seed) for name, target in chosen.items()]
    return 0 if all(held) else 1


if __name__ == "__main__":
    sys.exit(main())
