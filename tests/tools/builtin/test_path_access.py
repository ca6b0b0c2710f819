"""Path traversal and symlink races (TOCTOU): file tools stay inside the call's scope."""

import contextlib
import os
import socket
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from apexbridge.errors import StorageError, ToolError, ToolFailedError, ToolInputError
from apexbridge.paths import exchange_dirs
from apexbridge.tools.base import PathScope, Tool, ToolContext
from apexbridge.tools.builtin.edit import EditTool, WriteTool
from apexbridge.tools.builtin.glob import GlobTool
from apexbridge.tools.builtin.grep import GrepTool
from apexbridge.tools.builtin.path_access import open_directory, open_parent, resolve_path
from apexbridge.tools.builtin.read import ReadTool
from tests.tools.tool_calls import context, use

pytestmark = pytest.mark.anyio

SECRET = "the secret outside"  # noqa: S105

CALLS: dict[str, tuple[Callable[[], Tool], dict[str, Any]]] = {
    "Read": (ReadTool, {}),
    "Write": (WriteTool, {"content": "x"}),
    "Edit": (EditTool, {"old_string": "secret", "new_string": "x"}),
    "Glob": (GlobTool, {"pattern": "*"}),
    "Grep": (GrepTool, {"pattern": "secret"}),
}


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """A workspace beside a secret, with links of all kinds that lead to it."""
    place = tmp_path / "work"
    (place / "sub").mkdir(parents=True)
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/secret.txt").write_text(SECRET, encoding="utf-8")
    (tmp_path / "work-other").mkdir()
    (tmp_path / "work-other/secret.txt").write_text(SECRET, encoding="utf-8")
    (place / "link.txt").symlink_to(tmp_path / "outside/secret.txt")
    (place / "folder").symlink_to(tmp_path / "outside")
    (place / "sub/up").symlink_to("../..")
    (place / "dangling").symlink_to(tmp_path / "outside/new.txt")
    (place / "loop").symlink_to("loop")
    return place


@pytest.mark.promise("M16")
@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize(
    "path",
    [
        "../outside/secret.txt",
        "sub/../../outside/secret.txt",
        "link.txt",
        "folder/secret.txt",
        "sub/up/outside/secret.txt",
        "dangling",
        "../work-other/secret.txt",
        "/etc/passwd",
        "/proc/self/environ",
        "/proc/self/root/etc/passwd",
        "/proc/self/cwd/../../../../../etc/passwd",
        "/dev/zero",
        "/",
        "..",
        "~",
        "~/secret",
        "",
        "a\0b",
        "x" * 5_000,
        "\ud800",
    ],
)
async def test_nothing_outside_is_read_written_or_asked_about(
    work: Path, name: str, path: str
) -> None:
    make, more = CALLS[name]
    made = make()
    key = "path" if name in {"Glob", "Grep"} else "file_path"
    before = (work.parent / "outside/secret.txt").read_text(encoding="utf-8")
    with pytest.raises(ToolInputError):
        made.permissions({key: path, **more}, context(work))
    with pytest.raises(ToolInputError) as caught:
        await made.call({key: path, **more}, context(work))
    assert SECRET not in caught.value.message
    assert (work.parent / "outside/secret.txt").read_text(encoding="utf-8") == before
    assert not (work.parent / "outside/new.txt").exists()


async def test_the_refusal_says_where_it_may_work_instead(work: Path) -> None:
    with pytest.raises(ToolInputError) as caught:
        await use(ReadTool(), context(work), {"path": "/etc/passwd"})
    assert caught.value.code == "path_outside"
    assert str(work) in caught.value.message


async def test_without_a_scope_every_path_is_refused(work: Path) -> None:
    bare = ToolContext(
        session_id="s", call_id="c", cwd=work, emit=context(work).emit, spawn=context(work).spawn
    )
    with pytest.raises(ToolInputError, match="nothing"):
        await use(ReadTool(), bare, {"path": "sub"})
    assert bare.scope == PathScope()


async def test_a_name_too_long_for_the_disk_is_reported(work: Path) -> None:
    with pytest.raises(ToolError):
        await use(ReadTool(), context(work), {"path": "x" * 300})
    with pytest.raises(ToolFailedError):
        await use(WriteTool(), context(work), {"path": "x" * 300, "content": ""})


async def test_a_link_that_loops_is_no_file(work: Path) -> None:
    with pytest.raises(ToolFailedError):
        await use(ReadTool(), context(work), {"path": "loop"})


async def test_a_skills_folder_is_read_and_not_written(work: Path) -> None:
    skill = work.parent / "outside"
    facts = context(work, read=(skill,))
    result = await use(ReadTool(), facts, {"path": str(skill / "secret.txt")})
    assert SECRET in result.text
    assert result.touched == (skill / "secret.txt",)
    assert SECRET in (await use(ReadTool(), facts, {"path": "link.txt"})).text
    for make, more in (CALLS["Write"], CALLS["Edit"]):
        with pytest.raises(ToolInputError) as caught:
            await use(make(), facts, {"path": str(skill / "secret.txt"), **more})
        assert caught.value.code == "path_outside"


