"""Installing by address: real git repositories over loopback HTTP and file://, and archives."""

import re
import shutil
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest

from apexbridge.errors import (
    ApexBridgeError,
    ArchiveError,
    SkillExistsError,
    SkillInvalidError,
    SourceError,
)
from apexbridge.lifecycle.install_sources.address import Forge
from apexbridge.lifecycle.install_sources.base import InstallSources
from apexbridge.lifecycle.install_sources.forge import ForgeSource
from apexbridge.runtime import Runtime
from apexbridge.runtime.install_service import InstallService
from apexbridge.runtime.policies import fetch_policy
from apexbridge.runtime.update_service import UpdateService
from apexbridge.settings import load
from apexbridge.signatures import SecretKey
from apexbridge.testing import make_skill, make_zip, skill_md
from tests.lifecycle.install_sources.git_site import GitSite, Upstream, git
from tests.lifecycle.test_tar import file, link, make_tar
from tests.sources.remote.http_site import Answer, Site, redirect

pytestmark = [pytest.mark.anyio]
needs_sandbox = pytest.mark.needs("bubblewrap")

PDF, CSV = skill_md("pdf", "Reads PDF."), skill_md("csv", "Reads CSV.")
TWO = {
    "skills/pdf/SKILL.md": PDF,
    "skills/pdf/scripts/x.py": b"print(1)",
    "skills/csv/SKILL.md": CSV,
}
LOOPBACK = ["127.0.0.0/8", "::1/128"]


@pytest.fixture
def upstream(tmp_path: Path) -> Upstream:
    return Upstream.create(tmp_path)


@pytest.fixture
def site(tmp_path: Path) -> Iterator[GitSite]:
    with GitSite(tmp_path / "git") as serving:
        yield serving


@asynccontextmanager
async def open_runtime(
    place: Path, *, private: bool = True, **install: object
) -> AsyncGenerator[Runtime]:
    project = place / "project"
    project.mkdir(exist_ok=True)
    remote = {"allow_networks": LOOPBACK if private else []}
    config = load(
        project=project,
        environment={"HOME": str(place), "PATH": "/usr/bin:/bin"},
        flags={
            "data_dir": str(place / "data"),
            "index": {"embedder": "hash"},
            "remote": remote,
            "install": install,
            "skills": {"watch": False},
        },
    )
    async with Runtime.open(config) as runtime:
        yield runtime


@pytest.fixture
async def runtime(tmp_path: Path) -> AsyncIterator[Runtime]:
    async with open_runtime(tmp_path) as opened:
        yield opened


def forge_service(runtime: Runtime, site: GitSite) -> InstallService:
    """The install service with a code host on loopback in place of GitHub."""
    forge = Forge(
        kind="github",
        base=site.url(),
        archive="archive/{commit}.tar.gz",
        tree=re.compile(r"tree/(?P<ref>.+)"),
    )
    sources = InstallSources([ForgeSource(fetch_policy(runtime.config.settings), [forge])])
    return InstallService(runtime.manager, runtime.store, sources)


def installed(runtime: Runtime) -> list[str]:
    return sorted(s.name for s in runtime.catalog.skills if s.provenance.origin == "installed")


def leftovers(runtime: Runtime) -> list[str]:
    """What is left of work in progress."""
    staging = runtime.store.root / ".staging"
    workspaces = runtime.config.workspaces
    found = [*staging.glob("*"), *(workspaces.glob("*") if workspaces.exists() else ())]
    return [path.name for path in found if path.name != ".lock"]


async def test_owner_repo_is_fetched_as_an_archive_of_the_resolved_commit(
    runtime: Runtime, upstream: Upstream, site: GitSite
) -> None:
    commit = upstream.commit(TWO)
    service = forge_service(runtime, site)
    (done,) = await service.install("o/repo", skills=["pdf"])
    assert done.error is None
    record = runtime.manager.sources.get("pdf")
    assert record is not None
    assert (record.source, record.ref, record.revision) == ("github:o/repo", "", commit)
    assert record.path == "skills/pdf"
    found = runtime.catalog.get("pdf").fingerprint
    assert found is not None
    assert record.sha256 == found.sha256
    assert site.paths[-1] == f"/o/repo/archive/{commit}.tar.gz"
    assert (runtime.store.root / "pdf/scripts/x.py").read_bytes() == b"print(1)"
    assert leftovers(runtime) == []


