"""Which tests have a count of tries: those are run twice by `make test-all`, and no others."""

from __future__ import annotations

from tests.support.counts import uses_of_counts

MODULE = """
import pytest
from tests.support.counts import UNMEASURED, runs, times as often

SEEDS = range(often(3, 20))
SEED: int = 7
TestMachine = Machine.TestCase
TestMachine.settings = settings(max_examples=often(15, 60))
TestOther = UNMEASURED(Machine.TestCase)

def many(number):
    return [number] * often(1, 2)

@pytest.fixture
def numbers():
    return many(3)

def test_by_a_fixture(numbers):
    assert numbers

async def test_by_a_call():
    assert many(4)

@pytest.mark.parametrize("seed", runs(2, 9))
def test_by_a_parameter(seed):
    assert seed >= 0

class TestSeveral:
    def test_by_a_name(self):
        assert SEEDS

def test_of_one_try(tmp_path):
    assert SEED
"""


def test_a_count_is_followed_to_the_tests_that_use_it() -> None:
    assert {each for each in uses_of_counts(MODULE) if each.lower().startswith("test")} == {
        "TestMachine",
        "TestSeveral",
        "test_by_a_call",
        "test_by_a_fixture",
        "test_by_a_parameter",
    }


def test_names_of_other_modules_are_no_counts() -> None:
    assert not uses_of_counts(MODULE.replace("tests.support.counts", "somewhere"))
