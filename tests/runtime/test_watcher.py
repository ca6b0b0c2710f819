"""Watcher: changes on disk and of sources reach catalog and index."""

from collections.abc import Awaitable, Callable, Collection
from pathlib import Path

import anyio
import pytest

from apexbridge.catalog.path_activation import PathActivation
from apexbridge.errors import SkillNotFoundError
from apexbridge.events import CatalogChanged, ChangeCause, EventSink
from apexbridge.extensions import Extensions, hook
from apexbridge.runtime import Runtime
from apexbridge.settings import Config, load
from apexbridge.testing import EventLog, make_skill, skill_md
from tests.catalog.test_catalog import Faulty, Odd, broken_answer, no_answer

pytestmark = pytest.mark.anyio
PATIENCE = 20


def _loaded(home: Path, project: Path, **variables: str) -> Config:
    project.mkdir(exist_ok=True)
    environment = {"HOME": str(home), "APEXBRIDGE_INDEX__EMBEDDER": "hash", **variables}
    return load(project=project, environment=environment)


class Listener:
    """An extension that hears every event, and brings sources of its own."""

    def __init__(self, *sources: object) -> None:
        self.log = EventLog()
        self.sinks = list[EventSink]()
        self._sources = sources

    @hook
    def apexbridge_event_sinks(self) -> list[EventSink]:
        return [*self.sinks, self.log]

    @hook
    def apexbridge_sources(self, project: Path) -> list[object]:
        return list(self._sources)

    def extensions(self) -> Extensions:
        extensions = Extensions()
        extensions.add(self)
        return extensions

    def changes(self) -> list[CatalogChanged]:
        return [event for event in self.log.events if isinstance(event, CatalogChanged)]


async def _until(is_so: Callable[[], Awaitable[bool]]) -> None:
    with anyio.fail_after(PATIENCE):
        while not await is_so():
            await anyio.sleep(0.02)


async def _best(runtime: Runtime, query: str) -> str:
    hits = (await runtime.search(query)).hits
    return hits[0].name if hits else ""


@pytest.mark.promise("L10")
async def test_a_changed_skill_is_found_by_its_new_description(home: Path, tmp_path: Path) -> None:
    root = make_skill(home / ".claude/skills", "x", description="Grows tomatoes in spring.")
    listener = Listener()
    loaded = _loaded(home, tmp_path / "project")
    async with Runtime.open(loaded, extensions=listener.extensions(), lives=True) as runtime:
        assert await _best(runtime, "tomatoes") == "x"
        text = skill_md("x", "Tunes violins and cellos.")
        (root / "SKILL.md").write_bytes(text)

        async def is_found() -> bool:
            return await _best(runtime, "tune violins cellos") == "x"

        await _until(is_found)
        assert CatalogChanged(changed=("x",), cause="disk") in listener.changes()
        (root / "SKILL.md").write_bytes(b"---\nname: [\n---\n")

        async def is_told() -> bool:
            return any(p.code == "last_good_kept" for p in runtime.catalog.snapshot.problems)

        await _until(is_told)
        assert runtime.catalog.get("x").description == "Tunes violins and cellos."
        skill = runtime.catalog.get("x")
        assert (await runtime.catalog.content(skill)).body.startswith("# Instructions")


@pytest.mark.promise("L09")
async def test_skills_that_come_and_go_are_found_and_forgotten(home: Path, tmp_path: Path) -> None:
    async with Runtime.open(_loaded(home, tmp_path / "project"), lives=True) as runtime:
        assert await _best(runtime, "weld steel pipes") != "welding"
        # Not even the folder of all skills was there.
        root = make_skill(home / ".agents/skills", "welding", description="Weld steel pipes.")

        async def is_found() -> bool:
            return await _best(runtime, "weld steel pipes") == "welding"

        await _until(is_found)
        root.rename(tmp_path / "away")

        async def is_gone() -> bool:
            return await _best(runtime, "weld steel pipes") != "welding"

        await _until(is_gone)
        with pytest.raises(SkillNotFoundError):
            runtime.catalog.get("welding")


async def test_a_source_that_comes_back_is_listed_again(home: Path, tmp_path: Path) -> None:
    faulty = Faulty()
    listener = Listener(faulty)
    loaded = _loaded(home, tmp_path / "project")
    async with Runtime.open(loaded, extensions=listener.extensions(), lives=True) as runtime:

        async def is_missed() -> bool:
            return any(p.where == faulty.id for p in runtime.catalog.snapshot.problems)

        await _until(is_missed)
        faulty.is_down = False

        async def is_listed() -> bool:
            return any(skill.name == "far" for skill in runtime.catalog.snapshot.skills)

        await _until(is_listed)
        assert CatalogChanged(added=("far",), cause="source") in listener.changes()
    assert faulty.is_closed


