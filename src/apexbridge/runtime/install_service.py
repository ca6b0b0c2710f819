"""Install skills by address: fetch, list what is there, choose, install; find newer versions."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path, PurePosixPath

import anyio.to_thread

from apexbridge.errors import ApexBridgeError, ArchiveError, SourceError, UnsafePathError
from apexbridge.lifecycle.inspection import Inspection
from apexbridge.lifecycle.install_sources.address import FORGES, LOCAL, Address, refused_address
from apexbridge.lifecycle.install_sources.base import FetchedTree, InstallSources
from apexbridge.lifecycle.manager import SkillManager
from apexbridge.lifecycle.scan_results import BlockLevel
from apexbridge.lifecycle.source_records import InstallOrigin, SourceRecord
from apexbridge.lifecycle.store import SkillStore
from apexbridge.lifecycle.transactions import InstallResult, enter_in_thread
from apexbridge.lifecycle.unpack_and_validate import Renames, archived_name
from apexbridge.paths import safe_join
from apexbridge.skills.model import Problem
from apexbridge.sources.plugins.source import has_skill_md
from apexbridge.sources.repository import FoundSkill, discover_skills, missing_submodules

_MAX_NAMED = 40


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SkillOffer:
    """A skill that an address has, and that can be installed while the address is open."""

    name: str
    description: str
    path: Path
    """Its folder or archive on this disk."""
    where: str
    """Its path in the source; empty if the source is the skill."""
    plugin: str = ""
    renames: Renames = "titles"
    """Whether its folder is renamed after the skill, where they differ."""
    problems: tuple[Problem, ...] = ()
    refusal: ArchiveError | None = None
    """Why a file of it was left out: it cannot be installed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Offers:
    """All skills of an address, and what was left out and why."""

    address: Address
    """The address with its revision."""
    skills: tuple[SkillOffer, ...]
    problems: tuple[Problem, ...] = ()
    archive: Path | None = None
    """The signed archive that all skills were unpacked from."""
    signature: str = ""
    """Its detached signature."""
    tree: FetchedTree | None = None
    """What was fetched, if it is a folder."""

    def choose(self, names: Sequence[str] = (), *, every: bool = False) -> tuple[SkillOffer, ...]:
        """Return the skills of these names or paths; all; or the only one. Blocking.

        Raises:
            SourceError: `source_skill_unknown`, or `source_choice` if there are several.
        """
        wanted = names or ((self.address.skill,) if self.address.skill else ())
        if every and not names:
            return self.skills
        if wanted:
            return tuple(dict.fromkeys(self._find(name) for name in wanted))
        if len(self.skills) == 1:
            return self.skills
        raise SourceError(code="source_choice", source=str(self.address), names=self._names())

    def at(self, path: str) -> SkillOffer | None:
        """Return the skill of a folder, also one that is not listed. Blocking.

        Not listed are equal copies, and skills inside of others, which have them as files.
        """
        place = path.strip("/")
        listed = (skill for skill in self.skills if place and skill.where == place)
        found = next(listed, None)
        return _unlisted_offer(self.tree, place) if found is None and self.tree else found

    def _find(self, wanted: str) -> SkillOffer:
        if "/" in wanted and (skill := self.at(wanted)):
            return skill
        for matches in (_is_at, _is_named, _is_named_loosely):
            for skill in self.skills:
                if matches(skill, wanted):
                    return skill
        raise SourceError(
            code="source_skill_unknown",
            source=str(self.address),
            name=wanted,
            names=self._names(),
        )

    def _names(self) -> str:
        names = [skill.name for skill in self.skills]
        more = f" (+{len(names) - _MAX_NAMED})" if len(names) > _MAX_NAMED else ""
        return ", ".join(names[:_MAX_NAMED]) + more


def _is_at(skill: SkillOffer, wanted: str) -> bool:
    return bool(skill.where) and skill.where == wanted.strip("/")


def _is_named(skill: SkillOffer, wanted: str) -> bool:
    return skill.name == wanted


