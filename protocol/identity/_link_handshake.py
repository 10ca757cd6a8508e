"""The handshake of a link between two nodes: each proves its identity to the other one.

It has the shape of SIGMA-I. Each node signs both fresh keys and all that was said before, and the
one that dials signs the identity of the other one as well. The signatures are sealed by a key of
the secret that only the two ends share, so a node between them cannot put its own in their place.
The node that is dialled shows its identity to any that dials; the one that dials shows its own to
none but the one that has proven the identity that was expected.

Until a message was opened by that key, no signature is verified: what an outsider sends costs at
most one agreement, and one signature for a hello.

On a route that repeats and reorders, the same message is sent again after a while, until the other
one answers; what is repeated is answered by the same bytes, and a frame that comes before the proof
is lost.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Final, TypeAlias

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

from ..options import Count, Range, Seconds, check_options
from ._errors import BadRecord
from ._identities import Identity
from ._keys import SigningKey, Verifiers
from ._link_channel import LinkChannel
from ._link_frames import (
    LINK_VERSIONS,
    HandshakeMessage,
    LinkClaim,
    LinkHello,
    LinkProof,
    LinkRefusal,
    LinkReply,
    LinkRole,
    parse_handshake,
    parse_link_claim,
    serialize_handshake,
    serialize_link_claim,
)
from ._link_keys import LinkSecret, transcript
from ._link_states import LINK, LinkFailure, LinkInput, LinkRefusalCode, LinkState
from ._signed import SignedKind, is_signed_by, parse_signed, sign

__all__ = ["LinkDialler", "LinkHandshake", "LinkLimits", "LinkListener", "refuse_link"]

_NONCE: Final = bytes(12)
"""Each key that seals in a handshake seals once."""

_TOLD: Final = {LinkFailure.VERSION: LinkRefusalCode.VERSION}
_HEARD: Final = {
    LinkRefusalCode.VERSION: LinkFailure.VERSION,
    LinkRefusalCode.BUSY: LinkFailure.BUSY,
    LinkRefusalCode.REFUSED: LinkFailure.REFUSED,
    LinkRefusalCode.NO_SESSION: LinkFailure.REFUSED,
}

Admits: TypeAlias = Callable[[Identity], bool]
WindowWidth: TypeAlias = Annotated[int, Range(least=64, most=1024)]


@dataclass(frozen=True, slots=True)
class LinkLimits:
    """Limits and times of a link between two nodes.

    Attributes:
        handshake: Time for the whole handshake, in seconds. Beyond: it fails.
        window: Numbers of frames that may come out of order, for a route that repeats and reorders;
            `None` for an ordered one. Beyond: a frame is dropped and counted.
        resend: Time after which a message of the handshake is sent again on such a route, in
            seconds.
        max_resends: Times that one is sent again. Beyond: it is not.
        max_ignored: Wrong messages that are ignored in a handshake on such a route. Beyond: it
            fails.

    Raises:
        ValueError: A value is out of its range.
    """

    handshake: Seconds = 10.0
    window: WindowWidth | None = None
    resend: Seconds = 1.0
    max_resends: Count = 8
    max_ignored: Count = 16

    def __post_init__(self) -> None:
        check_options(self)


class _Wrong(Exception):
    """A message does not prove what it has to."""

    def __init__(self, failure: LinkFailure, *, is_lasting: bool = False) -> None:
        super().__init__(failure)
        self.failure = failure
        # Said under the seal: it comes from the other end, so to wait for another is of no use.
        self.is_lasting = is_lasting


class LinkHandshake(ABC):
    """One end of a handshake; `LinkDialler` and `LinkListener` are the two.

    Times are seconds of the caller's clock. Methods return the bytes to be sent, if any. At
    `deadline` and at `resend_at` the caller calls `late`.

    Args:
        key: The key of this node.
        seed: 32 secret random bytes, for this handshake only.
        verifiers: Public keys that are ready to verify.
        now: The time.
        expected: The identity that the other node has to have; `None` if any may be there.
        admits: Whether an identity that was proven is let in; all are by default.
        limits: Limits and times.
        versions: The versions that this node knows, in rising order.

    Attributes:
        state: The state.
        failure: Why it has failed; `None` if it has not.
        peer: The identity of the other node, once it is proven.
        channel: The session, once the state is `UP`.
        deadline: When the handshake fails; `None` once it is over.
        resend_at: When a message is sent again; `None` if none is.
        ignored: The wrong messages that were ignored.

    Raises:
        BadKey: The seed has another size.
    """

    __slots__ = (
        "_admits",
        "_expected",
        "_key",
        "_limits",
        "_resends",
        "_said",
        "_secret",
        "_sent",
        "_verifiers",
        "_versions",
        "channel",
        "deadline",
        "failure",
        "ignored",
        "peer",
        "resend_at",
        "state",
    )

    _ROLE: LinkRole
    _FIRST: LinkState

    def __init__(
        self,
        key: SigningKey,
        seed: bytes,
        verifiers: Verifiers,
        now: float,
        *,
        expected: Identity | None = None,
        admits: Admits | None = None,
        limits: LinkLimits | None = None,
        versions: tuple[int, ...] = LINK_VERSIONS,
    ) -> None:
        self._key = key
        self._secret = LinkSecret(seed)
        self._verifiers = verifiers
        self._expected = expected
        self._admits = admits
        self._limits = limits or LinkLimits()
        self._versions = versions
        self._said = b""
        self._sent: bytes | None = None
        self._resends = 0
        self.state = self._FIRST
        self.failure: LinkFailure | None = None
        self.peer: Identity | None = None
        self.channel: LinkChannel | None = None
        self.deadline: float | None = now + self._limits.handshake
        self.resend_at: float | None = None
        self.ignored = 0

    def receive(self, data: bytes, now: float) -> bytes | None:
        """Handle a message of the other node, and return the bytes to be sent, if any."""
        if self.state is LinkState.FAILED:
            return None
        try:
            return self._handle(data, parse_handshake(data), now)
        except BadRecord:
            return self._handle_wrong(_Wrong(LinkFailure.BAD_MESSAGE))
        except _Wrong as wrong:
            return self._handle_wrong(wrong)

    def late(self, now: float) -> bytes | None:
        """Handle that it is `deadline` or `resend_at`; return the bytes to be sent, if any."""
        if self.deadline is not None and now >= self.deadline:
            self._fail(LinkInput.LATE, LinkFailure.TIMEOUT)
        if self.resend_at is None or now < self.resend_at:
            return None
        self.resend_at = now + self._limits.resend
        return self._resend()

    def refuse(self) -> bytes | None:
        """End the handshake or the link by refusing it; return the bytes to be sent, if any."""
        if self.state is LinkState.FAILED:
            return None
        return self._handle_wrong(_Wrong(LinkFailure.NOT_ADMITTED, is_lasting=True))

    @abstractmethod
    def _handle(self, data: bytes, message: HandshakeMessage, now: float) -> bytes | None: ...

    @abstractmethod
    def _is_repeated(self, data: bytes) -> bool: ...

    @property
    def _is_ordered(self) -> bool:
        return self._limits.window is None

    def _move(self, given: LinkInput) -> None:
        self.state = LINK[self.state, given]
        if self.state in (LinkState.UP, LinkState.FAILED):
            self.deadline = self.resend_at = None

    def _expects(self, given: LinkInput) -> bool:
        return (self.state, given) in LINK

    def _send(self, message: HandshakeMessage, now: float, *, awaits: bool) -> bytes:
        self._sent = serialize_handshake(message)
        self._resends = 0
        if awaits and not self._is_ordered:
            self.resend_at = now + self._limits.resend
        return self._sent

    def _resend(self) -> bytes | None:
        if self._resends >= self._limits.max_resends:
            self.resend_at = None
            return None
        self._resends += 1
        return self._sent

    def _handle_other(self, data: bytes, message: HandshakeMessage) -> bytes | None:
        """Handle a message that is none of this state: a refusal, one that is repeated or wrong."""
        if not self._is_ordered and self._is_repeated(data):
            return self._resend()
        # On an unordered route a refusal after the proof could be of any sender.
        is_credible = self._is_ordered or self.state is not LinkState.UP
        if isinstance(message, LinkRefusal) and is_credible and self._expects(LinkInput.REFUSAL):
            self._fail(LinkInput.REFUSAL, _HEARD[message.code])
            return None
        raise _Wrong(LinkFailure.BAD_MESSAGE)

    def _handle_wrong(self, wrong: _Wrong) -> bytes | None:
        if not self._is_ordered and not wrong.is_lasting:
            self.ignored += 1
            if self.ignored <= self._limits.max_ignored or self.state is LinkState.UP:
                return None
        self._fail(LinkInput.WRONG, wrong.failure)
        return _refusal(_TOLD.get(wrong.failure, LinkRefusalCode.REFUSED))

    def _fail(self, given: LinkInput, failure: LinkFailure) -> None:
        self._move(given)
        self.failure = failure
        self.peer = self.channel = None

    def _claim(self, context: bytes, peer: Identity | None) -> bytes:
        """Return the signed claim of this node."""
        claim = serialize_link_claim(LinkClaim(self._ROLE, self._key.identity, peer))
        return sign(SignedKind.LINK, claim, self._key, context)

    def _prove(self, opener: ChaCha20Poly1305, sealed: bytes, context: bytes) -> bytes:
        """Check the sealed claim of the other node, and return it as it was signed.

        Raises:
            _Wrong: It does not prove the identity of a node that may be there.
        """
        try:
            envelope = opener.decrypt(_NONCE, sealed, context)
        except InvalidTag:
            raise _Wrong(LinkFailure.UNPROVEN) from None
        try:
            signed = parse_signed(envelope)
            claim = parse_link_claim(signed.payload)
        except BadRecord:
            raise _Wrong(LinkFailure.UNPROVEN, is_lasting=True) from None
        if (
            claim.role is self._ROLE
            or claim.peer not in {None, self._key.identity}
            or not is_signed_by(claim.signer, SignedKind.LINK, signed, self._verifiers, context)
        ):
            raise _Wrong(LinkFailure.UNPROVEN, is_lasting=True)
        if claim.signer == self._key.identity:
            raise _Wrong(LinkFailure.OWN_IDENTITY, is_lasting=True)
        if self._expected is not None and claim.signer != self._expected:
            raise _Wrong(LinkFailure.OTHER_IDENTITY, is_lasting=True)
        if self._admits is not None and not self._admits(claim.signer):
            raise _Wrong(LinkFailure.NOT_ADMITTED, is_lasting=True)
        self.peer = claim.signer
        return envelope

    def _open_channel(self, *dialled: bytes) -> None:
        keys = self._secret.session_keys(transcript(self._said, *dialled))
        self.channel = LinkChannel(
            keys, dialled=self._ROLE is LinkRole.DIALS, window=self._limits.window
        )


class LinkDialler(LinkHandshake):
    """The end of a handshake that dials. `begin` comes first."""

    __slots__ = ("_hello", "_reply")

    _ROLE = LinkRole.DIALS
    _FIRST = LinkState.AWAITS_REPLY
    _hello: bytes
    _reply: bytes | None

    def begin(self, now: float) -> bytes:
        """Return the first message."""
        self._reply = None
        hello = LinkHello(self._versions, self._secret.public)
        self._hello = self._send(hello, now, awaits=True)
        return self._hello

    def _handle(self, data: bytes, message: HandshakeMessage, now: float) -> bytes | None:
        if not isinstance(message, LinkReply) or not self._expects(LinkInput.REPLY):
            return self._handle_other(data, message)
        if message.version not in self._versions:
            raise _Wrong(LinkFailure.BAD_MESSAGE)
        if not self._secret.agrees(message.key):
            raise _Wrong(LinkFailure.BAD_KEY)
        said = _said(self._hello, message.version, message.key)
        opener, sealer = self._secret.sealing_keys(said)
        claim = self._prove(opener, message.sealed, said)
        said = transcript(said, message.sealed, claim)
        proof = self._claim(said, self.peer)
        sealed = sealer.encrypt(_NONCE, proof, said)
        self._said, self._reply = said, data
        self._open_channel(sealed, proof)
        self._move(LinkInput.REPLY)
        return self._send(LinkProof(sealed), now, awaits=False)

    def _is_repeated(self, data: bytes) -> bool:
        # The proof is lost, and the other node has sent its reply again.
        return data == self._reply


class LinkListener(LinkHandshake):
    """The end of a handshake that is dialled."""

    __slots__ = ("_heard", "_opener")

    _ROLE = LinkRole.IS_DIALLED
    _FIRST = LinkState.AWAITS_HELLO
    _heard: bytes
    _opener: ChaCha20Poly1305

    def _handle(self, data: bytes, message: HandshakeMessage, now: float) -> bytes | None:
        if isinstance(message, LinkHello) and self._expects(LinkInput.HELLO):
            return self._handle_hello(data, message, now)
        if isinstance(message, LinkProof) and self._expects(LinkInput.PROOF):
            claim = self._prove(self._opener, message.sealed, self._said)
            self._open_channel(message.sealed, claim)
            self._move(LinkInput.PROOF)
            return None
        return self._handle_other(data, message)

    def _handle_hello(self, data: bytes, hello: LinkHello, now: float) -> bytes:
        common = set(self._versions).intersection(hello.versions)
        if not common:
            raise _Wrong(LinkFailure.VERSION, is_lasting=True)
        if not self._secret.agrees(hello.key):
            raise _Wrong(LinkFailure.BAD_KEY)
        version = max(common)
        said = _said(data, version, self._secret.public)
        sealer, self._opener = self._secret.sealing_keys(said)
        claim = self._claim(said, None)
        sealed = sealer.encrypt(_NONCE, claim, said)
        self._heard, self._said = data, transcript(said, sealed, claim)
        self._move(LinkInput.HELLO)
        return self._send(LinkReply(version, self._secret.public, sealed), now, awaits=True)

    def _is_repeated(self, data: bytes) -> bool:
        # The reply is lost, and the other node has sent its hello again.
        return self.state is LinkState.AWAITS_PROOF and data == self._heard


def refuse_link(code: LinkRefusalCode) -> bytes:
    """Return the refusal of a link without a handshake, as `BUSY` is."""
    return _refusal(code)


def _refusal(code: LinkRefusalCode) -> bytes:
    return serialize_handshake(LinkRefusal(code))


def _said(hello: bytes, version: int, key: bytes) -> bytes:
    """Return the digest of the two messages in clear."""
    return transcript(hello, bytes((version,)), key)
