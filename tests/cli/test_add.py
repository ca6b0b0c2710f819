"""`add`, `sync`, `outdated` and `update` by name: the commands, over real repositories."""

from pathlib import Path

import anyio
import pytest

from apexbridge.testing import make_skill, make_zip, skill_md
from tests.cli.conftest import Run
from tests.cli.in_process import call
from tests.cli.terminal import environment, open_terminal
from tests.lifecycle.install_sources.git_site import Upstream
from tests.sources.remote.http_site import Answer, Site

PDF, CSV = skill_md("pdf", "Reads PDF."), skill_md("csv", "Reads CSV.")
NEW = skill_md("pdf", "Reads every PDF.")
needs_sandbox = pytest.mark.needs("bubblewrap")


@pytest.fixture
def inside(home: Path, project: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run commands in this process, in an empty project."""
    project.mkdir()
    monkeypatch.chdir(project)
    return call


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A repository's folder with two skills."""
    make_skill(tmp_path / "clone/skills", "pdf", raw=PDF)
    make_skill(tmp_path / "clone/skills", "csv", raw=CSV)
    return tmp_path / "clone"


def _names(run: Run) -> list[str]:
    data = run("ls", "--origin", "installed", "--json").data
    return [skill["name"] for skill in data["skills"]]


def test_list_shows_the_skills_and_installs_none(inside: Run, folder: Path) -> None:
    listed = inside("add", str(folder), "--list")
    assert listed.code == 0
    assert "skills/pdf" in listed.out
    data = inside("add", str(folder), "--list", "--json").data
    assert [skill["path"] for skill in data["skills"]] == ["skills/csv", "skills/pdf"]
    assert _names(inside) == []


def test_several_skills_are_chosen_by_name_or_all_and_else_listed(
    inside: Run, folder: Path
) -> None:
    several = inside("add", str(folder), "--yes", "--json")
    assert (several.code, several.error["code"]) == (2, "source_choice")
    assert "csv, pdf" in several.error["message"]
    unknown = inside("add", str(folder), "--skill", "nothing", "--yes", "--json")
    assert (unknown.code, unknown.error["code"]) == (3, "source_skill_unknown")
    one = inside("add", str(folder), "--skill", "skills/pdf", "--yes")
    assert one.out.splitlines()[-1] == "Installed pdf"
    rest = inside("add", str(folder), "--all", "--yes", "--json")
    assert rest.code == 4  # pdf is there
    states = {skill["name"]: skill["installed"] for skill in rest.data["skills"]}
    assert states == {"csv": True, "pdf": False}
    assert _names(inside) == ["csv", "pdf"]


def test_the_report_of_every_skill_is_shown_before_the_question(inside: Run, folder: Path) -> None:
    asked = inside("add", str(folder), "--all")
    assert (asked.code, _names(inside)) == (5, [])
    assert "Reads PDF." in asked.out
    assert "Reads CSV." in asked.out


def test_show_and_ls_say_where_a_skill_came_from(inside: Run, folder: Path) -> None:
    inside("add", str(folder), "--skill", "pdf", "--yes")
    assert f"source: {folder} skills/pdf" in inside("show", "pdf").out
    assert inside("show", "pdf", "--json").data["installed_from"]["path"] == "skills/pdf"
    assert str(folder) in inside("ls", "--long", "--filter", "Reads").out


def test_what_a_repository_keeps_elsewhere_is_named(inside: Run, folder: Path) -> None:
    pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 12345\n"
    (folder / "skills/pdf/logo.png").write_text(pointer, encoding="utf-8")
    modules = '[submodule "v"]\n\tpath = skills/pdf/vendor\n\turl = https://example.org/v.git\n'
    (folder / ".gitmodules").write_text(modules, encoding="utf-8")
    added = inside("add", str(folder), "--skill", "pdf", "--yes").out
    assert "logo.png is a pointer of Git LFS" in added
    assert "skills/pdf/vendor is a submodule" in added
    assert "submodule" not in inside("add", str(folder), "--skill", "csv", "--yes").out
    listed = inside("add", str(folder), "--list", "--json").data["problems"]
    assert [problem["code"] for problem in listed] == ["submodule_left_out"]


def test_the_query_of_an_address_is_not_shown(inside: Run, project: Path) -> None:
    archive = make_zip(project / "a.zip", {"pdf/SKILL.md": PDF}).read_bytes()
    kind = {"Content-Type": "application/zip"}
    with Site() as site:
        site.answers["/a.zip?token=sekret"] = Answer(body=archive, headers=kind)
        allowed = {"APEXBRIDGE_REMOTE__ALLOW_NETWORKS": "127.0.0.0/8"}
        added = inside("add", site.url("/a.zip?token=sekret"), "--yes", **allowed)
        assert added.code == 0, added.err
        newer = make_zip(project / "b.zip", {"pdf/SKILL.md": skill_md("pdf", "Reads more.")})
        site.answers["/a.zip?token=sekret"] = Answer(body=newer.read_bytes(), headers=kind)
        said = [
            inside(*words, **allowed)
            for words in (["outdated"], ["show", "pdf"], ["ls", "--long"], ["audit", "ls"])
        ]
    for shown in (added, *said):
        assert "sekret" not in shown.out + shown.err
    assert all("/a.zip" in shown.out for shown in said[:3])


@pytest.mark.promise("R04")
@pytest.mark.parametrize("address", ["ext::sh -c x", "-oProxyCommand=x", "--upload-pack=x"])
def test_r04_dangerous_addresses_are_refused(inside: Run, address: str) -> None:
    refused = inside("add", "--yes", "--json", "--", address)
    assert (refused.code, refused.error["code"]) == (5, "source_refused")


@needs_sandbox
def test_the_lock_file_brings_the_same_skills_to_another_machine(
    inside: Run, tmp_path: Path, project: Path
) -> None:
    upstream = Upstream.create(tmp_path)
    first = upstream.commit({"skills/pdf/SKILL.md": PDF, "skills/csv/SKILL.md": CSV})
    address = upstream.bare.as_uri()
    done = inside("add", address, "--all", "--yes", "--lock", "apexbridge.lock")
    assert done.code == 0
    locked = (project / "apexbridge.lock").read_text(encoding="utf-8")
    assert locked.count(first) == 2
    assert inside("sync", "--frozen").code == 0
    upstream.commit({"skills/pdf/SKILL.md": NEW})
    old = inside("outdated", "--json")
    assert old.code == 1
    assert {s["name"]: s["state"] for s in old.data["skills"]} == {
        "csv": "current",
        "pdf": "outdated",
    }
    elsewhere = {"APEXBRIDGE_DATA_DIR": str(tmp_path / "elsewhere")}
    assert inside("sync", "--frozen", **elsewhere).code == 5  # nobody was asked
    synced = inside("sync", "--frozen", "--yes", "--json", **elsewhere)
    assert synced.data["installed"] == ["csv", "pdf"]
    shown = inside("show", "pdf", "--json", **elsewhere).data
    assert shown["description"] == "Reads PDF."  # the locked state, not the newest
    assert shown["installed_from"]["revision"] == first
    assert (project / "apexbridge.lock").read_text(encoding="utf-8") == locked


@needs_sandbox
def test_update_by_name_shows_the_diff_asks_and_changes_the_lock(
    inside: Run, tmp_path: Path, project: Path
) -> None:
    upstream = Upstream.create(tmp_path)
    upstream.commit({"skills/pdf/SKILL.md": PDF, "skills/csv/SKILL.md": CSV})
    inside("add", upstream.bare.as_uri(), "--all", "--yes", "--lock", "apexbridge.lock")
    second = upstream.commit({"skills/pdf/SKILL.md": NEW})
    asked = inside("update", "pdf")
    assert asked.code == 5
    assert "Reads every PDF." in asked.out
    assert inside("show", "pdf", "--json").data["description"] == "Reads PDF."
    every = inside("update", "--all", "--yes", "--json")
    changed = {skill["name"]: skill["changed"] for skill in every.data["skills"]}
    assert changed == {"csv": False, "pdf": True}
    assert inside("show", "pdf", "--json").data["description"] == "Reads every PDF."
    assert (project / "apexbridge.lock").read_text(encoding="utf-8").count(second) == 2
    assert inside("outdated").code == 0
    assert inside("rm", "pdf", "--yes").code == 0
    assert 'name = "pdf"' not in (project / "apexbridge.lock").read_text(encoding="utf-8")


def test_other_content_than_is_locked_is_refused_and_nothing_is_changed(
    inside: Run, folder: Path, project: Path, tmp_path: Path
) -> None:
    inside("add", str(folder), "--all", "--yes", "--lock", "apexbridge.lock")
    (folder / "skills/pdf/SKILL.md").write_bytes(NEW)
    elsewhere = {"APEXBRIDGE_DATA_DIR": str(tmp_path / "elsewhere")}
    refused = inside("sync", "--yes", "--json", **elsewhere)
    assert (refused.code, refused.error["code"]) == (4, "source_content_changed")
    listed = inside("ls", "--origin", "installed", "--json", **elsewhere)
    assert listed.data["skills"] == []


def test_an_entry_written_by_hand_is_completed_but_not_by_a_frozen_sync(
    inside: Run, folder: Path, project: Path
) -> None:
    lock = project / "apexbridge.lock"
    lock.write_text(
        f'version = 1\n[[skill]]\nname = "pdf"\nsource = "{folder}"\n', encoding="utf-8"
    )
    written = lock.read_text(encoding="utf-8")
    frozen = inside("sync", "--frozen", "--yes", "--json")
    assert (frozen.code, frozen.error["code"]) == (4, "lock_incomplete")
    assert lock.read_text(encoding="utf-8") == written
    assert inside("sync", "--yes").code == 0
    assert "sha256" in lock.read_text(encoding="utf-8")
    assert inside("sync", "--frozen").code == 0


def test_a_lock_file_is_written_in_a_project_only(inside: Run, folder: Path, project: Path) -> None:
    inside("add", str(folder), "--skill", "pdf", "--yes")
    assert not (project / "apexbridge.lock").exists()
    (project / "apexbridge.toml").write_text("", encoding="utf-8")
    inside("add", str(folder), "--skill", "csv", "--yes", "--no-lock")
    assert not (project / "apexbridge.lock").exists()
    inside("rm", "csv", "--yes")
    inside("add", str(folder), "--skill", "csv", "--yes")
    assert 'name = "csv"' in (project / "apexbridge.lock").read_text(encoding="utf-8")


def test_a_damaged_lock_file_stops_an_installation_before_it_begins(
    inside: Run, folder: Path, project: Path
) -> None:
    (project / "apexbridge.lock").write_text("<<<<<<<", encoding="utf-8")
    refused = inside("add", str(folder), "--all", "--yes", "--json")
    assert (refused.code, refused.error["code"]) == (2, "lock_invalid")
    assert _names(inside) == []


def test_update_wants_a_target_and_a_recorded_source(inside: Run, folder: Path) -> None:
    assert inside("update", "--json").error["code"] == "update_targets"
    assert inside("update", "--all", "pdf", "--json").code == 2
    assert inside("update", "git-commit", "--json").error["code"] == "source_not_recorded"
    inside("add", str(folder / "skills/pdf"), "--yes")
    (folder / "skills/pdf/SKILL.md").write_bytes(NEW)
    assert inside("update", "pdf", "--yes").code == 0
    assert inside("show", "pdf", "--json").data["description"] == "Reads every PDF."


@pytest.mark.anyio
async def test_a_person_chooses_from_a_numbered_list(
    home: Path, project: Path, folder: Path
) -> None:
    project.mkdir()
    async with open_terminal("add", str(folder), cwd=project, variables=environment(home)) as tty:
        await tty.sees("Which?")
        tty.types("2\n")
        await tty.sees("Install pdf?")
        tty.types("y\n")
        await tty.sees("Installed pdf")
        assert await tty.ends() == 0
    assert not await anyio.Path(project / "apexbridge.lock").exists()
