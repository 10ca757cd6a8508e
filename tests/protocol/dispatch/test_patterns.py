"""Patterns and the best one for a name, against a slow matcher that shares nothing with them."""

from __future__ import annotations

import re
from random import Random

import pytest
from hypothesis import given, strategies as st

from onward.protocol.dispatch import (
    BadPattern,
    DispatchLimits,
    NamePattern,
    PatternInUse,
    PatternTable,
    UnknownProvision,
)
from tests.protocol.dispatch.page import PAGE, code, rows

TOKENS = st.sampled_from(["a", "b", "c", ""])
NAMES = st.lists(TOKENS, min_size=1, max_size=7).filter(lambda tokens: tokens[0] != "")
PATTERNS = st.lists(st.sampled_from(["a", "b", "*", "#"]), min_size=1, max_size=6)


def split(name: str) -> list[str]:
    return re.split(r"[./]", re.sub(r"^[./]+", "", name))


def matches(pattern: list[str], name: list[str]) -> bool:
    """Whether a pattern matches, by a regular expression."""
    parts = {"*": r"[^.]*\.", "#": r"(?:[^.]*\.)*"}
    made = "".join(parts.get(token, re.escape(token) + r"\.") for token in pattern)
    return re.fullmatch(made, "".join(f"{token}." for token in name)) is not None


def rank(pattern: list[str], name: list[str]) -> list[tuple[int, int]]:
    """Return what orders patterns that match a name: the best one has the least rank."""
    places = {0}
    made: list[tuple[int, int]] = []
    for token in pattern:
        if token == "#":
            made.append((3, 0))
            places = set(range(min(places), len(name) + 1))
        elif token == "*":
            made.append((1, 0))
            places = {place + 1 for place in places if place < len(name)}
        else:
            hits = [place for place in places if place < len(name) and name[place] == token]
            made.append((0, min(hits)))
            places = {place + 1 for place in hits}
    return [*made, (2, 0)]


def table_of(*patterns: str) -> PatternTable[str]:
    table = PatternTable[str]()
    for pattern in patterns:
        table.add(NamePattern.parse(pattern), pattern)
    return table


# --- patterns -----------------------------------------------------------------------------


@pytest.mark.parametrize("row", rows("| pattern | matches | does not match |"))
def test_page_matches(row: list[str]) -> None:
    (pattern,) = code(row[0])
    table = table_of(pattern)
    assert [table.find(name) for name in code(row[1])] == [pattern] * len(code(row[1]))
    assert [table.find(name) for name in code(row[2])] == [None] * len(code(row[2]))


@pytest.mark.parametrize("row", rows("| pattern | normal form |"))
def test_page_normal_form(row: list[str]) -> None:
    (pattern,), (normal,) = code(row[0]), code(row[1])
    assert ".".join(NamePattern.parse(pattern).tokens) == normal
    assert NamePattern.parse(pattern) == NamePattern.parse(normal)


def test_page_ranking() -> None:
    listed = PAGE.read_text().split("<!-- ranking of alpha.bravo -->\n")[1].split("\n\n")[0]
    ranking = code(listed)
    assert len(ranking) == 9
    for seed in range(20):
        order = Random(seed).sample(ranking, len(ranking))
        table = table_of(*order)
        for pattern in ranking:
            assert table.find("alpha.bravo") == pattern
            table.remove(NamePattern.parse(pattern))
        assert table.find("alpha.bravo") is None


@given(PATTERNS)
def test_normal_form_is_final_and_matches_the_same(tokens: list[str]) -> None:
    pattern = NamePattern.parse(".".join(tokens))
    normal = NamePattern.parse(".".join(pattern.tokens))
    assert normal.tokens == pattern.tokens
    assert normal == pattern
    assert hash(normal) == hash(pattern)
    assert "#.#" not in normal.written
    assert "#.*" not in normal.written


@given(PATTERNS, NAMES)
def test_normal_form_matches_what_the_pattern_matches(tokens: list[str], name: list[str]) -> None:
    pattern = NamePattern.parse(".".join(tokens))
    assert matches(list(pattern.tokens), name) == matches(tokens, name)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "there is no token"),
        ("./", "there is no token"),
        ("a\tb", "a character that is not printable"),
        ("\ud800", "a character that is not printable"),
        ("é" * 257, "514 bytes are over the limit of 512"),
        ("*." * 64, "65 tokens are over the limit of 64"),
    ],
)
def test_refused(text: str, reason: str) -> None:
    with pytest.raises(BadPattern) as caught:
        NamePattern.parse(text)
    assert caught.value.reason == reason
    with pytest.raises(BadPattern):
        NamePattern.of_prefix(text + text)


def test_limits() -> None:
    limits = DispatchLimits(max_name=5, max_tokens=2)
    assert NamePattern.parse("ab.cd", limits)
    with pytest.raises(BadPattern, match="6 bytes"):
        NamePattern.parse("ab.cde", limits)
    with pytest.raises(BadPattern, match="3 tokens"):
        NamePattern.of_prefix("a.b", limits)


