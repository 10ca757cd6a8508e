"""What a node knows of an identity: its advert, and beside it what the node itself says.

```
record = [[kind, envelope] or null, local, equivocated]
local  = [trust, tprefs or null, connection or null, worker or null]
```
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from ._advert_envelopes import AdvertEnvelope, advert_envelope_items, read_advert_envelope
from ._checks import check_number, check_size
from ._identities import MAX_ENGINE_NAME, Identity
from ._preferences import TransportPrefs, read_transport_prefs, transport_items
from ._record_reader import RecordReader
from ._trust import TRUST_BANNED, TRUST_DEFAULT, TRUST_OWN

__all__ = [
    "ConnectionPrefs",
    "IdentityRecord",
    "LocalMetadata",
    "local_items",
    "read_local",
    "read_record",
    "record_items",
]


class ConnectionPrefs(IntEnum):
    """The life of the links to a node; the number is the one on the wire.

    An `EPHEMERAL` one ends when it is idle or fails, and a `PERMANENT` one is made again.
    """

    EPHEMERAL = 0
    PERMANENT = 1


@dataclass(frozen=True, slots=True)
class LocalMetadata:
    """Metadata of an identity that the node itself sets; not signed, and for the node alone.

    Attributes:
        trust: From `TRUST_BANNED` to `TRUST_OWN`.
        tprefs: How messages to it are carried, if they do not say it themselves.
        connection: How long links to it live, for a node.
        worker: The value of the address of its worker, for an engine of this node.

    Raises:
        BadRecord: A value is over its limit.
    """

    trust: int = TRUST_DEFAULT
    tprefs: TransportPrefs | None = None
    connection: ConnectionPrefs | None = None
    worker: bytes | None = None

    def __post_init__(self) -> None:
        check_number("the trust", self.trust, TRUST_OWN)
        if self.worker is not None:
            check_size("the worker", self.worker, MAX_ENGINE_NAME, 1)


@dataclass(frozen=True, slots=True)
class IdentityRecord:
    """All that a node knows of an identity.

    Attributes:
        identity: The identity.
        advert: Its newest advert, which is verified; `None` if there is none.
        local: What the node itself says about it.
        equivocated: Whether it signed two adverts of one version. The first is kept.
    """

    identity: Identity
    advert: AdvertEnvelope | None = None
    local: LocalMetadata = LocalMetadata()
    equivocated: bool = False

    @property
    def is_banned(self) -> bool:
        """Whether all that has to do with it is refused."""
        return self.local.trust == TRUST_BANNED


def read_local(reader: RecordReader) -> LocalMetadata:
    """Read what a node itself says about an identity.

    Raises:
        BadRecord: It is something else.
    """
    reader.enter("the local part", 4)
    trust = reader.number("the trust", TRUST_OWN)
    tprefs = read_transport_prefs(reader)
    connection = None
    if not reader.is_null("the connection"):
        connection = ConnectionPrefs(reader.number("the connection", max(ConnectionPrefs)))
    worker = None
    if not reader.is_null("the worker"):
        worker = reader.binary("the worker", MAX_ENGINE_NAME, 1)
    reader.leave()
    return LocalMetadata(trust, tprefs, connection, worker)


def local_items(local: LocalMetadata) -> tuple[object, ...]:
    """Return the items of what a node itself says about an identity, for `cbor2.dumps`."""
    return local.trust, transport_items(local.tprefs), local.connection, local.worker


def read_record(reader: RecordReader, identity: Identity) -> IdentityRecord:
    """Read the record of an identity.

    Raises:
        BadRecord: It is something else.
    """
    reader.enter("the record", 3)
    advert = None if reader.is_null("the advert") else read_advert_envelope(reader)
    local = read_local(reader)
    equivocated = reader.boolean("the mark of an equivocation")
    reader.leave()
    return IdentityRecord(identity, advert, local, equivocated)


def record_items(record: IdentityRecord) -> tuple[object, ...]:
    """Return the items of a record, for `cbor2.dumps`."""
    advert = None if record.advert is None else advert_envelope_items(record.advert)
    return advert, local_items(record.local), record.equivocated
