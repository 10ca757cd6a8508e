"""In which line each key of a TOML text stands."""

from __future__ import annotations

import tomllib
from typing import Any, cast

import pytest
from hypothesis import given, strategies as st

from onward.protocol.toml._locate import Lines, Path, deep_key, deep_path, path_text


def where(text: str, *path: str | int) -> int:
    tomllib.loads(text)
    return Lines(text).of(path)


def test_keys_of_tables() -> None:
    text = """\
top = 1

[one]  # a comment = 2
a = 1
[one.two]
b = 2
  [ one . "th.ree" ]
c = 3
"""
    assert where(text, "top") == 1
    assert where(text, "one") == 3
    assert where(text, "one", "a") == 4
    assert where(text, "one", "two") == 5
    assert where(text, "one", "two", "b") == 6
    assert where(text, "one", "th.ree") == 7
    assert where(text, "one", "th.ree", "c") == 8


def test_tables_that_are_there_because_of_what_is_in_them() -> None:
    assert where("\n[a.b.c]\nd = 1", "a", "b") == 2
    assert where("\n\na.b.c = 1", "a") == 3


def test_arrays_of_tables() -> None:
    text = """\
[[links]]
from = "a"
[links.simulation]
loss = 0.1

[[links]]
from = "b"
[[links.deep]]
x = 1
[[links.deep]]
[links.deep.er]
x = 2
"""
    assert where(text, "links") == 1
    assert where(text, "links", 0, "from") == 2
    assert where(text, "links", 0, "simulation", "loss") == 4
    assert where(text, "links", 1) == 6
    assert where(text, "links", 1, "from") == 7
    assert where(text, "links", 1, "deep", 0, "x") == 9
    assert where(text, "links", 1, "deep", 1) == 10
    assert where(text, "links", 1, "deep", 1, "er", "x") == 12


def test_inline_tables_and_arrays() -> None:
    text = """\
a = { b = 1, "c d" = { e.f = [1, 2] } }
empty = { }
list = [
  "x", # one
  # none
  { k = 1 }, [ 5,
    6 ],
  ,
]
"""
    text = text.replace("  ,\n", "")
    assert where(text, "a", "c d", "e", "f", 1) == 1
    assert where(text, "empty") == 2
    assert where(text, "list", 0) == 4
    assert where(text, "list", 1, "k") == 6
    assert where(text, "list", 2, 0) == 6
    assert where(text, "list", 2, 1) == 7


@pytest.mark.parametrize(
    "value",
    [
        '"[x] # = \\" { "',
        "'[x] # = \\'",
        '"""\n[x]\ny = "1" \\""" ""\n"""',
        '"""a"""""',
        "'''\n[x] '' \\\n'''",
        "'''a'''''",
        "1979-05-27 07:32:00.5Z",
        "1979-05-27T07:32:00",
        "07:32:00",
        "-1_000.5e-3",
        "[ 1979-05-27 07:32:00, 1 ]",
        "inf",
    ],
)
def test_values_are_stepped_over(value: str) -> None:
    text = f"a = {value}\n\nb = [{value}, 1]\n[c]\nd = 1"
    extra = value.count("\n")
    assert where(text, "a") == 1
    assert where(text, "b") == 3 + extra
    assert where(text, "c", "d") == 5 + 2 * extra


def test_quoted_and_dotted_keys() -> None:
    text = """\
"a.b" . 'c "d"' = 1
"\\u00e9\\t" = 2
3.x = 3
"" = 4
"""
    assert where(text, "a.b", 'c "d"') == 1
    assert where(text, "é\t") == 2
    assert where(text, "3", "x") == 3
    assert where(text, "") == 4


def test_lines_that_end_as_in_windows() -> None:
    assert where("a = 1\r\n\r\nb = '''\r\nx'''\r\nc = 2\r\n", "c") == 5


def test_what_is_not_there_has_the_line_of_what_it_would_be_in() -> None:
    assert where("\n[a]\nb = 1", "a", "c", "d") == 2
    assert where("\n[a]\nb = 1", "z") == 1


