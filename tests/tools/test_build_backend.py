"""The build backend: what it puts into archives, and that it does so twice alike."""

from __future__ import annotations

import hashlib
import json
import stat
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

from tests.support.checkouts import ROOT, build, copy_checkout
from tests.support.counts import UNMEASURED
from tests.support.fixtures import Patch
from tools import build_backend, compile as compiling, release_checks

pytestmark = UNMEASURED

VERSION = build_backend.read_version(ROOT)
METADATA = f"onward-{VERSION}.dist-info/"
EPOCH = "1700000000"
EPOCH_IN_ZIP = (2023, 11, 14, 22, 13, 20)


@pytest.mark.slow
def test_a_wheel_holds_the_packages_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if not name.startswith(METADATA)}
    assert wheel.name == f"onward-{VERSION}-py3-none-any.whl"
    assert names == release_checks.packaged_files(ROOT).keys()
    assert {"onward/__init__.py", "onward/py.typed", "onward/actors/_node.py"} <= names
    assert {"pyspark_onward/__init__.py", "onward/transports/admin/console/index.html"} <= names
    assert [name for name in names if "pyspark_onward" in name and name.startswith("onward")] == []
    assert [name for name in names if "test_" in name or name.startswith("tools")] == []


@pytest.mark.slow
def test_a_wheel_has_its_bill_of_materials_and_a_true_record(wheel: Path, bill: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        members = archive.infolist()
        files = {each.filename: archive.read(each) for each in members}
    assert files[f"{METADATA}sboms/onward.cdx.json"] == bill.read_bytes()
    *lines, last = files[f"{METADATA}RECORD"].decode().splitlines()
    assert last == f"{METADATA}RECORD,,"
    recorded = {name: int(size) for name, _, size in (line.split(",") for line in lines)}
    assert recorded == {
        name: len(content) for name, content in files.items() if not name.endswith("RECORD")
    }
    assert {each.date_time for each in members} == {EPOCH_IN_ZIP}
    assert {stat.S_IMODE(each.external_attr >> 16) for each in members} == {0o644}


@pytest.mark.slow
def test_a_second_build_elsewhere_is_equal(wheel: Path, sdist: Path, tmp_path: Path) -> None:
    checkout = copy_checkout(tmp_path / "a-folder-of-another-length")
    again = build(checkout, "build_sdist", SOURCE_DATE_EPOCH=EPOCH)
    assert (again.name, again.read_bytes()) == (sdist.name, sdist.read_bytes())
    # What an earlier build has left does not get into a wheel.
    (checkout / "build" / "wheel" / "tree" / "onward").mkdir(parents=True)
    (checkout / "build" / "wheel" / "tree" / "onward" / "_old.py").write_text("")
    with zipfile.ZipFile(wheel) as archive:
        bill = archive.read(f"{METADATA}sboms/onward.cdx.json")
    (checkout / "bill.json").write_bytes(bill)
    again = build(checkout, "build_wheel", SOURCE_DATE_EPOCH=EPOCH, ONWARD_SBOM="bill.json")
    assert (again.name, again.read_bytes()) == (wheel.name, wheel.read_bytes())


@pytest.mark.slow
def test_a_wheel_is_the_same_out_of_the_source_distribution(
    wheel: Path, sdist: Path, bill: Path, tmp_path: Path
) -> None:
    assert release_checks.find_sdist_problems(sdist, ROOT) == []
    with tarfile.open(sdist) as archive:
        assert {each.mtime for each in archive} == {int(EPOCH)}
        archive.extractall(tmp_path, filter="data")
    unpacked = tmp_path / sdist.name.removesuffix(".tar.gz")
    again = build(unpacked, "build_wheel", SOURCE_DATE_EPOCH=EPOCH, ONWARD_SBOM=str(bill))
    assert again.read_bytes() == wheel.read_bytes()


@pytest.mark.slow
def test_what_is_imported_from_a_wheel_is_in_it(wheel: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "site")
    where = "import onward.protocol as it; print(it.__file__, onward.__version__, sep='\\n')"
    imported = subprocess.run(
        [sys.executable, "-c", f"import onward; {where}"],
        cwd=ROOT,
        env={"PYTHONPATH": str(tmp_path / "site")},
        check=True,
        capture_output=True,
        text=True,
    )
    file, version = imported.stdout.splitlines()
    assert Path(file).is_relative_to(tmp_path / "site")
    assert version == VERSION


def test_there_is_one_place_for_the_version() -> None:
    config = build_backend.read_config(ROOT)
    assert config["project"]["dynamic"] == ["version"]
    assert config["tool"]["setuptools"]["dynamic"]["version"] == {"attr": "onward.__version__"}


def test_what_is_compiled_exists() -> None:
    config = tomllib.loads((ROOT / "pyproject.toml").read_text())
    modules: list[str] = config["tool"]["onward"]["compile"]["modules"]
    assert modules == sorted(set(modules))
    folders = [name.removeprefix("onward.").replace(".", "/") + ".py" for name in modules]
    assert [file for file in folders if not (ROOT / file).is_file()] == []


@pytest.mark.parametrize(
    ("value", "wanted"), [(None, False), ("0", False), ("1", True), ("yes", None), ("", None)]
)
def test_what_is_built_is_said_by_the_environment(
    value: str | None, wanted: bool | None, monkeypatch: Patch
) -> None:
    monkeypatch.delenv(build_backend.COMPILE, raising=False)
    if value is not None:
        monkeypatch.setenv(build_backend.COMPILE, value)
    if wanted is None:
        with pytest.raises(SystemExit, match="ONWARD_COMPILE must be 0 or 1"):
            build_backend.compiles()
    else:
        assert build_backend.compiles() is wanted


def test_only_a_compiled_wheel_needs_mypy(monkeypatch: Patch) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv(build_backend.COMPILE, "0")
    assert [each for each in build_backend.get_requires_for_build_wheel() if "mypy" in each] == []
    monkeypatch.setenv(build_backend.COMPILE, "1")
    needs = build_backend.get_requires_for_build_wheel()
    # Mypy reads the types of what Onward imports.
    assert {*build_backend.read_config(ROOT)["project"]["dependencies"]} <= {*needs}
    assert [each for each in needs if each.startswith("mypy>=")] != []


@pytest.mark.parametrize(
    ("epoch", "time"), [(None, 315_532_800), ("0", 315_532_800), (EPOCH, int(EPOCH))]
)
def test_no_time_of_this_machine_gets_into_an_archive(
    epoch: str | None, time: int, monkeypatch: Patch
) -> None:
    monkeypatch.delenv("SOURCE_DATE_EPOCH", raising=False)
    if epoch is not None:
        monkeypatch.setenv("SOURCE_DATE_EPOCH", epoch)
    assert build_backend.source_time() == time


def test_compiling_without_a_compiler_says_what_to_do(monkeypatch: Patch, tmp_path: Path) -> None:
    monkeypatch.setenv("CC", "no-such-compiler")
    with pytest.raises(SystemExit, match="there is no C compiler"):
        compiling.main([])
    monkeypatch.setenv(build_backend.COMPILE, "1")
    with pytest.raises(SystemExit, match="there is no C compiler"):
        build_backend.build_wheel(str(tmp_path))


def test_libraries_keep_their_permission_and_digests_are_those_of_the_standard(
    tmp_path: Path,
) -> None:
    made = tmp_path / "made.whl"
    with zipfile.ZipFile(made, "w") as archive:
        archive.writestr("z.so", b"code")
        archive.writestr("a.dist-info/RECORD", b"")
        archive.writestr("a.dist-info/METADATA", b"Name: a")
        archive.writestr("a.py", b"")
    to = tmp_path / "to.whl"
    build_backend.rewrite_wheel(made, to, build_backend.FIRST_TIME)
    with zipfile.ZipFile(to) as archive:
        modes = {each.filename: oct(each.external_attr >> 16) for each in archive.infolist()}
        record = archive.read("a.dist-info/RECORD").decode().splitlines()
    assert list(modes) == ["a.py", "z.so", "a.dist-info/METADATA", "a.dist-info/RECORD"]
    assert modes["z.so"] == "0o100755"
    assert modes["a.py"] == "0o100644"
    # What `sha256sum` and the base64 of its bytes give for no bytes.
    empty = "47DEQpj8HBSa-_TImW-5JCeuQeRkm5NMpJWZG3hSuFU"
    assert record[0] == f"a.py,sha256={empty},0"
    assert hashlib.sha256(b"").hexdigest().startswith("e3b0c442")


def test_the_bill_is_read_from_the_file_that_is_named(monkeypatch: Patch, bill: Path) -> None:
    monkeypatch.delenv(build_backend.SBOM, raising=False)
    assert build_backend.read_sbom() is None
    monkeypatch.setenv(build_backend.SBOM, str(bill))
    content = build_backend.read_sbom()
    assert content is not None
    assert json.loads(content)["bomFormat"] == "CycloneDX"
