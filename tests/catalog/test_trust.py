"""Only a person's approval lets an untrusted skill act, and for one content hash only."""

from dataclasses import replace
from pathlib import Path

import pytest

from apexbridge.catalog.trust import TrustStore, apply_trust, require_trust
from apexbridge.errors import PermissionDeniedError, StorageError
from apexbridge.skills.model import Origin, Provenance, Skill
from apexbridge.skills.parser import read_skill
from apexbridge.testing import make_skill

THEIRS = Provenance(origin=Origin.PROJECT, source_id="project:x", may_run_shell=True)
HOOKS = {"PreToolUse": [{"command": ["true"]}]}


def _skill(tmp_path: Path, provenance: Provenance = THEIRS) -> Skill:
    make_skill(tmp_path, "s", allowed_tools="Bash", hooks=HOOKS, files={"scripts/main.py": "1"})
    skill = read_skill(tmp_path / "s", provenance).skill
    assert skill is not None
    return skill


def test_before_approval_nothing_of_it_can_act(tmp_path: Path) -> None:
    skill = apply_trust(_skill(tmp_path), ())
    assert (skill.is_trusted, skill.tools, skill.hooks, skill.may_run_shell) == (
        False,
        (),
        (),
        False,
    )
    assert skill.manifest.allowed_tools == ("Bash",)  # what it wants can still be shown


def test_after_approval_all_it_declared_counts(tmp_path: Path) -> None:
    skill = _skill(tmp_path)
    assert skill.fingerprint is not None
    trusted = apply_trust(skill, {skill.fingerprint.sha256})
    assert (trusted.is_trusted, trusted.may_run_shell) == (True, True)
    assert (trusted.tools, trusted.hooks) == (skill.tools, skill.hooks)
    assert len(trusted.hooks) == 1


def test_what_comes_over_a_network_never_runs_commands_in_its_text(tmp_path: Path) -> None:
    skill = _skill(tmp_path, replace(THEIRS, origin=Origin.MCP, may_run_shell=False))
    assert skill.fingerprint is not None
    assert not apply_trust(skill, {skill.fingerprint.sha256}).may_run_shell


def test_ones_own_skills_need_nobodys_word(tmp_path: Path) -> None:
    skill = _skill(tmp_path, Provenance(origin=Origin.USER, source_id="u", needs_trust=False))
    assert apply_trust(skill, ()) is skill
    assert apply_trust(replace(skill, is_trusted=False), ()).is_trusted


@pytest.mark.promise("G13")
def test_an_approval_ends_with_the_state_it_was_given_for(tmp_path: Path) -> None:
    skill, store = _skill(tmp_path), TrustStore(tmp_path / "data/trust.db")
    store.approve([skill], 1.0)
    assert apply_trust(skill, store.approved()).is_trusted
    (tmp_path / "s/scripts/main.py").write_text("2", encoding="utf-8")
    changed = read_skill(tmp_path / "s", THEIRS).skill
    assert changed is not None
    assert not apply_trust(changed, store.approved()).is_trusted


def test_a_change_after_the_scan_is_seen_before_anything_runs(tmp_path: Path) -> None:
    skill, store = _skill(tmp_path), TrustStore(tmp_path / "trust.db")
    store.approve([skill], 1.0)
    trusted = apply_trust(skill, store.approved())
    require_trust(trusted, store.approved())
    (tmp_path / "s/scripts/main.py").write_text("2", encoding="utf-8")
    with pytest.raises(PermissionDeniedError, match="not approved"):
        require_trust(trusted, store.approved())


def test_an_approval_that_was_taken_back_no_longer_counts(tmp_path: Path) -> None:
    skill, store = _skill(tmp_path), TrustStore(tmp_path / "trust.db")
    store.approve([skill], 1.0)
    (approval,) = store.list()
    assert (approval.name, approval.source, approval.at) == ("s", "project:x", 1.0)
    trusted = apply_trust(skill, store.approved())
    store.revoke([approval.sha256])
    assert store.approved() == frozenset()
    with pytest.raises(PermissionDeniedError):
        require_trust(trusted, store.approved())


def test_a_skill_of_unknown_state_cannot_be_approved(tmp_path: Path) -> None:
    skill, store = replace(_skill(tmp_path), fingerprint=None), TrustStore(tmp_path / "trust.db")
    store.approve([skill], 1.0)
    assert store.list() == ()
    assert not apply_trust(skill, store.approved()).is_trusted


def test_a_store_that_cannot_be_read_approves_nothing(tmp_path: Path) -> None:
    (tmp_path / "trust.db").write_bytes(b"garbage" * 1000)
    store = TrustStore(tmp_path / "trust.db")
    assert store.approved() == frozenset()
    with pytest.raises(StorageError):
        store.approve([_skill(tmp_path)], 1.0)


def test_nothing_is_made_by_looking(tmp_path: Path) -> None:
    assert TrustStore(tmp_path / "data/trust.db").list() == ()
    assert not (tmp_path / "data").exists()


def test_a_file_with_our_markers_name_is_hashed_before_anything_runs(tmp_path: Path) -> None:
    skill, store = _skill(tmp_path), TrustStore(tmp_path / "trust.db")
    store.approve([skill], 1.0)
    trusted = apply_trust(skill, store.approved())
    (tmp_path / "s/.vectorized").write_text("harmful", encoding="utf-8")
    with pytest.raises(PermissionDeniedError):
        require_trust(trusted, store.approved())


def test_a_place_that_cannot_even_be_looked_at_approves_nothing(tmp_path: Path) -> None:
    assert TrustStore(tmp_path / ("a" * 300) / "trust.db").approved() == frozenset()
