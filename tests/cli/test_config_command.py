"""`onward config`."""

from __future__ import annotations

from pathlib import Path

import pytest

from onward.cli import main
from onward.cli._config import configured
from onward.cli._main import parser_of
from onward.cli._status import Status
from tests.support.certificates import Certificates
from tests.support.fixtures import Capsys, Patch

FILE = """\
[broker]
max_wait = "1m"
[connections]
max_connections = 7
mode = "640"
[drain]
grace = 1
[[listener]]
uri = "rsocket+unix:///run/a"
max_connections = 3
[[listener]]
uri = "rsocket+unix:///run/b"
[[rule]]
names = ["*"]
request = "service=a"
[[principals.tokens]]
name = "billing"
sha256 = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "onward.toml"
    path.write_text(FILE)
    return path


def run(capsys: Capsys, *words: str) -> tuple[int, str, str]:
    status = main(["config", *words])
    out, err = capsys.readouterr()
    return status, out, err


def test_a_file_without_a_fault(file: Path, capsys: Capsys) -> None:
    told = f"{file}: no fault; 2 listeners, 1 rule\n"
    assert run(capsys, "check", str(file)) == (Status.OK, told, "")


def test_a_missing_certificate_is_named_without_a_number(file: Path, capsys: Capsys) -> None:
    file.write_text(
        '[[listener]]\nuri = "rsocket+tls://127.0.0.1:0"\ntls = { certificate = "server.pem" }\n'
    )
    status, _, told = run(capsys, "check", str(file))
    assert status == Status.USAGE
    assert told == (
        "onward config: rsocket+tls://127.0.0.1:0: the file of the certificate cannot be read: "
        f"No such file or directory: {file.parent / 'server.pem'}\n"
    )


def test_all_faults_of_what_the_file_names_are_told(
    file: Path, capsys: Capsys, tmp_path: Path
) -> None:
    file.write_text("""\
[authorization]
rules_file = "rules.toml"
[authentication]
principals_file = "none.toml"
[event_log]
sample = 0.5
[admin]
hosts = "a"
[[listener]]
uri = "rsocket+tcp://127.0.0.1:1"
tls = { certificate = "a.pem" }
proxy_protocol = true
[[listener]]
uri = "tcp://127.0.0.1:1"
""")
    (tmp_path / "rules.toml").write_text("[[rule]]\nnames = 3\n[[rule]]\n")
    status, out, err = run(capsys, "check", str(file))
    assert (status, out) == (Status.USAGE, "")
    assert err.replace(str(tmp_path), "F").splitlines() == [
        "onward config: --event-log-sample goes with --event-log DIR",
        "F/onward.toml:9: proxy_protocol needs proxies, the networks of which it is accepted",
        'F/onward.toml:9: certificate goes with uri = "rsocket+tls://..."',
        "F/onward.toml:13: 'tcp://127.0.0.1:1' does not start with rsocket+",
        "--principals: F/none.toml: No such file or directory",
        "F/rules.toml:2: rule[0].names: 3 is not a list of texts",
        'F/rules.toml:3: rule[1]: roles or names are missing; names = ["*"] is all',
        "--admin-host and --admin-open-metrics go with --admin",
    ]


def test_a_password_in_a_url_is_not_printed(tmp_path: Path, capsys: Capsys) -> None:
    file = tmp_path / "onward.toml"
    url = "https://ida:pl@nted@issuer.example/keys"
    file.write_text(f'[jwt]\nkeys = "{url}"\nissuer = "i"\naudience = "a"\n')
    for words in (("show", "--origins", str(file)), ("check", str(file))):
        _, out, err = run(capsys, *words)
        assert "nted" not in out + err
        assert "keys" in out + err
    status, _, err = run(capsys, "check", str(file))
    told = "the URL of the keys has a user or a password: keys are fetched without"
    assert (status, err) == (Status.USAGE, f"onward config: {told}\n")


def test_certificates_are_tried(tmp_path: Path, capsys: Capsys) -> None:
    certificates = Certificates.make(tmp_path)
    other = certificates.stranger  # its key is that of no certificate but its own
    path = tmp_path / "onward.toml"
    listener = '[[listener]]\nuri = "rsocket+tls://127.0.0.1:{}"\n'
    path.write_text(
        listener.format(1)
        + 'tls = { certificate = "none.pem" }\n'
        + listener.format(2)
        + f'tls = {{ certificate = "server.pem", key = "{other}" }}\n'
        + listener.format(3)
        + f'tls = {{ certificate = "{certificates.server}" }}\n'
    )
    status, _, err = run(capsys, "check", str(path))
    assert status == Status.USAGE
    first, second = err.splitlines()
    assert first.startswith("onward config: rsocket+tls://127.0.0.1:1: ")
    assert "none.pem" in first
    assert second.startswith("rsocket+tls://127.0.0.1:2: no usable certificate or key")


def test_each_method_that_a_listener_names_has_to_be_there(file: Path, capsys: Capsys) -> None:
    file.write_text(FILE.replace("max_connections = 3", 'authenticate = ["token", "pasword"]'))
    status, _, err = run(capsys, "check", str(file))
    assert status == Status.USAGE
    assert err.endswith(
        ":8: --authenticate: 'pasword' is not one of anonymous, certificate, password, token, "
        "unix; did you mean 'password'?\n"
    )


def test_a_file_of_a_node(tmp_path: Path, capsys: Capsys) -> None:
    certificates = Certificates.make(tmp_path)
    path = tmp_path / "node.toml"
    path.write_text(f"""\
