"""The file of contexts: what is read and written, and what is wrong with it."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from onward.cli import _contexts
from onward.cli._contexts import (
    Context,
    Contexts,
    contexts_path,
    load_contexts,
    save_contexts,
)
from onward.cli._status import CommandError
from tests.support.fixtures import Patch

EU = Context("rsocket+tls://eu.example:8001", 'for "all"\n', token_file="/etc/a\x7fb")
US = Context("rsocket+tcp://us.example:8001")


def test_the_path_is_that_of_the_standard(tmp_path: Path) -> None:
    assert contexts_path({"XDG_CONFIG_HOME": "/x"}) == Path("/x/onward/contexts.toml")
    for relative in ({}, {"XDG_CONFIG_HOME": ""}, {"XDG_CONFIG_HOME": "relative"}):
        assert contexts_path(relative) == Path.home() / ".config/onward/contexts.toml"


def test_it_is_read_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "new" / "onward" / "contexts.toml"
    assert load_contexts(path) == Contexts()
    for contexts in (
        Contexts("eu.1", {"eu.1": EU, "us": US}),
        Contexts("", {"us": US}),
        Contexts(),
    ):
        save_contexts(path, contexts)
        assert load_contexts(path) == contexts
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert [each.name for each in path.parent.iterdir()] == [path.name]


@given(st.text(max_size=20), st.text(max_size=20))
def test_any_text_is_kept(one: str, two: str) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "contexts.toml"
        context = Context("rsocket+tcp://a:1", description=one, user=two)
        try:
            save_contexts(path, Contexts("a", {"a": context}))
        except (CommandError, UnicodeEncodeError):
            assert not path.exists()  # what TOML has no form for
            return
        assert load_contexts(path).known["a"] == context


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("[context.a]\n", "context.a: broker is missing"),
        ('[context.a]\nbroker = "http://a"\n', "it is the URI of a broker"),
        ('[context.a]\nbroker = "rsocket+tcp://a:1"\ntoken = "x"\n', "unknown key; there are:"),
        ('selected = "b"\n', "there is no context b"),
        ('select = "b"\n', "did you mean 'selected'?"),
        ('[context."a b"]\nbroker = "rsocket+tcp://a:1"\n', "a name has letters"),
        ("context = 5\n", "is not a table"),
        ("[context", "contexts.toml:1"),
        ('[context.a]\nbroker = "rsocket+tcp://a:1"\nuser = 5\n', "context.a.user"),
        ("\xff", "contexts.toml"),
    ],
)
def test_what_is_wrong_is_told_with_its_place(content: str, told: str, tmp_path: Path) -> None:
    path = tmp_path / "contexts.toml"
    path.write_bytes(content.encode("latin-1"))
    path.chmod(0o600)
    with pytest.raises(CommandError) as refused:
        load_contexts(path)
    assert told in str(refused.value)


def test_others_may_not_write_to_it(tmp_path: Path) -> None:
    path = tmp_path / "contexts.toml"
    save_contexts(path, Contexts())
    for mode, refused in ((0o622, True), (0o620, True), (0o644, False)):
        path.chmod(mode)
        if refused:
            with pytest.raises(CommandError, match="chmod 600"):
                load_contexts(path)
        else:
            assert load_contexts(path) == Contexts()


def test_it_may_not_be_another_users(tmp_path: Path, monkeypatch: Patch) -> None:
    path = tmp_path / "contexts.toml"
    save_contexts(path, Contexts())
    if path.stat().st_uid == 0:  # a file of root is accepted
        os.chown(path, 12345, -1)
    monkeypatch.setattr(os, "getuid", lambda: 54321)
    with pytest.raises(CommandError, match="another user owns it"):
        load_contexts(path)


def test_its_size_is_bounded(tmp_path: Path, monkeypatch: Patch) -> None:
    path = tmp_path / "contexts.toml"
    path.write_bytes(b"#" * (_contexts.MAX_FILE + 1))
    path.chmod(0o600)
    with pytest.raises(CommandError, match=r"contexts\.toml"):
        load_contexts(path)
    monkeypatch.setattr(_contexts, "MAX_CONTEXTS", 2)
    with pytest.raises(CommandError, match="more than 2"):
        save_contexts(path, Contexts("", dict.fromkeys("abc", US)))


def test_what_cannot_be_read_or_written(tmp_path: Path) -> None:
    folder = tmp_path / "contexts.toml"
    folder.mkdir()
    with pytest.raises(CommandError, match="Is a directory"):
        load_contexts(folder)
    with pytest.raises(CommandError, match=r"contexts\.toml: "):
        save_contexts(folder, Contexts())
    (tmp_path / "file").write_text("")
    with pytest.raises(CommandError, match=r"contexts\.toml: "):
        save_contexts(tmp_path / "file" / "contexts.toml", Contexts())
