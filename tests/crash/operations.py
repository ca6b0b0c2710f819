"""The operations that are interrupted: their preparation and their action."""

import shutil
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

from apexbridge.runtime import Runtime
from apexbridge.settings import Config, load
from apexbridge.skills import tree
from apexbridge.skills.model import Fingerprint
from apexbridge.testing import make_skill, make_zip, skill_md

NAME = "garden"
Act = Callable[[Runtime, Path], Awaitable[object]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """`prepare` makes what there is before; `act` is interrupted."""

    prepare: tuple[Act, ...] = ()
    act: Act
    includes_start: bool = False
    """Whether the start of the program is interrupted too."""
    is_portable: bool = False
    """Whether the system has no rename that exchanges or never replaces."""


async def _install(runtime: Runtime, place: Path) -> None:
    await runtime.manager.install(place / "garden.zip")


async def _update(runtime: Runtime, place: Path) -> None:
    await runtime.manager.update(place / "newer/garden.zip")


async def _edit(runtime: Runtime, _: Path) -> None:
    await runtime.manager.edit_description(NAME, "Tunes violins.")


async def _uninstall(runtime: Runtime, _: Path) -> None:
    await runtime.manager.uninstall(NAME)


async def _pin(runtime: Runtime, _: Path) -> None:
    await runtime.manager.versions.pin(NAME)


async def _undo(runtime: Runtime, _: Path) -> None:
    await runtime.manager.restore(NAME)


async def _rollback(runtime: Runtime, _: Path) -> None:
    await runtime.manager.versions.rollback(NAME)


async def _scan(runtime: Runtime, _: Path) -> None:
    await runtime.index_service.index()


async def _litter(runtime: Runtime, _: Path) -> None:
    """Leave manual changes and leftovers of killed processes."""
    skills = runtime.store.root
    (skills / NAME / "SKILL.md").write_bytes(skill_md(NAME, "Edited by hand."))
    make_skill(skills, "by-hand", description="Put there by hand.")
    shutil.rmtree(skills / "drum")
    make_skill(skills / ".staging/abandoned", "half")
    (skills / ".staging/violin.marker").write_bytes(b"{")
    (skills / ".trash").mkdir(exist_ok=True)
    (skills / ".trash/unfinished").mkdir()


OPERATIONS: dict[str, Operation] = {
    "install": Operation(act=_install),
    "update": Operation(prepare=(_install,), act=_update),
    "edit": Operation(prepare=(_install,), act=_edit),
    "uninstall": Operation(prepare=(_install,), act=_uninstall),
    "undo": Operation(prepare=(_install, _uninstall), act=_undo),
    "uninstall-versions": Operation(prepare=(_install, _update, _pin), act=_uninstall),
    "undo-versions": Operation(prepare=(_install, _update, _pin, _uninstall), act=_undo),
    "rollback": Operation(prepare=(_install, _update), act=_rollback),
    "install-portably": Operation(act=_install, is_portable=True),
    "update-portably": Operation(prepare=(_install,), act=_update, is_portable=True),
    "scan": Operation(prepare=(_install, _litter), act=_scan, includes_start=True),
}


def loaded_at(place: Path) -> Config:
    """The settings of a program whose home, project and data lie in `place`."""
    environment = {
        "HOME": str(place / "home"),
        "APEXBRIDGE_DATA_DIR": str(place / "data"),
        "APEXBRIDGE_INDEX__EMBEDDER": "hash",
    }
    return load(project=place / "project", environment=environment)


async def prepare(operation: Operation, place: Path) -> None:
    """Install two untouched skills, and what the operation needs."""
    for folder in ("home", "project/.git", "newer"):  # a repository: nothing above it is looked at
        (place / folder).mkdir(parents=True)
    for folder, text in (("", "Grows tomatoes."), ("newer", "Grows beans.")):
        entries = {
            f"{NAME}/SKILL.md": skill_md(NAME, text),
            f"{NAME}/references/a.md": text * 20,
        }
        make_zip(place / folder / "garden.zip", entries)
    async with Runtime.open(loaded_at(place)) as runtime:
        for name in ("violin", "drum"):
            await runtime.manager.install(make_skill(place / "mine", name))
        await runtime.index_service.index()
        for act in operation.prepare:
            await act(runtime, place)


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """What lies in a data folder, each tree by its hash; where it lies in the trash is chance."""

    skills: tuple[str, ...]
    trash: tuple[str, ...]
    versions: tuple[str, ...]
    staging: tuple[str, ...]

    @property
    def hashes(self) -> frozenset[str]:
        """Every state of a skill that is still there, in use or not."""
        every = (*self.skills, *self.trash, *self.versions)
        return frozenset(line.rpartition(" ")[2] for line in every)


def look(place: Path) -> State:
    """See what lies there."""
    skills = place / "data/skills"
    staging = skills / ".staging"
    return State(
        skills=tuple(_trees(skills, "[!.]*")),
        trash=tuple(sorted(line.partition("/")[2] for line in _trees(skills / ".trash", "*/*"))),
        versions=tuple(_trees(skills / ".versions", "*/*/*")),
        staging=tuple(sorted(p.name for p in staging.glob("*") if p.name != ".lock")),
    )


def _trees(root: Path, pattern: str) -> list[str]:
    found = list[str]()
    for path in sorted(root.glob(pattern)):
        if path.is_dir():
            mark = tree.fingerprint(path)
            reported = mark.sha256 if isinstance(mark, Fingerprint) else mark.code
            found.append(f"{path.relative_to(root)} {reported}")
    return found
