"""Kinds of worker for tests of topology files."""

from __future__ import annotations

from onward.protocol.topology import KindOptions, Option, OptionType, TopologyPlan, read_topology

__all__ = ["KINDS", "plan_of", "problems_of"]

KINDS = {
    "echo": KindOptions(),
    "forward": KindOptions(passes_on=True),
    "tap": KindOptions({"to": Option(OptionType.ROUTE, required=True)}),
    "choice": KindOptions({"how": Option(OptionType.TEXT, choices=("one", "other"))}),
    "all": KindOptions({each.value: Option(each) for each in OptionType}),
}


def plan_of(text: str) -> TopologyPlan:
    """Read a file that there is nothing wrong with."""
    return read_topology(text, "t.toml", kinds=KINDS)


def problems_of(text: str) -> list[str]:
    """Return what is wrong with a file, one line each."""
    from onward.protocol.topology import TopologyError

    try:
        plan_of(text)
    except TopologyError as error:
        return [str(problem).removeprefix("t.toml:") for problem in error.problems]
    return []
