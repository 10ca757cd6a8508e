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
from ._engines import Engine, Engines
from ._errors import (
    DirectoryFileFailed,
    DirectoryFileInUse,
    EngineInUse,
    NoWayBack,
    PeerRefused,
    RelayRefused,
    TopicRefused,
)
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
from ._router import Router
from ._router_worker import RouterWorker
from .directory._file import (
    DIRECTORY_FILE_MODE,
    DirectoryFile,
    find_directory_row,
    find_trust_answer,
    write_trust_request,
)
from .directory._lookups_part import LookupStep
from .directory._own_adverts import ADDRESS_WEIGHT
from .directory._request_table import MAX_TRUST_REQUESTS, TrustAnswer
from .directory._saver import SAVE_BATCH, SAVE_DELAY, SAVE_PAUSE, SAVE_RETRY, DirectorySaver
from .directory._service import DirectoryService
from .directory._worker import DIRECTORY, OPEN_WAIT, DirectoryWorker
from .domains._memberships import Admit, admit_none
from .domains._part import DomainStatistics
from .links._peers import ROUTER
from .relays._part import Relays
from .relays._reports import PassedOn, RelayStatistics
from .topics._part import Topics
from .topics._reports import TopicReport
from .topics._subscriber_hooks import SubscriberHooks

__all__ = [
    "ADDRESS_WEIGHT",
    "DIRECTORY",
    "DIRECTORY_FILE_MODE",
    "KEY_FILE_MODE",
    "MAX_TRUST_REQUESTS",
    "OPEN_WAIT",
    "ROUTER",
    "SAVE_BATCH",
    "SAVE_DELAY",
    "SAVE_PAUSE",
    "SAVE_RETRY",
    "Admit",
    "Correspondence",
    "DirectoryFile",
    "DirectoryFileFailed",
    "DirectoryFileInUse",
    "DirectorySaver",
    "DirectoryService",
    "DirectoryWorker",
    "DomainStatistics",
    "Engine",
    "EngineInUse",
    "Engines",
    "IdentityKeys",
    "IdentityOptions",
    "KeyFileRefused",
    "LookupStep",
    "NoWayBack",
    "PassedOn",
    "PeerRefused",
    "RelayRefused",
    "RelayStatistics",
    "Relays",
    "Router",
    "RouterWorker",
    "SubscriberHooks",
    "TopicRefused",
    "TopicReport",
    "Topics",
    "TrustAnswer",
    "admit_none",
    "find_directory_row",
    "find_trust_answer",
    "load_key_file",
    "make_key_file",
    "new_lock",
    "read_key_file",
    "rotate_key_file",
    "unfinished_rotations",
    "write_trust_request",
]
