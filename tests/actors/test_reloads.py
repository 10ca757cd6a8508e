"""Reloads: all parts, or none."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from onward.actors import ReloadFailed, Reloads, ReloadStatistics
from onward.actors._reloads import PrepareReload


def part(log: list[str], name: str, error: Exception | None = None) -> PrepareReload:
    async def prepare() -> Callable[[], object]:
        await asyncio.sleep(1)
        log.append(f"read {name}")
        if error is not None:
            raise error
        return lambda: log.append(f"applied {name}")

    return prepare


async def test_all_parts_are_read_before_one_is_applied() -> None:
    reloads, log = Reloads(), list[str]()
    for name in ("certificates", "rules"):
        reloads.add(name, part(log, name))
    assert await reloads.reload() == ("certificates", "rules")
    assert log == ["read certificates", "read rules", "applied certificates", "applied rules"]
    figures = reloads.statistics()
    assert figures == ReloadStatistics(2, 1, 0, "", figures.applied)


async def test_one_part_that_cannot_be_used_keeps_all_others_as_they_are() -> None:
    reloads, log = Reloads(), list[str]()
    reloads.add("certificates", part(log, "certificates"))
    reloads.add("rules", part(log, "rules", ValueError("line 3: no such key")))
    remove = reloads.add("tokens", part(log, "tokens", OSError("gone")))
    with pytest.raises(ReloadFailed) as caught:
        await reloads.reload()
    # All errors at once.
    assert str(caught.value) == "rules: line 3: no such key; tokens: gone"
    assert log == ["read certificates", "read rules", "read tokens"]
    figures = reloads.statistics()
    assert figures == ReloadStatistics(3, 0, 1, str(caught.value), figures.applied)
    remove()
    with pytest.raises(ReloadFailed):
        await reloads.reload()
    assert reloads.statistics().failed == 2


async def test_one_reload_follows_the_other() -> None:
    reloads, log = Reloads(), list[str]()
    reloads.add("rules", part(log, "rules"))
    await asyncio.gather(reloads.reload(), reloads.reload())
    assert log == ["read rules", "applied rules"] * 2


async def test_without_parts_there_is_nothing_to_do() -> None:
    assert await Reloads().reload() == ()


def test_each_part_has_a_name_of_its_own() -> None:
    reloads = Reloads()
    reloads.add("rules", part([], "rules"))
    with pytest.raises(ValueError, match="a part 'rules' already"):
        reloads.add("rules", part([], "rules"))


async def test_what_is_prepared_is_applied_only_if_it_is_asked_for() -> None:
    reloads, log = Reloads(), list[str]()
    reloads.add("rules", part(log, "rules"))
    async with reloads.prepared():
        pass
    assert log == ["read rules"]
    assert reloads.statistics().done == 0
    async with reloads.prepared() as apply:
        assert apply() == ("rules",)
    assert log == ["read rules", "read rules", "applied rules"]
    assert reloads.statistics().done == 1


async def test_a_reload_that_another_refuses_counts_as_refused() -> None:
    reloads = Reloads()
    with pytest.raises(ReloadFailed, match="rules: gone"):
        async with reloads.prepared():
            raise reloads.refused({"rules": "gone"})
    figures = reloads.statistics()
    assert (figures.done, figures.failed, figures.error) == (0, 1, "rules: gone")
