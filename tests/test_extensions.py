"""Extension points for other packages."""

import sys
from collections.abc import Sequence
from pathlib import Path

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


def _install(place: Path, package: str, **points: str) -> None:
    """A package beside us that names modules as extensions."""
    folder = place / f"{package}-1.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text(f"Name: {package}\nVersion: 1\n", encoding="utf-8")
    lines = [f"{name} = {module}" for name, module in points.items()]
    text = "\n".join(("[apexbridge]", *lines, ""))
    (folder / "entry_points.txt").write_text(text, encoding="utf-8")


def test_installed_extensions_are_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = Extensions.installed()
    assert before.sources(Path()) == ()
    (tmp_path / "installed_beside.py").write_text(
        "from apexbridge.extensions import hook\n"
        "@hook\n"
        "def apexbridge_event_sinks():\n"
        "    return (print,)\n",
        encoding="utf-8",
    )
    _install(tmp_path, "first", mine="installed_beside")
    _install(tmp_path, "second", mine="installed_beside")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    for _ in range(2):
        loaded = Extensions.installed()
        assert loaded.names == (*before.names, "mine")
        assert loaded.event_sinks() == (print,)


def test_an_extension_that_cannot_be_loaded_is_a_clear_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _install(tmp_path, "broken", x="no_such_module_anywhere")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    with pytest.raises(ConfigError) as caught:
        Extensions.installed()
    assert caught.value.code == "extension_failed"
    assert "no_such_module_anywhere" in caught.value.message
