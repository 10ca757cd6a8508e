"""The text of a destination in a route, with what a message there asks of its way.

```
target = destination ["?" wish *("&" wish)]
wish   = "scope=local" / "scope=any" / "scope=" identity      how far it may go
       / "ordered=no" / "reliable=no"                          how it is carried
       / "hops=" 1*DIGIT                                       fewest relays
       / "mix=yes"                                             a mix network: there is none yet
       / "exit=yes"                                            the last relay lets it out
```

So any worker can ask for it that can put an address in a route. Each wish is there once at most.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from ._errors import BadIdentity, BadRecord
from ._identities import Destination, identity_text, parse_destination, parse_identity
from ._preferences import (
    MAX_HOPS,
    SCOPE_ANY,
    SCOPE_LOCAL,
    Ordering,
    Reliability,
    RoutingPrefs,
    RoutingScope,
    ScopeKind,
    Security,
    TransportPrefs,
)

__all__ = ["Target", "parse_target", "target_text"]

_WISHES: Final = ("scope", "ordered", "reliable", "hops", "mix", "exit")
_HOPS: Final = {str(number): number for number in range(1, MAX_HOPS + 1)}


@dataclass(frozen=True, slots=True)
class Target:
    """A destination in a route, and what a message there asks of its way.

    Attributes:
        destination: The destination.
        rprefs: What it asks of its routing; `None` for nothing.
        tprefs: What it asks of its carriage; `None` for nothing.
        exit: Whether the last relay lets it out: that one finds the node of the destination.
    """

    destination: Destination
    rprefs: RoutingPrefs | None = None
    tprefs: TransportPrefs | None = None
    exit: bool = False

    @property
    def scope(self) -> RoutingScope:
        """How far the message may go."""
        return SCOPE_ANY if self.rprefs is None else self.rprefs.scope


def parse_target(text: str) -> Target:
    """Read the text of a destination with its wishes.

    Raises:
        BadIdentity: It is no destination, or a wish is unknown, there twice, or has no such value.
    """
    before, mark, after = text.partition("?")
    destination = parse_destination(before)
    if not mark:
        return Target(destination)
    wishes: dict[str, str] = {}
    for wish in after.split("&"):
        name, _, value = wish.partition("=")
        if name not in _WISHES or name in wishes:
            raise BadIdentity(text, f"after the question mark each of {', '.join(_WISHES)} once")
        wishes[name] = value
    try:
        rprefs = RoutingPrefs(_scope(wishes["scope"])) if "scope" in wishes else None
        lets_out = {"yes": True, "no": False}[wishes.get("exit", "no")]
        return Target(destination, rprefs, _transport(wishes), lets_out)
    except (BadIdentity, BadRecord, KeyError):
        raise BadIdentity(text, "a wish behind ? has no such value") from None


def target_text(target: Target) -> str:
    """Return the text of a destination with its wishes."""
    destination, rprefs, tprefs = target.destination, target.rprefs, target.tprefs
    kind = destination.kind.name.lower()
    wishes: list[str] = []
    if rprefs is not None:
        domain = rprefs.scope.domain
        name = rprefs.scope.kind.name.lower() if domain is None else identity_text(domain)
        wishes.append(f"scope={name}")
    if tprefs is not None:
        if tprefs.ordering is Ordering.UNORDERED:
            wishes.append("ordered=no")
        if tprefs.reliability is Reliability.UNRELIABLE:
            wishes.append("reliable=no")
        if tprefs.hops:
            wishes.append(f"hops={tprefs.hops}")
        if tprefs.security is Security.MIXNET:
            wishes.append("mix=yes")
    if target.exit:
        wishes.append("exit=yes")
    mark = "?" if wishes else ""
    return f"{kind}:{identity_text(destination.identity)}{mark}{'&'.join(wishes)}"


def _scope(value: str) -> RoutingScope:
    if value == "local":
        return SCOPE_LOCAL
    if value == "any":
        return SCOPE_ANY
    return RoutingScope(ScopeKind.DOMAIN, parse_identity(value))


def _transport(wishes: dict[str, str]) -> TransportPrefs | None:
    if not wishes.keys() & {"ordered", "reliable", "hops", "mix"}:
        return None
    no, yes = {"no": True, "yes": False}, {"no": False, "yes": True}
    ordering = Ordering(no[wishes.get("ordered", "yes")])
    reliability = Reliability(no[wishes.get("reliable", "yes")])
    hops = _HOPS[wishes["hops"]] if "hops" in wishes else 0
    security = Security.ONION if hops else Security.DIRECT
    if yes[wishes.get("mix", "no")]:
        security = Security.MIXNET
    return TransportPrefs(ordering, reliability, security, hops)
