"""Catalog: one snapshot at a time, of sources that appear, disappear and fail."""

from collections.abc import Awaitable, Callable
from pathlib import Path, PurePosixPath

import anyio
import anyio.lowlevel
import pytest

from apexbridge.catalog.catalog import FIRST_RETRY, LAST_RETRY, Catalog, CatalogRules, TouchResult
from apexbridge.catalog.path_activation import PathActivation
from apexbridge.catalog.trust import TrustStore
from apexbridge.errors import SkillNotFoundError, SkillNotInvocableError, SourceError
from apexbridge.events import CatalogChanged
from apexbridge.skills.model import Origin, Skill, SkillContent, SkillResource
from apexbridge.sources.base import Scan, SkillSource
from apexbridge.sources.directory_scanner import NestedDiscovery, NestedRoot
from apexbridge.sources.folders import FolderSource
from apexbridge.testing import EventLog, MemorySource, make_skill, skill_md

pytestmark = pytest.mark.anyio


class Faulty:
    """A source whose failure can be switched on."""

    id = "mcp:faulty"
    roots: tuple[Path, ...] = ()

    def __init__(self) -> None:
        self.is_down = True
        self.asked = 0
        self.is_closed = False
        self._inner = MemorySource({"far": {"SKILL.md": skill_md("far")}}, Origin.MCP)

    async def scan(self) -> Scan:
        self.asked += 1
        if self.is_down:
            raise SourceError("connection refused", source=self.id)
        return await self._inner.scan()

    async def content(self, skill: Skill, arguments: str = "") -> SkillContent:
        return await self._inner.content(skill, arguments)

    async def resource(self, skill: Skill, path: PurePosixPath) -> SkillResource:
        return await self._inner.resource(skill, path)

    async def close(self) -> None:
        self.is_closed = True


class Odd(Faulty):
    """A source that answers, or does not, as it is reported."""

    def __init__(self, answer: Callable[[], Awaitable[Scan]], id: str = "mcp:odd") -> None:  # noqa: A002
        super().__init__()
        self.id = id
        self._answer = answer

    async def scan(self) -> Scan:
        self.asked += 1
        return await self._answer()


async def broken_answer() -> Scan:
    raise KeyError("a slip")


async def no_answer() -> Scan:
    await anyio.sleep_forever()
    raise AssertionError


Make = Callable[..., tuple[Catalog, EventLog]]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    def make_(*sources: SkillSource, patience: float = 300) -> tuple[Catalog, EventLog]:
        log = EventLog()
        project = tmp_path / "project"
        project.mkdir(exist_ok=True)

        def nested(root: NestedRoot) -> SkillSource:
            return FolderSource(root.path, Origin.PROJECT, home=root.home)

        rules = CatalogRules(
            precedence=tuple(Origin),
            trust=TrustStore(tmp_path / "trust.db"),
            nesting=NestedDiscovery(project, (".claude/skills",)),
            nested=nested,
            scan_timeout=patience,
        )
        return Catalog(sources, rules, log), log

    return make_


async def test_a_source_that_is_down_is_a_problem_and_is_asked_again_later(make: Make) -> None:
    faulty, sound = Faulty(), MemorySource({"near": {"SKILL.md": skill_md("near")}})
    catalog, log = make(faulty, sound)
    await catalog.refresh()
    assert [skill.name for skill in catalog.snapshot.skills] == ["near"]
    assert [p.code for p in catalog.snapshot.problems] == ["source_unreadable"]
    state = catalog.states[0]
    assert state.is_down
    assert catalog.due(state.retry_at - 0.1) == []
    assert catalog.due(state.retry_at) == [faulty.id]
    faulty.is_down = False
    await catalog.refresh(catalog.due(state.retry_at), cause="source")
    assert [skill.name for skill in catalog.snapshot.skills] == ["far", "near"]
    assert catalog.snapshot.problems == ()
    assert log.events[-1] == CatalogChanged(added=("far",), cause="source")
    assert catalog.due(float("inf")) == []


async def test_a_source_that_stays_down_is_asked_ever_more_rarely(make: Make) -> None:
    catalog, _ = make(Faulty())
    waits = list[float]()
    for _ in range(12):
        before = anyio.current_time()
        await catalog.refresh()
        waits.append(round(catalog.states[0].retry_at - before))
    assert waits[:4] == [FIRST_RETRY, 2, 4, 8]
    assert waits[-1] == LAST_RETRY


