"""The check of the language finds what it should, and its list of exceptions only shrinks."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.fixtures import Capsys
from tools import check_language as language


def in_code(program: str) -> list[tuple[int, str]]:
    return sorted(language.check_code(program))


@pytest.mark.parametrize(
    "word", ["What", "Who", "Whoever", "Those", "That", "Which", "How", "Where"]
)
def test_a_docstring_of_a_class_is_a_noun_phrase(word: str) -> None:
    program = f'class Queue:\n    """{word} a reader sees."""\n'
    assert (2, f"the docstring of class Queue begins with {word!r}") in in_code(program)
    assert in_code('class Queue:\n    """A bounded queue."""\n') == []


@pytest.mark.parametrize("word", ["Say", "Tell", "Note", "Have", "Do", "Let", "Take", "What"])
@pytest.mark.parametrize("keyword", ["def", "async def"])
def test_a_docstring_of_a_function_is_an_imperative_of_the_field(word: str, keyword: str) -> None:
    program = f'class A:\n    {keyword} close(self):\n        """{word} it."""\n'
    assert in_code(program) == [(3, f"the docstring of function close begins with {word!r}")]


def test_a_function_called_take_takes() -> None:
    assert in_code('def _take_all():\n    """Take all."""\n') == []
    assert in_code('def tell():\n    """Tell all."""\n') != []


@pytest.mark.parametrize("word", sorted(language.BANNED))
def test_banned_words_are_found_in_docstrings_comments_and_texts(word: str) -> None:
    rule = f"{word!r} does not name its subject"
    assert in_code(f'"""First.\n\nThen {word} reads."""\n') == [(3, rule)]
    assert in_code(f'x = 1\n"""For {word.title()}."""\n') == [(2, rule)]
    assert in_code(f"x = 1  # for {word}, at times\n") == [(1, rule)]
    assert in_code(f'raise ValueError(\n    f"{{x}} is for {word} else"\n)\n') == [(2, rule)]
    assert list(language.check_page(f"# Title\n\nFor {word}.\n")) == [(3, rule)]


def test_data_and_code_are_not_texts() -> None:
    assert in_code('def a(who):\n    """Use `who` as it is."""\n    return who["whom"]\n') == []
    page = "Call `who()`.\n<!-- who -->\n```python\nwho = 1  # who\n```\n[a](who.md)\n\nFor whom?\n"
    assert list(language.check_page(page)) == [(8, "'whom' does not name its subject")]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "tools").mkdir()
    (tmp_path / "actors").mkdir()
    (tmp_path / "docs").mkdir()
    (tmp_path / "README.md").write_text("A page.\n")
    (tmp_path / "CONTRIBUTING.md").write_text("A page.\n")
    (tmp_path / "SECURITY.md").write_text("A page.\n")
    (tmp_path / "actors" / "_a.py").write_text("# for whom\n")
    (tmp_path / "docs" / "a.md").write_text("A page.\n")
    return tmp_path


def run(root: Path, debt: list[str], capsys: Capsys, *arguments: str) -> tuple[int, list[str]]:
    (root / language.DEBT).write_text("".join(f"{line}\n" for line in ["# Debt.", *debt]))
    status = language.main(arguments, root)
    return status, capsys.readouterr().out.splitlines()


def test_a_file_that_is_not_listed_has_to_be_clean(root: Path, capsys: Capsys) -> None:
    said = ["actors/_a.py:1: 'whom' does not name its subject"]
    assert run(root, [], capsys) == (1, said)
    assert run(root, ["actors/_a.py"], capsys) == (0, [])
    assert run(root, ["actors/_a.py"], capsys, "actors/_a.py") == (1, said)
    assert run(root, [], capsys, "docs/a.md") == (0, [])


@pytest.mark.parametrize("paid", ["docs/a.md", "docs/gone.md"])
def test_a_clean_or_missing_file_has_to_be_taken_off(paid: str, root: Path, capsys: Capsys) -> None:
    status, printed = run(root, ["actors/_a.py", paid], capsys)
    assert status == 1
    assert printed == [f"{paid}: is clean or gone, take it off {language.DEBT} (--prune)"]
    assert run(root, ["actors/_a.py", paid], capsys, "--prune") == (0, [])
    assert (root / language.DEBT).read_text() == "# Debt.\nactors/_a.py\n"


def test_the_list_is_sorted(root: Path, capsys: Capsys) -> None:
    status, printed = run(root, ["actors/_a.py", "actors/_a.py"], capsys)
    assert status == 1
    assert "not sorted" in printed[0]
