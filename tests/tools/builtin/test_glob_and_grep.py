"""The Glob and Grep tools: patterns, .gitignore, limits, deadlines and permission filters."""

import os
import threading
from pathlib import Path
from typing import Any

import anyio
import pytest

from apexbridge.errors import ToolFailedError, ToolInputError
from apexbridge.tools.base import ToolContext, ToolResult
from apexbridge.tools.builtin import grep
from apexbridge.tools.builtin.glob import FileWalk, GlobTool
from apexbridge.tools.builtin.grep import GrepTool
from tests.tools.tool_calls import context, use

pytestmark = pytest.mark.anyio


@pytest.fixture
def work(tmp_path: Path) -> Path:
    files = {
        "main.py": "import os\n\ndef main():\n    print('你好')\n",
        "src/a.ts": "const Alpha = 1\nfunction beta() {}\n",
        "src/deep/b.tsx": "const gamma = 2\n",
        "docs/说明.md": "# 说明\n第二行：配置\n",
        "node_modules/x/index.js": "const hidden = 1\n",
        "build/out.js": "const out = 1\n",
        "build/keep.js": "const keep = 1\n",
        ".git/config": "const git = 1\n",
        ".env": "KEY=const\n",
        ".gitignore": "node_modules/\nbuild/*\n",
        "build/.gitignore": "!keep.js\n",
    }
    for number, (name, text) in enumerate(files.items()):
        target = tmp_path / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")
        os.utime(target, (1_000_000 + number, 1_000_000 + number))
    return tmp_path


async def _glob(place: Path, pattern: str, **more: Any) -> list[str]:
    return (await use(GlobTool(), context(place), {"pattern": pattern, **more})).text.splitlines()


async def _grep(place: Path, pattern: str, **more: Any) -> ToolResult:
    return await use(GrepTool(), context(place), {"pattern": pattern, **more})


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        ("*.py", ["main.py"]),
        ("**/*.{ts,tsx}", ["src/deep/b.tsx", "src/a.ts"]),
        ("src/*", ["src/a.ts"]),
        ("./src/**", ["src/deep/b.tsx", "src/a.ts"]),
        ("*.md", ["docs/说明.md"]),
        ("[.]env", [".env"]),
        ("config", []),
        ("../*", []),
    ],
)
async def test_files_are_found_newest_first(work: Path, pattern: str, found: list[str]) -> None:
    *lines, note = await _glob(work, pattern)
    assert lines == found
    count = f"[{len(found)} files. " if found else "[No file fits the pattern. "
    assert note == count + "4 ignored entries left out (include_ignored)]"


async def test_what_git_ignores_can_be_asked_for(work: Path) -> None:
    lines = await _glob(work, "*.js", include_ignored=True)
    assert lines[:-1] == ["build/keep.js", "build/out.js", "node_modules/x/index.js"]
    assert lines[-1] == "[3 files]"


async def test_a_pattern_may_begin_with_its_folder_and_a_folder_be_named(work: Path) -> None:
    assert (await _glob(work, f"{work}/src/**/*.tsx"))[0] == "src/deep/b.tsx"
    assert (await _glob(work, f"{work}/main.py"))[0] == "main.py"
    assert (await _glob(work, f"{work}/*.ts"))[0].startswith("[No file")
    assert (await _glob(work, "*.ts", path="src"))[0] == "src/a.ts"
    with pytest.raises(ToolInputError, match="cannot access /etc"):
        await _glob(work, "/etc/*")
    with pytest.raises(ToolFailedError, match="not a directory"):
        await _glob(work, "*", path="main.py")


async def test_too_many_files_are_reported(work: Path) -> None:
    lines = await _glob(work, "*", limit=2)
    assert len(lines) == 3
    assert "The newest 2 of " in lines[-1]


@pytest.mark.parametrize("pattern", ["[", "a" * 2_000, "{a,b}" * 20, "x\\"])
async def test_a_pattern_that_makes_no_sense_is_refused(work: Path, pattern: str) -> None:
    with pytest.raises(ToolInputError, match="invalid pattern"):
        await _glob(work, pattern)
    with pytest.raises(ToolInputError, match="invalid pattern"):
        await _grep(work, "a", glob=pattern)


