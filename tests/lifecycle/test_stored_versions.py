"""Versions that are stored without being used, and deleted: atomically."""

from pathlib import Path

import pytest

from apexbridge.errors import StorageError
from apexbridge.lifecycle.store import SkillStore
from apexbridge.lifecycle.version_store import VERSIONS
from apexbridge.skills import tree
from apexbridge.skills.model import Fingerprint
from apexbridge.testing import make_skill


@pytest.fixture
def store(tmp_path: Path) -> SkillStore:
    store = SkillStore(tmp_path / "skills")
    with store.staging() as place:
        store.install(make_skill(place, "garden", description="One."), "garden")
    return store


def _sha256(root: Path) -> str:
    mark = tree.fingerprint(root)
    assert isinstance(mark, Fingerprint)
    return mark.sha256


def _keep(store: SkillStore, text: str = "Two.") -> str:
    with store.staging() as place:
        root = make_skill(place, "garden", description=text)
        sha256 = _sha256(root)
        store.versions.add("garden", root, sha256)
    return sha256


def test_a_version_is_kept_beside_the_one_in_use(store: SkillStore) -> None:
    sha256 = _keep(store)
    (version,) = store.versions.list("garden")
    assert (version.sha256, version.description, version.is_current) == (sha256, "Two.", False)
    assert store.versions.created("garden") == {sha256: version.created}
    assert version.created > 1_700_000_000
    assert store.read("garden").description == "One."
    assert store.recover(keep_seconds=60).unfinished == 0
    assert len(store.versions.list("garden")) == 1


def test_a_crash_before_the_commit_leaves_nothing(store: SkillStore) -> None:
    sha256 = _keep(store)
    place = store.root / VERSIONS / "garden"
    (place / sha256).rename(place / f"new-{sha256}")  # as a crash would leave it
    assert store.versions.list("garden") == ()
    assert store.recover(keep_seconds=60).unfinished == 1
    assert list(place.iterdir()) == []
    assert store.read("garden").description == "One."


def test_a_disk_that_refuses_leaves_nothing(
    store: SkillStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", full)
        with pytest.raises(StorageError, match="No space"):
            _keep(store)
    assert store.versions.list("garden") == ()
    assert list((store.root / VERSIONS / "garden").iterdir()) == []


def test_a_version_is_forgotten_by_one_rename(store: SkillStore) -> None:
    sha256 = _keep(store)
    with store.staging() as place:
        store.versions.remove("garden", sha256, place)
        assert store.versions.list("garden") == ()
    assert [path.name for path in (store.root / ".staging").iterdir()] == [".lock"]
    with store.staging() as place, pytest.raises(StorageError):
        store.versions.remove("garden", sha256, place)
