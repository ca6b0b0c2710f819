"""A package index of the tests' own, and a data folder that is configured to use it."""

import os
from collections.abc import Generator
from pathlib import Path

import pytest

from apexbridge.settings import Config, load
from tests.environments.package_server import PackageServer, package_server


@pytest.fixture
def packages() -> Generator[PackageServer]:
    with package_server() as server:
        yield server


@pytest.fixture
def loaded(packages: PackageServer, home: Path, tmp_path: Path) -> Config:
    """Settings that name the loopback index, in a home that holds secrets."""
    (home / ".netrc").write_text("machine 127.0.0.1 login me password s3cr3t-netrc\n", "utf-8")
    (home / "private-key").write_text("s3cr3t-home", "utf-8")
    return configure(packages, home, tmp_path)


def configure(packages: PackageServer, home: Path, project: Path, **settings: str) -> Config:
    """Load the settings for one index."""
    variables = {
        "HOME": str(home),
        "PATH": os.environ["PATH"],
        "APEXBRIDGE_DEPENDENCIES__PYTHON_INDEX": packages.index,
        "APEXBRIDGE_DEPENDENCIES__NPM_REGISTRY": packages.registry,
        **{f"APEXBRIDGE_DEPENDENCIES__{key.upper()}": value for key, value in settings.items()},
    }
    return load(project=project, environment=variables)
