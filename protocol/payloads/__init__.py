"""Codecs: what the bytes of a payload mean. CBOR, JSON, BARE strings, bytes as they are.

```python
payload = CBOR.encode({"item": "tea", "count": 2})
CBOR.decode(payload)          # {'item': 'tea', 'count': 2}
JSON.decode(b'{"a":1,"a":2}') # PayloadError: the name 'a' twice
```

A codec of one's own is any object with a `name`, `encode` and `decode`; see `Codec`.
"""

from ._cbor import CBOR, CborCodec
from ._codec import Codec, PayloadError, PayloadLimits, PlainCodec
from ._json import JSON, JsonCodec
from ._strings import BARE_STRING, BYTES, BareStringCodec, BytesCodec

__all__ = [
    "BARE_STRING",
    "BYTES",
    "CBOR",
    "JSON",
    "BareStringCodec",
    "BytesCodec",
    "CborCodec",
    "Codec",
    "JsonCodec",
    "PayloadError",
    "PayloadLimits",
    "PlainCodec",
]
