"""Answers to sealed messages: encrypted at the far end, and again by each relay on the way back.

```
reply = nonce (12) ‖ ciphertext of (length (4) ‖ answer ‖ zeros) and tag (16)
```

The sender draws a reply key for each hop. The far end encrypts its answer with its own, by
ChaCha20-Poly1305, and each relay on the way back XORs it with the ChaCha20 stream of its own. That
keeps the size, and makes it another text on each link. The sender removes all of it and checks the
tag: a change by a relay is found there, as relays cannot check.

A relay uses its key once. The far end may come to use its own twice, when it is started anew and
takes a message for the second time: so its nonce is random.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20

from ._errors import BadKey
from ._padding import BUCKETS, LENGTH_SIZE, bucket_of, padded, unpadded

__all__ = ["REPLY_NONCE_SIZE", "REPLY_SIZES", "open_answer", "seal_answer", "stream_xor"]

REPLY_NONCE_SIZE: Final = 12
"""Bytes of the nonce of an answer."""
REPLY_SIZES: Final = frozenset(REPLY_NONCE_SIZE + bucket + 16 for bucket in BUCKETS)
"""Sizes that an answer may have on a link, in bytes: the buckets, with the nonce and the tag."""

_ANSWER: Final = b"onward/identity/1/reply"
_STREAM: Final = b"onward/relay"
"""The nonce of the stream of a relay: twelve bytes, always the same, as its key is used once."""


def stream_xor(key: bytes, data: bytes, nonce: bytes = _STREAM) -> bytes:
    """Return `data` XORed with the stream of ChaCha20 (RFC 8439, section 2.4).

    Args:
        key: 32 secret bytes, which are used once.
        data: What is encrypted, or decrypted.
        nonce: 12 bytes.
    """
    algorithm = ChaCha20(key, bytes(4) + nonce)
    return Cipher(algorithm, mode=None).encryptor().update(data)


def check_answer(data: bytes, nonce: bytes) -> None:
    """Check that an answer can be sealed.

    Raises:
        BadKey: The nonce has another size.
        MessageTooBig: The answer is over the greatest bucket.
    """
    if len(nonce) != REPLY_NONCE_SIZE:
        raise BadKey(f"a nonce has {REPLY_NONCE_SIZE} bytes, not {len(nonce)}")
    bucket_of(LENGTH_SIZE + len(data))


def seal_answer(reply_key: bytes, data: bytes, nonce: bytes) -> bytes:
    """Return an answer as the far end sends it.

    Args:
        reply_key: The key of the far end, 32 bytes.
        data: The answer.
        nonce: 12 random bytes.

    Raises:
        BadKey: The nonce has another size.
        MessageTooBig: It is over the greatest bucket.
    """
    check_answer(data, nonce)
    text = padded(data, bucket_of(LENGTH_SIZE + len(data)))
    return nonce + ChaCha20Poly1305(reply_key).encrypt(nonce, text, _ANSWER)


def open_answer(reply_keys: Sequence[bytes], reply: bytes) -> bytes | None:
    """Return what the far end has sealed; `None` if the answer was changed on its way.

    Args:
        reply_keys: Those of the hops of the path, in their order.
        reply: The answer as the first hop has sent it.
    """
    if len(reply) not in REPLY_SIZES:
        return None
    *relays, far = reply_keys
    for key in relays:
        reply = stream_xor(key, reply)
    nonce, text = reply[:REPLY_NONCE_SIZE], reply[REPLY_NONCE_SIZE:]
    try:
        return unpadded(ChaCha20Poly1305(far).decrypt(nonce, text, _ANSWER))
    except InvalidTag:
        return None
