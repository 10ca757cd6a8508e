"""The cryptographic steps that something takes: what its time depends on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any, TypeVar

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

from onward.protocol.identity import _keys, _link_keys, _replies, _sealing

__all__ = ["Steps"]

R = TypeVar("R")


class Steps:
    """A count of the primitives that the code uses, where it names them.

    `key` is a public key of Ed25519 that is made ready, `verify` a verification by one, `agree` an
    agreement by X25519, `unseal` and `enseal` are of HPKE, `open` and `seal` of ChaCha20-Poly1305,
    and `stream` is one of ChaCha20.

    Args:
        monkeypatch: Puts the counted primitives in the place of the others.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._taken = Counter[str]()
        monkeypatch.setattr(_keys, "Ed25519PublicKey", _Counted(self, Ed25519PublicKey, "key"))
        monkeypatch.setattr(_link_keys, "X25519PrivateKey", _Counted(self, X25519PrivateKey))
        for module in (_link_keys, _replies):
            monkeypatch.setattr(module, "ChaCha20Poly1305", _Counted(self, ChaCha20Poly1305))
        monkeypatch.setattr(_replies, "Cipher", _Counted(self, Cipher, "stream"))
        monkeypatch.setattr(_sealing, "_SUITE", _Object(self, _sealing._SUITE, _OF_HPKE))

    def take(self, step: str) -> None:
        """Count a step."""
        if step:
            self._taken[step] += 1

    def of(self, work: Callable[[], R]) -> tuple[dict[str, int], R]:
        """Do something, and return the steps that it has taken and its result."""
        self._taken.clear()
        result = work()
        return dict(self._taken), result


_STEPS = {"verify": "verify", "exchange": "agree", "decrypt": "open", "encrypt": "seal"}
_OF_HPKE = {"decrypt": "unseal", "encrypt": "enseal"}


class _Object:
    """An object, some methods of which are counted."""

    def __init__(self, steps: Steps, wrapped: Any, counted: dict[str, str]) -> None:
        self._steps = steps
        self._wrapped = wrapped
        self._counted = counted

    def __getattr__(self, name: str) -> Any:
        if name in self._counted:
            self._steps.take(self._counted[name])
        return getattr(self._wrapped, name)


class _Counted:
    """A class, whose objects are counted, and some methods of them."""

    def __init__(self, steps: Steps, made: Any, making: str = "") -> None:
        self._steps = steps
        self._made = made
        self._making = making

    def __call__(self, *args: Any, **options: Any) -> _Object:
        self._steps.take(self._making)
        return _Object(self._steps, self._made(*args, **options), _STEPS)

    def __getattr__(self, name: str) -> Any:
        make = getattr(self._made, name)

        def counted(*args: Any, **options: Any) -> _Object:
            self._steps.take(self._making)
            return _Object(self._steps, make(*args, **options), _STEPS)

        return counted
