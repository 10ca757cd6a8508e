"""The identities of a node: the files of their keys, and what sends by them.

```python
make_key_file(Path("node.key"), name="relay in Oslo")
keys = load_key_file(Path("node.key"))
identity_text(keys.identity)  # "aerc…"
```

It needs the extra `onward[identity]`: `cryptography` has all primitives.
"""

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

__all__ = [
    "KEY_FILE_MODE",
    "IdentityKeys",
    "KeyFileRefused",
    "load_key_file",
    "make_key_file",
    "new_lock",
    "read_key_file",
    "rotate_key_file",
    "unfinished_rotations",
]