async def test_a_name_that_is_no_text_is_shown_all_the_same(work: Path) -> None:
    (work / os.fsdecode(b"odd-\xff.log")).write_text("needle", encoding="utf-8")
    assert (await _glob(work, "*.log"))[0] == "odd-\\udcff.log"
    assert "odd-\\udcff.log:1:needle" in (await _grep(work, "needle")).text


async def test_lines_are_found_with_path_and_number(work: Path) -> None:
    result = await _grep(work, r"^const \w+ = \d$")
    assert result.text.splitlines()[:-1] == [
        "build/keep.js:1:const keep = 1",
        "src/a.ts:1:const Alpha = 1",
        "src/deep/b.tsx:1:const gamma = 2",
    ]
    assert result.touched[-1] == work / "src/deep/b.tsx"


async def test_chinese_is_found(work: Path) -> None:
    (work / "gb.txt").write_bytes("第一行\n配置文件\n".encode("gb18030"))
    text = (await _grep(work, "配置|你好")).text
    assert "docs/说明.md:2:第二行：配置" in text
    assert "gb.txt:2:配置文件" in text
    assert "main.py:4:    print('你好')" in text


async def test_the_ways_to_show_what_is_found(work: Path) -> None:
    (work / "many.txt").write_text("hit\nHit\nmiss\nhit\n", encoding="utf-8")
    files = await _grep(work, "hit", output_mode="files_with_matches")
    assert files.text.splitlines() == [
        "many.txt",
        "[1 files. 4 ignored entries left out (include_ignored)]",
    ]
    assert files.touched == ()
    count = await _grep(work, "hit", mode="count", **{"-i": True})
    assert count.text.splitlines()[0] == "many.txt:3"
    limited = await _grep(work, "hit", head_limit=1)
    assert limited.text.startswith("many.txt:1:hit\n[1 lines in 1 files: the limit is reached")
    assert (await _grep(work, "nowhere to be found")).text.startswith("[No line fits")


async def test_lines_around_a_hit_are_shown_once(work: Path) -> None:
    (work / "n.txt").write_text("".join(f"{n}\n" for n in range(1, 21)), encoding="utf-8")
    text = (await _grep(work, "^(3|5|15)$", path="n.txt", context=1)).text
    assert text.splitlines()[:-1] == [
        "n.txt-2-2", "n.txt:3:3", "n.txt-4-4", "n.txt:5:5", "n.txt-6-6", "--",
        "n.txt-14-14", "n.txt:15:15", "n.txt-16-16",
    ]  # fmt: skip
    ends = (await _grep(work, "^(1|20)$", path="n.txt", **{"-A": 1, "-B": 1})).text
    assert ends.splitlines()[:-1] == ["n.txt:1:1", "n.txt-2-2", "--", "n.txt-19-19", "n.txt:20:20"]


async def test_a_glob_narrows_a_search(work: Path) -> None:
    assert "main.py" not in (await _grep(work, ".", glob="src/**", mode="files")).text
    assert (await _grep(work, ".", glob="*.{py,md}", mode="files")).text.splitlines()[:-1] == [
        "docs/说明.md",
        "main.py",
    ]


