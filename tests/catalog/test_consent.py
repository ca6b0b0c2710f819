"""Consent of installers: by name and hash, replaced by each change, and failing closed."""

from dataclasses import replace
from pathlib import Path

import pytest

from apexbridge.actor import LOCAL, Actor, acting_as, current_actor
from apexbridge.catalog.consent import ConsentCheck, InstallerStore
from apexbridge.catalog.trust import TrustStore
from apexbridge.errors import StorageError
from apexbridge.skills.model import Origin, Provenance, Skill
from apexbridge.skills.parser import read_skill
from apexbridge.testing import make_skill

WEAK = Actor(id="key", may_consent=False)


def _skill(place: Path, origin: Origin = Origin.INSTALLED) -> Skill:
    provenance = Provenance(origin=origin, source_id="x", needs_trust=False)
    skill = read_skill(make_skill(place, "pdf"), provenance).skill
    assert skill is not None
    assert skill.fingerprint is not None
    return skill


def _check(place: Path) -> tuple[ConsentCheck, InstallerStore]:
    installers = InstallerStore(place / "consents.db")
    return ConsentCheck(TrustStore(place / "trust.db"), installers), installers


def _hash(skill: Skill) -> str:
    return skill.fingerprint.sha256 if skill.fingerprint else ""


def test_only_the_last_who_changed_the_files_counts(tmp_path: Path) -> None:
    skill, (check, installers) = _skill(tmp_path), _check(tmp_path)
    assert not check.is_given(skill)
    installers.record("pdf", _hash(skill), LOCAL)
    assert check.is_given(skill)
    installers.record("pdf", _hash(skill), WEAK)
    assert not check.is_given(skill)
    installers.record("pdf", _hash(skill), LOCAL)
    installers.forget("pdf")
    assert not check.is_given(skill)


def test_consent_is_for_one_name_one_hash_and_what_is_installed(tmp_path: Path) -> None:
    skill, (check, installers) = _skill(tmp_path), _check(tmp_path)
    installers.record("pdf", _hash(skill), LOCAL)
    elsewhere = replace(skill.provenance, origin=Origin.PROJECT)
    assert not check.is_given(replace(skill, name="other"))
    assert not check.is_given(replace(skill, provenance=elsewhere))
    assert not check.is_given(replace(skill, is_trusted=False))
    assert not check.is_given(replace(skill, fingerprint=None))


def test_files_that_changed_after_the_scan_are_noticed(tmp_path: Path) -> None:
    skill, (check, installers) = _skill(tmp_path), _check(tmp_path)
    installers.record("pdf", _hash(skill), LOCAL)
    (tmp_path / "pdf/more.md").write_text("x", encoding="utf-8")
    assert not check.is_given(skill)


def test_an_unreadable_file_consents_to_nothing_and_is_kept(tmp_path: Path) -> None:
    skill, (check, installers) = _skill(tmp_path), _check(tmp_path)
    (tmp_path / "consents.db").write_bytes(b"garbage" * 1_000)
    assert not check.is_given(skill)
    with pytest.raises(StorageError):
        installers.record("pdf", _hash(skill), LOCAL)
    assert (tmp_path / "consents.db").read_bytes() == b"garbage" * 1_000


def test_the_actor_is_set_for_a_block_and_back_afterwards() -> None:
    assert current_actor() is LOCAL
    with acting_as(WEAK):
        assert current_actor() is WEAK
    assert current_actor() is LOCAL
