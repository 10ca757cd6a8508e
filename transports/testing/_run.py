"""Run the suite, from a program, from a test or from the command line."""

from __future__ import annotations

import asyncio
import functools
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from ...actors import Node
from ...actors.testing import VirtualLoop
from ._case import Case
from ._claims import Claims
from ._delivery import DELIVERY
from ._ends import ENDS
from ._gates import GATES
from ._known import known_claims
from ._left import descriptors, more_open, unclosed
from ._places import PLACES
from ._pressure import PRESSURE
from ._stage import Stage, expect
from ._watch import run_watched

if TYPE_CHECKING:
    from .._base import Transport

__all__ = ["CASES", "LoopFactory", "Outcome", "Report", "conformance", "run_case", "run_suite"]

LoopFactory: TypeAlias = Callable[[], asyncio.AbstractEventLoop]
"""What makes the event loop of a case, as `uvloop.new_event_loop`."""

CASES: Final[tuple[Case, ...]] = (*DELIVERY, *GATES, *PRESSURE, *ENDS, *PLACES)
"""All cases, in the order they are run."""

_LONGEST: Final = 10
"""How many times the patience of the claims one case may take."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of one case.

    Attributes:
        case: Which.
        failure: What did not hold; empty if all did.
        unclaimed: The claim that it needs and that is missing; empty if it was run.
        seconds: How long it took.
    """

    case: Case
    failure: str = ""
    unclaimed: str = ""
    seconds: float = 0.0

    @property
    def word(self) -> str:
        """The outcome in a word: `ok`, `FAILED` or `-` for not claimed."""
        return "-" if self.unclaimed else "FAILED" if self.failure else "ok"


@dataclass(frozen=True, slots=True)
class Report:
    """What came of all cases.

    Attributes:
        uri: What was tested.
        outcomes: One for each case.
    """

    uri: str
    outcomes: tuple[Outcome, ...]

    @property
    def passed(self) -> bool:
        """Whether everything held that is claimed."""
        return not any(outcome.failure for outcome in self.outcomes)

    def __str__(self) -> str:
        width = max((len(each.case.name) for each in self.outcomes), default=0)
        lines: list[str] = []
        for each in self.outcomes:
            why = f"not claimed: {each.unclaimed}" if each.unclaimed else each.case.claim
            lines.append(f"{each.word:6}  {each.case.name:{width}}  {why}")
            if each.failure:
                lines.append(f"        {'':{width}}  {each.failure}")
        words = [each.word for each in self.outcomes]
        passed, failed, rest = (words.count(word) for word in ("ok", "FAILED", "-"))
        lines.append(f"{self.uri}: {passed} ok, {failed} failed, {rest} not claimed")
        return "\n".join(lines)


def run_case(
    case: Case,
    uri: str,
    claims: Claims | None = None,
    *,
    transport: type[Transport] | None = None,
    loop_factory: LoopFactory | None = None,
) -> None:
    """Run one case, on an event loop and a thread of its own.

    Args:
        case: One of `CASES`.
        uri: Where to listen; see `run_suite`.
        claims: What the transport claims.
        transport: Its class, if it has no entry point.
        loop_factory: What makes the event loop; by default it is asyncio's, or a virtual one for
            a transport that claims to run on that.

    Raises:
        AssertionError: The claim does not hold.
        BaseException: What the transport raised.
    """
    known = known_claims(uri) if claims is None else claims

    async def play() -> None:
        limit = asyncio.timeout(_LONGEST * known.patience)
        try:
            async with limit, Stage(uri, known, transport) as stage:
                await case.scene(stage)
        except TimeoutError as error:
            if limit.expired():
                text = f"it takes longer than {_LONGEST * known.patience:g} s"
                raise AssertionError(text) from error
            raise

    _warm_up()
    usual = VirtualLoop if known.virtual else asyncio.new_event_loop
    before = descriptors()
    with unclosed() as dropped:
        run_watched(play, loop_factory or usual, known.patience)
    listed = ", ".join(dropped)
    expect(not dropped, f"dropped without having been closed: {listed}")
    more = more_open(descriptors(), before)  # when the loop has closed its own
    expect(not more, more)


@functools.cache
def _warm_up() -> None:
    """Open what a process opens once and keeps, as uvloop's pipe for signals: that is no leak."""
    with Node.in_background("warm-up"):
        pass


def run_suite(
    uri: str,
    claims: Claims | None = None,
    *,
    transport: type[Transport] | None = None,
    loop_factory: LoopFactory | None = None,
    cases: Iterable[Case] = CASES,
) -> Report:
    """Run every case that is claimed.

    Args:
        uri: Where to listen. `{n}` in it stands for a number that is new each time, `{tmp}` for
            a folder that is there for one case.
        claims: What the transport claims; by default what is known of those of this package, and
            for others what is usual.
        transport: Its class, if it has no entry point.
        loop_factory: As for `run_case`.
        cases: Which cases; all by default.

    Returns:
        What came of each; what the transport raises is the failure of a case.
    """
    known = known_claims(uri) if claims is None else claims
    outcomes: list[Outcome] = []
    for case in cases:
        unclaimed = case.unclaimed(known)
        if unclaimed:
            outcomes.append(Outcome(case, unclaimed=unclaimed))
            continue
        began = time.perf_counter()
        failure = ""
        try:
            run_case(case, uri, known, transport=transport, loop_factory=loop_factory)
        except AssertionError as error:
            failure = str(error) or "it does not hold"
        except Exception as error:  # noqa: BLE001 - whatever a transport raises
            failure = repr(error)
        outcomes.append(Outcome(case, failure, seconds=time.perf_counter() - began))
    return Report(uri, tuple(outcomes))


def conformance(
    uri: str,
    claims: Claims | None = None,
    *,
    transport: type[Transport] | None = None,
    loop_factory: LoopFactory | None = None,
) -> Callable[[Case], None]:
    """Make a test for pytest of the suite: one line in a test file.

    ```python
    test_mine = conformance("mine://{tmp}/{n}", transport=MineTransport)
    ```

    Args:
        uri: As for `run_suite`.
        claims: As for `run_suite`.
        transport: As for `run_suite`.
        loop_factory: As for `run_case`.

    Returns:
        A test with a parameter: each case that is claimed.
    """
    import pytest

    known = known_claims(uri) if claims is None else claims
    claimed: list[Any] = [each for each in CASES if not each.unclaimed(known)]

    @pytest.mark.parametrize("case", claimed, ids=[each.name for each in claimed])
    def test_conformance(case: Case) -> None:
        run_case(case, uri, known, transport=transport, loop_factory=loop_factory)

    return test_conformance
