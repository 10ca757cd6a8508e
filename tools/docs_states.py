"""Draw the state machines of the documentation from the tables the code runs on.

`tools.pages` calls `fill` for each page. A line `<!-- drawn: NAME -->` becomes what
`DRAWINGS` makes of that name, so a diagram cannot say anything the code does not do.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import TypeVar

from onward.protocol.cluster import (
    PRESENCE,
    SUBSCRIPTION,
    PresenceInput,
    PresenceState,
    SubscriptionInput,
    SubscriptionState,
)
from onward.protocol.dispatch import (
    CIRCUIT_END,
    CIRCUIT_PAIR,
    EndInput,
    EndState,
    PairInput,
    PairState,
)
from onward.protocol.identity import LINK, LinkInput, LinkState
from onward.protocol.pipes import (
    RECEIVER,
    SENDER,
    ReceiverInput,
    ReceiverState,
    SenderInput,
    SenderState,
)
from onward.protocol.rsocket import _states as states
from onward.protocol.sessions import SESSION, SessionInput, SessionState

State = TypeVar("State", bound=Enum)
Input = TypeVar("Input", bound=Enum)

_MARK = re.compile(r"^<!-- drawn: (?P<name>[\w-]+) -->$", re.MULTILINE)


def fill(markdown: str) -> str:
    """Replace the marks of a page.

    Raises:
        KeyError: There is no drawing of that name.
    """
    return _MARK.sub(lambda mark: DRAWINGS[mark["name"]](), markdown)


def diagram(
    table: Mapping[tuple[State, Input], State],
    label: Callable[[Input], str],
    first: State,
    last: State,
) -> str:
    """Draw a transition table as a Mermaid state diagram.

    Args:
        table: (state, input) to the next state.
        label: What to call an input.
        first: The state to start in.
        last: The state in which it is over.
    """
    edges = defaultdict[tuple[State, State], list[str]](list)
    for (state, given), after in table.items():
        edges[state, after].append(label(given))
    lines = [f"    [*] --> {first.name}", f"    {last.name} --> [*]"]
    lines += [
        f"    {state.name} --> {after.name}: {' or '.join(given)}"
        for (state, after), given in edges.items()
    ]
    return "\n".join(["```mermaid", "stateDiagram-v2", *lines, "```"])


def table(heads: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    """Write a Markdown table."""
    lines = [heads, tuple("---" for _ in heads), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _connection() -> str:
    return diagram(
        states.CONNECTION,
        lambda given: given.name,
        states.ConnectionState.AWAIT_SETUP,
        states.ConnectionState.CLOSED,
    )


def _connection_inputs() -> str:
    rows = [(f"`{each.name}`", each.value) for each in states.ConnectionInput]
    return table(("input", "is"), rows)


def _direction() -> str:
    return diagram(
        states.DIRECTION,
        lambda given: given.value.split()[0],
        states.Direction.OPEN,
        states.Direction.DONE,
    )


def _request_start() -> str:
    rows = [
        (_name(kind), _mark(follows), _mark(complete), f"`{start.name}`")
        for (kind, follows, complete), start in states.REQUEST_START.items()
    ]
    return table(("first frame", "F", "C", "requester's direction"), rows)


def _interactions() -> str:
    rows = [
        (_name(kind), f"`{start.name}`", " and ".join(sorted(each.value for each in ends)))
        for kind, start in states.RESPONDER_START.items()
        for ends in (states.ENDS_WITH[kind],)
    ]
    return table(("interaction", "responder's direction starts", "over when done"), rows)


def _control() -> str:
    rows = [
        (_name(kind), side.value, _name(frame), effect.value)
        for (kind, side, frame), effect in states.CONTROL.items()
    ]
    return table(("interaction", "sent by", "frame", "effect"), rows)


def _session() -> str:
    return diagram(
        SESSION, lambda given: given.name, SessionState.ESTABLISHING, SessionState.CLOSED
    )


def _session_inputs() -> str:
    return table(("input", "is"), [(f"`{each.name}`", each.value) for each in SessionInput])


def _pipe_sender() -> str:
    return diagram(SENDER, lambda given: given.name, SenderState.IDLE, SenderState.CLOSED)


def _pipe_sender_inputs() -> str:
    return table(("input", "is"), [(f"`{each.name}`", each.value) for each in SenderInput])


def _pipe_receiver() -> str:
    return diagram(RECEIVER, lambda given: given.name, ReceiverState.OPEN, ReceiverState.CLOSED)


def _pipe_receiver_inputs() -> str:
    return table(("input", "is"), [(f"`{each.name}`", each.value) for each in ReceiverInput])


def _presence() -> str:
    return diagram(PRESENCE, lambda given: given.name, PresenceState.CONNECTING, PresenceState.GONE)


def _presence_inputs() -> str:
    return table(("input", "is"), [(f"`{each.name}`", each.value) for each in PresenceInput])


def _subscription() -> str:
    first = SubscriptionState.IDLE
    return diagram(SUBSCRIPTION, lambda given: given.name, first, first)


def _subscription_inputs() -> str:
    return table(("input", "is"), [(f"`{each.name}`", each.value) for each in SubscriptionInput])


def _circuit_pair() -> str:
    return diagram(CIRCUIT_PAIR, lambda given: given.name, PairState.ATTACHING, PairState.DETACHED)


def _circuit_pair_inputs() -> str:
    return table(("input", "is"), [(f"`{each.name}`", each.value) for each in PairInput])


def _circuit_end() -> str:
    return diagram(CIRCUIT_END, lambda given: given.name, EndState.IDLE, EndState.ENDED)


def _circuit_end_inputs() -> str:
    return table(("input", "is"), [(f"`{each.name}`", each.value) for each in EndInput])


def _link() -> str:
    return diagram(LINK, lambda given: given.name, LinkState.AWAITS_HELLO, LinkState.FAILED)


def _link_inputs() -> str:
    return table(("input", "is"), [(f"`{each.name}`", each.value) for each in LinkInput])


def _name(frame: Enum) -> str:
    return f"`{frame.name}`"


def _mark(given: bool) -> str:
    return "yes" if given else ""


DRAWINGS: Mapping[str, Callable[[], str]] = {
    "circuit-end": _circuit_end,
    "circuit-end-inputs": _circuit_end_inputs,
    "circuit-pair": _circuit_pair,
    "circuit-pair-inputs": _circuit_pair_inputs,
    "connection": _connection,
    "connection-inputs": _connection_inputs,
    "control": _control,
    "direction": _direction,
    "interactions": _interactions,
    "link": _link,
    "link-inputs": _link_inputs,
    "pipe-receiver": _pipe_receiver,
    "pipe-receiver-inputs": _pipe_receiver_inputs,
    "pipe-sender": _pipe_sender,
    "pipe-sender-inputs": _pipe_sender_inputs,
    "presence": _presence,
    "presence-inputs": _presence_inputs,
    "request-start": _request_start,
    "session": _session,
    "session-inputs": _session_inputs,
    "subscription": _subscription,
    "subscription-inputs": _subscription_inputs,
}