async def test_links_inside_are_followed_and_named_as_they_really_are(work: Path) -> None:
    (work / "real.txt").write_text("here", encoding="utf-8")
    (work / "alias.txt").symlink_to("real.txt")
    (asked,) = WriteTool().permissions({"path": "alias.txt", "content": "new"}, context(work))
    assert asked.argument == str(work / "real.txt")
    assert asked.path == work / "real.txt"
    await use(WriteTool(), context(work), {"path": "alias.txt", "content": "new"})
    assert (work / "alias.txt").is_symlink()
    assert (work / "real.txt").read_text(encoding="utf-8") == "new"


async def test_a_workspace_behind_a_link_is_a_workspace(work: Path) -> None:
    (work.parent / "alias").symlink_to(work)
    (work / "a.txt").write_text("here", encoding="utf-8")
    facts = context(work.parent / "alias")
    for path in ("a.txt", str(work / "a.txt"), str(work.parent / "alias/a.txt")):
        assert "here" in (await use(ReadTool(), facts, {"path": path})).text


@pytest.mark.parametrize("name", ["Read", "Edit", "Write", "Grep"])
async def test_pipes_sockets_and_folders_never_block_and_say_what_they_are(
    work: Path, name: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    os.mkfifo(work / "pipe")
    short = tmp_path_factory.mktemp("s")
    make, more = CALLS[name]
    with pytest.raises(ToolFailedError, match=r"regular file|a pipe"):
        await use(make(), context(work), {"path": "pipe", **more})
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(short / "s"))
        with pytest.raises(ToolFailedError, match=r"regular file|a socket"):
            await use(make(), context(short), {"path": "s", **more})
    if name not in {"Read", "Grep"}:
        with pytest.raises(ToolFailedError, match=r"regular file|a folder"):
            await use(make(), context(work), {"path": "sub", **more})
        with pytest.raises(ToolFailedError, match="a folder"):
            await use(make(), context(work), {"path": ".", **more})


@pytest.mark.parametrize("name", ["Glob", "Grep"])
async def test_a_search_follows_no_link_and_stops_at_no_pipe(work: Path, name: str) -> None:
    os.mkfifo(work / "pipe")
    (work / "mine.txt").write_text("my own secret", encoding="utf-8")
    make, more = CALLS[name]
    text = (await use(make(), context(work), more)).text
    assert "mine.txt" in text
    assert "outside" not in text.replace(str(work), "")
    assert "link.txt" not in text
    assert SECRET not in text


async def test_a_folder_swapped_for_a_link_after_the_check_leads_nowhere(work: Path) -> None:
    (work / "sub/deep").mkdir()
    (work / "sub/deep/a.txt").write_text("mine", encoding="utf-8")
    place = resolve_path("sub/deep/a.txt", context(work), "Read")
    folder = resolve_path("sub/deep", context(work), "Glob")
    (work / "sub").rename(work / "moved")
    (work / "sub").symlink_to(work.parent / "outside")
    (work.parent / "outside/deep").mkdir()
    (work.parent / "outside/deep/a.txt").write_text(SECRET, encoding="utf-8")
    with pytest.raises(ToolFailedError), open_parent(place):
        pass
    with pytest.raises(ToolFailedError), open_directory(folder, create=True):
        pass


@pytest.mark.parametrize("name", ["Read", "Write", "Edit", "Grep"])
async def test_a_race_of_links_never_gives_the_outside_away(work: Path, name: str) -> None:
    """Another thread swaps a folder for a link to the outside, as fast as it can."""
    inside, outside = work / "box", work.parent / "outside"
    inside.mkdir()
    for folder, text in ((inside, "a secret of mine"), (outside, SECRET)):
        (folder / "f.txt").write_text(text, encoding="utf-8")
    (work / "link").symlink_to(outside)
    stop = threading.Event()

    def swap() -> None:
        while not stop.is_set():
            with contextlib.suppress(StorageError):  # a file went while it was synced
                exchange_dirs(work / "box", work / "link")

    make, more = CALLS[name]
    made, thread, seen = make(), threading.Thread(target=swap), list[str]()
    thread.start()
    try:
        for _ in range(150):
            try:
                seen.append((await made.call({"path": "box/f.txt", **more}, context(work))).text)
            except ToolError as error:
                seen.append(error.message)
    finally:
        stop.set()
        thread.join()
    assert len(seen) == 150
    assert not [text for text in seen if SECRET in text]
    assert (outside / "f.txt").read_text(encoding="utf-8") == SECRET
    assert sorted(path.name for path in outside.iterdir()) == ["f.txt", "secret.txt"]


async def test_a_hard_link_outside_keeps_its_bytes_when_the_workspaces_name_is_written(
    work: Path,
) -> None:
    os.link(work.parent / "outside/secret.txt", work / "hard.txt")
    await use(WriteTool(), context(work), {"path": "hard.txt", "content": "mine"})
    assert (work.parent / "outside/secret.txt").read_text(encoding="utf-8") == SECRET
    assert (work / "hard.txt").read_text(encoding="utf-8") == "mine"


async def test_no_descriptor_is_left_open(work: Path) -> None:
    (work / "a.txt").write_text("a secret\n" * 10, encoding="utf-8")
    before = len(list(Path("/proc/self/fd").iterdir()))
    for make, more in CALLS.values():
        for path in ("a.txt", "sub", "no-such", "loop", "a.txt/b"):
            try:
                await make().call({"path": path, **more}, context(work))
            except ToolError:
                continue
    assert len(list(Path("/proc/self/fd").iterdir())) <= before
