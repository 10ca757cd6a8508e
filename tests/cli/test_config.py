"""The configuration of a server: its file, the environment, and the command line."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from onward.cli import main
from onward.cli._arguments import seconds, size
from onward.cli._config import Configuration, configured
from onward.cli._config_file import MAX_FILES, Rank
from onward.cli._config_options import ConfigOption, OwnSection, Where, options_of
from onward.cli._main import parser_of
from onward.cli._status import CommandError, Status
from tests.support.fixtures import Capsys, Patch

SERVERS: tuple[OwnSection, ...] = ("broker", "node", "dispatch")
PARSERS = {command: parser_of(command) for command in SERVERS}
"""To make one means to make those of all commands: too long for each of some hundred options."""
DIGEST = "a" * 64


@pytest.fixture(autouse=True)
def no_environment(monkeypatch: Patch) -> None:
    monkeypatch.delenv("CREDENTIALS_DIRECTORY", raising=False)


class Folder:
    """A folder of configuration files."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def write(self, text: str, name: str = "onward.toml") -> Path:
        path = self.path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        return path

    def read(self, text: str, *words: str, command: OwnSection = "broker") -> argparse.Namespace:
        parser = PARSERS[command]
        path = self.write(text)
        return configured(parser, command, parser.parse_args(["--config", str(path), *words]))

    def faults(self, text: str, *words: str) -> list[str]:
        """Return the faults of a file, without the name of the folder."""
        with pytest.raises(CommandError) as caught:
            self.read(text, *words)
        assert caught.value.status == Status.USAGE
        return str(caught.value).replace(f"{self.path}/", "").splitlines()


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


# --- each option has its place ---


EXAMPLES = {
    "allow": "1#a:1",
    "callout": "5#/run/a => a",
    "consume": "orders=a",
    "expose": "1#a:1",
    "neighbour": "b@tcp://b:1=10",
}
"""The words of options that take no other text."""


def example(option: ConfigOption) -> tuple[str, list[str]]:
    """Return a value of an option, as TOML, and as words of the command line."""
    if option.kind == "true or false":
        return str(not option.default).lower(), [option.flag]
    if option.dest == "worker":
        return '["a=echo"]', [option.flag, "a=echo"]
    if option.choices:
        word = option.choices[-1]
    else:
        word = {
            "text": EXAMPLES.get(option.dest, "text"),
            "number": "1",
            "seconds": "7s",
            "bytes": "7 MiB",
            "octal": "640",
            "file": "/file",
            "folder": "/folder",
        }[option.kind]
    quoted = word if option.kind == "number" else f'"{word}"'
    return (f"[{quoted}]" if option.many else quoted), [option.flag, word]


def all_options() -> Iterator[Any]:
    for command in SERVERS:
        for option in options_of(PARSERS[command], command):
            yield pytest.param(command, option, id=f"{command}{option.flag}")


@pytest.mark.parametrize(("command", "option"), list(all_options()))
def test_each_option_of_the_command_line_has_its_place_in_the_file(
    folder: Folder, command: OwnSection, option: ConfigOption
) -> None:
    parser = PARSERS[command]
    value, words = example(option)
    header = f"[[{option.section}]]" if option.section == "listener" else f"[{option.section}]"
    value = value.strip("[]") if option.section == "listener" else value
    by_file = folder.read(f"{header}\n{option.key} = {value}", command=command)
    by_words = parser.parse_args(words)
    assert getattr(by_file, option.dest) == getattr(by_words, option.dest), (
        f"{option.flag} stands in the file at {option.path}, and is read differently there. If it "
        f"belongs elsewhere, give its place in PLACES of cli/_config_options.py"
    )
    setting = by_file.configuration.settings[option.dest]
    assert setting.rank is Rank.FILE
    assert setting.origin == f"{folder.path}/onward.toml:{1 if header.startswith('[[') else 2}"


@pytest.mark.parametrize("command", SERVERS)
def test_no_two_options_have_one_place_or_one_variable(command: OwnSection) -> None:
    options = options_of(PARSERS[command], command)  # it raises for two in one place
    variables = {each.variable for each in options}
    assert len(variables) == len(options)
    own = [each.own_key for each in options if each.own]
    assert len(set(own)) == len(own)


