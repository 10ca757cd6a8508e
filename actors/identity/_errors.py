"""Errors of the router and the directory of identities.

```
OnwardError
├── DirectoryFileInUse   another process has the file of a directory
├── DirectoryFileFailed  that file cannot be opened, read or written
├── EngineInUse          a worker is an engine already, or another one has its identity
├── NoWayBack            an answer over relays has no way, as the message was answered before
├── PeerRefused          a node has not proved its key, or not the one that was asked for
├── RelayRefused         a relay makes no reservation
└── TopicRefused         a request about a topic was refused
```
"""

from __future__ import annotations

from pathlib import Path

from ...protocol import Address, NotDelivered, OnwardError
from ...protocol.identity import Identity, RelayStatus, ResultCode, short_text

__all__ = [
    "DirectoryFileFailed",
    "DirectoryFileInUse",
    "EngineInUse",
    "NoWayBack",
    "PeerRefused",
    "RelayRefused",
    "TopicRefused",
]


class DirectoryFileInUse(OnwardError):
    """Another process, or another node of this one, has the file of a directory open.

    Attributes:
        path: The file.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.path = path

    def __str__(self) -> str:
        return f"{self.path}: a node or a command has it open: stop that, or name another file"


class DirectoryFileFailed(OnwardError):
    """The file of a directory cannot be opened, read or written.

    Attributes:
        path: The file.
        reason: The reason, in a few words.
    """

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(path, reason)
        self.path = path
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.path}: {self.reason}"


class EngineInUse(OnwardError):
    """A worker is an engine already, or another one has its identity.

    Attributes:
        worker: The address of the worker.
        identity: The identity.
    """

    def __init__(self, worker: Address, identity: Identity) -> None:
        super().__init__(worker, identity)
        self.worker = worker
        self.identity = identity

    def __str__(self) -> str:
        engine = short_text(self.identity)
        return f"{self.worker} cannot be the engine {engine}: one of them is in use"


class NoWayBack(NotDelivered):
    """An answer to a message over relays has no way; it was certainly not handed over.

    A message over relays has one answer: what a worker sends along the return route of a message
    that it has answered already, such as the second item of a stream, leads nowhere.
    """

    reason = "no way back over relays"


class PeerRefused(OnwardError):
    """The node at the other end of a link has not proved its key, or not the one asked for.

    Attributes:
        to: Where the node was looked for.
        reason: The reason, in a few words.
    """

    def __init__(self, to: object, reason: str) -> None:
        super().__init__(to, reason)
        self.to = to
        self.reason = reason

    def __str__(self) -> str:
        return f"no link between nodes to {self.to}: {self.reason}"


class RelayRefused(OnwardError):
    """A relay makes no reservation.

    Attributes:
        relay: The relay.
        status: Why not; `None` if it has not answered in time, or is not asked any more.
    """

    def __init__(self, relay: Identity, status: RelayStatus | None) -> None:
        super().__init__(relay, status)
        self.relay = relay
        self.status = status

    def __str__(self) -> str:
        reason = "it has not answered" if self.status is None else self.status.name
        if self.status is RelayStatus.OK:
            reason += ", but its voucher is of another node, or over by the clock here"
        return f"the relay {short_text(self.relay)} makes no reservation: {reason}"


class TopicRefused(OnwardError):
    """A request about a topic was refused; nothing has changed.

    Attributes:
        topic: The topic.
        code: The code of the result.
        detail: More about it, in a few words; empty for nothing.
    """

    def __init__(self, topic: Identity, code: ResultCode, detail: str = "") -> None:
        super().__init__(topic, code, detail)
        self.topic = topic
        self.code = code
        self.detail = detail

    def __str__(self) -> str:
        more = f", {self.detail}" if self.detail else ""
        return f"the topic {short_text(self.topic)}: {self.code.name}{more}"
