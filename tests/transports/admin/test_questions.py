"""The bounds of what several processes are asked: places, and answers that are shared."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack
from http import HTTPStatus

import pytest

from onward.protocol.security import ANONYMOUS, Principal
from onward.transports.admin import HttpError, HttpRequest, QuestionLimits, Questions
from onward.transports.admin._parts import Answers
from onward.transports.admin._paths import Needs
from tests.support.transports import eventually

LIMITS = QuestionLimits(3, 2, max_anonymous_questions=3, shared_for=0.02)


def request(source: str = "", principal: Principal | None = None) -> HttpRequest:
    return HttpRequest("GET", "/", source=source, principal=principal)


def named(name: str) -> Principal:
    return Principal(name, "token")


def refusal(questions: Questions, asked: HttpRequest, needs: Needs = "read") -> HttpError:
    with pytest.raises(HttpError) as refused, questions.place(asked, needs):
        pass
    return refused.value


def test_a_client_has_its_share_and_all_together_have_theirs() -> None:
    questions = Questions(LIMITS)
    with ExitStack() as held:
        for _ in range(2):
            held.enter_context(questions.place(request("10.0.0.1")))
        error = refusal(questions, request("10.0.0.1"))
        assert (error.status, error.headers) == (429, {"retry-after": "1"})
        held.enter_context(questions.place(request("10.0.0.2")))
        error = refusal(questions, request("10.0.0.3"))
        assert (error.status, error.headers) == (503, {"retry-after": "1"})
        assert questions.refused == {"client": 1, "anonymous": 0, "all": 1}
    with questions.place(request("10.0.0.1")):
        pass
    assert questions.refused == {"client": 1, "anonymous": 0, "all": 1}


@pytest.mark.parametrize("principal", [None, ANONYMOUS])
def test_anonymous_clients_leave_places_to_the_others(principal: Principal | None) -> None:
    limits = QuestionLimits(4, 2, max_anonymous_questions=3)
    questions = Questions(limits)
    with ExitStack() as held:
        for number in range(3):
            held.enter_context(questions.place(request(f"10.0.0.{number}", principal)))
        error = refusal(questions, request("10.0.0.9", principal))
        assert (error.status, error.headers) == (503, {"retry-after": "1"})
        assert questions.refused == {"client": 0, "anonymous": 1, "all": 0}
        held.enter_context(questions.place(request("10.0.0.1", named("a"))))
        assert refusal(questions, request("10.0.0.1", named("b"))).status == 503
    with questions.place(request("10.0.0.9", principal)):
        pass


@pytest.mark.parametrize("principal", [None, named("a")])
def test_an_operator_is_answered_whatever_is_read(principal: Principal | None) -> None:
    questions = Questions(QuestionLimits(2, 2, 2, max_operations=2, max_operations_per_client=1))
    with ExitStack() as held:
        for _ in range(2):
            held.enter_context(questions.place(request("10.0.0.1", principal)))
        # Nor does what the same client reads count against it.
        held.enter_context(questions.place(request("10.0.0.1", principal), "operate"))
        assert refusal(questions, request("10.0.0.1", principal), "operate").status == 429
        held.enter_context(questions.place(request("10.0.0.2"), "operate"))
        assert refusal(questions, request("10.0.0.3"), "operate").status == 503
        assert questions.refused == {"client": 1, "anonymous": 0, "all": 1}


def test_operations_leave_places_to_those_that_read() -> None:
    limits = QuestionLimits(1, 1, 1, max_operations=1, max_operations_per_client=1)
    questions = Questions(limits)
    with questions.place(request(), "operate"), questions.place(request()):
        assert refusal(questions, request("10.0.0.1"), "operate").status == 503


def test_no_two_clients_take_all_places() -> None:
    limits = QuestionLimits()
    assert 2 * limits.max_questions_per_client < limits.max_questions
    assert limits.max_anonymous_questions < limits.max_questions
    assert limits.max_operations_per_client < limits.max_operations


def test_a_place_is_given_back_after_a_failure() -> None:
    questions = Questions(QuestionLimits(1, 1, 1))
    for _ in range(3):
        with pytest.raises(ValueError, match="no answer"), questions.place(request()):
            raise ValueError("no answer")


def test_a_client_is_its_principal_or_else_its_source() -> None:
    questions = Questions(QuestionLimits(max_questions_per_client=1))
    with questions.place(request("10.0.0.1", named("a"))):
        # One principal is one client wherever it is; others at its address have their share.
        assert refusal(questions, request("10.0.0.2", named("a"))).status == 429
        with questions.place(request("10.0.0.1", named("b"))):
            pass
        with questions.place(request("10.0.0.1", ANONYMOUS)):
            # What is let in without credentials has no name of its own.
            assert refusal(questions, request("10.0.0.1")).status == 429
            with questions.place(request("10.0.0.2", ANONYMOUS)):
                pass


class Asked:
    """Processes that answer when they are let.

    Attributes:
        count: How often they were asked.
        open: Set once they answer.
    """

    def __init__(self) -> None:
        self.count = 0
        self.open = asyncio.Event()

    async def __call__(self) -> Answers:
        self.count += 1
        number = self.count
        await self.open.wait()
        return Answers({}, [number], {})


async def test_equal_questions_are_one_and_are_asked_again_later() -> None:
    questions, asked = Questions(LIMITS), Asked()
    waits = [asyncio.create_task(questions.shared("/readyz", asked)) for _ in range(50)]
    other = asyncio.create_task(questions.shared("/livez", asked))
    await eventually(lambda: asked.count == 2)
    asked.open.set()
    assert {each.missing[0] for each in await asyncio.gather(*waits)} == {1}
    assert (await other).missing == [2]
    assert (await questions.shared("/readyz", asked)).missing == [1]
    await asyncio.sleep(LIMITS.shared_for)  # a timer behind the one that ends its time
    assert (await questions.shared("/readyz", asked)).missing == [3]


async def test_a_client_that_goes_away_leaves_the_answer_to_the_others() -> None:
    questions, asked = Questions(LIMITS), Asked()
    first, second = (asyncio.create_task(questions.shared("/readyz", asked)) for _ in range(2))
    await eventually(lambda: asked.count == 1)
    first.cancel()
    await asyncio.wait({first})
    asked.open.set()
    assert (await second).missing == [1]
    assert asked.count == 1


async def test_a_failure_is_not_kept() -> None:
    questions, asked = Questions(LIMITS), Asked()
    asked.open.set()

    async def fail() -> Answers:
        raise HttpError(HTTPStatus.BAD_REQUEST, "no")

    with pytest.raises(HttpError):
        await questions.shared("/readyz", fail)
    await asyncio.sleep(0)
    assert (await questions.shared("/readyz", asked)).missing == [1]
