"""Handshakes: both ends prove their identities, and nothing between them can take their place."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
from hypothesis import given, strategies as st

from onward.protocol.identity import (
    BadKey,
    Identity,
    LinkChannel,
    LinkClaim,
    LinkDialler,
    LinkFailure,
    LinkHandshake,
    LinkHello,
    LinkLimits,
    LinkListener,
    LinkProof,
    LinkRefusal,
    LinkRefusalCode,
    LinkReply,
    LinkRole,
    LinkSecret,
    LinkState,
    SignedKind,
    SigningKey,
    Verifiers,
    parse_handshake,
    refuse_link,
    serialize_handshake,
    serialize_link_claim,
    sign,
    transcript,
)
from tests.support.wycheproof import points_of_small_order

ALICE, BOB, CAROL = (SigningKey(bytes((each,)) * 32) for each in (1, 2, 3))
UNORDERED = LinkLimits(window=64)
REFUSED = serialize_handshake(LinkRefusal(LinkRefusalCode.REFUSED))
NOW = 100.0

Make = Callable[..., LinkHandshake]


class CountedVerifiers(Verifiers):
    """Verifiers that count how often a signature is verified."""

    __slots__ = ("asked",)

    def __init__(self) -> None:
        super().__init__()
        self.asked = 0

    def is_signed_by(self, identity: Identity, signature: bytes, data: bytes) -> bool:
        self.asked += 1
        return super().is_signed_by(identity, signature, data)


def seed(number: int) -> bytes:
    return hashlib.sha256(number.to_bytes(4)).digest()


def dialler(key: SigningKey = ALICE, number: int = 1, **options: object) -> LinkDialler:
    return LinkDialler(key, seed(number), Verifiers(), NOW, **options)  # type: ignore[arg-type]


def listener(key: SigningKey = BOB, number: int = 2, **options: object) -> LinkListener:
    return LinkListener(key, seed(number), Verifiers(), NOW, **options)  # type: ignore[arg-type]


def sent(data: bytes | None) -> bytes:
    assert data is not None
    return data


def channel(end: LinkHandshake) -> LinkChannel:
    assert end.state is LinkState.UP
    assert end.channel is not None
    return end.channel


@dataclass
class Shaken:
    """A whole handshake, with its messages."""

    one: LinkDialler = field(default_factory=dialler)
    two: LinkListener = field(default_factory=listener)
    hello: bytes = b""
    reply: bytes = b""
    proof: bytes = b""

    def __post_init__(self) -> None:
        self.hello = self.one.begin(NOW)
        self.reply = sent(self.two.receive(self.hello, NOW))
        self.proof = sent(self.one.receive(self.reply, NOW))
        assert self.two.receive(self.proof, NOW) is None


def has_failed(end: LinkHandshake, failure: LinkFailure) -> None:
    assert (end.state, end.failure) == (LinkState.FAILED, failure)
    assert [end.peer, end.channel, end.deadline, end.resend_at] == [None] * 4


@pytest.mark.parametrize("limits", [LinkLimits(), UNORDERED])
def test_both_ends_have_the_session_and_the_identity_of_the_other(limits: LinkLimits) -> None:
    shaken = Shaken(dialler(limits=limits), listener(limits=limits))
    one, two = channel(shaken.one), channel(shaken.two)
    assert (shaken.one.peer, shaken.two.peer) == (BOB.identity, ALICE.identity)
    assert one.session == two.session
    assert two.open(one.seal(b"there")) == b"there"
    assert one.open(two.seal(b"back")) == b"back"
    assert shaken.one.deadline is shaken.two.deadline is None


def test_the_transcript_of_fixed_seeds_is_fixed() -> None:
    shaken = Shaken()
    assert shaken.hello.hex() == (
        "83018101582072449018d3b487684db90973de168dd2a0bcfffb2dae33671bd5b1b440b06d4f"
    )
    assert shaken.reply.hex() == (
        "840201582042706ff52d890e705a9d8e810a525e31fe3b28cb6f8e3ec5bff275"
        "fa1b659224588112a875d88d83cbe7efc4ac601c313ca480d1d3487513ba95c9"
        "2dd28eab506b334c31155f2ca9cb583eafe2919a747d83ceb6bb8120335d6bc6"
        "40333734d3eabec560444ae9dda3a12f9f987aded1b1208b4b2bc594e7e96f62"
        "14e6900e0f612958df44f4d6ede745402fdbe167b17435363f53ec164e6038ef"
        "dd34e40d62a63453"
    )
    assert shaken.proof.hex() == (
        "820358a38828288aa9c6e0184d41b7052d321f60706f824b1b25cf0f532933ee"
        "12b9371a63657f34eb0e60d54c0c3e311a902137911c04e8d605fc0263e9b979"
        "234e086c87053e537ff042840be365a66dcc1f9ad9a22729b15aa577e7b09997"
        "407506b815066f1e9a04942fd2ae393dacf327be6592b9c4eb31725663b5ce14"
        "fa70773ff375a3d133ac0af19c9c510594e2d7f9ec20f222ebb544e97cfd65f3"
        "9016165efb2b58"
    )
    assert (
        channel(shaken.one).session.hex()
        == "8389de05917f9df30cb7f9701dc25d5a8babe96fed1de17f7b856f01f0e2f8c9"
    )
    assert (
        channel(shaken.one).seal(b"record").hex()
        == "000000000000000087b0ea73d5a72c30c578c9be76ddc0b63b77ac56d079"
    )
    assert (
        channel(shaken.two).seal(b"record").hex()
        == "0000000000000000dc20fe1910ca0d482436e65d6d8c11b9ffff5adfe202"
    )


def flipped(data: bytes, at: int) -> bytes:
    return data[:at] + bytes((data[at] ^ 1,)) + data[at + 1 :]


def test_each_byte_of_a_hello_that_is_changed_is_found() -> None:
    for at in range(len(Shaken().hello)):
        one, two = dialler(), listener()
        reply = two.receive(flipped(one.begin(NOW), at), NOW)
        one.receive(sent(reply), NOW)
        assert one.state is LinkState.FAILED
        assert two.state in {LinkState.AWAITS_PROOF, LinkState.FAILED}


def test_each_byte_of_a_reply_that_is_changed_is_found() -> None:
    for at in range(len(Shaken().reply)):
        one, two = dialler(), listener()
        reply = sent(two.receive(one.begin(NOW), NOW))
        answer = one.receive(flipped(reply, at), NOW)
        assert answer == REFUSED
        assert one.state is LinkState.FAILED
        two.receive(sent(answer), NOW)
        has_failed(two, LinkFailure.REFUSED)


def test_each_byte_of_a_proof_that_is_changed_is_found() -> None:
    for at in range(len(Shaken().proof)):
        one, two = dialler(), listener()
        proof = sent(one.receive(sent(two.receive(one.begin(NOW), NOW)), NOW))
        assert two.receive(flipped(proof, at), NOW) == REFUSED
        assert two.state is LinkState.FAILED
        one.receive(REFUSED, NOW)
        has_failed(one, LinkFailure.REFUSED)


def test_no_message_of_a_handshake_is_of_use_in_another() -> None:
    before = Shaken()
    # The hello again: the node that is dialled has another key, and the proof does not fit.
    two = listener(number=9)
    assert sent(two.receive(before.hello, NOW)) != before.reply
    assert two.receive(before.proof, NOW) == REFUSED
    has_failed(two, LinkFailure.UNPROVEN)
    # The reply again.
    one = dialler(number=8)
    one.begin(NOW)
    assert one.receive(before.reply, NOW) == REFUSED
    has_failed(one, LinkFailure.UNPROVEN)
    # The proof again, to the same key of the node that is dialled, after another hello.
    two = listener()
    two.receive(dialler(number=8).begin(NOW), NOW)
    assert two.receive(before.proof, NOW) == REFUSED
    has_failed(two, LinkFailure.UNPROVEN)


def test_frames_of_a_session_are_of_no_use_in_another() -> None:
    frame = channel(Shaken().one).seal(b"record")
    again = Shaken(dialler(number=8), listener(number=9))
    assert channel(again.two).open(frame) is LinkFailure.FORGED


def test_a_node_between_two_others_cannot_be_taken_for_one() -> None:
    # Alice dials Carol, which passes all on to Bob: Alice must not take Bob for Carol.
    one, two = dialler(expected=CAROL.identity), listener()
    reply = sent(two.receive(one.begin(NOW), NOW))
    assert one.receive(reply, NOW) == REFUSED
    has_failed(one, LinkFailure.OTHER_IDENTITY)
    assert two.state is LinkState.AWAITS_PROOF
    # Carol has a session with each, and nothing of one fits the other.
    left, right = Shaken(two=listener(CAROL, 5)), Shaken(one=dialler(CAROL, 6))
    assert channel(left.one).session != channel(right.two).session
    mixed = listener()
    mixed.receive(dialler(CAROL, 6).begin(NOW), NOW)
    assert mixed.receive(left.proof, NOW) == REFUSED
    has_failed(mixed, LinkFailure.UNPROVEN)


def test_a_node_does_not_take_itself_for_another() -> None:
    one = dialler()
    assert one.receive(one.begin(NOW), NOW) == REFUSED
    has_failed(one, LinkFailure.BAD_MESSAGE)
    # Its own listener, by a route that leads back.
    one, two = dialler(), listener(ALICE)
    assert one.receive(sent(two.receive(one.begin(NOW), NOW)), NOW) == REFUSED
    has_failed(one, LinkFailure.OWN_IDENTITY)
    # Its own fresh key comes back.
    one = dialler()
    hello = parse_handshake(one.begin(NOW))
    assert isinstance(hello, LinkHello)
    one.receive(serialize_handshake(LinkReply(1, hello.key, bytes(16))), NOW)
    has_failed(one, LinkFailure.BAD_KEY)


def test_a_key_of_small_order_is_refused_at_both_ends() -> None:
    for point in points_of_small_order():
        one, two = dialler(), listener()
        one.begin(NOW)
        assert one.receive(serialize_handshake(LinkReply(1, point, bytes(16))), NOW) == REFUSED
        has_failed(one, LinkFailure.BAD_KEY)
        assert two.receive(serialize_handshake(LinkHello((1,), point)), NOW) == REFUSED
        has_failed(two, LinkFailure.BAD_KEY)


@dataclass
class Liar:
    """The other end of a handshake, which knows its keys and says under the seal what it likes."""

    victim: LinkHandshake
    secret: LinkSecret = field(default_factory=lambda: LinkSecret(seed(7)))

    def says(self, make: Callable[[bytes], bytes]) -> bytes | None:
        """Return what the other end answers to `make` of the digest that has to be signed."""
        if isinstance(self.victim, LinkListener):
            hello = serialize_handshake(LinkHello((1,), self.secret.public))
            reply = parse_handshake(sent(self.victim.receive(hello, NOW)))
            assert isinstance(reply, LinkReply)
            assert self.secret.agrees(reply.key)
            said = transcript(hello, b"\x01", reply.key)
            opener, sealer = self.secret.sealing_keys(said)
            claim = opener.decrypt(bytes(12), reply.sealed, said)
            said = transcript(said, reply.sealed, claim)
            return self.victim.receive(
                serialize_handshake(LinkProof(sealer.encrypt(bytes(12), make(said), said))), NOW
            )
        assert isinstance(self.victim, LinkDialler)
        begun = self.victim.begin(NOW)
        hello_read = parse_handshake(begun)
        assert isinstance(hello_read, LinkHello)
        assert self.secret.agrees(hello_read.key)
        said = transcript(begun, b"\x01", self.secret.public)
        sealer, _ = self.secret.sealing_keys(said)
        sealed = sealer.encrypt(bytes(12), make(said), said)
        return self.victim.receive(
            serialize_handshake(LinkReply(1, self.secret.public, sealed)), NOW
        )


def claim_of(signer: Identity, peer: Identity | None) -> bytes:
    role = LinkRole.DIALS if peer else LinkRole.IS_DIALLED
    return serialize_link_claim(LinkClaim(role, signer, peer))


CARLA, OWN = CAROL.identity, (ALICE.identity, BOB.identity)


@pytest.mark.parametrize("limits", [LinkLimits(), UNORDERED])
@pytest.mark.parametrize(
    ("make", "peer", "failure"),
    [
        (dialler, None, None),
        (listener, BOB.identity, None),
        # As the other role, to another node, and to the liar itself.
        (dialler, ALICE.identity, LinkFailure.UNPROVEN),
        (listener, None, LinkFailure.UNPROVEN),
        (listener, ALICE.identity, LinkFailure.UNPROVEN),
        (listener, CARLA, LinkFailure.UNPROVEN),
    ],
)
def test_a_claim_is_for_this_role_and_this_node(
    limits: LinkLimits, make: Make, peer: Identity | None, failure: LinkFailure | None
) -> None:
    liar = Liar(make(limits=limits))
    claim = claim_of(CARLA, peer)
    answer = liar.says(lambda said: sign(SignedKind.LINK, claim, CAROL, said))
    if failure is None:
        assert liar.victim.state is LinkState.UP
        assert liar.victim.peer == CARLA
    else:
        assert answer == REFUSED
        has_failed(liar.victim, failure)


@pytest.mark.parametrize(
    ("make", "peer"), [(dialler, None), (listener, BOB.identity)], ids=["dialler", "listener"]
)
def test_a_signature_is_by_the_identity_over_this_handshake(
    make: Make, peer: Identity | None
) -> None:
    claim = claim_of(CARLA, peer)
    lies: list[Callable[[bytes], bytes]] = [
        lambda said: b"",
        lambda said: sign(SignedKind.LINK, b"\x80", CAROL, said),
        lambda said: sign(SignedKind.LINK, claim, BOB, said),
        lambda said: sign(SignedKind.LINK, claim, CAROL, said[1:]),
        lambda said: sign(SignedKind.LINK, claim, CAROL),
        lambda said: sign(SignedKind.EVENT, claim, CAROL, said),
    ]
    for lie in lies:
        liar = Liar(make())
        assert liar.says(lie) == REFUSED
        has_failed(liar.victim, LinkFailure.UNPROVEN)


def test_another_node_than_was_expected_is_refused_at_both_ends() -> None:
    shaken = Shaken(dialler(expected=BOB.identity), listener(expected=ALICE.identity))
    assert shaken.two.state is LinkState.UP
    one, two = dialler(), listener(expected=CARLA)
    proof = sent(one.receive(sent(two.receive(one.begin(NOW), NOW)), NOW))
    assert two.receive(proof, NOW) == REFUSED
    has_failed(two, LinkFailure.OTHER_IDENTITY)


def test_a_node_that_is_not_admitted_is_told_what_any_other_is() -> None:
    def admits(identity: Identity) -> bool:
        return identity == CARLA

    one, two = dialler(admits=admits), listener()
    assert one.receive(sent(two.receive(one.begin(NOW), NOW)), NOW) == REFUSED
    has_failed(one, LinkFailure.NOT_ADMITTED)
    # The node that dials has shown no identity so far.
    assert two.peer is None
    one, two = dialler(), listener(admits=admits)
    proof = sent(one.receive(sent(two.receive(one.begin(NOW), NOW)), NOW))
    assert two.receive(proof, NOW) == REFUSED
    has_failed(two, LinkFailure.NOT_ADMITTED)
    assert Shaken(dialler(CAROL), listener(admits=admits)).two.peer == CARLA


def test_no_signature_is_verified_before_a_message_was_opened() -> None:
    verifiers = CountedVerifiers()
    for at in range(40, 60):
        one = LinkDialler(ALICE, seed(1), verifiers, NOW)
        reply = sent(listener().receive(one.begin(NOW), NOW))
        one.receive(flipped(reply, at), NOW)
        has_failed(one, LinkFailure.UNPROVEN)
        two = LinkListener(BOB, seed(2), verifiers, NOW)
        two.receive(dialler().begin(NOW), NOW)
        two.receive(serialize_handshake(LinkProof(bytes(at))), NOW)
        has_failed(two, LinkFailure.UNPROVEN)
    assert verifiers.asked == 0
    one = LinkDialler(ALICE, seed(1), verifiers, NOW)
    one.receive(sent(listener().receive(one.begin(NOW), NOW)), NOW)
    assert verifiers.asked == 1


def test_the_highest_version_that_both_know_is_chosen() -> None:
    for ours, theirs, chosen in (((1, 2, 3), (2, 3, 4), 3), ((1,), (1, 2), 1)):
        shaken = Shaken(dialler(versions=ours), listener(versions=theirs))
        reply = parse_handshake(shaken.reply)
        assert isinstance(reply, LinkReply)
        assert reply.version == chosen
        assert shaken.two.state is LinkState.UP


def test_nodes_without_a_common_version_know_why() -> None:
    one, two = dialler(versions=(2, 3)), listener()
    refusal = sent(two.receive(one.begin(NOW), NOW))
    has_failed(two, LinkFailure.VERSION)
    assert parse_handshake(refusal) == LinkRefusal(LinkRefusalCode.VERSION)
    assert one.receive(refusal, NOW) is None
    has_failed(one, LinkFailure.VERSION)


def test_a_version_that_is_taken_out_of_a_hello_or_made_up_is_found() -> None:
    one, two = dialler(versions=(1, 2)), listener(versions=(1, 2))
    hello = parse_handshake(one.begin(NOW))
    assert isinstance(hello, LinkHello)
    reply = sent(two.receive(serialize_handshake(LinkHello((1,), hello.key)), NOW))
    assert one.receive(reply, NOW) == REFUSED
    has_failed(one, LinkFailure.UNPROVEN)
    one = dialler()
    one.begin(NOW)
    made_up = LinkReply(2, LinkSecret(seed(2)).public, bytes(16))
    assert one.receive(serialize_handshake(made_up), NOW) == REFUSED
    has_failed(one, LinkFailure.BAD_MESSAGE)


def test_a_node_with_too_many_links_says_so() -> None:
    one = dialler()
    one.begin(NOW)
    assert one.receive(refuse_link(LinkRefusalCode.BUSY), NOW) is None
    has_failed(one, LinkFailure.BUSY)
    assert one.receive(REFUSED, NOW) is None
    assert one.refuse() is None


def test_a_link_that_is_up_can_be_refused() -> None:
    shaken = Shaken()
    refusal = sent(shaken.two.refuse())
    assert refusal == REFUSED
    has_failed(shaken.two, LinkFailure.NOT_ADMITTED)
    shaken.one.receive(refusal, NOW)
    has_failed(shaken.one, LinkFailure.REFUSED)


@pytest.mark.parametrize("data", [b"", bytes(24), b"\xff" * 600, b"\x80"])
def test_bytes_that_are_no_message_end_a_handshake(data: bytes) -> None:
    for make in (dialler, listener):
        end = make()
        if isinstance(end, LinkDialler):
            end.begin(NOW)
        assert end.receive(data, NOW) == REFUSED
        has_failed(end, LinkFailure.BAD_MESSAGE)


def test_a_message_of_another_state_ends_a_handshake() -> None:
    shaken = Shaken()
    for message in (shaken.reply, shaken.proof, REFUSED):
        two = listener()
        assert two.receive(message, NOW) == REFUSED
        has_failed(two, LinkFailure.BAD_MESSAGE)
    assert shaken.two.receive(shaken.hello, NOW) == REFUSED
    has_failed(shaken.two, LinkFailure.BAD_MESSAGE)
    assert shaken.one.receive(shaken.reply, NOW) == REFUSED
    has_failed(shaken.one, LinkFailure.BAD_MESSAGE)


@pytest.mark.parametrize("make", [dialler, listener])
def test_a_handshake_fails_when_its_time_is_over(make: Make) -> None:
    end = make(limits=LinkLimits(handshake=3.0))
    if isinstance(end, LinkDialler):
        end.begin(NOW)
    assert end.deadline == NOW + 3.0
    assert end.late(NOW + 2.9) is None
    assert end.failure is None
    assert end.late(NOW + 3.0) is None
    has_failed(end, LinkFailure.TIMEOUT)
    assert end.late(NOW + 9.0) is None


def test_a_seed_has_32_bytes() -> None:
    with pytest.raises(BadKey):
        LinkDialler(ALICE, bytes(31), Verifiers(), NOW)


def test_a_message_that_is_lost_is_sent_again_on_an_unordered_route() -> None:
    one, two = dialler(limits=UNORDERED), listener(limits=UNORDERED)
    hello = one.begin(NOW)
    assert one.resend_at == NOW + 1.0
    assert one.late(NOW + 0.9) is None
    assert one.late(NOW + 1.0) == hello
    reply = sent(two.receive(hello, NOW + 1.0))
    # The reply is lost, and the hello comes again.
    assert two.receive(hello, NOW + 2.0) == reply
    assert two.late(NOW + 3.0) == reply
    proof = sent(one.receive(reply, NOW + 3.0))
    assert one.resend_at is None
    # The proof is lost, and the reply comes again.
    assert one.receive(reply, NOW + 4.0) == proof
    assert two.receive(proof, NOW + 4.0) is None
    assert two.resend_at is None
    # All of them come once more.
    assert two.receive(proof, NOW) is two.receive(hello, NOW) is None
    assert one.receive(reply, NOW) == proof
    assert one.state is two.state is LinkState.UP


def test_a_message_is_sent_again_so_many_times() -> None:
    one = dialler(limits=LinkLimits(window=64, handshake=60.0, max_resends=2))
    hello = one.begin(NOW)
    again = [one.late(NOW + each) for each in range(1, 6)]
    assert again == [hello, hello, None, None, None]
    assert one.resend_at is None
    assert one.failure is None


def test_wrong_messages_are_ignored_up_to_a_limit_on_an_unordered_route() -> None:
    one, two = dialler(limits=UNORDERED), listener(limits=UNORDERED)
    hello = one.begin(NOW)
    reply = sent(two.receive(hello, NOW))
    wrong = [
        b"",
        hello,
        flipped(reply, 50),
        serialize_handshake(LinkReply(1, bytes(32), bytes(16))),
        *[flipped(reply, at) for at in range(60, 72)],
    ]
    for data in wrong:
        assert one.receive(data, NOW) is None
    assert one.ignored == len(wrong) == UNORDERED.max_ignored
    proof = sent(one.receive(reply, NOW))
    for data in (b"", reply, flipped(proof, 50)):
        assert two.receive(data, NOW) is None
    two.receive(proof, NOW)
    assert one.state is two.state is LinkState.UP
    # What comes when the link is up ends it neither, nor does a refusal of any sender.
    for _ in range(20):
        assert one.receive(REFUSED, NOW) is two.receive(b"", NOW) is None
    assert one.state is two.state is LinkState.UP
    one = dialler(limits=UNORDERED)
    one.begin(NOW)
    answers = [one.receive(b"", NOW) for _ in range(17)]
    assert answers == [None] * 16 + [REFUSED]
    has_failed(one, LinkFailure.BAD_MESSAGE)


def test_an_unordered_link_that_is_up_can_be_refused_here() -> None:
    shaken = Shaken(dialler(limits=UNORDERED), listener(limits=UNORDERED))
    assert shaken.two.refuse() == REFUSED
    has_failed(shaken.two, LinkFailure.NOT_ADMITTED)


ROUTE = st.lists(
    st.tuples(st.sampled_from(["one", "two", "time"]), st.integers(0, 5), st.booleans()),
    max_size=30,
)


@given(ROUTE)
def test_a_route_that_loses_repeats_and_reorders_gives_one_session(
    steps: list[tuple[str, int, bool]],
) -> None:
    limits = LinkLimits(window=64, handshake=1e6, max_resends=1000, max_ignored=1000)
    one, two = dialler(limits=limits), listener(limits=limits)
    to_one, to_two, now = list[bytes](), [one.begin(NOW)], NOW
    # What the examples do, and then a route on which nothing is lost.
    for what, which, keeps in [*steps, *[("all", 0, False)] * 80]:
        if what in {"time", "all"}:
            now += 1.0
            to_two += filter(None, [one.late(now)])
            to_one += filter(None, [two.late(now)])
        for name, end, inbox, outbox in (
            ("one", one, to_one, to_two),
            ("two", two, to_two, to_one),
        ):
            if inbox and what in {name, "all"}:
                at = which % len(inbox)
                data = inbox[at] if keeps else inbox.pop(at)
                outbox += filter(None, [end.receive(data, now)])
    assert channel(one).session == channel(two).session