def _is_named_loosely(skill: SkillOffer, wanted: str) -> bool:
    folder = PurePosixPath(skill.where).name
    return wanted.casefold() in {skill.name.casefold(), folder.casefold()}


@dataclass(frozen=True, slots=True, kw_only=True)
class InstallOutcome:
    """Result of one of several installs: the change, or the error."""

    name: str
    where: str
    result: InstallResult | None = None
    error: ApexBridgeError | None = None


class InstallService:
    """Installs from any address. Each skill succeeds or fails by itself."""

    def __init__(self, manager: SkillManager, store: SkillStore, sources: InstallSources) -> None:
        self.manager = manager
        self.sources = sources
        self._store = store

    async def parse(self, text: str, *, is_web_only: bool = False) -> Address:
        """Parse an address; with `is_web_only` nothing that reads this machine or uses its keys.

        Raises:
            SourceError: `source_refused` or `source_address_invalid`.
        """
        # A path is not even looked for: whether it exists is nothing to be told over the network.
        address = await self.sources.parse(text, is_local_known=not is_web_only)
        if is_web_only and not is_web_address(address):
            raise refused_address(text, "over the network only https addresses can be given")
        return address

    @asynccontextmanager
    async def open(
        self, address: Address | str, *, renames: Renames = False
    ) -> AsyncGenerator[Offers]:
        """Fetch an address, and list its skills; what was fetched is removed after the block.

        Raises:
            SourceError: If it cannot be fetched, or has no skills.
            ArchiveError: If it is an archive that is unsafe or too large.
            StorageError: `path_missing` for a path that does not exist.
        """
        if isinstance(address, str):
            address = await self.parse(address)
        resolved = await self.sources.resolve(address)
        async with enter_in_thread(self._store.staging()) as staging:
            tree = await self.sources.fetch(resolved, staging)
            offers = await anyio.to_thread.run_sync(_list_offers, tree, renames)
            # `owner/repo@pdf` is that skill alone, also for those who list or take all.
            if offers.address.skill:
                offers = replace(offers, skills=await anyio.to_thread.run_sync(offers.choose))
            yield offers

    async def install(
        self,
        address: Address | str,
        *,
        skills: Sequence[str] = (),
        every: bool = False,
        blocks_at: BlockLevel = "policy",
    ) -> tuple[InstallOutcome, ...]:
        """Install the named skills of an address, all of them, or its only one.

        Raises:
            SourceError: If it cannot be fetched, or the choice is not clear.
            ArchiveError: If it is an archive that is unsafe or too large.
        """
        async with self.open(address) as offers:
            choose = partial(offers.choose, skills, every=every)
            chosen = await anyio.to_thread.run_sync(choose)
            return tuple(
                [await self.install_offer(offers, skill, blocks_at=blocks_at) for skill in chosen]
            )

    async def install_offer(
        self,
        offers: Offers,
        skill: SkillOffer,
        *,
        blocks_at: BlockLevel = "policy",
        sha256: str = "",
    ) -> InstallOutcome:
        """Install one skill of an open address; an error is the outcome.

        With a hash only that content is installed: what was inspected may have changed since
        (TOCTOU).
        """
        try:
            check_offer(skill)
            result = await self.manager.install(
                skill.path,
                renames=skill.renames,
                blocks_at=blocks_at,
                origin=origin_of(offers, skill, sha256),
            )
        except ApexBridgeError as error:
            return InstallOutcome(name=skill.name, where=skill.where, error=error)
        return InstallOutcome(name=result.skill.name, where=skill.where, result=result)

    async def inspect(self, offers: Offers, skill: SkillOffer) -> Inspection:
        """Dry run of an install of one skill; raises as `SkillManager.inspect` does."""
        check_offer(skill)
        return await self.manager.inspect(
            skill.path,
            renames=skill.renames,
            signature=offers.signature,
            archive=offers.archive,
        )

    def record(self, name: str) -> SourceRecord:
        """Return where an installed skill came from.

        Raises:
            SourceError: `source_not_recorded`.
        """
        record = self.manager.sources.get(name)
        if record is None:
            raise SourceError(code="source_not_recorded", name=name)
        return record