def test_two_options_in_one_place_are_refused() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--log")
    parser.add_argument("--log-level")
    with pytest.raises(ValueError, match=r"--log and --log-level have one place: log\.level"):
        options_of(parser, "broker")


# --- what counts ---


def test_the_command_line_counts_more_than_the_environment_and_that_more_than_the_file(
    folder: Folder, monkeypatch: Patch
) -> None:
    monkeypatch.setenv("ONWARD_DRAIN__GRACE", "2s")
    monkeypatch.setenv("ONWARD_DRAIN__SPREAD", "2")
    monkeypatch.setenv("ONWARD_CONNECTIONS__ORIGINS", "https://a https://b")
    monkeypatch.setenv("ONWARD_CONNECTIONS__LEASE", "False")
    monkeypatch.setenv("ONWARD_TOKEN", "of another command")
    text = "[drain]\ngrace = 1\nspread = 1\n[broker]\nmax_wait = '1m'"
    found = folder.read(text, "--drain-grace", "3")
    settings = found.configuration.settings
    assert (found.drain_grace, found.drain_spread, found.max_wait) == (3.0, 2.0, 60.0)
    assert found.drain_timeout == 60.0
    assert found.origin == ["https://a", "https://b"]
    assert found.lease is False
    origins = [settings[f"drain_{name}"].origin for name in ("grace", "spread", "timeout")]
    assert origins == ["--drain-grace", "ONWARD_DRAIN__SPREAD", "default"]


def test_a_value_equal_to_the_default_is_given_too(folder: Folder) -> None:
    found = folder.read("[drain]\ntimeout = 1\n", "--drain-timeout", "60")
    assert found.drain_timeout == 60.0


@pytest.mark.parametrize("words", [(), ("--listen", "rsocket+tcp://[::1]:2", "--origin", "o")])
def test_a_list_is_replaced_as_a_whole(
    folder: Folder, monkeypatch: Patch, words: tuple[str, ...]
) -> None:
    monkeypatch.setenv("ONWARD_LISTEN", "rsocket+tcp://[::1]:1")
    text = '[connections]\norigins = "a"\n[[listener]]\nuri = "x"\nmode = "600"\n'
    found = folder.read(text, *words)
    assert found.listen == [words[1] if words else "rsocket+tcp://[::1]:1"]
    assert found.origin == [words[3] if words else "a"]
    assert found.configuration.listeners == ()


def test_an_unknown_variable_with_levels_is_a_fault(folder: Folder, monkeypatch: Patch) -> None:
    monkeypatch.setenv("ONWARD_DRAIN__TIME_OUT", "1")
    monkeypatch.setenv("ONWARD_DRAIN__GRACE", "soon")
    monkeypatch.setenv("ONWARD_BROKER__QUIET", "perhaps")
    monkeypatch.setenv("ONWARD_PORT_8001_TCP", "as Kubernetes sets for a service of this name")
    assert folder.faults("[broker]\nquite = true") == [
        (
            "onward.toml:2: broker.quite: unknown key; there are: expect_for, express_path, index, "
            "management, max_wait, method, multicast_on_leave, no_route_timeout, process_folder, "
            "processes, quiet, shard_method, "
            "trace; did you mean 'quiet'?"
        ),
        "ONWARD_BROKER__QUIET: 'perhaps' is not true or false",
        (
            "ONWARD_DRAIN__GRACE: 'soon' is not a number of seconds, or one with a unit "
            "(ms, s, m, min, h, d)"
        ),
        (
            "ONWARD_DRAIN__TIME_OUT: unknown variable of the environment; did you mean "
            "'ONWARD_DRAIN__TIMEOUT'?"
        ),
    ]


# --- faults ---