def test_prefix() -> None:
    pattern = NamePattern.of_prefix("foo")
    assert (str(pattern), pattern.tokens) == ("foo/#", ("foo", "#"))
    assert pattern == NamePattern.of_prefix("foo/") == NamePattern.parse("foo.#")
    table = PatternTable[int]()
    table.add(pattern, 1)
    assert [table.find(name) for name in ("foo", "foo/x", "foo.x", "foobar", "x/foo")] == [
        1,
        1,
        1,
        None,
        None,
    ]


def test_is_exact() -> None:
    assert NamePattern.parse("a.b*").is_exact
    assert not NamePattern.parse("a.*").is_exact
    assert not NamePattern.parse("#.a").is_exact


# --- the table ----------------------------------------------------------------------------


@given(st.lists(PATTERNS, max_size=12), st.lists(NAMES, min_size=1, max_size=4), st.randoms())
def test_best_is_the_best_of_a_slow_ranking(
    patterns: list[list[str]], names: list[list[str]], random: Random
) -> None:
    table = PatternTable[str]()
    known: dict[tuple[str, ...], list[str]] = {}
    for tokens in patterns:
        pattern = NamePattern.parse("/".join(tokens))
        if pattern.tokens in known:
            with pytest.raises(PatternInUse):
                table.add(pattern, "again")
        else:
            known[pattern.tokens] = list(pattern.tokens)
            table.add(pattern, ".".join(pattern.tokens))
    while True:
        assert len(table) == len(known)
        assert sorted(table) == sorted(".".join(tokens) for tokens in known)
        for name in names:
            fit = [each for each in known.values() if matches(each, name)]
            best = min(fit, key=lambda each: rank(each, name)) if fit else None
            assert table.find(".".join(name)) == (None if best is None else ".".join(best))
        if not known:
            break
        gone = random.choice(sorted(known))
        assert table.remove(NamePattern.parse(".".join(gone))) == ".".join(gone)
        del known[gone]


@given(st.text("ab./", min_size=1, max_size=8))
def test_names_are_split_as_written(name: str) -> None:
    table = table_of("#.b.#", "*")
    tokens = split(name)
    expected = "*" if len(tokens) == 1 else "#.b.#" if "b" in tokens else None
    assert table.find(name) == expected


def test_equal_patterns_are_refused() -> None:
    table = table_of("a.#.*", "x.y")
    with pytest.raises(PatternInUse) as caught:
        table.add(NamePattern.parse("a/*/#"), "again")
    assert (caught.value.text, caught.value.other) == ("a/*/#", "a.#.*")
    with pytest.raises(PatternInUse):
        table.add(NamePattern.parse("x/y"), "again")
    assert sorted(table) == ["a.#.*", "x.y"]


def test_replace() -> None:
    table = table_of("a.*", "x.y")
    assert table.replace(NamePattern.parse("a/*"), "new") == "a.*"
    assert table.replace(NamePattern.parse("/x.y"), "newer") == "x.y"
    assert (table.find("a.b"), table.find("x.y"), len(table)) == ("new", "newer", 2)
    with pytest.raises(UnknownProvision):
        table.replace(NamePattern.parse("a"), "none")


def test_get_is_of_an_equal_pattern_only() -> None:
    table = table_of("a.*", "x.y")
    assert table.get(NamePattern.parse("a/*")) == "a.*"
    assert table.get(NamePattern.parse("x/y")) == "x.y"
    assert table.get(NamePattern.parse("a.#")) is None
    assert table.get(NamePattern.parse("a.*.c.#")) is None
    assert table.get(NamePattern.parse("a.b")) is None
    for absent in ("a.b", "a.#", "b.*"):
        with pytest.raises(UnknownProvision):
            table.remove(NamePattern.parse(absent))
    assert len(table) == 2


def test_the_one_that_the_name_has_earlier_is_better() -> None:
    table = table_of("#.a.#", "#.b.#")
    assert table.find("a.b") == "#.a.#"
    assert table.find("b.a") == "#.b.#"
    assert table.find("c.b.c.a") == "#.b.#"


def test_any_place_behind_a_rest_counts() -> None:
    # The first `a` fits both; only the second one fits the better pattern.
    table = table_of("#.a.#", "#.a.b")
    assert table.find("a.x.a.b") == "#.a.b"
    assert table.find("a.b.a.x") == "#.a.#"


def test_one_token_behind_a_rest() -> None:
    table = table_of("#.a.*", "#.a")
    assert table.find("x.a") == "#.a"
    assert table.find("x.a.y") == "#.a.*"
    assert table.find("a.a") == "#.a.*"
    assert table.find("a.x.y") is None


def test_a_name_cannot_make_a_search_long() -> None:
    # A search that tried each place of each `#` by itself would take 2^60 steps.
    pattern = ".".join(["#.a"] * 31)
    table = table_of(f"{pattern}.#.z", pattern)
    assert table.find(".".join(["a"] * 64)) == pattern
    assert table.find(".".join(["a"] * 30)) is None