@pytest.mark.parametrize(
    ("address", "names"),
    [
        ("o/repo@old", ["pdf"]),
        ("o/repo@v1", ["pdf"]),
        ("o/repo@feature/x/skills/csv", ["csv"]),
        ("o/repo/skills/csv", ["csv"]),
        ("o/repo@csv", ["csv"]),  # no ref: the name of a skill, as `npx skills` understands it
    ],
)
async def test_refs_paths_and_skills_of_an_address(
    runtime: Runtime, upstream: Upstream, site: GitSite, address: str, names: list[str]
) -> None:
    upstream.commit({"skills/pdf/SKILL.md": PDF}, branch="old")
    upstream.tag("v1")
    upstream.commit({"skills/csv/SKILL.md": CSV}, branch="feature/x")
    upstream.commit({"README.md": b"x"})
    done = await forge_service(runtime, site).install(address)
    assert [outcome.name for outcome in done] == names
    assert installed(runtime) == names


async def test_a_skill_in_the_place_of_a_ref_is_the_only_one_of_the_address(
    runtime: Runtime, upstream: Upstream, site: GitSite
) -> None:
    upstream.commit(TWO)
    service = forge_service(runtime, site)
    async with service.open("o/repo@csv") as offers:
        assert [skill.name for skill in offers.skills] == ["csv"]
    done = await service.install("o/repo@csv", every=True)
    assert [outcome.name for outcome in done] == ["csv"]
    assert installed(runtime) == ["csv"]


async def test_a_path_chooses_a_copy_and_a_skill_inside_of_another(
    runtime: Runtime, upstream: Upstream, site: GitSite
) -> None:
    (upstream.tree / "skills").mkdir()
    (upstream.tree / "skills/docs").symlink_to("pdf")
    inner = skill_md("inner", "Is a part of another.")
    files = {"dist/pdf/SKILL.md": PDF, "dist/pdf/scripts/x.py": b"print(1)"}
    upstream.commit({**TWO, **files, "skills/csv/parts/inner/SKILL.md": inner})
    service = forge_service(runtime, site)
    async with service.open("o/repo") as offers:
        assert len(offers.skills) == 2
        for path, name, where in (
            ("skills/pdf", "pdf", "skills/pdf"),
            ("dist/pdf", "pdf", "dist/pdf"),
            ("skills/docs", "pdf", "skills/pdf"),
            ("skills/csv/parts/inner/", "inner", "skills/csv/parts/inner"),
        ):
            (skill,) = offers.choose([path])
            assert (skill.name, skill.where) == (name, where)
        for path in ("../x", "skills/csv/parts", "skills/none", "/etc", "skills/../skills/pdf/.."):
            with pytest.raises(SourceError) as caught:
                offers.choose([path])
            assert caught.value.code == "source_skill_unknown"
    (done,) = await service.install("o/repo", skills=["skills/csv/parts/inner"])
    assert done.error is None
    updates = UpdateService(service, runtime.store, runtime.config.data)
    changed = skill_md("inner", "Is a better part of another.")
    upstream.commit({"skills/csv/parts/inner/SKILL.md": changed})
    (status,) = await updates.outdated()
    assert status.state == "outdated"


@pytest.mark.parametrize("address", ["o/repo@v9", "o/repo#v9", "https://github.com/o/repo/tree/v9"])
async def test_a_ref_that_is_missing_never_becomes_the_default_branch(
    runtime: Runtime, upstream: Upstream, site: GitSite, address: str
) -> None:
    upstream.commit(TWO)
    with pytest.raises(SourceError) as caught:
        await forge_service(runtime, site).install(address, every=True)
    assert caught.value.code in {"source_ref_unknown", "source_skill_unknown"}
    assert installed(runtime) == []


async def test_an_update_does_not_follow_another_branch_when_its_own_is_gone(
    runtime: Runtime, upstream: Upstream, site: GitSite
) -> None:
    upstream.commit(TWO, branch="release")
    service = forge_service(runtime, site)
    await service.install("o/repo@release", skills=["pdf"])
    upstream.commit({"skills/pdf/SKILL.md": skill_md("pdf", "Of another branch.")})
    git(upstream.bare, "branch", "-D", "release")
    updates = UpdateService(service, runtime.store, runtime.config.data)
    (status,) = await updates.outdated()
    assert (status.state, status.error and status.error.code) == ("failed", "source_ref_unknown")
    with pytest.raises(SourceError) as caught:
        async with updates.newest("pdf"):
            pytest.fail("its branch is gone")
    assert caught.value.code == "source_ref_unknown"


