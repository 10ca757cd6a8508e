"""The runner of the suite, for programs, tests and the command line."""

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

__all__ = ["CASES", "CaseOutcome", "LoopFactory", "Report", "conformance", "run_case", "run_suite"]

LoopFactory: TypeAlias = Callable[[], asyncio.AbstractEventLoop]
"""The factory of the event loop of a case, such as `uvloop.new_event_loop`."""

CASES: Final[tuple[Case, ...]] = (*DELIVERY, *GATES, *PRESSURE, *ENDS, *PLACES)
"""All cases, in the order they are run."""

_LONGEST: Final = 10
"""The time limit of a case, in multiples of the claimed patience."""


@dataclass(frozen=True, slots=True)
class CaseOutcome:
    """The outcome of one case.

    Attributes:
        case: The case.
        failure: Why it failed; empty if it did not.
        unclaimed: The missing claim if the case was skipped; else empty.
        seconds: The duration.
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
    """The outcomes of all cases.

    Attributes:
        uri: The URI tested.
        outcomes: The outcome of each case.
    """

    uri: str
    outcomes: tuple[CaseOutcome, ...]

    @property
    def passed(self) -> bool:
        """Whether every claimed case passed."""
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
    """Run one case, on its own event loop and thread.

    Args:
        case: One of `CASES`.
        uri: The URI to listen at; see `run_suite`.
        claims: The claims of the transport.
        transport: The class of the transport, if it has no entry point.
        loop_factory: The factory of the event loop; by default asyncio's, or a virtual loop for a
            transport that claims to run on one.

    Raises:
        AssertionError: The expectation does not hold.
        BaseException: The transport raised it.
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
    more = more_open(descriptors(), before)  # after the loop has closed its own
    expect(not more, more)


@functools.cache
def _warm_up() -> None:
    """Open descriptors that a process keeps for good, such as uvloop's signal pipe: not a leak."""
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
    """Run every case that the claims select.

    Args:
        uri: The URI to listen at. `{n}` in it stands for a new number each time, `{tmp}` for a
            folder that exists during one case.
        claims: The claims of the transport; by default the known ones for transports of this
            package, and the default claims for others.
        transport: The class of the transport, if it has no entry point.
        loop_factory: As for `run_case`.
        cases: The cases; all by default.

    Returns:
        The outcome of each case; an exception of the transport is a failure of its case.
    """
    known = known_claims(uri) if claims is None else claims
    outcomes: list[CaseOutcome] = []
    for case in cases:
        unclaimed = case.unclaimed(known)
        if unclaimed:
            outcomes.append(CaseOutcome(case, unclaimed=unclaimed))
            continue
        began = time.perf_counter()
        failure = ""
        try:
            run_case(case, uri, known, transport=transport, loop_factory=loop_factory)
        except AssertionError as error:
            failure = str(error) or "it does not hold"
        except Exception as error:  # noqa: BLE001 - a transport may raise any exception
            failure = repr(error)
        outcomes.append(CaseOutcome(case, failure, seconds=time.perf_counter() - began))
    return Report(uri, tuple(outcomes))


def conformance(
    uri: str,
    claims: Claims | None = None,
    *,
    transport: type[Transport] | None = None,
    loop_factory: LoopFactory | None = None,
) -> Callable[[Case], None]:
    """Return a pytest test that runs the suite: one line in a test file.

    ```python
    test_mine = conformance("mine://{tmp}/{n}", transport=MineTransport)
    ```

    Args:
        uri: As for `run_suite`.
        claims: As for `run_suite`.
        transport: As for `run_suite`.
        loop_factory: As for `run_case`.

    Returns:
        A test, parametrized by the cases that the claims select.
    """
    import pytest

    known = known_claims(uri) if claims is None else claims
    claimed: list[Any] = [each for each in CASES if not each.unclaimed(known)]

    @pytest.mark.parametrize("case", claimed, ids=[each.name for each in claimed])
    def test_conformance(case: Case) -> None:
        run_case(case, uri, known, transport=transport, loop_factory=loop_factory)

    return test_conformance
