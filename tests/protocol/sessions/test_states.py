from __future__ import annotations

from onward.protocol.sessions import SESSION, SessionInput, SessionState


def test_every_state_but_the_last_can_be_left_and_every_one_is_reached() -> None:
    left = {state for state, _ in SESSION}
    assert left == set(SessionState) - {SessionState.CLOSED}
    assert set(SESSION.values()) == set(SessionState) - {SessionState.ESTABLISHING}


def test_every_input_means_something_somewhere() -> None:
    assert {given for _, given in SESSION} == set(SessionInput)


def test_from_every_state_the_end_is_one_or_two_inputs_away() -> None:
    for state in set(SessionState) - {SessionState.CLOSED}:
        after = {SESSION.get((state, given)) for given in SessionInput} - {None}
        further = {SESSION.get((each, given)) for each in after if each for given in SessionInput}
        assert SessionState.CLOSED in after | further


def test_a_state_is_its_name_as_text() -> None:
    assert [str(state) for state in SessionState][:3] == ["establishing", "up", "down"]