async def test_an_unknown_ref_path_or_skill_names_what_there_is(
    runtime: Runtime, upstream: Upstream, site: GitSite
) -> None:
    upstream.commit(TWO)
    service = forge_service(runtime, site)
    for address, skills, code, said in (
        ("o/repo@nothing/x", [], "source_ref_unknown", "main"),
        ("o/repo/nothing", [], "source_path_unknown", "nothing"),
        ("o/repo", ["nothing"], "source_skill_unknown", "csv, pdf"),
        ("o/repo", [], "source_choice", "csv, pdf"),
        ("o/repo@nothing", [], "source_skill_unknown", "csv, pdf"),
    ):
        with pytest.raises(SourceError) as caught:
            await service.install(address, skills=skills)
        assert caught.value.code == code
        assert said in f"{caught.value.message} {caught.value.hint}"
    assert installed(runtime) == []
    with pytest.raises(SourceError) as missing:
        await service.install("o/other")
    assert missing.value.code == "remote_unreachable"
    assert leftovers(runtime) == []


async def test_two_skills_of_which_one_fails(
    runtime: Runtime, upstream: Upstream, site: GitSite
) -> None:
    upstream.commit({**TWO, "skills/bad/SKILL.md": b"---\nname: bad\n---\nNo description."})
    service = forge_service(runtime, site)
    await service.install("o/repo", skills=["pdf"])
    done = await service.install("o/repo", skills=["pdf", "csv"])
    assert isinstance(done[0].error, SkillExistsError)
    assert done[1].error is None
    assert installed(runtime) == ["csv", "pdf"]


async def test_a_skill_with_a_link_that_leads_out_is_refused_and_the_others_are_not(
    runtime: Runtime, upstream: Upstream, site: GitSite
) -> None:
    (upstream.tree / "skills/pdf").mkdir(parents=True)
    (upstream.tree / "skills/pdf/secret").symlink_to("/etc/passwd")
    upstream.commit(TWO)
    done = await forge_service(runtime, site).install("o/repo", every=True)
    errors = {outcome.name: outcome.error for outcome in done}
    assert isinstance(errors["pdf"], ArchiveError)
    assert errors["pdf"].code == "zip_link_entry"
    assert errors["csv"] is None
    assert installed(runtime) == ["csv"]


@needs_sandbox
@pytest.mark.parametrize("form", ["http", "file", "bare"])
async def test_a_git_server_and_a_local_repository_are_read_by_git(
    runtime: Runtime, upstream: Upstream, site: GitSite, form: str
) -> None:
    commit = upstream.commit(TWO)
    address = {
        "http": site.url("/o/repo.git", "localhost"),
        "file": f"{upstream.bare.as_uri()}#main:skills",
        "bare": str(upstream.bare),
    }[form]
    done = await runtime.installer().install(address, every=True)
    assert [outcome.error for outcome in done] == [None, None]
    record = runtime.manager.sources.get("csv")
    assert record is not None
    assert (record.revision, record.path) == (commit, "skills/csv")
    assert leftovers(runtime) == []


@needs_sandbox
async def test_a_commit_that_is_no_branch_any_more_is_fetched(
    runtime: Runtime, upstream: Upstream
) -> None:
    old = upstream.commit({"skills/pdf/SKILL.md": PDF})
    upstream.commit({"skills/csv/SKILL.md": CSV})
    done = await runtime.installer().install(f"{upstream.bare.as_uri()}#{old}")
    assert [outcome.name for outcome in done] == ["pdf"]


@needs_sandbox
async def test_hooks_filters_and_submodules_of_a_repository_do_nothing(
    runtime: Runtime, upstream: Upstream, tmp_path: Path
) -> None:
    touched = tmp_path / "touched"
    script = f"#!/bin/sh\ntouch {touched}\n"
    for name in ("post-checkout", "post-upload", "pre-receive", "reference-transaction"):
        if name not in {"pre-receive", "reference-transaction"}:
            (upstream.bare / "hooks" / name).write_text(script, encoding="utf-8")
            (upstream.bare / "hooks" / name).chmod(0o755)
    modules = b'[submodule "x"]\n\tpath = x\n\turl = ext::sh -c "touch /tmp/x"\n'
    upstream.commit(
        {**TWO, ".gitattributes": b"* filter=evil\n*.md filter=lfs\n", ".gitmodules": modules}
    )
    git(upstream.bare, "config", "filter.evil.smudge", f"touch {touched}")
    git(upstream.bare, "config", "uploadpack.packObjectsHook", f"touch {touched}")
    done = await runtime.installer().install(upstream.bare.as_uri(), every=True)
    assert [outcome.error for outcome in done] == [None, None]
    assert not touched.exists()


