"""Addresses that are public keys, without I/O: identities, their records, and what is sealed.

```python
key = SigningKey(seed)  # 32 secret random bytes
text = identity_text(key.identity)  # "aerc…": 56 characters, the last of which are a checksum
envelope = sign(SignedKind.NODE_ADVERT, payload, key)
is_signed_by(key.identity, SignedKind.NODE_ADVERT, parse_signed(envelope), Verifiers())  # True
```

It needs the extra `onward[identity]`: `cryptography` has all primitives.
"""

from ._errors import BadIdentity, BadKey, BadRecord, IdentityError, RecordTooBig
from ._identities import (
    IDENTITY_SIZE,
    IDENTITY_TEXT_SIZE,
    MAX_ENGINE_NAME,
    Destination,
    DestinationKind,
    Identity,
    derived_engine,
    destination_text,
    identity_of_key,
    identity_text,
    is_derived,
    parse_destination,
    parse_identity,
    parse_identity_bytes,
    public_key_of,
    short_text,
)
from ._keys import MAX_VERIFIERS, SEED_SIZE, SIGNATURE_SIZE, SigningKey, Verifiers
from ._record_reader import MAX_DEPTH, MAX_NUMBER, MAX_RECORD, RecordReader
from ._signed import SIGNED_OVERHEAD, Signed, SignedKind, is_signed_by, parse_signed, sign

__all__ = [
    "IDENTITY_SIZE",
    "IDENTITY_TEXT_SIZE",
    "MAX_DEPTH",
    "MAX_ENGINE_NAME",
    "MAX_NUMBER",
    "MAX_RECORD",
    "MAX_VERIFIERS",
    "SEED_SIZE",
    "SIGNATURE_SIZE",
    "SIGNED_OVERHEAD",
    "BadIdentity",
    "BadKey",
    "BadRecord",
    "Destination",
    "DestinationKind",
    "Identity",
    "IdentityError",
    "RecordReader",
    "RecordTooBig",
    "Signed",
    "SignedKind",
    "SigningKey",
    "Verifiers",
    "derived_engine",
    "destination_text",
    "identity_of_key",
    "identity_text",
    "is_derived",
    "is_signed_by",
    "parse_destination",
    "parse_identity",
    "parse_identity_bytes",
    "parse_signed",
    "public_key_of",
    "short_text",
    "sign",
]
