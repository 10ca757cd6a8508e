"""Errors about names, patterns and semantics; they join the tree of `onward.protocol`.

```
OnwardError
└── ProtocolError
    └── DispatchError            the network of dispatchers cannot use this
        ├── BadName              a text that is no name
        ├── BadPattern           a text that is no pattern of names
        │   └── PatternInUse     another provision has an equal pattern
        ├── BadSemantics         semantics that contradict themselves
        ├── LaterVersion         a frame or an address of a later version
        ├── NetworkFrameError    bytes that are no frame between neighbours
        ├── TooManyProvisions    there is no room for another provision
        └── UnknownProvision     there is no provision of this pattern
```

After each of these nothing has changed: what was provisioned is as it was.
"""

from __future__ import annotations

from collections.abc import Iterable

from .._errors import ProtocolError
from .._words import counted

__all__ = [
    "BadName",
    "BadPattern",
    "BadSemantics",
    "DispatchError",
    "LaterVersion",
    "NetworkFrameError",
    "PatternInUse",
    "TooManyProvisions",
    "UnknownProvision",
]

_MAX_SHOWN = 80
"""Most characters of an input in an error."""


def _shown(text: object) -> str:
    written = repr(text)
    return written if len(written) <= _MAX_SHOWN else f"{written[:_MAX_SHOWN]}…"


class DispatchError(ProtocolError):
    """The network of dispatchers cannot use an input."""


class BadName(DispatchError):
    """A text is no name.

    Attributes:
        text: The input.
        reason: What is wrong with it.
    """

    def __init__(self, text: str | bytes, reason: str) -> None:
        super().__init__(text, reason)
        self.text = text
        self.reason = reason

    def __str__(self) -> str:
        return f"bad name {_shown(self.text)}: {self.reason}"


class BadPattern(DispatchError):
    """A text is no pattern of names.

    Attributes:
        text: The input.
        reason: What is wrong with it.
    """

    def __init__(self, text: str, reason: str) -> None:
        super().__init__(text, reason)
        self.text = text
        self.reason = reason

    def __str__(self) -> str:
        return f"bad pattern {_shown(self.text)}: {self.reason}"


class PatternInUse(BadPattern):
    """Another provision has an equal pattern.

    Attributes:
        other: That pattern, as it was written.
    """

    def __init__(self, text: str, other: str) -> None:
        written = "" if other == text else f" as {_shown(other)}"
        super().__init__(text, f"it is provisioned already{written}")
        self.args = (text, other)
        self.other = other


class BadSemantics(DispatchError):
    """Semantics contradict themselves.

    Attributes:
        reasons: Each contradiction, as a sentence without a period.
    """

    def __init__(self, reasons: Iterable[str]) -> None:
        self.reasons = tuple(reasons)
        super().__init__(self.reasons)

    def __str__(self) -> str:
        return f"contradictory semantics: {'; '.join(self.reasons)}"


class TooManyProvisions(DispatchError):
    """There is no room for another provision.

    Attributes:
        limit: The limit, `DispatchLimits.max_provisions`.
    """

    def __init__(self, limit: int) -> None:
        super().__init__(limit)
        self.limit = limit

    def __str__(self) -> str:
        most = counted(self.limit, "provision")
        return f"the limit of {most} is reached"


class UnknownProvision(DispatchError):
    """There is no provision of this pattern.

    Attributes:
        text: The pattern, as it was written.
    """

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text

    def __str__(self) -> str:
        return f"there is no provision of the pattern {_shown(self.text)}"


class NetworkFrameError(DispatchError):
    """Bytes are no frame between neighbours.

    Attributes:
        reason: What is wrong with them.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason

    def __str__(self) -> str:
        return f"no frame between neighbours: {self.reason}"


class LaterVersion(DispatchError):
    """A frame or an address of dispatchers is of a later version of the protocol.

    Attributes:
        version: The version.
    """

    def __init__(self, version: int) -> None:
        super().__init__(version)
        self.version = version

    def __str__(self) -> str:
        return f"version {self.version} is later than 1"