[node]
listen = "tls://127.0.0.1:0"
workers = ["echo=echo"]
expose = "echo"
[tls]
certificate = "{certificates.server}"
""")
    assert run(capsys, "check", "--node", str(path)) == (Status.OK, f"{path}: no fault\n", "")
    path.write_text('[tls]\nclient = "optional"\n[admin]\nhosts = "a"\n')
    status, _, err = run(capsys, "check", "--node", str(path))
    assert status == Status.USAGE
    assert len(err.splitlines()) == 2


def test_a_file_of_a_dispatcher(tmp_path: Path, capsys: Capsys) -> None:
    (tmp_path / "names.toml").write_text('[[name]]\npattern = "orders"\nrouting = "direct"\n')
    path = tmp_path / "dispatch.toml"
    path.write_text("""\
[dispatch]
name = "store"
neighbours = ["hub@tcp://hub:4000=10", "tcp://other:4000"]
addresses = "names.toml"
workers = ["shop=echo"]
consumers = ["orders=shop"]
""")
    assert run(capsys, "check", "--dispatch", str(path)) == (Status.OK, f"{path}: no fault\n", "")
    status, shown, _ = run(capsys, "show", "--dispatch", str(path))
    assert status == Status.OK
    assert 'neighbours = ["hub@tcp://hub:4000=10", "tcp://other:4000=1"]' in shown
    assert 'consumers = ["orders=0#shop"]' in shown
    again = tmp_path / "again.toml"
    again.write_text(shown)
    assert run(capsys, "show", "--dispatch", str(again))[1] == shown
    # All that is wrong is told at once, also what the file of names has.
    wrong = '[[name]]\npattern = "a"\nundeliverable = [{ hold = 1, disk = true }]\n'
    (tmp_path / "names.toml").write_text(wrong)
    path.write_text('[dispatch]\naddresses = "names.toml"\n[tls]\nclient = "optional"\n')
    status, _, err = run(capsys, "check", "--dispatch", str(path))
    assert status == Status.USAGE
    assert "a hold on disk needs a file" in err
    assert "certificate" in err
    path.write_text("[dispatch]\nname = 'a/b'\n")
    status, _, err = run(capsys, "check", "--dispatch", str(path))
    assert (status, err.startswith("onward config: --name: ")) == (Status.USAGE, True)


def test_the_origin_of_each_value(file: Path, capsys: Capsys, monkeypatch: Patch) -> None:
    monkeypatch.setenv("ONWARD_DRAIN__TIMEOUT", "2m")
    status, out, _ = run(capsys, "show", str(file), "--origins")
    assert status == Status.OK
    lines = out.replace(f"{file}", "F").splitlines()
    assert "max_wait = 60.0  # F:2" in lines
    assert "timeout = 120.0  # ONWARD_DRAIN__TIMEOUT" in lines
    assert 'fsync = "seal"  # default' in lines
    assert "# file =  # default" in lines
    assert lines[-9:] == [
        "[[listener]]",
        'uri = "rsocket+unix:///run/a"  # F:8',
        "max_connections = 3  # F:10",
        "",
        "[[listener]]",
        'uri = "rsocket+unix:///run/b"  # F:11',
        "",
        "# rule: allow request service=a (F:13)",
        "# tokens: billing",
    ]
    assert "aaaa" not in out


def test_what_is_shown_is_a_file_with_the_same_values(file: Path, capsys: Capsys) -> None:
    _, out, _ = run(capsys, "show", str(file))
    again = file.with_name("again.toml")
    again.write_text(out)
    parser = parser_of("broker")
    one, two = (
        configured(parser, "broker", parser.parse_args(["--config", str(each)]))
        for each in (file, again)
    )
    for name, setting in one.configuration.settings.items():
        assert setting.value == two.configuration.settings[name].value, name
    own = [
        [(each.uri, {name: value.value for name, value in each.own.items()}) for each in listeners]
        for listeners in (one.configuration.listeners, two.configuration.listeners)
    ]
    assert own[0] == own[1]


def test_without_a_file_the_defaults_are_shown(capsys: Capsys) -> None:
    status, out, _ = run(capsys, "show", "--node")
    assert status == Status.OK
    assert 'listen = "tcp://127.0.0.1:4000"' in out
    status, out, _ = run(capsys, "show")
    assert "# [[listener]]\n# uri =" in out
