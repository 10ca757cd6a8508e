"""Samples of the stack of a thread."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

import pytest

from onward.actors.monitoring import _profile as profiles
from onward.actors.monitoring._profile import StackSampler, profile


def deep(left: int, then: Callable[[], None]) -> None:
    if left:
        deep(left - 1, then)
    else:
        then()


def test_a_sample_is_a_stack_from_the_outermost_frame_on() -> None:
    sampler = StackSampler(threading.get_ident())
    for _ in range(3):
        sampler.take()
    # Without a thread of its own it samples itself.
    (line,) = sampler.folded().splitlines()
    stack, _, count = line.rpartition(" ")
    names = [each.partition(" ")[0] for each in stack.split(";")]
    here = "test_a_sample_is_a_stack_from_the_outermost_frame_on"
    assert names[-2:] == [here, "StackSampler.take"]
    assert count == "3"
    assert "(monitoring/test_profile.py:" in stack


def test_different_stacks_and_their_depth_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(profiles, "MAX_STACKS", 2)
    monkeypatch.setattr(profiles, "MAX_DEPTH", 5)
    sampler = StackSampler(threading.get_ident())
    for depth in (0, 1, 2, 3, 9, 9):
        deep(depth, sampler.take)
    lines = sampler.folded().splitlines()
    assert lines[0] == "(other) 4"
    assert len(lines) == 3
    assert all(line.count(";") < 5 for line in lines)


def test_a_thread_that_has_gone_has_no_frame() -> None:
    thread = threading.Thread(target=lambda: None)
    thread.start()
    thread.join()
    sampler = StackSampler(thread.ident or 0)
    sampler.take()
    assert sampler.folded() == "(no frame) 1\n"


async def test_a_profile_ends_its_thread_even_if_it_is_cancelled() -> None:
    def threads() -> list[str]:
        return [each.name for each in threading.enumerate() if each.name == "profile"]

    taking = asyncio.ensure_future(profile(600.0))
    await asyncio.sleep(0)
    assert threads() == ["profile"]
    taking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await taking
    assert threads() == []


def test_samples_are_taken_by_a_thread() -> None:
    sampler = StackSampler(threading.get_ident())
    sampler.start()
    taken = threading.Event()
    before = sampler.take

    def take() -> None:
        before()
        taken.set()

    sampler.take = take  # type: ignore[method-assign]
    assert taken.wait(60)
    sampler.stop()
    assert "test_samples_are_taken_by_a_thread" in sampler.folded()
