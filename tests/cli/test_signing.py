"""`signing`, `pack --sign`, and what `add`, `show` and `sources` say."""

import json
from pathlib import Path

import pytest

from apexbridge.testing import make_skill, make_zip, skill_md
from tests.cli.conftest import Run
from tests.cli.in_process import call


@pytest.fixture
def inside(home: Path, project: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run commands in this process, in an empty project."""
    project.mkdir()
    monkeypatch.chdir(project)
    return call


@pytest.fixture
def key(inside: Run) -> str:
    made = inside("signing", "keygen", "--output", "my.key", "--json")
    assert made.code == 0
    return made.data["key"]


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    return make_zip(tmp_path / "garden.zip", {"garden/SKILL.md": skill_md("garden")})


def test_a_key_is_private_and_never_overwritten(inside: Run, key: str, project: Path) -> None:
    assert (project / "my.key").stat().st_mode & 0o777 == 0o600
    assert key in (project / "my.pub").read_text(encoding="utf-8")
    again = inside("signing", "keygen", "--output", "my.key", "--json")
    assert (again.code, again.error["code"]) == (4, "path_exists")


def test_what_is_signed_is_verified_shown_and_installed(
    inside: Run, key: str, archive: Path
) -> None:
    signed = inside("signing", "sign", str(archive), "--key", "my.key", "--comment", "garden 1.0")
    assert signed.code == 0
    assert "garden 1.0" in inside("signing", "verify", str(archive), "--key", key).out
    assert "garden 1.0" in inside("signing", "verify", str(archive), "--key", "my.pub").out
    trusted = {"APEXBRIDGE_INSTALL__TRUSTED_KEYS": key}
    done = inside("add", str(archive), "--yes", **trusted)
    assert "signature: valid, by the trusted key" in done.out
    shown = inside("show", "garden", "--json", **trusted).data["signature"]
    assert (shown["status"], shown["comment"]) == ("valid", "garden 1.0")
    assert "signature: valid" in inside("show", "garden", **trusted).out
    assert "not trusted" in inside("show", "garden").out


def test_verify_fails_for_a_wrong_a_missing_and_a_strangers_signature(
    inside: Run, key: str, archive: Path
) -> None:
    missing = inside("signing", "verify", str(archive), "--key", key, "--json")
    assert (missing.code, missing.error["code"]) == (5, "signature_missing")
    inside("signing", "sign", str(archive), "--key", "my.key")
    stranger = inside("signing", "verify", str(archive), "--json")
    assert (stranger.code, stranger.error["code"]) == (5, "signature_untrusted")
    make_zip(archive, {"garden/SKILL.md": skill_md("garden", "Grows weeds.")})
    wrong = inside("signing", "verify", str(archive), "--key", key, "--json")
    assert (wrong.code, wrong.error["code"]) == (5, "signature_invalid")
    bad = inside("signing", "verify", str(archive), "--key", "RWQ=", "--json")
    assert (bad.code, bad.error["code"]) == (5, "signing_key_invalid")


def test_add_refuses_what_is_not_signed_where_the_setting_says_so(
    inside: Run, key: str, archive: Path
) -> None:
    strict = {
        "APEXBRIDGE_INSTALL__TRUSTED_KEYS": key,
        "APEXBRIDGE_INSTALL__REQUIRE_SIGNATURE": "yes",
    }
    refused = inside("add", str(archive), "--yes", "--json", **strict)
    assert (refused.code, refused.error["code"]) == (5, "signature_missing")
    inside("signing", "sign", str(archive), "--key", "my.key")
    assert inside("add", str(archive), "--yes", **strict).code == 0


def test_pack_signs_the_archive_and_sign_a_folder_by_its_content(
    inside: Run, key: str, project: Path
) -> None:
    folder = make_skill(project, "garden")
    packed = inside("pack", str(folder), "--sign", "my.key", "--json")
    assert packed.code == 0
    assert packed.data["signed_by"]
    assert inside("signing", "verify", "garden.zip", "--key", key).code == 0
    assert inside("signing", "sign", str(folder), "--key", "my.key").code == 0
    assert inside("signing", "verify", str(folder), "--key", key).code == 0
    taken = inside("signing", "sign", str(folder), "--key", "my.key", "--json")
    assert (taken.code, taken.error["code"]) == (4, "path_exists")
    (folder / "more.md").write_text("more", encoding="utf-8")
    changed = inside("signing", "verify", str(folder), "--key", key, "--json")
    assert changed.error["code"] == "signature_invalid"


def test_a_key_with_a_password_is_refused_with_what_would_help(
    inside: Run, archive: Path, project: Path
) -> None:
    (project / "bad.key").write_text("untrusted comment: x\nRWQ=\n", encoding="utf-8")
    refused = inside("signing", "sign", str(archive), "--key", "bad.key")
    assert refused.code == 5
    assert "signing keygen" in refused.err
    gone = inside("signing", "sign", str(archive), "--key", "no.key", "--json")
    assert gone.error["code"] == "storage_failed"


def test_sources_says_what_was_skipped(inside: Run, tmp_path: Path) -> None:
    make_skill(tmp_path / "clone/skills", "a")
    make_skill(tmp_path / "clone/.cache", "b")
    make_skill(tmp_path / "clone/skills", "broken", raw=b"# No frontmatter\n")
    market = tmp_path / "market/.claude-plugin/marketplace.json"
    market.parent.mkdir(parents=True)
    elsewhere = {"name": "x", "source": {"source": "github", "repo": "a/b"}}
    market.write_text(json.dumps({"plugins": [elsewhere]}), encoding="utf-8")
    places = {
        "APEXBRIDGE_SKILLS__PATHS": str(tmp_path / "clone"),
        "APEXBRIDGE_SKILLS__ALLOW_EXTERNAL_PATHS": "yes",
        "APEXBRIDGE_PLUGINS__PATHS": str(tmp_path / "market"),
    }
    said = inside("sources", **places).out
    assert ".cache" in said
    assert "broken/SKILL.md" in said
    assert "x (a/b)" in said
    codes = [problem["code"] for problem in inside("sources", "--json", **places).data["problems"]]
    assert sorted(codes) == ["folder_not_searched", "plugin_elsewhere"]
