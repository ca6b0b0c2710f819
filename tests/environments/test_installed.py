"""Packages that this machine has: which requirements they meet."""

from pathlib import Path

import pytest

from apexbridge.environments.installed import missing_packages
from apexbridge.sandbox.interpreters import Interpreter


@pytest.mark.parametrize(
    ("requirement", "is_met"),
    [
        ("some-package", True),
        ("some-package>=1,<2", True),
        ("some-package==1.2", True),
        ("some-package==1.3", False),
        ("some-package>=2", False),
        ("some-package[extra]", False),
        ("odd", True),
        ("odd>=1", False),
        ("other", False),
        ("other; python_version < '3'", True),
        ("other; python_version >= '3'", False),
        ("other; extra == 'x'", True),
    ],
)
def test_a_requirement_is_met_by_the_version_that_is_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, requirement: str, is_met: bool
) -> None:
    for folder, version in (("imported", "1.2"), ("hidden", "2.0")):
        place = tmp_path / folder / f"Some_Package-{version}.dist-info"
        place.mkdir(parents=True)
        (place / "METADATA").write_text(f"Name: Some.Package\nVersion: {version}\n", "utf-8")
    (odd := tmp_path / "imported/odd-1.dist-info").mkdir()
    (odd / "METADATA").write_text("Name: odd\nVersion: 1-dfsg~2\n", "utf-8")
    folders = (tmp_path / "imported", tmp_path / "hidden")
    module = "apexbridge.environments.installed"

    def found(_: Path) -> tuple[Path, ...]:
        return folders

    def printed(_: Path) -> str:
        return "Python 3.12.1"

    monkeypatch.setattr(f"{module}.package_folders", found)
    monkeypatch.setattr(f"{module}.program_version", printed)
    missing = missing_packages([requirement], Interpreter(program=Path("python3")))
    assert missing == ([] if is_met else [requirement])
