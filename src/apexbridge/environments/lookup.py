"""Look up what a skill needs, what is built for it, and which environments nobody uses."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from apexbridge.environments.declarations import skill_needs
from apexbridge.environments.installed import missing_packages
from apexbridge.environments.needs import Ecosystem, SkillNeeds
from apexbridge.environments.node_builder import node_platform
from apexbridge.environments.python_builder import python_platform
from apexbridge.environments.store import Environment, EnvironmentStore, Lock, Use, make_key
from apexbridge.errors import StorageError
from apexbridge.sandbox import interpreters
from apexbridge.sandbox.interpreters import Interpreter
from apexbridge.skills import tree
from apexbridge.skills.model import Fingerprint, Skill

ECOSYSTEMS: tuple[Ecosystem, ...] = ("python", "node")
State = Literal["none", "installed", "built", "missing"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SkillDependencies:
    """Packages of a skill, and whether they are there."""

    skill: str
    needs: SkillNeeds
    states: dict[Ecosystem, State]
    """By ecosystem: nothing needed, all installed on this machine, built, or missing."""
    environments: dict[Ecosystem, Environment] = field(default_factory=dict[Ecosystem, Environment])
    changed: tuple[str, ...] = ()
    """Keys of environments that were modified after they were built."""

    @property
    def missing(self) -> tuple[str, ...]:
        """Requirements that a build would install."""
        return tuple(
            text
            for ecosystem, state in self.states.items()
            if state == "missing"
            for text in self.needs.texts(ecosystem)
        )


class EnvironmentLookup:
    """Environments of skills in one store. All methods block."""

    def __init__(self, store: EnvironmentStore) -> None:
        self._store = store

    def show(self, skill: Skill, *, verifies: bool = False) -> SkillDependencies:
        """Read what a skill needs and what is there; `verifies` reads its environments' files."""
        needs = skill_needs(skill.root) if skill.root is not None else SkillNeeds()
        use, environments = self._use(skill, needs), dict[Ecosystem, Environment]()
        for ecosystem in ECOSYSTEMS:
            found = self._store.get(use.environments.get(ecosystem, "-")) if use else None
            if found is not None:
                environments[ecosystem] = found
        checked = environments.values() if verifies else ()
        return SkillDependencies(
            skill=skill.name,
            needs=needs,
            states={one: _state(one, needs, is_built=one in environments) for one in ECOSYSTEMS},
            environments=environments,
            changed=tuple(one.key for one in checked if not self._store.is_unchanged(one)),
        )

    def lacks(self, needs: SkillNeeds) -> bool:
        """Return whether packages are neither installed on this machine nor built."""
        return any(
            _state(one, needs, is_built=self._built(one, needs.texts(one)) is not None) == "missing"
            for one in ECOSYSTEMS
        )

    def environments(self, skill: Skill) -> dict[str, Path]:
        """Return the folders of a skill's environments, by ecosystem; one small file is read."""
        use = self._use(skill)
        return {one: self._store.path(key) for one, key in use.environments.items()} if use else {}

    def record(self, skill: Skill, environments: dict[str, str]) -> None:
        """Record the environments of a skill's present state."""
        key = _use_key(skill)
        if key:
            self._store.put_use(
                key, Use(skill=skill.name, root=str(skill.root), environments=environments)
            )

    def forget(self, skill: Skill) -> None:
        """Forget the environments of a skill's present state: they are looked up again."""
        self._store.remove_use(_use_key(skill))

    def _use(self, skill: Skill, needs: SkillNeeds | None = None) -> Use | None:
        """Return the recorded environments.

        A skill that is new, or was changed, gets those that were built for the same requirements.
        """
        key = _use_key(skill)
        use = self._store.use_of(key) if key else None
        if use is not None or not key or skill.root is None or not self._store.has_locks():
            return use
        needs = needs or skill_needs(skill.root)
        found = dict[str, str]()
        for ecosystem in ECOSYSTEMS:
            built = self._built(ecosystem, needs.texts(ecosystem))
            if built is not None:
                found[ecosystem] = built.key
            elif _state(ecosystem, needs, is_built=False) == "missing":
                return None
        with suppress(StorageError):  # a read-only data folder: it is looked up again next time
            self.record(skill, found)
        return Use(skill=skill.name, root=str(skill.root), environments=found)

    def _built(self, ecosystem: Ecosystem, texts: Sequence[str]) -> Environment | None:
        found = interpreters.find(ecosystem) if texts else None
        lock = self._store.lock_of(lock_key(ecosystem, texts, found)) if found else None
        if found is None or lock is None or not lock.packages:
            return None
        return self._store.get(environment_key(lock, found))

    def unused(self, skills_in_use: frozenset[str]) -> tuple[list[str], list[Environment]]:
        """Return fingerprints of skills that are gone, and the environments that none needs.

        A skill is there if its folder has still that content, or its fingerprint is given.
        """
        gone, wanted = list[str](), set[str]()
        for fingerprint, use in self._store.uses():
            if fingerprint in skills_in_use or _is_there(Path(use.root), fingerprint):
                wanted |= set(use.environments.values())
            else:
                gone.append(fingerprint)
        return gone, [found for found in self._store.all() if found.key not in wanted]


def _state(ecosystem: Ecosystem, needs: SkillNeeds, *, is_built: bool) -> State:
    texts = needs.texts(ecosystem)
    if not texts:
        return "none"
    if is_built:
        return "built"
    found = interpreters.find("python") if ecosystem == "python" else None
    return "installed" if found and not missing_packages(texts, found) else "missing"


def lock_key(ecosystem: Ecosystem, texts: Sequence[str], found: Interpreter) -> str:
    """Return the key of a lock: the requirements, on this platform."""
    return make_key("lock", ecosystem, platform_of(ecosystem, found), *texts)


def environment_key(lock: Lock, found: Interpreter) -> str:
    """Return the content address of the environment that a lock makes."""
    return make_key(lock.ecosystem, lock.text, platform_of(lock.ecosystem, found))


def platform_of(ecosystem: Ecosystem, found: Interpreter) -> str:
    """Return interpreter and platform, which locks and environments are valid for."""
    return python_platform(found) if ecosystem == "python" else node_platform(found)


def _use_key(skill: Skill) -> str:
    return skill.fingerprint.sha256 if skill.fingerprint else ""


def _is_there(root: Path, fingerprint: str) -> bool:
    if not root.is_dir():
        return False
    found = tree.fingerprint(root)
    return isinstance(found, Fingerprint) and found.sha256 == fingerprint