KEYS = st.text("ab.\"' \\\n#=[]é", max_size=4)
VALUES: st.SearchStrategy[Any] = st.recursive(
    st.integers() | st.booleans() | st.text("ab\"'\\\n#=[]{},", max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=8,
)


def written(value: object, line: int, path: Path, lines: dict[Path, int]) -> str:
    """Write a value in one line of TOML, and note where each key is."""
    lines[path] = line
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return quoted(value)
    if isinstance(value, list):
        listed = cast("list[object]", value)
        items = [written(each, line, (*path, i), lines) for i, each in enumerate(listed)]
        return f"[{', '.join(items)}]"
    if isinstance(value, dict):
        table = cast("dict[str, object]", value)
        pairs = [
            f"{quoted(key)} = {written(each, line, (*path, key), lines)}"
            for key, each in table.items()
        ]
        return f"{{ {', '.join(pairs)} }}"
    return str(value)


def quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


@given(st.dictionaries(KEYS, VALUES, max_size=5))
def test_the_lines_of_any_document(document: dict[str, Any]) -> None:
    lines: dict[Path, int] = {}
    text = ""
    for key, value in document.items():
        line = text.count("\n") + 2
        text += f"# {key!r}\n{quoted(key)} = {written(value, line, (key,), lines)}\n"
    assert tomllib.loads(text) == document
    found = Lines(text)
    assert {path: found.of(path) for path in lines} == lines
    # Nothing in a document hides a key of too many parts behind it.
    assert deep_key(text, 3) is None
    assert deep_key(f"{text}x = 'a.b.c.d.e'\na.b.'c'.d = 1\n", 3) == len(text) + len(
        "x = 'a.b.c.d.e'\n"
    )


@pytest.mark.parametrize(
    "key", ["a.b.c.d", "a . b\t.c. d", '\'a\'."b".c."\\""', "[a.b.c.d", "{ a.b.c.d"]
)
@pytest.mark.parametrize(
    "before",
    [
        "",
        "# a.b.c.d\n",
        "x = 'a.b.c.d'\n",
        'x = "a.b.c.d"; ',
        'x = """a.b.c.d""", ',
        'x = """a""""", ',
        'x = """\\""" a.b.c.d """ # """\n',
        "x = '''a''''', ",
        "x = '''''' # '''\n",
        "x = '#', ",
    ],
)
def test_keys_of_too_many_parts(before: str, key: str) -> None:
    found = deep_key(before + key, 3)
    assert found is not None
    assert (before + key)[found:] == key.lstrip("[{ ")
    assert deep_key(before + key, 4) is None


@pytest.mark.parametrize(
    "text", ["a" + ".a" * 500_000, '"""' + '\\"""' * 200_000, "'" * 1_000_001, '\\"' * 500_000]
)
def test_it_is_found_in_one_pass(text: str) -> None:
    # The square of any of these would not end today.
    assert deep_key(text, 16) in (None, 0)


def test_paths_that_are_too_deep() -> None:
    assert deep_path({"a": {"b": [1, {"c": 2}]}}, 4) is None
    assert deep_path({"a": {"b": [1, {"c": 2}]}}, 3) == ("a", "b", 1, "c")
    nested: dict[str, object] = {"x": 1, "a": [[[[]]]]}
    assert deep_path(nested, 3) == ("a", 0, 0, 0)


def test_what_is_too_deep_has_the_line_of_what_it_is_in() -> None:
    text = "a = { b = { c = { d = 1 } } }\ne = 1"
    lines = Lines(text, 2)
    assert lines.of(("a", "b", "c", "d")) == 1
    assert lines.of(("e",)) == 2


def test_how_paths_are_written() -> None:
    assert path_text(()) == ""
    assert path_text(("nodes", "a b", "x")) == 'nodes."a b".x'
    assert path_text(("links", 0, "from")) == "links[0].from"
