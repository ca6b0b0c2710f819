"""The catalogue: one snapshot at a time, of sources that come, go and fail."""

from collections.abc import Callable
from pathlib import Path, PurePosixPath

import anyio
import pytest

from apexbridge.catalog.catalog import FIRST_RETRY, LAST_RETRY, Catalog, Rules
from apexbridge.catalog.trust import TrustStore
from apexbridge.catalog.waking import Waking
from apexbridge.errors import SkillNotFoundError, SkillNotInvocableError, SourceError
from apexbridge.events import CatalogChanged
from apexbridge.skills.model import Origin, Skill, SkillContent, SkillResource
from apexbridge.sources.base import Scan, SkillSource
from apexbridge.sources.folders import FolderSource
from apexbridge.sources.nested import NestedRoot, Nesting
from apexbridge.testing import EventLog, MemorySource, make_skill, skill_md

pytestmark = pytest.mark.anyio


class Faulty:
    """A source that is down while it is told to be."""

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


Make = Callable[..., tuple[Catalog, EventLog]]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    def make_(*sources: SkillSource) -> tuple[Catalog, EventLog]:
        log = EventLog()
        project = tmp_path / "project"
        project.mkdir(exist_ok=True)

        def nested(root: NestedRoot) -> SkillSource:
            return FolderSource(root.path, Origin.PROJECT, home=root.home)

        rules = Rules(
            precedence=tuple(Origin),
            trust=TrustStore(tmp_path / "trust.db"),
            nesting=Nesting(project, (".claude/skills",)),
            nested=nested,
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
    await catalog.settle()
    assert len(log.events) == 1


async def test_a_sleeping_skill_answers_its_user_and_tells_the_model_why_not(
    make: Make, tmp_path: Path
) -> None:
    make_skill(tmp_path / "s", "ts", paths="src/*.ts")
    catalog, log = make(FolderSource(tmp_path / "s", Origin.USER))
    await catalog.refresh()
    project = tmp_path / "project"
    waking = Waking(project)
    assert catalog.get("/ts").name == "ts"
    with pytest.raises(SkillNotInvocableError) as refused:
        catalog.get_for_model("ts", waking)
    assert refused.value.code == "skill_asleep"
    assert "src/*.ts" in refused.value.message
    touched = await catalog.touch([project / "src/a.ts"], waking)
    assert touched.woken == ("ts",)
    assert catalog.get_for_model("ts", waking).name == "ts"
    assert log.events[-1] == CatalogChanged(added=("ts",), cause="path")


async def test_a_skill_for_users_is_not_the_models(make: Make, tmp_path: Path) -> None:
    make_skill(tmp_path / "s", "deploy", disable_model_invocation=True)
    catalog, _ = make(FolderSource(tmp_path / "s", Origin.USER))
    await catalog.refresh()
    with pytest.raises(SkillNotInvocableError) as refused:
        catalog.get_for_model("deploy", Waking(tmp_path))
    assert refused.value.code == "skill_for_users_only"
    with pytest.raises(SkillNotFoundError) as unknown:
        catalog.get_for_model("deplay", Waking(tmp_path))
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
    waking = Waking(project)
    touched = await catalog.touch([project / "a/readme.md"], waking)
    assert (touched.found, catalog.get("x").description) == (("x",), "middle")
    touched = await catalog.touch([project / "a/b/readme.md"], waking)
    assert (sorted(touched.found), touched.woken) == (["x", "y"], ("y",))
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
            tasks.start_soon(catalog.touch, [project / f"a/{number}"], Waking(project))
    assert len(catalog.states) == 1
    assert catalog.get("x").name == "x"


async def test_a_link_into_the_project_touches_what_it_leads_to(make: Make, tmp_path: Path) -> None:
    project = tmp_path / "project"
    make_skill(tmp_path / "s", "ts", paths="*.ts")
    catalog, _ = make(FolderSource(tmp_path / "s", Origin.USER))
    await catalog.refresh()
    (project / "a.ts").write_text("x", encoding="utf-8")
    (tmp_path / "link").symlink_to(project / "a.ts")
    assert (await catalog.touch([tmp_path / "link"], Waking(project))).woken == ("ts",)


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