@pytest.mark.promise("R04")
async def test_r04_ssh_is_for_the_command_line_only(runtime: Runtime) -> None:
    for address in ("git@localhost:o/r.git", "ssh://git@localhost/o/r.git"):
        with pytest.raises(SourceError) as caught:
            await runtime.installer().install(address)
        assert caught.value.code == "source_refused"


@pytest.mark.needs("ssh")
@pytest.mark.parametrize("address", ["ssh://git@localhost:1/r.git", "ssh://localhost:1/r.git"])
async def test_ssh_is_started_for_the_command_line_and_says_why_it_failed(
    runtime: Runtime, address: str
) -> None:
    with pytest.raises(SourceError) as caught:
        await runtime.installer(allows_ssh=True).install(address)
    assert caught.value.code == "source_git_failed"
    assert "ssh: connect to host localhost port 1" in caught.value.message
    assert leftovers(runtime) == []


@pytest.mark.promise("R04")
@pytest.mark.parametrize(
    "address", ["ext::sh -c x", "-oProxyCommand=x", "--upload-pack=x", "ssh://-oProxyCommand=x/r"]
)
async def test_r04_nothing_is_started_for_an_injected_option(
    runtime: Runtime, tmp_path: Path, address: str
) -> None:
    with pytest.raises(SourceError) as caught:
        await runtime.installer(allows_ssh=True).install(address)
    assert caught.value.code == "source_refused"
    assert not (tmp_path / "data/workspaces").exists()


@pytest.mark.promise("R01")
@pytest.mark.parametrize(
    "address",
    [
        "https://127.0.0.1/r.git",
        "https://localhost/r.git",
        "https://[::1]/r.git",
        "https://2130706433/r.git",
        "https://0x7f.1/a.zip",
        "https://169.254.169.254/a.tar.gz",
        "https://[::ffff:169.254.169.254]/a.zip",
        "http://example.org/a.zip",
    ],
)
async def test_r01_a_private_address_is_refused_for_git_and_archives(
    tmp_path: Path, address: str
) -> None:
    async with open_runtime(tmp_path, private=False) as runtime:
        with pytest.raises(SourceError) as caught:
            await runtime.installer().install(address)
    assert caught.value.code in {"remote_refused", "source_refused", "remote_unreachable"}
    if "example" not in address:
        assert caught.value.code != "remote_unreachable"


@pytest.mark.promise("R02")
async def test_r02_an_archive_that_redirects_to_the_metadata_service_is_refused(
    runtime: Runtime,
) -> None:
    with Site() as site:
        site.answers["/a.zip"] = redirect("http://169.254.169.254/latest")
        with pytest.raises(SourceError) as caught:
            await runtime.installer().install(site.url("/a.zip"))
    assert caught.value.code == "remote_refused"


@pytest.mark.promise("R05")
async def test_r05_huge_and_endless_archives_are_cut_off(tmp_path: Path) -> None:
    async with open_runtime(tmp_path, repository_mb=0.01, fetch_timeout_seconds=0.3) as runtime:
        with Site() as site:
            kind = {"Content-Type": "application/zip"}
            site.answers["/huge.zip"] = Answer(body=bytes(20_000), headers=kind)
            site.answers["/endless.zip"] = Answer(body=site.trickle(), headers=kind)
            for name, code in (("huge", "remote_unusable"), ("endless", "remote_unreachable")):
                with pytest.raises(SourceError) as caught:
                    await runtime.installer().install(site.url(f"/{name}.zip"))
                assert caught.value.code == code
        assert leftovers(runtime) == []


@pytest.mark.promise("R06")
async def test_r06_a_login_page_is_said_to_be_one(
    runtime: Runtime, upstream: Upstream, site: GitSite
) -> None:
    upstream.commit(TWO)
    site.refuses_git = True
    with pytest.raises(SourceError) as caught:
        await forge_service(runtime, site).install("o/repo")
    assert "login" in caught.value.message
    with Site() as other:
        html = Answer(
            body=b"<!doctype html><p>Sign in", headers={"Content-Type": "application/zip"}
        )
        other.answers["/a.zip"] = html
        with pytest.raises(SourceError, match="login"):
            await runtime.installer().install(other.url("/a.zip"))


