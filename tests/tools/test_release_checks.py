"""The checks of a release find what is wrong with its files."""

from __future__ import annotations

import io
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from onward.transports import rsocket
from tests.support.checkouts import ROOT
from tests.support.compiled import COMPILED
from tests.support.fixtures import Capsys, Patch
from tools import build_backend, release, release_checks

VERSION = build_backend.read_version(ROOT)
METADATA = f"onward-{VERSION}.dist-info/"
Files = dict[str, bytes]


def changed(wheel: Path, to: Path, change: Callable[[Files], object]) -> Path:
    """Write a wheel with other contents."""
    with zipfile.ZipFile(wheel) as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    change(files)
    made = to / wheel.name
    with zipfile.ZipFile(made, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return made


def compiled(files: Files) -> None:
    """Make the contents those of a compiled wheel, without a library that could be loaded."""
    modules = build_backend.read_config(ROOT)["tool"]["onward"]["compile"]["modules"]
    suffix = ".cpython-311-x86_64-linux-gnu.so"
    for name in (release_checks.LIBRARY, *(name.replace(".", "/") for name in modules)):
        files[name + suffix] = b""
    text = files[f"{METADATA}WHEEL"].decode()
    text = text.replace("Root-Is-Purelib: true", "Root-Is-Purelib: false")
    files[f"{METADATA}WHEEL"] = text.replace("py3-none-any", "cp311-cp311-linux_x86_64").encode()


def replace(name: str, old: bytes, new: bytes) -> Callable[[Files], object]:
    def change(files: Files) -> None:
        assert old in files[name]
        files[name] = files[name].replace(old, new)

    return change


def set_file(name: str, content: bytes) -> Callable[[Files], object]:
    return lambda files: files.update({name: content})


def remove(name: str) -> Callable[[Files], object]:
    return lambda files: files.pop(name)


@pytest.mark.slow
def test_a_right_wheel_has_no_problem(wheel: Path, tmp_path: Path) -> None:
    assert release_checks.find_wheel_problems(wheel, ROOT, compiled=False) == []
    made = changed(wheel, tmp_path, compiled)
    assert release_checks.find_wheel_problems(made, ROOT, compiled=True) == []


WRONG: list[tuple[Callable[[Files], object], str]] = [
    (remove("onward/py.typed"), "lacks onward/py.typed"),
    (set_file("tests/test_a.py", b""), "has tests/test_a.py"),
    (set_file("onward/tools.py", b""), "has onward/tools.py"),
    (set_file("onward/actors/_node.py", b"other"), "onward/actors/_node.py differs"),
    (remove(f"{METADATA}licenses/LICENSE"), "has no license LICENSE"),
    (remove(f"{METADATA}sboms/onward.cdx.json"), "has no bill of materials"),
    (set_file(f"{METADATA}entry_points.txt", b""), "the entry points are {}"),
    (
        replace(f"{METADATA}METADATA", f"Version: {VERSION}".encode(), b"Version: 7"),
        "Version is '7'",
    ),
    (
        replace(f"{METADATA}METADATA", b"Requires-Python: >=3.11", b"Requires-Python: >=3.9"),
        "Requires-Python is '>=3.9'",
    ),
    (
        replace(f"{METADATA}WHEEL", b"Root-Is-Purelib: true", b"Root-Is-Purelib: false"),
        "Root-Is-Purelib is false",
    ),
    (
        replace(f"{METADATA}sboms/onward.cdx.json", b'"specVersion": "1.6"', b'"specVersion": "1"'),
        "not CycloneDX 1.6",
    ),
]


@pytest.mark.slow
@pytest.mark.parametrize(("change", "problem"), WRONG, ids=[problem for _, problem in WRONG])
def test_a_wrong_wheel_is_found_out(
    change: Callable[[Files], object], problem: str, wheel: Path, tmp_path: Path
) -> None:
    made = changed(wheel, tmp_path, change)
    assert problem in release_checks.find_wheel_problems(made, ROOT, compiled=False)


@pytest.mark.slow
def test_a_wheel_of_the_other_kind_is_found_out(wheel: Path, tmp_path: Path) -> None:
    problems = release_checks.find_wheel_problems(wheel, ROOT, compiled=True)
    assert "is not compiled" in problems
    assert "the tags are ['py3-none-any']" in problems
    made = changed(wheel, tmp_path, compiled)
    problems = release_checks.find_wheel_problems(made, ROOT, compiled=False)
    assert [each for each in problems if each.startswith("has onward__mypyc")]

    def without_one(files: Files) -> None:
        compiled(files)
        del files["onward/actors/_node.cpython-311-x86_64-linux-gnu.so"]

    made = changed(wheel, tmp_path, without_one)
    problems = release_checks.find_wheel_problems(made, ROOT, compiled=True)
    assert problems == ["lacks onward/actors/_node.cpython-311-x86_64-linux-gnu.so"]


@pytest.mark.slow
def test_a_wrong_source_distribution_is_found_out(sdist: Path, tmp_path: Path) -> None:
    assert release_checks.find_sdist_problems(sdist, ROOT) == []
    made = tmp_path / sdist.name
    gone = f"onward-{VERSION}/tools/build_backend.py"
    with tarfile.open(sdist) as old, tarfile.open(made, "w:gz") as new:
        for member in old:
            file = old.extractfile(member)
            assert file is not None
            if member.name.endswith("README.md"):
                member.uid = 1000
            if member.name != gone:
                new.addfile(member, file)
        cached = tarfile.TarInfo(f"onward-{VERSION}/actors/__pycache__/a.pyc")
        new.addfile(cached, io.BytesIO())
    problems = release_checks.find_sdist_problems(made, ROOT)
    assert "lacks tools/build_backend.py" in problems
    assert f"onward-{VERSION}/README.md is no plain file without an owner" in problems
    assert "has actors/__pycache__/a.pyc" in problems


def test_builds_that_differ_end_a_release_and_are_kept(tmp_path: Path, monkeypatch: Patch) -> None:
    monkeypatch.setattr(release, "ROOT", tmp_path)
    one, other = tmp_path / "1.whl", tmp_path / "other" / "1.whl"
    other.parent.mkdir()
    one.write_bytes(b"a")
    other.write_bytes(b"a")
    release.compare({"sdist": one}, {"sdist": other})
    other.write_bytes(b"b")
    with pytest.raises(SystemExit, match=r"1\.whl: the second build differs"):
        release.compare({"sdist": one}, {"sdist": other})
    assert (tmp_path / "build" / "release" / "2" / "1.whl").read_bytes() == b"b"


def test_files_are_delivered_with_their_digests(
    tmp_path: Path, monkeypatch: Patch, capsys: Capsys
) -> None:
    monkeypatch.setattr(release, "DIST", tmp_path / "dist")
    file = tmp_path / "a.whl"
    file.write_bytes(b"")
    (tmp_path / "dist").mkdir()
    (tmp_path / "dist" / "of-before.whl").touch()
    release.deliver([file])
    assert {each.name for each in (tmp_path / "dist").iterdir()} == {"a.whl", "SHA256SUMS"}
    sums = (tmp_path / "dist" / "SHA256SUMS").read_text()
    assert sums == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855  a.whl\n"
    assert "0 bytes" in capsys.readouterr().out


def test_a_release_needs_a_compiler(monkeypatch: Patch) -> None:
    monkeypatch.setenv("CC", "no-such-compiler")
    with pytest.raises(SystemExit, match="there is no C compiler"):
        release.main([])


def smoke(kind: str, checkout: Path, folder: Path) -> subprocess.CompletedProcess[str]:
    script = ROOT / "tools" / "smoke.py"
    return subprocess.run(
        [sys.executable, "-I", str(script), "--kind", kind, str(checkout)],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )


KIND = "compiled" if COMPILED else "pure Python"


@pytest.mark.slow
def test_what_is_installed_is_used_as_the_first_page_says(tmp_path: Path) -> None:
    checkout = tmp_path / "checkout"
    checkout.mkdir()
    page = (ROOT / "README.md").read_text()
    (checkout / "README.md").write_text(page)
    shutil.copytree(ROOT / "examples" / "topologies", checkout / "examples" / "topologies")
    done = smoke(KIND, checkout, tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert [line.partition(" ")[2] for line in done.stdout.splitlines()[1:]] == [
        "programs of the first page",
        "topology, run and drawn",
        "broker with 1 program, its routes and its health, to an ordered end",
    ]
    (checkout / "README.md").write_text(page.replace("# b'hello'", "# b'bye'"))
    done = smoke(KIND, checkout, tmp_path)
    assert done.returncode == 1
    assert "a program of the page printed" in done.stderr


@pytest.mark.slow
def test_another_build_than_the_wanted_one_is_found_out(tmp_path: Path) -> None:
    done = smoke("any other", tmp_path, tmp_path)
    assert done.returncode == 1
    assert "not any other" in done.stderr


@pytest.mark.slow
def test_what_is_imported_from_the_checkout_is_found_out(tmp_path: Path) -> None:
    done = smoke(KIND, Path(str(rsocket.__file__)).parents[2], tmp_path)
    assert done.returncode == 1
    assert "is not an installed one" in done.stderr