async def test_only_the_named_sources_are_asked(make: Make) -> None:
    first, second = Faulty(), MemorySource({})
    catalog, _ = make(first, second)
    await catalog.refresh([second.id])
    assert first.asked == 0


async def test_a_reader_keeps_its_snapshot_whatever_happens(make: Make, tmp_path: Path) -> None:
    root = make_skill(tmp_path / "s", "x", description="old")
    catalog, log = make(FolderSource(tmp_path / "s", Origin.USER))
    await catalog.refresh()
    held = catalog.snapshot
    (root / "SKILL.md").write_bytes(skill_md("x", "new"))
    await catalog.refresh()
    assert held.skills[0].description == "old"
    assert catalog.get("x").description == "new"
    assert log.events[-1] == CatalogChanged(changed=("x",), cause="refresh")
    await catalog.refresh()
    assert len(log.events) == 2  # nothing changed, nothing is announced


async def test_approval_is_announced_and_applied_without_a_scan(make: Make) -> None:
    source = MemorySource({"p": {"SKILL.md": skill_md("p", allowed_tools="Bash")}}, Origin.PROJECT)
    catalog, log = make(source)
    await catalog.refresh()
    assert not catalog.get("p").is_trusted
    assert catalog.get("p").tools == ()
    await catalog.reapply_trust()
    assert len(log.events) == 1


async def test_a_sleeping_skill_answers_its_user_and_tells_the_model_why_not(
    make: Make, tmp_path: Path
) -> None:
    make_skill(tmp_path / "s", "ts", paths="src/*.ts")
    catalog, log = make(FolderSource(tmp_path / "s", Origin.USER))
    await catalog.refresh()
    project = tmp_path / "project"
    waking = PathActivation(project)
    assert catalog.get("/ts").name == "ts"
    with pytest.raises(SkillNotInvocableError) as refused:
        catalog.get_for_model("ts", waking)
    assert refused.value.code == "skill_asleep"
    assert "src/*.ts" in refused.value.message
    touched = await catalog.touch([project / "src/a.ts"], waking)
    assert touched.activated == ("ts",)
    assert catalog.get_for_model("ts", waking).name == "ts"
    assert log.events[-1] == CatalogChanged(added=("ts",), cause="path")


async def test_a_skill_for_users_is_not_the_models(make: Make, tmp_path: Path) -> None:
    make_skill(tmp_path / "s", "deploy", disable_model_invocation=True)
    catalog, _ = make(FolderSource(tmp_path / "s", Origin.USER))
    await catalog.refresh()
    with pytest.raises(SkillNotInvocableError) as refused:
        catalog.get_for_model("deploy", PathActivation(tmp_path))
    assert refused.value.code == "skill_for_users_only"
    with pytest.raises(SkillNotFoundError) as unknown:
        catalog.get_for_model("deplay", PathActivation(tmp_path))
    assert unknown.value.near == ("deploy",)


async def test_touching_a_file_finds_the_skills_near_it_and_the_deepest_wins(
    make: Make, tmp_path: Path
) -> None:
    project = tmp_path / "project"
    make_skill(project / ".claude/skills", "x", description="top")
    make_skill(project / "a/.claude/skills", "x", description="middle")
    make_skill(project / "a/b/.claude/skills", "x", description="deep")
    make_skill(project / "a/b/.claude/skills", "y", paths="/*.md")
    catalog, log = make(FolderSource(project / ".claude/skills", Origin.PROJECT, home=project))
    await catalog.refresh()
    assert catalog.get("x").description == "top"
    waking = PathActivation(project)
    touched = await catalog.touch([project / "a/readme.md"], waking)
    assert (touched.found, catalog.get("x").description) == (("x",), "middle")
    touched = await catalog.touch([project / "a/b/readme.md"], waking)
    assert (sorted(touched.found), touched.activated) == (["x", "y"], ("y",))
    assert catalog.get("x").description == "deep"
    assert [skill.description for skill in catalog.snapshot.shadowed] == ["middle", "top"]
    assert [event.cause for event in log.events if isinstance(event, CatalogChanged)] == [
        "refresh", "folder", "folder", "path",
    ]  # fmt: skip
    assert (await catalog.touch([project / "a/b/readme.md"], waking)).found == ()