@pytest.mark.promise("R06")
@needs_sandbox
async def test_r06_git_gets_a_login_page(runtime: Runtime, site: GitSite) -> None:
    site.refuses_git = True
    with pytest.raises(SourceError) as caught:
        await runtime.installer().install(site.url("/o/repo.git", "localhost"))
    assert caught.value.code == "remote_unusable"
    assert "login" in caught.value.message
    assert leftovers(runtime) == []


async def test_archives_with_one_and_with_several_skills(runtime: Runtime, tmp_path: Path) -> None:
    many = {f"r-1/{path}": data for path, data in TWO.items()}
    several = make_zip(tmp_path / "many.zip", many).read_bytes()
    single = make_zip(tmp_path / "one.zip", {"pdf/SKILL.md": PDF}).read_bytes()
    tar = make_tar(tmp_path / "a.tar.gz", [file("csv/SKILL.md", CSV)]).read_bytes()
    hostile = make_tar(tmp_path / "b.tar.gz", [file("x/SKILL.md"), link("x/y", "/etc/passwd")])
    kind = {"Content-Type": "application/octet-stream"}
    with Site() as site:
        for name, data in {
            "/many.zip": several,
            "/one.zip": single,
            "/a.tgz": tar,
            "/b.tgz": hostile.read_bytes(),
        }.items():
            site.answers[name] = Answer(body=data, headers=kind)
        installer = runtime.installer()
        (one,) = await installer.install(site.url("/one.zip"))
        (two,) = await installer.install(site.url("/a.tgz"))
        assert (one.error, two.error) == (None, None)
        async with installer.open(site.url("/many.zip")) as offers:
            assert [skill.where for skill in offers.skills] == ["skills/csv", "skills/pdf"]
            assert offers.address.revision.startswith("sha256:")
        with pytest.raises(ArchiveError):
            await installer.install(site.url("/b.tgz"))
    assert installed(runtime) == ["csv", "pdf"]
    assert leftovers(runtime) == []


async def test_a_local_folder_with_one_skill_keeps_the_name_check(
    runtime: Runtime, tmp_path: Path
) -> None:
    root = make_skill(tmp_path, "other", raw=PDF)
    (done,) = await runtime.installer().install(str(root))
    assert isinstance(done.error, SkillInvalidError)
    async with runtime.installer().open(str(root), renames=True) as offers:
        (skill,) = offers.skills
        assert (await runtime.installer().install_offer(offers, skill)).error is None


async def test_other_files_than_were_inspected_are_not_installed(
    runtime: Runtime, tmp_path: Path
) -> None:
    root = make_skill(tmp_path, "pdf", raw=PDF)
    installer = runtime.installer()
    async with installer.open(str(root)) as offers:
        (skill,) = offers.skills
        sha256 = (await installer.inspect(offers, skill)).sha256
        (root / "added.py").write_text("print(2)", encoding="utf-8")
        changed = await installer.install_offer(offers, skill, sha256=sha256)
        assert (changed.error and changed.error.code) == "source_content_changed"
        assert installed(runtime) == []
        (root / "added.py").unlink()
        assert (await installer.install_offer(offers, skill, sha256=sha256)).error is None


async def test_outdated_compares_content_and_update_brings_the_new_one(
    runtime: Runtime, upstream: Upstream, site: GitSite
) -> None:
    first = upstream.commit(TWO)
    service = forge_service(runtime, site)
    await service.install("o/repo", every=True)
    updates = UpdateService(service, runtime.store, runtime.config.data)
    assert {s.name: s.state for s in await updates.outdated()} == {
        "csv": "current",
        "pdf": "current",
    }
    new = skill_md("pdf", "Reads PDF.", version="2")
    second = upstream.commit({"skills/pdf/SKILL.md": new, "skills/csv/SKILL.md": None})
    found = {status.name: status for status in await updates.outdated()}
    assert (found["pdf"].state, found["csv"].state) == ("outdated", "gone")
    assert (found["pdf"].installed, found["pdf"].newest) == (first, second)
    assert found["pdf"].newest_version == "2"
    async with updates.newest("pdf") as version:
        done = await updates.update(version)
    assert done.has_changed
    record = runtime.manager.sources.get("pdf")
    assert record is not None
    assert (record.revision, record.version) == (second, "2")
    assert {s.name: s.state for s in await updates.outdated(["pdf"])} == {"pdf": "current"}
    with pytest.raises(SourceError) as gone:
        async with updates.newest("csv"):
            pytest.fail("it is gone")
    assert gone.value.code == "source_skill_unknown"
    site.refuses_git = True
    assert {s.state for s in await updates.outdated()} == {"failed"}