def test_all_faults_of_a_file_are_told_with_their_lines(folder: Folder) -> None:
    text = """\
[log]
level = "inf"
[drain]
grace = true
spread = "5 parsecs"
[event_log]
max_bytes = "64 MB/s"
sample = 7
[connections]
mode = "999"
max_connections = 0
origins = [1, []]
lease = "yes"
[[listener]]
uris = "x"
tls = { certificat = "a" }
[[rule]]
role = "x"
[[principals.tokens]]
name = "a"
sha256 = "a secret"
[principal]
"""
    assert folder.faults(text) == [
        (
            "onward.toml:2: log.level: 'inf' is not one of debug, info, warning, error; "
            "did you mean "
            "'info'?"
        ),
        "onward.toml:4: drain.grace: true is not seconds",
        (
            "onward.toml:5: drain.spread: '5 parsecs' is not a number of seconds, or one "
            "with a unit "
            "(ms, s, m, min, h, d)"
        ),
        (
            "onward.toml:7: event_log.max_bytes: '64 MB/s' is not a number of bytes, or one with a "
            "unit (B, kB, kiB, MB, MiB, GB, GiB, TB, TiB)"
        ),
        "onward.toml:8: event_log.sample: '7' is not a rate from 0 to 1",
        "onward.toml:10: connections.mode: '999' is not 0 to 777 in octal digits",
        "onward.toml:11: connections.max_connections: '0' is not a number of at least 1",
        "onward.toml:12: connections.origins: 1 is not text",
        "onward.toml:13: connections.lease: 'yes' is not true or false",
        "onward.toml:14: listener[0]: uri is missing",
        (
            "onward.toml:15: listener[0].uris: unknown key; there are: authenticate, "
            "credit_window, "
            "expose, lease, lease_requests, lease_time, max_connections, "
            "max_connections_per_source, "
            "mode, origins, proxies, proxy_protocol, resume, resume_bytes, "
            "resume_bytes_total, resume_sessions, resume_time, tls, uri; did you mean 'uri'?"
        ),
        (
            "onward.toml:16: listener[0].tls.certificat: unknown key; there are: authority, "
            "certificate, client, key; did you mean 'certificate'?"
        ),
        'onward.toml:17: rule[0]: roles or names are missing; names = ["*"] is all',
        (
            "onward.toml:18: rule[0].role: unknown key; there are: deny, names, operate, "
            "peer, read, "
            "register, request, roles; did you mean 'roles'?"
        ),
        (
            "onward.toml:21: principals.tokens[0].sha256: it is not a SHA-256 in 64 lower-case "
            "hexadecimal digits"
        ),
        (
            "onward.toml:22: principal: unknown key; there are: admin, authentication, "
            "authorization, broker, cluster, connections, drain, event_log, include, jwt, "
            "listener, log, principals, rule, tls; did you mean 'principals'?"
        ),
    ]


@pytest.mark.parametrize("text", ["[broker\n", "[broker]\nmax_wait = ", "\0", "[log]\nlevel = 'i"])
def test_a_half_written_file_is_one_fault(folder: Folder, text: str) -> None:
    (fault,) = folder.faults(text)
    assert fault.startswith("onward.toml:")
    assert "not TOML" in fault


def test_a_file_that_is_not_there_is_a_fault(tmp_path: Path, capsys: Capsys) -> None:
    assert main(["broker", "--config", str(tmp_path / "none.toml")]) == Status.USAGE
    assert capsys.readouterr().err == (
        f"onward broker: {tmp_path}/none.toml: No such file or directory\n"
    )


# --- several files ---


def test_included_files_add_up(folder: Folder) -> None:
    rule = '[[rule]]\nroles = ["{0}"]\nregister = "service={0}"\n'
    token = '[[principals.tokens]]\nname = "{0}"\nsha256 = "{1}"\n'
    for name, digit in (("b", "b"), ("a", "a")):
        folder.write(rule.format(name) + token.format(name, digit * 64), f"conf.d/{name}.toml")
    folder.write('[[listener]]\nuri = "two"\n[log]\nlevel = "info"', "more.toml")
    found = folder.read(
        'include = ["conf.d/*.toml", "more.toml"]\n[[listener]]\nuri = "one"\n' + rule.format("c")
    )
    assert found.listen == ["one", "two"]
    assert found.log == "info"
    assert [sorted(each.roles) for each in found.inline_rules] == [["c"], ["a"], ["b"]]
    names = {each.principal.name for each in found.inline_principals.tokens.values()}
    assert names == {"a", "b"}
    origin = found.configuration.settings["log"].origin
    assert origin == f"{folder.path}/more.toml:4"