async def test_many_touch_at_once_and_each_root_is_added_once(make: Make, tmp_path: Path) -> None:
    project = tmp_path / "project"
    make_skill(project / "a/.claude/skills", "x")
    catalog, _ = make()
    async with anyio.create_task_group() as tasks:
        for number in range(20):
            tasks.start_soon(catalog.touch, [project / f"a/{number}"], PathActivation(project))
    assert len(catalog.states) == 1
    assert catalog.get("x").name == "x"


async def test_a_link_into_the_project_touches_what_it_leads_to(make: Make, tmp_path: Path) -> None:
    project = tmp_path / "project"
    make_skill(tmp_path / "s", "ts", paths="*.ts")
    catalog, _ = make(FolderSource(tmp_path / "s", Origin.USER))
    await catalog.refresh()
    (project / "a.ts").write_text("x", encoding="utf-8")
    (tmp_path / "link").symlink_to(project / "a.ts")
    assert (await catalog.touch([tmp_path / "link"], PathActivation(project))).activated == ("ts",)


async def test_one_folder_by_two_roots_is_one_skill_of_the_strongest(
    make: Make, tmp_path: Path
) -> None:
    real = make_skill(tmp_path / "user", "x")
    (tmp_path / "installed").mkdir()
    (tmp_path / "installed/x").symlink_to(real)
    catalog, _ = make(
        FolderSource(tmp_path / "installed", Origin.INSTALLED),
        FolderSource(tmp_path / "user", Origin.USER),
    )
    await catalog.refresh()
    assert [s.provenance.origin for s in catalog.snapshot.skills] == [Origin.USER]
    assert catalog.snapshot.shadowed == ()


async def test_closing_lets_every_source_go(make: Make) -> None:
    faulty = Faulty()
    catalog, _ = make(faulty)
    await catalog.close()
    assert faulty.is_closed


@pytest.mark.parametrize("answer", [broken_answer, no_answer])
async def test_a_source_thatbroken_answers_anything_orno_answer_answers_is_down_beside_the_others(
    make: Make, answer: Callable[[], Awaitable[Scan]]
) -> None:
    near = MemorySource({"near": {"SKILL.md": skill_md("near")}})
    catalog, _ = make(Odd(answer), near, patience=0.1)
    with anyio.fail_after(20):
        await catalog.refresh()
    assert [skill.name for skill in catalog.snapshot.skills] == ["near"]
    (problem,) = catalog.snapshot.problems
    assert (problem.code, problem.where) == ("source_unreadable", "mcp:odd")
    assert catalog.states[0].is_down


async def test_a_source_that_is_slow_holds_up_nobody_who_did_not_ask_for_it(
    make: Make, tmp_path: Path
) -> None:
    slow = Odd(no_answer)
    make_skill(tmp_path / "project/a/.claude/skills", "nested")
    catalog, _ = make(slow, MemorySource({"near": {"SKILL.md": skill_md("near")}}))
    with anyio.fail_after(20):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(catalog.refresh, [slow.id])
            await anyio.wait_all_tasks_blocked()
            await catalog.refresh(["user:memory"])
            assert catalog.get("near").name == "near"
            project = tmp_path / "project"
            await catalog.touch([project / "a/x"], PathActivation(project))
            assert catalog.get("nested").name == "nested"
            await catalog.reapply_trust()
            tasks.cancel_scope.cancel()
    assert catalog.states[-2].sequence == 0
    async with anyio.create_task_group() as tasks:  # its lane is free again
        tasks.start_soon(catalog.refresh, [slow.id])
        await anyio.wait_all_tasks_blocked()
        assert slow.asked == 2
        tasks.cancel_scope.cancel()


