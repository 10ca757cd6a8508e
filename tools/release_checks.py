"""Checks of the files of a release: what is in them, and whether that works.

Each `find_…` returns problems as texts, none if all is well. `try_out` installs a file into an
empty environment outside of the checkout and uses it as the first page says.
"""

from __future__ import annotations

import configparser
import email.parser
import json
import os
import subprocess
import tarfile
import venv
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from tools import build_backend, sbom

__all__ = ["find_sdist_problems", "find_wheel_problems", "packaged_files", "try_out"]

LIBRARY: Final = "onward__mypyc"
"""All that is compiled is in this library; the extension of a module is its entrance."""

NOT_CODE: Final = ("__pycache__", ".pyc")


def packaged_files(root: Path) -> dict[str, Path]:
    """Return the files that a wheel of a checkout is made of, by their paths in the wheel.

    Args:
        root: The folder of the checkout. All files in the folders of its packages belong to it.
    """
    folders: Mapping[str, str]
    folders = build_backend.read_config(root)["tool"]["setuptools"]["package-dir"]
    found: dict[str, Path] = {}
    taken: set[Path] = set()
    # A package in the folder of another one is found under its own name only.
    for package, folder in sorted(folders.items(), key=lambda each: -len(each[1])):
        for file in sorted((root / folder).rglob("*")):
            if not file.is_file() or file in taken or any(each in str(file) for each in NOT_CODE):
                continue
            taken.add(file)
            inside = file.relative_to(root / folder).as_posix()
            found[f"{package.replace('.', '/')}/{inside}"] = file
    return found


def find_wheel_problems(wheel: Path, root: Path, *, compiled: bool) -> list[str]:
    """Return what is wrong with a wheel of a checkout.

    Args:
        wheel: The wheel.
        root: The folder of the checkout.
        compiled: Whether it has to be the compiled one.
    """
    config, version = build_backend.read_config(root), build_backend.read_version(root)
    with zipfile.ZipFile(wheel) as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    metadata = f"onward-{version}.dist-info/"
    problems: list[str] = []

    wanted = {name: path.read_bytes() for name, path in packaged_files(root).items()}
    extensions: set[str] = set()
    suffixes = {"".join(Path(name).suffixes) for name in files if name.startswith(LIBRARY)}
    if compiled and len(suffixes) == 1:
        modules: list[str] = config["tool"]["onward"]["compile"]["modules"]
        names = [LIBRARY, *(name.replace(".", "/") for name in modules)]
        extensions |= {name + suffix for name in names for suffix in suffixes}
    elif compiled:
        problems.append("is not compiled")
    own = {name for name in files if not name.startswith(metadata)}
    problems += [f"lacks {name}" for name in sorted((wanted.keys() | extensions) - own)]
    problems += [f"has {name}" for name in sorted(own - wanted.keys() - extensions)]
    problems += [
        f"{name} differs" for name in sorted(own & wanted.keys()) if files[name] != wanted[name]
    ]

    tags = email.parser.BytesParser().parsebytes(files[f"{metadata}WHEEL"])
    if (tags["Root-Is-Purelib"] == "true") is compiled:
        problems.append(f"Root-Is-Purelib is {tags['Root-Is-Purelib']}")
    if (tags.get_all("Tag") == ["py3-none-any"]) is compiled:
        problems.append(f"the tags are {tags.get_all('Tag')}")
    problems += _metadata_problems(files[f"{metadata}METADATA"], config["project"], version)
    problems += _entry_point_problems(
        files.get(f"{metadata}entry_points.txt", b"").decode(), config["project"]
    )
    for name in config["project"]["license-files"]:
        if files.get(f"{metadata}licenses/{name}") != (root / name).read_bytes():
            problems.append(f"has no license {name}")
    bill = files.get(f"{metadata}sboms/{build_backend.SBOM_NAME}")
    if bill is None:
        problems.append("has no bill of materials")
    else:
        problems += sbom.find_problems(json.loads(bill))
    return problems


def find_sdist_problems(sdist: Path, root: Path) -> list[str]:
    """Return what is wrong with a source distribution of a checkout."""
    version = build_backend.read_version(root)
    folder = f"onward-{version}/"
    with tarfile.open(sdist) as archive:
        members = archive.getmembers()
        information = archive.extractfile(f"{folder}PKG-INFO")
        assert information is not None
        metadata = information.read()
    names = {each.name.removeprefix(folder) for each in members}
    needed = {path.relative_to(root).as_posix() for path in packaged_files(root).values()}
    needed |= {"pyproject.toml", "README.md", "LICENSE", "SECURITY.md", "tools/build_backend.py"}
    problems = [f"lacks {name}" for name in sorted(needed - names)]
    problems += [
        f"{each.name} is no plain file without an owner"
        for each in members
        if not each.isfile() or each.uid or each.gid or each.uname or ".." in each.name
    ]
    problems += [f"has {name}" for name in sorted(names) if any(each in name for each in NOT_CODE)]
    return problems + _metadata_problems(
        metadata, build_backend.read_config(root)["project"], version
    )


def _metadata_problems(text: bytes, project: Mapping[str, Any], version: str) -> list[str]:
    metadata = email.parser.BytesParser().parsebytes(text)
    wanted = {
        "Name": project["name"],
        "Version": version,
        "Summary": project["description"],
        "License-Expression": project["license"],
        "Requires-Python": project["requires-python"],
        "Description-Content-Type": "text/markdown",
    }
    problems = [
        f"{name} is {metadata[name]!r}" for name, value in wanted.items() if metadata[name] != value
    ]
    extras = metadata.get_all("Provides-Extra", [])
    if set(extras) != project["optional-dependencies"].keys():
        problems.append(f"the extras are {extras}")
    return problems


def _entry_point_problems(text: str, project: Mapping[str, Any]) -> list[str]:
    found = configparser.ConfigParser(delimiters=("=",))
    found.optionxform = str  # type: ignore[assignment, method-assign]
    found.read_string(text)
    wanted: dict[str, dict[str, str]] = {
        "console_scripts": project["scripts"],
        **project["entry-points"],
    }
    groups = {group: dict(found.items(group)) for group in found.sections()}
    return [f"the entry points are {groups}"] if groups != wanted else []


def try_out(file: Path, root: Path, folder: Path, *, compiled: bool) -> list[str]:
    """Install a file of the release into an empty environment and use it.

    Args:
        file: The wheel or the source distribution.
        root: The folder of the checkout, for the first page and its examples.
        folder: A folder to work in, outside of the checkout.
        compiled: Whether what is installed has to be compiled.

    Returns:
        What it did, a line each.

    Raises:
        subprocess.CalledProcessError: A step failed; its output has been printed.
    """
    venv.create(folder / "venv", with_pip=True, clear=True)
    python = folder / "venv" / "bin" / "python"
    install: list[str | Path] = [
        python,
        "-m",
        "pip",
        "install",
        "-qq",
        "--disable-pip-version-check",
    ]
    _run([*install, f"onward[admin] @ {file.resolve().as_uri()}"], folder)
    script = root / "tools" / "smoke.py"
    kind = "compiled" if compiled else "pure Python"
    return _run([python, "-I", script, "--kind", kind, root], folder).splitlines()


def _run(command: Sequence[str | Path], folder: Path) -> str:
    # Nothing of the checkout, and nothing of the environment that builds, is to be found.
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
    kept |= {name: value for name, value in os.environ.items() if name.startswith("PIP_")}
    done = subprocess.run(
        command, cwd=folder, env=kept, check=True, stdout=subprocess.PIPE, text=True
    )
    return done.stdout
