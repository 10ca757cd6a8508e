"""The members of domains, and the choice of one."""

from __future__ import annotations

from hypothesis import given, strategies as st

from onward.protocol.identity import (
    DomainAdvert,
    DomainLimits,
    DomainTable,
    Identity,
    choose_member,
    identity_of_key,
)


def identity(number: int) -> Identity:
    return identity_of_key(bytes(31) + bytes((number,)))


A, B, C, DOMAIN, OTHER = (identity(number) for number in range(5))


def advert(domain: Identity, *nodes: Identity) -> DomainAdvert:
    return DomainAdvert(domain, nodes, 1, 0)


def test_an_advert_replaces_the_members() -> None:
    table = DomainTable()
    assert table.members(DOMAIN) is None
    table.update(advert(DOMAIN, A, B))
    table.update(advert(DOMAIN, C))
    assert table.members(DOMAIN) == (C,)
    table.remove(DOMAIN)
    table.remove(DOMAIN)
    assert table.members(DOMAIN) is None


def test_the_domain_that_was_used_longest_ago_is_let_go() -> None:
    table = DomainTable(DomainLimits(domains=2))
    for domain in (DOMAIN, OTHER):
        table.update(advert(domain, A))
    assert table.members(DOMAIN) == (A,)
    table.update(advert(C, B))
    assert (len(table), table.evicted) == (2, 1)
    assert table.members(OTHER) is None
    assert table.domains() == (DOMAIN, C)
    assert table.members(DOMAIN) == (A,)


def test_a_member_that_is_alive_is_chosen_first_and_then_one_with_less_load() -> None:
    members = (A, B, C)
    assert {choose_member(members, number) for number in range(3)} == {A, B, C}
    assert choose_member(members, 7, alive={B}) == B
    assert choose_member(members, 7, alive={B}, excluded={B}) in {A, C}
    assert choose_member(members, 1, alive={A, B}, loads={A: 5, B: 9, C: 0}) == A
    assert choose_member(members, 1, alive=members, loads={A: 5, B: 9}) == C
    assert choose_member(members, 0, excluded=members) is None
    assert choose_member((), 0) is None


NODES = st.sets(st.sampled_from([identity(number) for number in range(8)]))


@given(
    NODES, NODES, NODES, st.dictionaries(st.sampled_from([A, B, C]), st.integers(0, 3)), st.data()
)
def test_no_member_would_have_been_better(
    members: set[Identity],
    excluded: set[Identity],
    alive: set[Identity],
    loads: dict[Identity, int],
    data: st.DataObject,
) -> None:
    number = data.draw(st.integers(0, 100))
    chosen = choose_member(members, number, excluded=excluded, alive=alive, loads=loads)
    left = members - excluded
    assert (chosen is None) == (not left)
    if chosen is not None:
        assert chosen in left
        for other in left:
            assert (chosen in alive) >= (other in alive)
            if (chosen in alive) == (other in alive):
                assert loads.get(chosen, 0) <= loads.get(other, 0)
