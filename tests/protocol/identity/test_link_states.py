"""The table of a handshake, and which of two links stays."""

from __future__ import annotations

import itertools

import pytest

from onward.protocol.identity import (
    LINK,
    LinkInput,
    LinkState,
    SigningKey,
    link_replaces,
)

ONE, TWO = (SigningKey(bytes((each,)) * 32).identity for each in (1, 2))


def test_a_handshake_that_has_failed_stays_so() -> None:
    assert not [state for state, _ in LINK if state is LinkState.FAILED]


def test_each_state_ends_by_a_wrong_message() -> None:
    for state in set(LinkState) - {LinkState.FAILED}:
        assert LINK[state, LinkInput.WRONG] is LinkState.FAILED


def test_nothing_but_what_proves_an_identity_makes_a_link() -> None:
    up = {given for (_, given), after in LINK.items() if after is LinkState.UP}
    assert up == {LinkInput.REPLY, LinkInput.PROOF}


def test_both_nodes_keep_the_same_of_two_links() -> None:
    # Each link by whether the first node has dialled it, in the order in which they are made.
    for first, second in itertools.product((False, True), repeat=2):
        at_one = link_replaces(ONE, TWO, began=second, old_began=first)
        at_two = link_replaces(TWO, ONE, began=not second, old_began=not first)
        assert at_one is at_two
        if first is not second:
            # Dialled by both at once: the order in which they are made does not matter.
            turned = link_replaces(TWO, ONE, began=not first, old_began=not second)
            kept = second if at_one else first
            assert (first if turned else second) is kept
            assert kept is (ONE < TWO)


@pytest.mark.parametrize("dialled", [False, True])
def test_the_newer_of_two_links_that_one_node_has_dialled_stays(dialled: bool) -> None:
    assert link_replaces(ONE, TWO, began=dialled, old_began=dialled)
