"""What other packages can add."""

from collections.abc import Sequence
from importlib.metadata import EntryPoint
from pathlib import Path

import pluggy
import pytest

from apexbridge.errors import ConfigError
from apexbridge.events import CatalogChanged, EventSink
from apexbridge.extensions import Extensions, hook
from apexbridge.runtime import Runtime
from apexbridge.settings import load
from apexbridge.skills.model import Origin
from apexbridge.sources.base import SkillSource
from apexbridge.testing import EventLog, MemorySource, skill_md


class Extension:
    """Adds one skill and listens."""

    def __init__(self, log: EventLog) -> None:
        self._log = log

    @hook
    def apexbridge_sources(self, project: Path) -> Sequence[SkillSource]:
        name = f"from-{project.name}"
        return (MemorySource({name: {"SKILL.md": skill_md(name)}}, Origin.PLUGIN),)

    @hook
    def apexbridge_event_sinks(self) -> Sequence[EventSink]:
        return (self._log,)


@pytest.mark.anyio
async def test_an_extension_adds_skills_and_hears_of_them(home: Path) -> None:
    log = EventLog()
    extensions = Extensions()
    extensions.add(Extension(log), "mine")
    loaded = load(project=home, environment={"HOME": str(home)})
    async with Runtime.open(loaded, extensions=extensions) as runtime:
        skill = runtime.catalog.get("from-home")
        assert (skill.provenance.origin, extensions.names) == (Origin.PLUGIN, ("mine",))
        assert (await runtime.catalog.content(skill)).body.startswith("# Instructions")
        await runtime.refresh()
    (event,) = log.events
    assert isinstance(event, CatalogChanged)
    assert "from-home" in event.added


def test_installed_extensions_are_loaded() -> None:
    assert Extensions.installed().sources(Path()) == ()


def test_an_extension_that_cannot_be_loaded_is_a_clear_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def broken(*_: object) -> None:
        EntryPoint("x", "no_such_module_anywhere", "apexbridge").load()

    monkeypatch.setattr(pluggy.PluginManager, "load_setuptools_entrypoints", broken)
    with pytest.raises(ConfigError) as caught:
        Extensions.installed()
    assert caught.value.code == "extension_failed"
    assert "no_such_module_anywhere" in caught.value.message