async def test_findings_of_an_older_scan_do_not_replace_those_of_a_newer_one(make: Make) -> None:
    gate, ended, said = anyio.Event(), anyio.Event(), ["old", "new"]

    async def answer() -> Scan:
        name = said.pop(0)
        return await MemorySource({name: {"SKILL.md": skill_md(name)}}, Origin.MCP).scan()

    async def wait() -> Scan:
        await gate.wait()
        return Scan()

    catalog, _ = make(Odd(answer), Odd(wait, "mcp:slow"))

    async def older() -> None:
        await catalog.refresh()
        ended.set()

    with anyio.fail_after(20):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(older)  # has read the first, and waits for the second
            await anyio.wait_all_tasks_blocked()
            await catalog.refresh(["mcp:odd"])
            assert [skill.name for skill in catalog.snapshot.skills] == ["new"]
            gate.set()
            await ended.wait()
    assert [skill.name for skill in catalog.snapshot.skills] == ["new"]


async def test_of_two_sources_with_one_id_the_first_is_used_and_the_other_told(make: Make) -> None:
    one = MemorySource({"one": {"SKILL.md": skill_md("one")}})
    catalog, _ = make(one, MemorySource({"two": {"SKILL.md": skill_md("two")}}))
    await catalog.refresh()
    assert [skill.name for skill in catalog.snapshot.skills] == ["one"]
    assert [(p.code, p.where) for p in catalog.snapshot.problems] == [("source_twice", one.id)]


async def test_a_source_that_cannot_be_closed_keeps_no_other_open(make: Make) -> None:
    class Stuck(Faulty):
        id = "mcp:stuck"

        async def close(self) -> None:
            raise KeyError("a slip")

    class Slow(Faulty):
        async def close(self) -> None:
            await anyio.lowlevel.checkpoint()
            self.is_closed = True

    slow = Slow()
    catalog, _ = make(Stuck(), slow)
    with anyio.CancelScope() as scope:
        scope.cancel()
        await catalog.close()
    assert slow.is_closed


async def test_roots_that_an_interrupted_touch_found_are_read_by_the_next(
    make: Make, tmp_path: Path
) -> None:
    project = tmp_path / "project"
    make_skill(project / "a/.claude/skills", "x")
    catalog, _ = make()
    roots = NestedDiscovery(project, (".claude/skills",)).discover([project / "a/f"])
    catalog._add(roots)  # pyright: ignore[reportPrivateUsage]  # as far as it came
    touched = await catalog.touch([project / "b"], PathActivation(project))
    assert touched.found == ("x",)


async def test_finding_a_deeper_folder_changes_nothing_among_the_others(
    make: Make, tmp_path: Path
) -> None:
    project = tmp_path / "project"
    first = FolderSource(project / "skills", Origin.PROJECT, home=project)
    second = FolderSource(project / "some/where/skills", Origin.PROJECT, home=project)
    for source in (first, second):
        make_skill(source.root, "x", description=source.root.parent.name)
    make_skill(project / "a/.claude/skills", "y")
    catalog, _ = make(first, second)
    await catalog.refresh()
    await catalog.touch([project / "a/f"], PathActivation(project))
    assert catalog.get("y").name == "y"
    assert catalog.get("x").description == "project"


async def test_paths_that_cannot_be_are_no_reason_to_fail(make: Make, tmp_path: Path) -> None:
    project = tmp_path / "project"
    catalog, _ = make()
    (project / "ring").symlink_to("ring")
    paths = [project / ("a" * 300), project / "ring", project / "ring/x", project / "a\0b"]
    assert await catalog.touch(paths, PathActivation(project)) == TouchResult()


@pytest.mark.parametrize("name", ["cafe\u0301", "/CAF\u00c9 ", " / caf\u00e9\n", "\uff43afé"])
async def test_a_name_is_found_in_every_form_it_can_be_typed_in(make: Make, name: str) -> None:
    catalog, _ = make(MemorySource({"caf\u00e9": {"SKILL.md": skill_md("caf\u00e9")}}))
    await catalog.refresh()
    assert catalog.get(name).name == "caf\u00e9"


async def test_near_names_are_found_among_thousands(make: Make) -> None:
    skills = {f"skill-{number}": {"SKILL.md": skill_md(f"skill-{number}")} for number in range(900)}
    catalog, _ = make(MemorySource({**skills, "deploy": {"SKILL.md": skill_md("deploy")}}))
    await catalog.refresh()
    for wanted in ("DEPLOI", "deplyo", "eploy"):
        with pytest.raises(SkillNotFoundError) as unknown:
            catalog.get(wanted)
        assert unknown.value.near[0] == "deploy"