async def test_binary_and_very_large_files_are_passed_over(
    work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (work / "b.bin").write_bytes(b"needle\0needle")
    assert (await _grep(work, "needle")).text.startswith("[No line")
    monkeypatch.setattr(grep, "MAX_BYTES", 10)
    (work / "large.txt").write_text("needle here it is", encoding="utf-8")
    assert "files over 10 bytes were not searched" in (await _grep(work, "needle")).text


async def test_a_very_long_line_and_very_many_hits_are_shown_shortened(work: Path) -> None:
    (work / "long.txt").write_text("x" * 100_000 + "needle\n", encoding="utf-8")
    text = (await _grep(work, "needle", path="long.txt")).text
    assert "[100,006 characters]" in text
    assert len(text) < 1_000
    (work / "many.txt").write_text(("needle" * 40 + "\n") * 1_000, encoding="utf-8")
    text = (await _grep(work, "needle", path="many.txt", limit=1_000)).text
    assert "are left out here; use a narrower pattern" in text
    assert len(text) < 31_000


async def test_a_pattern_without_a_bound_is_refused_in_words(work: Path) -> None:
    with pytest.raises(ToolInputError, match="invalid 'pattern': backreferences"):
        await _grep(work, r"(a)\1")


async def test_a_redos_pattern_ends_and_the_event_loop_goes_on(work: Path) -> None:
    # One line, so that RE2 is called once: the loop can only run while RE2 holds no GIL.
    (work / "evil.txt").write_text("a" * 200_000 + "!\n", encoding="utf-8")
    ticks, texts = 0, list[str]()

    async def tick() -> None:
        nonlocal ticks
        while True:
            await anyio.sleep(0.001)
            ticks += 1

    async with anyio.create_task_group() as group:
        group.start_soon(tick)
        texts.append((await _grep(work, r"(a+)+$|(a|aa)+b|\w{150}z")).text)
        group.cancel_scope.cancel()
    assert "No line fits" in texts[0]
    assert ticks > 0


async def test_a_search_ends_when_its_time_is_up_and_says_so(work: Path) -> None:
    facts = context(work)
    for made, arguments in (
        (GlobTool(seconds=0), {"pattern": "*"}),
        (GrepTool(seconds=0), {"pattern": "a"}),
        (GrepTool(seconds=0), {"pattern": "(a|b)*c|d", "path": "main.py"}),
    ):
        text = (await use(made, facts, arguments)).text
        assert "The search stopped because the time was up" in text


async def test_a_cancelled_search_does_not_go_on(work: Path) -> None:
    asked, go_on, seen = threading.Event(), threading.Event(), list[Path]()

    def may_read(path: Path, _: ToolContext) -> bool:
        seen.append(path)
        asked.set()
        return go_on.wait(30)

    nothing = {"pattern": "*"}
    with anyio.fail_after(20):
        async with anyio.create_task_group() as group:
            group.start_soon(GlobTool(may_read=may_read).call, nothing, context(work))
            await anyio.to_thread.run_sync(asked.wait)
            group.cancel_scope.cancel()
    go_on.set()
    assert len(seen) == 1


async def test_files_that_the_rules_forbid_are_not_found(work: Path) -> None:
    def may_read(path: Path, facts: ToolContext) -> bool:
        return path.name != ".env" and facts.session_id == "s"

    facts = context(work)
    found = await use(GlobTool(may_read=may_read), facts, {"pattern": "*"})
    assert ".env" not in found.text.splitlines()
    found = await use(GrepTool(may_read=may_read), facts, {"pattern": "KEY"})
    assert "KEY" not in found.text


async def test_folders_that_cannot_be_read_are_reported(tmp_path: Path) -> None:
    tmp_path.joinpath(*["d"] * 70).mkdir(parents=True)
    assert await _glob(tmp_path, "*") == ["[No file fits the pattern. 1 folders could not be read]"]


def test_a_walk_is_bounded_in_entries_and_depth(tmp_path: Path) -> None:
    deep = tmp_path
    for _ in range(70):
        deep = deep / "d"
    deep.mkdir(parents=True)
    (deep / "bottom").touch()
    for number in range(5):
        (tmp_path / f"f{number}").touch()
    top = os.open(tmp_path, os.O_RDONLY)
    try:
        walk = FileWalk(deadline=float("inf"))
        assert [found.path for found in walk.files(top)] == [f"f{number}" for number in range(5)]
        assert walk.unreadable == 1
        walk = FileWalk(deadline=float("inf"), max_entries=66)
        assert len(list(walk.files(top))) == 1
        assert walk.stopped == "after 66 entries"
    finally:
        os.close(top)


def test_a_walk_passes_what_is_no_ignore_file_or_cannot_be_entered(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / ".gitignore")
    (tmp_path / "a").mkdir()
    (tmp_path / "a/x").touch()
    (tmp_path / "b").touch()
    top = os.open(tmp_path, os.O_RDONLY)
    try:
        walk = FileWalk(deadline=float("inf"))
        found = list[str]()
        for file in walk.files(top):
            found.append(file.path)
        assert found == [".gitignore", "a/x", "b"]
    finally:
        os.close(top)
    assert list(walk.files(10_000)) == []
    assert walk.unreadable == 1


@pytest.mark.parametrize("name", ["Glob", "Grep"])
def test_searching_is_harmless_and_names_the_real_folder(work: Path, name: str) -> None:
    made = GlobTool() if name == "Glob" else GrepTool()
    (work / "alias").symlink_to("src")
    (asked,) = made.permissions({"pattern": "x", "path": "alias"}, context(work))
    assert (asked.tool, asked.path, asked.harmless) == (name, work / "src", True)