async def test_a_source_that_says_it_changed_is_asked(home: Path, tmp_path: Path) -> None:
    faulty = Faulty()
    faulty.is_down = False
    listener = Listener(faulty)
    loaded = _loaded(home, tmp_path / "project", APEXBRIDGE_SKILLS__WATCH="no")
    async with Runtime.open(loaded, extensions=listener.extensions(), lives=True) as runtime:

        async def is_there() -> bool:
            return runtime.catalog.snapshot.winner("far") is not None

        await _until(is_there)  # it was not waited for at the start
        asked = faulty.asked
        runtime.watcher.changes.notify(faulty.id)

        async def is_asked() -> bool:
            return faulty.asked > asked

        await _until(is_asked)


async def test_an_error_in_the_block_stays_the_error_it_is(home: Path, tmp_path: Path) -> None:
    with pytest.raises(SkillNotFoundError):
        async with Runtime.open(_loaded(home, tmp_path / "project"), lives=True) as runtime:
            runtime.catalog.get("nothing")


async def test_a_runtime_that_does_not_live_is_as_it_was_opened(home: Path, tmp_path: Path) -> None:
    async with Runtime.open(_loaded(home, tmp_path / "project")) as runtime:
        make_skill(home / ".claude/skills", "new")
        with pytest.raises(SkillNotFoundError):
            runtime.catalog.get("new")
        await runtime.refresh()
        assert runtime.catalog.get("new").name == "new"


async def test_a_server_lives_whatever_listeners_sources_and_the_index_do(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def deaf(event: object) -> None:
        raise KeyError(event)

    followed, is_broken = list[frozenset[str]](), True

    async def follow(names: Collection[str]) -> None:
        if is_broken:
            raise OSError("disk full")
        followed.append(frozenset(names))

    listener = Listener(Odd(broken_answer))
    listener.sinks.append(deaf)
    loaded = _loaded(home, tmp_path / "project")
    async with Runtime.open(loaded, extensions=listener.extensions(), lives=True) as runtime:
        monkeypatch.setattr(runtime.index_service, "reindex", follow)

        async def is_listed() -> bool:
            return runtime.catalog.snapshot.winner("new") is not None

        make_skill(home / ".claude/skills", "new")
        await _until(is_listed)
        assert listener.changes()
        assert "mcp:odd" in {problem.where for problem in runtime.catalog.snapshot.problems}
        is_broken = False

        async def is_followed() -> bool:
            return any("new" in names for names in followed)

        await _until(is_followed)  # what could not be followed is tried again


async def test_a_server_that_never_answers_holds_up_no_change_on_disk(
    home: Path, tmp_path: Path
) -> None:
    listener = Listener(Odd(no_answer))
    loaded = _loaded(home, tmp_path / "project")
    async with Runtime.open(loaded, extensions=listener.extensions(), lives=True) as runtime:
        make_skill(home / ".claude/skills", "new")

        async def is_listed() -> bool:
            return runtime.catalog.snapshot.winner("new") is not None

        await _until(is_listed)


async def test_a_watcher_and_a_catalogue_that_break_begin_anew(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    breaks = ["watch", "refresh"]
    async with Runtime.open(_loaded(home, tmp_path / "project"), lives=True) as runtime:
        folders, refresh = runtime.watcher._roots, runtime.catalog.refresh  # pyright: ignore[reportPrivateUsage]

        def breaking_folders() -> frozenset[Path]:
            if "watch" in breaks:
                breaks.remove("watch")
                raise OSError("no descriptors")
            return folders()

        async def breaking_refresh(
            only: Collection[str] | None = None, *, cause: ChangeCause = "refresh"
        ) -> CatalogChanged:
            if "refresh" in breaks:
                breaks.remove("refresh")
                raise OSError("disk gone")
            return await refresh(only, cause=cause)

        monkeypatch.setattr(runtime.watcher, "_roots", breaking_folders)
        monkeypatch.setattr(runtime.catalog, "refresh", breaking_refresh)
        make_skill(home / ".claude/skills", "new")

        async def is_listed() -> bool:
            return runtime.catalog.snapshot.winner("new") is not None

        await _until(is_listed)
        assert breaks == []


async def test_what_a_touched_file_brings_is_found_by_search_too(
    home: Path, tmp_path: Path
) -> None:
    project = tmp_path / "project"
    make_skill(project / "web/.claude/skills", "welding", description="Weld steel pipes.")
    async with Runtime.open(_loaded(home, project)) as runtime:
        assert await _best(runtime, "weld steel pipes") != "welding"
        touched = await runtime.touch([project / "web/index.html"], PathActivation(project))
        assert touched.found == ("welding",)
        assert await _best(runtime, "weld steel pipes") == "welding"
