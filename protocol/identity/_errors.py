"""Errors about identities and their records; they join the tree of `onward.protocol`.

```
OnwardError
└── ProtocolError
    └── IdentityError           an input that has to do with identities cannot be used
        ├── BadIdentity         a text or bytes that are no identity or destination
        ├── BadKey              bytes that are no key
        ├── BadPath             relays that are no path
        ├── BadRecord           bytes that are no record
        │   ├── BadKeyFile      bytes that are no key file, or cannot be unlocked
        │   └── RecordTooBig    more bytes than a record may have
        ├── LinkEnded           a link of which the session has ended
        ├── MessageTooBig       more bytes than can be sealed
        ├── NewerDirectory      a directory was written by a newer version
        ├── PassphraseNeeded    a key file is encrypted, and there is no passphrase
        └── RotatedLately       a sealing key cannot be rotated without a loss
```

A wrong signature is no error of this tree: to verify is to ask, and the answer is yes or no.
"""

from __future__ import annotations

from .._errors import ProtocolError
from .._words import counted

__all__ = [
    "BadIdentity",
    "BadKey",
    "BadKeyFile",
    "BadPath",
    "BadRecord",
    "IdentityError",
    "LinkEnded",
    "MessageTooBig",
    "NewerDirectory",
    "PassphraseNeeded",
    "RecordTooBig",
    "RotatedLately",
]

_MAX_SHOWN = 80
"""Most characters of an input in an error."""


def _shown(value: object) -> str:
    written = repr(value)
    return written if len(written) <= _MAX_SHOWN else f"{written[:_MAX_SHOWN]}…"


class IdentityError(ProtocolError):
    """An input that has to do with identities cannot be used."""


class BadIdentity(IdentityError):
    """A text or bytes are no identity or destination.

    Attributes:
        value: The input.
        reason: What is wrong with it.
    """

    def __init__(self, value: str | bytes, reason: str) -> None:
        super().__init__(value, reason)
        self.value = value
        self.reason = reason

    def __str__(self) -> str:
        return f"{_shown(self.value)} is no identity: {self.reason}"


class BadKey(IdentityError):
    """Bytes are no key. The bytes are not in the error, as they may be secret.

    Attributes:
        reason: What is wrong with them.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason

    def __str__(self) -> str:
        return f"no key: {self.reason}"


class BadPath(IdentityError):
    """Relays are no path of a message. Nothing was sent.

    Attributes:
        reason: What is wrong with them.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason

    def __str__(self) -> str:
        return f"no path: {self.reason}"


class BadRecord(IdentityError):
    """Bytes are no record.

    Attributes:
        reason: What is wrong with them.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason

    def __str__(self) -> str:
        return f"bad record: {self.reason}"


class RecordTooBig(BadRecord):
    """A record has more bytes than it may have.

    Attributes:
        size: Its bytes.
        limit: The most bytes it may have.
    """

    def __init__(self, size: int, limit: int) -> None:
        super().__init__(f"{counted(size, 'byte')}, over the limit of {limit}")
        self.size = size
        self.limit = limit


class MessageTooBig(IdentityError):
    """A message to be sealed has more bytes than there is room for. Nothing was sent.

    Attributes:
        size: Its bytes, with what is added before it is sealed.
        limit: The most bytes it may have.
    """

    def __init__(self, size: int, limit: int) -> None:
        super().__init__(size, limit)
        self.size = size
        self.limit = limit

    def __str__(self) -> str:
        return f"{counted(self.size, 'byte')} to seal, over the limit of {self.limit}"


class BadKeyFile(BadRecord):
    """Bytes are no key file, or its secret cannot be had. The bytes are not in the error."""

    def __str__(self) -> str:
        return f"no key file that can be used: {self.reason}"


class NewerDirectory(IdentityError):
    """A directory was written by a newer version of Onward, and is not read.

    Attributes:
        version: The version of its rows.
        known: The newest version that is known here.
    """

    def __init__(self, version: int, known: int) -> None:
        super().__init__(version, known)
        self.version = version
        self.known = known

    def __str__(self) -> str:
        return (
            f"the directory has version {self.version}, and this Onward reads up to {self.known}: "
            "use the newer Onward that wrote it, or another file"
        )


class PassphraseNeeded(IdentityError):
    """A key file is encrypted, and there is no passphrase.

    Attributes:
        identity: The identity that the file is said to be of.
    """

    def __init__(self, identity: bytes) -> None:
        super().__init__(identity)
        self.identity = identity

    def __str__(self) -> str:
        return "the key file is encrypted: a passphrase is needed"


class RotatedLately(IdentityError):
    """A sealing key was rotated so lately that the key before it is still needed.

    Attributes:
        until: When it no longer is, in Unix milliseconds.
    """

    def __init__(self, until: int) -> None:
        super().__init__(until)
        self.until = until

    def __str__(self) -> str:
        return "the last rotation was lately: what is under way needs the key before it as well"


class LinkEnded(IdentityError):
    """A link takes no further record: its session has ended.

    Attributes:
        reason: Why.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason

    def __str__(self) -> str:
        return f"the session of the link has ended: {self.reason}"
