"""The share of the unknown identities that each node may tell."""

from __future__ import annotations

from onward.protocol.identity import (
    MAX_ADVERT_ADDRESSES,
    MAX_ADVERT_ENVELOPE,
    AdvertAddress,
    AdvertEnvelope,
    AdvertSource,
    Directory,
    DirectoryLimits,
    DomainAdvert,
    EngineAdvert,
    Identity,
    NodeAdvert,
    PutOutcome,
    SigningKey,
    Verifiers,
    sign_advert,
)

NOW = 2_000_000_000_000
NETWORK, ANSWER, LOCAL = AdvertSource
KEYS = [SigningKey(bytes((number,)) * 32) for number in range(40)]
FIRST, SECOND, THIRD = (SigningKey(bytes((number,)) * 32).identity for number in (101, 102, 103))


def advert(number: int, version: int = 1, addresses: int = 0) -> AdvertEnvelope:
    """Return the advert of a node, with as many addresses, which are long."""
    key = KEYS[number]
    routes = tuple(AdvertAddress("x" * 250 + f"{each:05}", 0) for each in range(addresses))
    return sign_advert(NodeAdvert(key.identity, routes, bytes(32), version, NOW), key)


def known_of(directory: Directory) -> list[int]:
    return [
        number for number, key in enumerate(KEYS) if directory.peek(key.identity, NOW) is not None
    ]


def tell(directory: Directory, teller: Identity | None, *numbers: int) -> None:
    for number in numbers:
        outcome = directory.put_advert(advert(number), NOW, NETWORK, teller)
        assert outcome is PutOutcome.STORED


def test_a_node_lets_go_of_what_it_has_told_itself_and_of_nothing_else() -> None:
    directory = Directory(Verifiers(), DirectoryLimits(max_identities=20, max_unknown=12))
    tell(directory, SECOND, 0, 1, 2)
    tell(directory, FIRST, *range(3, 33))
    # Of the nine places that were free it has half, and its own oldest has gone for each of more.
    assert known_of(directory) == [0, 1, 2, 29, 30, 31, 32]
    tell(directory, SECOND, 33, 34)
    assert known_of(directory) == [1, 2, 29, 30, 31, 32, 33, 34][-8:]
    assert directory.statistics().let_go == 27


def test_a_node_may_always_tell_one() -> None:
    directory = Directory(Verifiers(), DirectoryLimits(max_identities=20, max_unknown=2))
    tell(directory, None, 0, 1)
    tell(directory, FIRST, 2)
    assert known_of(directory) == [1, 2]
    tell(directory, FIRST, 3)
    assert known_of(directory) == [1, 3]


def test_the_share_of_a_node_is_of_bytes_as_well() -> None:
    limits = DirectoryLimits(max_unknown_size=2 * MAX_ADVERT_ENVELOPE)
    directory = Directory(Verifiers(), limits)
    tell(directory, SECOND, 0)
    size = len(advert(1, addresses=MAX_ADVERT_ADDRESSES).envelope)
    for number in range(1, 20):
        directory.put_advert(advert(number, addresses=MAX_ADVERT_ADDRESSES), NOW, NETWORK, FIRST)
    most = (2 * MAX_ADVERT_ENVELOPE - len(advert(0).envelope)) // (2 * size)
    assert known_of(directory) == [0, *range(20 - most, 20)]
    # A newer advert that is longer counts with its new size.
    directory.put_advert(advert(0, 2, MAX_ADVERT_ADDRESSES), NOW, NETWORK, THIRD)
    assert known_of(directory)[0] == 0
    assert directory.statistics().unknown_size == (most + 1) * size


def test_what_is_used_is_no_part_of_a_share() -> None:
    directory = Directory(Verifiers(), DirectoryLimits(max_identities=20, max_unknown=6))
    tell(directory, FIRST, 0, 1, 2)
    directory.lookup(KEYS[0].identity, NOW)
    tell(directory, FIRST, 3, 4, 5)
    assert known_of(directory) == [0, 3, 4, 5]
    # Removed ones are not either.
    assert directory.forget(KEYS[3].identity)
    assert directory.forget(KEYS[4].identity)
    assert directory.forget(KEYS[5].identity)
    tell(directory, FIRST, 6, 7, 8)
    assert known_of(directory) == [0, 6, 7, 8]


def test_what_its_own_node_tells_is_of_the_share_of_that_alone() -> None:
    directory = Directory(Verifiers(), DirectoryLimits(max_identities=20, max_unknown=6))
    node, engine = KEYS[0], KEYS[1]
    of_engine = sign_advert(EngineAdvert(engine.identity, node.identity, None, 1, NOW), engine)
    assert directory.put_advert(of_engine, NOW, NETWORK, FIRST) is PutOutcome.STORED
    tell(directory, FIRST, 0)
    for _ in range(2):
        for envelope in (of_engine, advert(0)):
            known = directory.put_advert(envelope, NOW, NETWORK, node.identity)
            assert known is PutOutcome.KNOWN
    assert directory.put_advert(advert(0), NOW, NETWORK, FIRST) is PutOutcome.KNOWN
    tell(directory, FIRST, *range(2, 30))
    assert known_of(directory) == [0, 1, 28, 29]
    # A domain has no node of its own, and what is used has no share.
    domain = KEYS[30]
    of_domain = sign_advert(DomainAdvert(domain.identity, (), 1, NOW), domain)
    directory.put_advert(of_domain, NOW, ANSWER, FIRST)
    assert directory.put_advert(of_domain, NOW, NETWORK, domain.identity) is PutOutcome.KNOWN
    assert known_of(directory) == [0, 1, 28, 29, 30]
