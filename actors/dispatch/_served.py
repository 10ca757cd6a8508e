"""The semantics that the dispatcher of a node serves."""

from __future__ import annotations

from ...protocol.dispatch import BadSemantics, Mechanism, Semantics
from ._options import DispatchOptions
from ._stored import holds_on_disk

__all__ = ["check_served"]


def check_served(semantics: Semantics, options: DispatchOptions) -> None:
    """Refuse semantics that would be ignored otherwise, in part.

    Raises:
        BadSemantics: They are of circuits or tags, or of a hold on disk without a file for it.
    """
    found = {
        "circuits": semantics.mechanism is Mechanism.LINK,
        "tags": bool(semantics.tags),
    }
    if any(found.values()):
        what = [f"a dispatcher of a node serves no {each}" for each, has in found.items() if has]
        raise BadSemantics(what)
    if holds_on_disk(semantics) and not options.hold_file:
        raise BadSemantics(["a hold on disk needs a file: DispatchOptions.hold_file"])
