"""Access controls for the addresses of a node.

```python
access = Access(incoming=from_source("api"), outgoing=to_next("log", "store"))
await node.start(Orders, address="orders", access=access)
```

Sending a message that a control denies raises `AccessDenied`.
"""

from ._controls import (
    Access,
    AccessControl,
    all_of,
    allow_all,
    any_of,
    deny_all,
    from_source,
    local_only,
    not_,
    to_next,
)
from ._errors import AccessDenied
from ._exposed import Exposed
from ._guard import AccessLike

__all__ = [
    "Access",
    "AccessControl",
    "AccessDenied",
    "AccessLike",
    "Exposed",
    "all_of",
    "allow_all",
    "any_of",
    "deny_all",
    "from_source",
    "local_only",
    "not_",
    "to_next",
]