async def test_the_source_goes_with_the_skill_to_the_trash_and_back(
    runtime: Runtime, tmp_path: Path
) -> None:
    root = make_skill(tmp_path / "a", "pdf", raw=PDF)
    await runtime.installer().install(str(root))
    record = runtime.manager.sources.get("pdf")
    assert record is not None
    assert record.source == str(root)
    await runtime.manager.uninstall("pdf")
    assert runtime.manager.sources.get("pdf") is None
    await runtime.manager.restore("pdf")
    assert runtime.manager.sources.get("pdf") == record
    await runtime.manager.uninstall("pdf")
    await runtime.manager.install(root)
    assert runtime.manager.sources.get("pdf") is None


@pytest.mark.parametrize("name", ["a.zip", "a.tar.gz"])
@pytest.mark.parametrize("wrong", [False, True])
async def test_the_signature_beside_a_downloaded_archive_is_verified(
    tmp_path: Path, name: str, *, wrong: bool
) -> None:
    key = SecretKey.generate()
    data = (
        make_tar(tmp_path / name, [file("pdf/SKILL.md", PDF)])
        if name.endswith("gz")
        else make_zip(tmp_path / name, {"pdf/SKILL.md": PDF})
    ).read_bytes()
    signature = key.sign(b"other" if wrong else data, "pdf").encode()
    async with open_runtime(tmp_path, trusted_keys=[key.public.text]) as runtime:
        with Site() as site:
            site.answers[f"/{name}"] = Answer(
                body=data, headers={"Content-Type": "application/zip"}
            )
            site.answers[f"/{name}.minisig"] = Answer(
                body=signature, headers={"Content-Type": "text/plain"}
            )
            (done,) = await runtime.installer().install(site.url(f"/{name}"))
        if wrong:
            assert (done.error and done.error.code) == "signature_invalid"
            assert installed(runtime) == []
        else:
            assert done.error is None
            found = runtime.manager.signature_of(runtime.catalog.get("pdf"))
            assert (found.status, found.key) == ("valid", key.public.name)


@pytest.mark.parametrize("status", [200, 403, 404, 500])
async def test_what_answers_in_place_of_a_missing_signature_is_none(
    runtime: Runtime, tmp_path: Path, status: int
) -> None:
    data = make_zip(tmp_path / "a.zip", {"pdf/SKILL.md": PDF}).read_bytes()
    with Site() as site:
        site.answers["/a.zip"] = Answer(body=data, headers={"Content-Type": "application/zip"})
        site.answers["/a.zip.minisig"] = Answer(
            status=status, body=b"not here", headers={"Content-Type": "text/plain"}
        )
        (done,) = await runtime.installer().install(site.url("/a.zip"))
    assert done.error is None
    assert runtime.manager.signature_of(runtime.catalog.get("pdf")).status == "absent"


async def test_a_cancelled_download_leaves_nothing(runtime: Runtime) -> None:
    with Site() as site:
        kind = {"Content-Type": "application/zip"}
        site.answers["/a.zip"] = Answer(body=site.trickle(), headers=kind)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(runtime.installer().install, site.url("/a.zip"))
            with anyio.fail_after(20):
                while not list(runtime.store.root.glob(".staging/*/a.zip")):
                    await anyio.lowlevel.checkpoint()
            tasks.cancel_scope.cancel()
    assert leftovers(runtime) == []
    assert installed(runtime) == []


async def test_a_fetch_that_was_killed_is_removed_at_the_next_start(tmp_path: Path) -> None:
    left = tmp_path / "data/skills/.staging/0123/tree/skills/pdf"
    left.mkdir(parents=True)
    (left / "SKILL.md").write_bytes(PDF)
    async with open_runtime(tmp_path) as runtime:
        assert leftovers(runtime) == []
        assert installed(runtime) == []


async def test_a_source_that_holds_no_skill_is_an_error(
    runtime: Runtime, upstream: Upstream, site: GitSite
) -> None:
    upstream.commit({"README.md": b"x"})
    with pytest.raises(ApexBridgeError) as caught:
        await forge_service(runtime, site).install("o/repo")
    assert caught.value.code == "source_no_skills"
    shutil.rmtree(upstream.bare)