def test_a_key_in_two_files_and_a_circle_are_faults(folder: Folder) -> None:
    folder.write('include = "onward.toml"\n[log]\nlevel = "info"', "b.toml")
    token = f'[[principals.tokens]]\nname = "a"\nsha256 = "{DIGEST}"\n'
    folder.write(token, "c.toml")
    text = 'include = ["b.toml", "c.toml", "d.toml", "/*"]\n[log]\nlevel = "debug"\n' + token
    assert folder.faults(text) == [
        "b.toml:3: log.level: it is set already: onward.toml:3",
        "b.toml:1: onward.toml is included already",
        "c.toml:1: principals: tokens: there are two entries with the same key: a",
        "onward.toml:1: d.toml: No such file or directory",
        "onward.toml:1: include: '/*': Non-relative patterns are unsupported",
    ]


def test_the_number_of_files_has_a_limit(folder: Folder) -> None:
    for number in range(MAX_FILES):
        folder.write("", f"conf.d/{number:03}.toml")
    (fault,) = folder.faults('include = "conf.d/*.toml"')
    assert fault == "onward.toml:1: more than 100 files; conf.d/099.toml is not read"


def test_the_number_of_listeners_has_a_limit(folder: Folder) -> None:
    (fault,) = folder.faults('[[listener]]\nuri = "a"\n' * 101)
    assert fault == "onward.toml:201: listener[100]: more than 100 listeners"


# --- values ---


@pytest.mark.parametrize(
    ("text", "value"),
    [("5", 5), ("0.5s", 0.5), ("250ms", 0.25), ("2 m", 120), ("1h", 3600), ("7d", 604_800)],
)
def test_times(text: str, value: float) -> None:
    assert seconds(text) == value


@pytest.mark.parametrize("text", ["", "s", "-1s", "nan", "inf", "1e999", "5 S", "5x", "1 2s"])
def test_texts_that_are_no_times(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="is not a number of seconds"):
        seconds(text)


@pytest.mark.parametrize(
    ("text", "value"),
    [("1", 1), ("64 MiB", 64 << 20), ("1.5kB", 1500), ("10gb", 10 * 10**9), ("1 TiB", 1 << 40)],
)
def test_sizes(text: str, value: int) -> None:
    assert size(text) == value


@pytest.mark.parametrize("text", ["", "0", "-5", "1.5", "1.5B", "inf", "nan", "5 s", "1 kB 2"])
def test_texts_that_are_no_sizes(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="is not a number of bytes"):
        size(text)


def test_files_are_looked_for_among_the_credentials_and_beside_the_file(
    folder: Folder, monkeypatch: Patch, tmp_path: Path
) -> None:
    credentials = tmp_path / "credentials"
    credentials.mkdir()
    (credentials / "key.pem").touch()
    (credentials / "logs").mkdir()
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(credentials))
    found = folder.read(
        '[tls]\nkey = "key.pem"\ncertificate = "c.pem"\nauthority = "/a.pem"\n'
        '[jwt]\nkeys = "https://issuer.example/keys"\n[event_log]\nfolder = "logs"\n'
    )
    assert found.key == f"{credentials}/key.pem"
    assert found.certificate == f"{folder.path}/c.pem"
    assert found.authority == "/a.pem"
    assert found.jwt_keys == "https://issuer.example/keys"
    assert found.event_log == f"{folder.path}/logs"
    assert Where(None, credentials).find("other.pem", secret=True) == "other.pem"


def test_permissions_are_octal_as_a_number_too(folder: Folder) -> None:
    assert folder.read("[connections]\nmode = 0o660").mode == 0o660
    assert folder.read('[connections]\nmode = "660"').mode == 0o660


def test_without_a_file_there_is_a_configuration_too() -> None:
    parser = PARSERS["node"]
    found = configured(parser, "node", parser.parse_args(["--listen", "tcp://[::1]:1"]))
    configuration: Configuration = found.configuration
    assert configuration.settings["listen"].rank is Rank.COMMAND_LINE
    assert configuration.settings["log"].rank is Rank.DEFAULT
    assert found.inline_rules == ()
