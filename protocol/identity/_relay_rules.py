"""The policy of a relay as people write it: rules, each of one word.

```
from:IDENTITY   messages of this node go on to any node
to:IDENTITY     messages of any node go on to this one
reserved        messages of any node go on to those with a reservation
any             all messages go on: an open relay
exit            what may go on may leave its layers here for another node, if its sender asks
```
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from ._errors import BadIdentity
from ._identities import Identity, parse_identity
from ._relay_policy import RelayPolicy

__all__ = ["RELAY_RULES", "parse_relay_rules"]

RELAY_RULES: Final = ("from:IDENTITY", "to:IDENTITY", "reserved", "any", "exit")
"""The forms of a rule of a relay."""


def parse_relay_rules(rules: Iterable[str]) -> RelayPolicy:
    """Return the policy that some rules say; each adds to what is allowed.

    Raises:
        ValueError: One is no rule, or `exit` is alone, which allows nothing.
    """
    nodes: dict[str, set[Identity]] = {"from": set(), "to": set()}
    words: dict[str, bool] = dict.fromkeys(("reserved", "any", "exit"), False)
    for rule in rules:
        name, colon, text = rule.partition(":")
        if colon and name in nodes:
            try:
                nodes[name].add(parse_identity(text))
            except BadIdentity as error:
                raise ValueError(f"{rule!r}: {error}") from None
        elif rule in words:
            words[rule] = True
        else:
            raise ValueError(f"{rule!r} is not one of {', '.join(RELAY_RULES)}")
    policy = RelayPolicy(
        sources=frozenset(nodes["from"]),
        destinations=frozenset(nodes["to"]),
        from_any=words["any"],
        to_reserved=words["reserved"],
        exits=words["exit"],
    )
    if policy == RelayPolicy(exits=True):
        raise ValueError("exit allows nothing alone: with it goes any, reserved, from: or to:")
    return policy