def is_web_address(address: Address) -> bool:
    """Return whether an address is fetched by https: it reads no file here and uses no key."""
    return address.kind in FORGES or address.location.startswith(("https://", "http://"))


def check_offer(skill: SkillOffer) -> None:
    """Refuse a skill that is not complete, because a file of it is unsafe.

    Raises:
        ArchiveError: With that file.
    """
    if skill.refusal is not None:
        raise skill.refusal


def origin_of(offers: Offers, skill: SkillOffer, sha256: str = "") -> InstallOrigin:
    """Build the origin of a skill: its source and signature.

    With a hash only that content is installed.
    """
    address = offers.address
    record = SourceRecord(
        source=address.source,
        ref=address.ref,
        revision=address.revision,
        path=skill.where,
        sha256=sha256,
    )
    return InstallOrigin(source=record, signature=offers.signature, archive=offers.archive)


def _list_offers(tree: FetchedTree, renames: Renames) -> Offers:
    """List the skills of a fetched tree. Blocking: every file of every skill is hashed."""
    address, is_local = tree.address, tree.address.kind == LOCAL
    root = _folder(tree)
    if not root.is_dir():
        name, description = archived_name(root)
        skill = SkillOffer(
            name=name,
            description=description,
            path=root,
            where="",
            renames=renames if is_local else "titles",
        )
        return Offers(address=address, skills=(skill,))
    found = discover_skills(root)
    if not found.skills and (is_local or (root / "SKILL.md").exists()):
        # The installation says best what is wrong with it.
        skill = SkillOffer(
            name=root.resolve().name, description="", path=root, where=address.path, renames=renames
        )
        return Offers(address=address, skills=(skill,), problems=found.problems)
    if not found.skills:
        detail = "; ".join(problem.message for problem in found.problems[:3])
        raise SourceError(detail, code="source_no_skills", source=str(address))
    is_one = is_local and found.skills[0].where == ""
    offers = (
        _offer(skill, tree, renames=renames if is_one else "titles") for skill in found.skills
    )
    return Offers(
        address=address,
        skills=tuple(offers),
        problems=(*tree.problems, *found.problems, *missing_submodules(tree.path)),
        archive=tree.archive,
        signature=tree.signature,
        tree=tree,
    )


def _folder(tree: FetchedTree) -> Path:
    """Return the folder of an address's path.

    Raises:
        SourceError: `source_path_unknown`.
    """
    path = tree.address.path
    if not path:
        return tree.path
    try:
        folder = safe_join(tree.path, path)
    except UnsafePathError:
        folder = None
    if folder is None or not folder.is_dir():
        raise SourceError(code="source_path_unknown", source=str(tree.address), path=path)
    return folder


def _unlisted_offer(tree: FetchedTree, path: str) -> SkillOffer | None:
    try:
        folder = safe_join(tree.path, path)
    except UnsafePathError:
        return None
    if not has_skill_md(folder):
        return None
    skill = next(iter(discover_skills(folder).skills), None)
    if skill is None:
        return None
    # The address of the tree may have a path, and the one given may lead through a symlink.
    where = folder.relative_to(tree.path.resolve()).as_posix()
    whole = replace(tree, address=replace(tree.address, path=""))
    return _offer(replace(skill, where=where), whole, renames="titles")


def _offer(skill: FoundSkill, tree: FetchedTree, *, renames: Renames) -> SkillOffer:
    where = "/".join(filter(None, (tree.address.path, skill.where)))
    return SkillOffer(
        name=skill.name,
        description=skill.description,
        path=skill.path,
        where=where,
        plugin=skill.plugin,
        renames=renames,
        problems=skill.problems,
        refusal=_refusal(where, tree.dropped),
    )


def _refusal(where: str, dropped: Mapping[PurePosixPath, ArchiveError]) -> ArchiveError | None:
    place = PurePosixPath(where)
    return next((dropped[path] for path in dropped if path.is_relative_to(place)), None)
