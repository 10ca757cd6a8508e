"""Addresses that are public keys: `36#engine:…` in any route.

```python
identities = await Identities.attach(node, SigningKey(seed))
orders = identities.engine("orders")
await identities.join("tcp://127.0.0.1:4000", identity=other)
```

It needs the extra `onward[identity]`: `cryptography` has all primitives.
"""

from ._correspondent import Correspondent
from ._identities import Identities
from ._topic import Topic

__all__ = ["Correspondent", "Identities", "Topic"]
