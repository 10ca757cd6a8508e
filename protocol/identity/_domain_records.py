"""What nodes say to each other about domains: the control records 48 to 52; 53 to 63 are free.

```
request  = [48, src, domain, id, [node…] path, expiry, protocol, body]
response = [49, domain, src, dst, id, [node…] path, result, protocol, body]
refusal  = [50, src, id, result]
joining  = [51, envelope]       of [requestor, domain, auth or null, created]
joined   = [52, envelope]       of [approver, requestor, domain, created, epoch or null, result]
```

A request goes to any member of a domain. Its path has the nodes that it has passed, the source
first, and grows at each; the response goes back along it, and its path has the nodes that are left.
A refusal goes one hop: it says that the request was certainly not handed over.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, TypeAlias

from cbor2 import dumps

from ._checks import check_key, check_number, check_size
from ._errors import BadKey, BadRecord
from ._identities import Identity
from ._keys import SigningKey, Verifiers
from ._messages import MAX_BODY
from ._p2p_message import MAX_CONTENT
from ._preferences import Protocol, protocol_items, read_protocol
from ._record_reader import RecordReader
from ._record_table import RESULT_CODE, Field, RecordTable, binary, keyed, number, read_result_code
from ._results import ResultCode
from ._signed import SIGNED_OVERHEAD, SignedKind, is_signed_by, parse_signed, sign

__all__ = [
    "MAX_DOMAIN_PATH",
    "MAX_JOIN_AUTH",
    "MAX_JOIN_ENVELOPE",
    "DomainJoined",
    "DomainJoining",
    "DomainRecord",
    "DomainRefusal",
    "DomainRequest",
    "DomainResponse",
    "JoinRequest",
    "JoinResponse",
    "open_join_request",
    "open_join_response",
    "parse_domain_record",
    "serialize_domain_record",
    "sign_join_request",
    "sign_join_response",
]

MAX_DOMAIN_PATH: Final = 8
"""Most nodes that a request to a domain passes, with its source."""
MAX_JOIN_AUTH: Final = 4096
"""Most bytes that a request to join shows to be let in."""
MAX_JOIN_ENVELOPE: Final = MAX_JOIN_AUTH + 256 + SIGNED_OVERHEAD
"""Most bytes of the envelope of a request to join, and of its answer."""


def _check_path(path: tuple[Identity, ...]) -> None:
    if not 0 < len(path) <= MAX_DOMAIN_PATH:
        raise BadRecord(f"the path has {len(path)} nodes, not 1 to {MAX_DOMAIN_PATH}")
    for node in path:
        check_key("a node of the path", node)
    if len(set(path)) != len(path):
        raise BadRecord("a node is twice in the path")


@dataclass(frozen=True, slots=True)
class DomainRequest:
    """A request to any member of a domain.

    Attributes:
        src: The node that it is from: the first of the path.
        domain: The domain.
        id: A number that no other request of `src` has.
        path: The nodes that it has passed, 1 to `MAX_DOMAIN_PATH`, each once.
        expiry: When it is of no use any more, in Unix milliseconds.
        protocol: What `body` is written in.
        body: At most `MAX_BODY` bytes.

    Raises:
        BadRecord: A value is over its limit, an identity has no key, or the path is not one.
    """

    src: Identity
    domain: Identity
    id: int
    path: tuple[Identity, ...]
    expiry: int
    protocol: Protocol
    body: bytes

    def __post_init__(self) -> None:
        check_key("the domain", self.domain)
        check_number("the id", self.id)
        _check_path(self.path)
        if self.path[0] != self.src:
            raise BadRecord("the path does not begin at the source")
        check_number("the expiry", self.expiry)
        check_size("the body", self.body, MAX_BODY)


@dataclass(frozen=True, slots=True)
class DomainResponse:
    """The response of a member of a domain.

    Attributes:
        domain: The domain.
        src: The member.
        dst: The node that the request is from: the last of the path.
        id: The number of the request.
        path: The nodes that it has yet to pass, 1 to `MAX_DOMAIN_PATH`, each once.
        result: `OK`, or why there is no body.
        protocol: What `body` is written in.
        body: At most `MAX_BODY` bytes.

    Raises:
        BadRecord: A value is over its limit, an identity has no key, or the path is not one.
    """

    domain: Identity
    src: Identity
    dst: Identity
    id: int
    path: tuple[Identity, ...]
    result: ResultCode
    protocol: Protocol
    body: bytes

    def __post_init__(self) -> None:
        check_key("the domain", self.domain)
        check_key("the member", self.src)
        check_number("the id", self.id)
        _check_path(self.path)
        if self.path[-1] != self.dst:
            raise BadRecord("the path does not end at the destination")
        check_size("the body", self.body, MAX_BODY)


@dataclass(frozen=True, slots=True)
class DomainRefusal:
    """A refusal of a request by the node that it was sent to, which did not hand it over.

    Attributes:
        src: The node that the request is from.
        id: The number of the request.
        result: Why.

    Raises:
        BadRecord: A value is over its limit, or the source has no key.
    """

    src: Identity
    id: int
    result: ResultCode

    def __post_init__(self) -> None:
        check_key("the source", self.src)
        check_number("the id", self.id)


@dataclass(frozen=True, slots=True)
class DomainJoining:
    """A request to join a domain, on its way.

    Attributes:
        envelope: The signed `JoinRequest`, 1 to `MAX_JOIN_ENVELOPE` bytes.
    """

    envelope: bytes

    def __post_init__(self) -> None:
        check_size("the envelope", self.envelope, MAX_JOIN_ENVELOPE, 1)


@dataclass(frozen=True, slots=True)
class DomainJoined:
    """The answer to a request to join a domain, on its way.

    Attributes:
        envelope: The signed `JoinResponse`, 1 to `MAX_JOIN_ENVELOPE` bytes.
    """

    envelope: bytes

    def __post_init__(self) -> None:
        check_size("the envelope", self.envelope, MAX_JOIN_ENVELOPE, 1)


DomainRecord: TypeAlias = (
    DomainRequest | DomainResponse | DomainRefusal | DomainJoining | DomainJoined
)
"""A control record about domains."""


@dataclass(frozen=True, slots=True)
class JoinRequest:
    """A request of a node to join a domain, which it signs.

    Attributes:
        requestor: The node.
        domain: The domain.
        auth: What it shows to be let in, at most `MAX_JOIN_AUTH` bytes; `None` for nothing.
        created: When it was made, in Unix milliseconds.

    Raises:
        BadRecord: A value is over its limit, or an identity has no key.
    """

    requestor: Identity
    domain: Identity
    auth: bytes | None
    created: int

    def __post_init__(self) -> None:
        check_key("the requestor", self.requestor)
        check_key("the domain", self.domain)
        if self.auth is not None:
            check_size("what it shows", self.auth, MAX_JOIN_AUTH)
        check_number("the time", self.created)


@dataclass(frozen=True, slots=True)
class JoinResponse:
    """The answer to a request to join a domain, which the approver signs.

    Attributes:
        approver: The identity that decided: the domain, or a member that may do so.
        requestor: The node that asked.
        domain: The domain.
        created: That of the request, so that it answers no other.
        epoch: The number of the membership from which on it holds; `None` if it is not said.
        result: `OK`, or why not.

    Raises:
        BadRecord: A value is over its limit, or an identity has no key.
    """

    approver: Identity
    requestor: Identity
    domain: Identity
    created: int
    epoch: int | None
    result: ResultCode

    def __post_init__(self) -> None:
        check_key("the approver", self.approver)
        check_key("the requestor", self.requestor)
        check_key("the domain", self.domain)
        check_number("the time", self.created)
        if self.epoch is not None:
            check_number("the epoch", self.epoch)


def parse_domain_record(data: bytes) -> DomainRecord:
    """Read a control record about domains.

    Raises:
        BadRecord: It is none.
    """
    return _TABLE.parse(data)


def serialize_domain_record(record: DomainRecord) -> bytes:
    """Return the bytes of a control record about domains."""
    return _TABLE.serialize(record)


def sign_join_request(request: JoinRequest, key: SigningKey) -> bytes:
    """Return the envelope of a request to join.

    Raises:
        BadKey: The key is not of the requestor.
    """
    if key.identity != request.requestor:
        raise BadKey("it is not of the node that requests to join")
    record: bytes = dumps((request.requestor, request.domain, request.auth, request.created))
    return sign(SignedKind.JOIN_REQUEST, record, key)


def open_join_request(envelope: bytes, verifiers: Verifiers) -> JoinRequest | None:
    """Read the envelope of a request to join; `None` if the requestor has not signed it.

    Raises:
        BadRecord: It is no such envelope.
    """
    signed = parse_signed(envelope, MAX_JOIN_ENVELOPE)
    reader = RecordReader(signed.payload)
    reader.enter("the request to join", 4)
    requestor, domain = reader.keyed("the requestor"), reader.keyed("the domain")
    auth = None if reader.is_null("what it shows") else reader.binary("what it shows")
    request = JoinRequest(requestor, domain, auth, reader.number("the time"))
    reader.leave()
    reader.end()
    good = is_signed_by(requestor, SignedKind.JOIN_REQUEST, signed, verifiers)
    return request if good else None


def sign_join_response(response: JoinResponse, key: SigningKey) -> bytes:
    """Return the envelope of the answer to a request to join.

    Raises:
        BadKey: The key is not of the approver.
    """
    if key.identity != response.approver:
        raise BadKey("it is not of the approver")
    record: bytes = dumps(
        (
            response.approver,
            response.requestor,
            response.domain,
            response.created,
            response.epoch,
            int(response.result),
        )
    )
    return sign(SignedKind.JOIN_RESPONSE, record, key)


def open_join_response(envelope: bytes, verifiers: Verifiers) -> JoinResponse | None:
    """Read the envelope of the answer to a request to join; `None` if it is not signed so.

    It is for the caller to know whether the approver may approve.

    Raises:
        BadRecord: It is no such envelope.
    """
    signed = parse_signed(envelope, MAX_JOIN_ENVELOPE)
    reader = RecordReader(signed.payload)
    reader.enter("the answer", 6)
    approver, requestor = reader.keyed("the approver"), reader.keyed("the requestor")
    domain, created = reader.keyed("the domain"), reader.number("the time")
    epoch = None if reader.is_null("the epoch") else reader.number("the epoch")
    response = JoinResponse(approver, requestor, domain, created, epoch, read_result_code(reader))
    reader.leave()
    reader.end()
    good = is_signed_by(approver, SignedKind.JOIN_RESPONSE, signed, verifiers)
    return response if good else None


def _read_path(reader: RecordReader) -> tuple[Identity, ...]:
    count = reader.enter("the path", 1, MAX_DOMAIN_PATH)
    path = tuple(reader.keyed("a node of the path") for _ in range(count))
    reader.leave()
    return path


_ID, _PATH, _BODY = number("the id"), Field(_read_path), binary("the body", MAX_BODY)
_PROTOCOL: Final = Field(read_protocol, protocol_items)
_ENVELOPE: Final = (binary("the envelope", MAX_JOIN_ENVELOPE, 1),)
_REQUEST: Final = (
    *(keyed("the source"), keyed("the domain"), _ID, _PATH),
    *(number("the expiry"), _PROTOCOL, _BODY),
)
_RESPONSE: Final = (
    *(keyed("the domain"), keyed("the member"), keyed("the destination"), _ID, _PATH),
    *(RESULT_CODE, _PROTOCOL, _BODY),
)
_TABLE: Final = RecordTable[DomainRecord](
    "domains",
    MAX_CONTENT,
    {
        48: (DomainRequest, _REQUEST),
        49: (DomainResponse, _RESPONSE),
        50: (DomainRefusal, (keyed("the source"), _ID, RESULT_CODE)),
        51: (DomainJoining, _ENVELOPE),
        52: (DomainJoined, _ENVELOPE),
    },
)
