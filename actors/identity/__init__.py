"""The identities of a node: the files of their keys, and what sends by them.

```python
make_key_file(Path("node.key"), name="relay in Oslo")
keys = load_key_file(Path("node.key"))
identity_text(keys.identity)  # "aerc…"
```

A router makes messages to identities go there, and comes with `onward.transports.identity`.

It needs the extra `onward[identity]`: `cryptography` has all primitives.
"""

from ._correspondences import Correspondence
from ._directory_service import DirectoryService
from ._engines import Engine, Engines
from ._errors import EngineInUse, PeerRefused
from ._key_file import (
    KEY_FILE_MODE,
    IdentityKeys,
    KeyFileRefused,
    load_key_file,
    make_key_file,
    new_lock,
    read_key_file,
    rotate_key_file,
    unfinished_rotations,
)
from ._options import IdentityOptions
from ._peers import ROUTER
from ._router import Router
from ._router_worker import RouterWorker

__all__ = [
    "KEY_FILE_MODE",
    "ROUTER",
    "Correspondence",
    "DirectoryService",
    "Engine",
    "EngineInUse",
    "Engines",
    "IdentityKeys",
    "IdentityOptions",
    "KeyFileRefused",
    "PeerRefused",
    "Router",
    "RouterWorker",
    "load_key_file",
    "make_key_file",
    "new_lock",
    "read_key_file",
    "rotate_key_file",
    "unfinished_rotations",
]
