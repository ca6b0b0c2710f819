"""Packages that a skill needs: requirement texts reduced to names, extras, versions and markers.

Everything a requirement can say beside that (a URL, a path, an option, another index) is refused:
the packages come from the index that the operator configured, and from nowhere else.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from apexbridge.environments.package_index import Ecosystem

Certainty = Literal["declared", "guess", "optional"]

MAX_PACKAGES = 200
"""Declarations of real skills stay far below; more would only keep the resolver busy."""
_MAX_TEXT = 300
_HASH_OPTION = re.compile(r"\s--hash[= ]\S+")
_COMMENT = re.compile(r"(^|\s)#.*$")
_NPM_NAME = re.compile(r"(?:@[a-z0-9~-][a-z0-9._~-]*/)?[a-z0-9~-][a-z0-9._~-]*", re.IGNORECASE)
_NPM_RANGE = re.compile(r"[\w.*^~<>=|\s+-]*", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class Package:
    """A needed package; `text` is the canonical requirement, safe for a resolver's input."""

    ecosystem: Ecosystem
    name: str
    text: str
    where: str
    """File of the skill that asks for it."""
    certainty: Certainty = "declared"


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """A declaration that is not followed, with the reason."""

    text: str
    where: str
    reason: Literal["url", "path", "option", "invalid", "too_many", "unreadable"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SkillNeeds:
    """All packages of a skill, and declarations that were refused."""

    packages: tuple[Package, ...] = ()
    refused: tuple[Refusal, ...] = ()

    def required(self, ecosystem: Ecosystem) -> tuple[Package, ...]:
        """Return the packages to build: declared and guessed ones, without optional imports."""
        return tuple(
            package
            for package in self.packages
            if package.ecosystem == ecosystem and package.certainty != "optional"
        )

    def texts(self, ecosystem: Ecosystem) -> tuple[str, ...]:
        """Return the canonical requirements to build, sorted: equal needs are equal texts."""
        return tuple(sorted({package.text for package in self.required(ecosystem)}))


def python_package(
    text: str, where: str, certainty: Certainty = "declared"
) -> Package | Refusal | None:
    """Parse a requirement (PEP 508), or a line of `requirements.txt`; None if it says nothing.

    >>> python_package("Requests[socks] >=2, <3  # http", "requirements.txt").text
    'requests[socks]<3,>=2'
    >>> python_package("evil @ https://example.org/evil.whl", "requirements.txt").reason
    'url'
    """
    line = _HASH_OPTION.sub("", _COMMENT.sub("", text).strip().rstrip("\\")).strip()
    if not line:
        return None
    shown = line[:_MAX_TEXT]
    if line.startswith("-"):
        return Refusal(text=shown, where=where, reason="option")
    if len(line) > _MAX_TEXT or not line.isprintable() or "$" in line:
        return Refusal(text=shown, where=where, reason="invalid")  # uv expands `${VARIABLE}`
    try:
        requirement = Requirement(line)
    except InvalidRequirement:
        return Refusal(text=shown, where=where, reason=_why_unparsable(line))
    if requirement.url is not None:
        return Refusal(text=shown, where=where, reason="url")
    requirement.name = canonicalize_name(requirement.name)
    return Package(
        ecosystem="python",
        name=requirement.name,
        text=str(requirement),
        where=where,
        certainty=certainty,
    )


def _why_unparsable(line: str) -> Literal["url", "path", "option", "invalid"]:
    if "://" in line or line.startswith("git+"):
        return "url"
    if " --" in line:
        return "option"
    is_path = line.startswith((".", "/", "~")) or line.endswith((".whl", ".tar.gz", ".zip"))
    return "path" if is_path else "invalid"


def node_package(
    name: str, version: str, where: str, certainty: Certainty = "declared"
) -> Package | Refusal:
    """Parse an entry of `dependencies` in `package.json`: a name and a range of versions.

    >>> node_package("left-pad", "git+ssh://example.org/x.git", "package.json").reason
    'url'
    """
    shown = f"{name}@{version}"[:_MAX_TEXT]
    if not _NPM_NAME.fullmatch(name) or len(shown) >= _MAX_TEXT:
        return Refusal(text=shown, where=where, reason="invalid")
    wanted = "*" if version in {"", "latest", "next"} else version.strip()
    if not _NPM_RANGE.fullmatch(wanted):
        reason = "path" if wanted.startswith(("file:", "link:", "workspace:")) else "url"
        return Refusal(text=shown, where=where, reason=reason)
    return Package(
        ecosystem="node", name=name, text=f"{name}@{wanted}", where=where, certainty=certainty
    )


def merge(found: Iterable[Package | Refusal | None]) -> SkillNeeds:
    """Collect packages and refusals, each text once; a declared package outweighs a guess."""
    packages, refused = dict[tuple[str, str], Package](), dict[tuple[str, str], Refusal]()
    for item in found:
        if isinstance(item, Refusal):
            refused.setdefault((item.text, item.where), item)
        elif item is not None and len(packages) < MAX_PACKAGES:
            _add(packages, item)
        elif item is not None:
            refused[item.where, "too_many"] = Refusal(
                text=f"> {MAX_PACKAGES}", where=item.where, reason="too_many"
            )
    return SkillNeeds(
        packages=tuple(_without_weaker(packages.values())),
        refused=tuple(refused.values())[:MAX_PACKAGES],
    )


_RANK = {"declared": 0, "guess": 1, "optional": 2}


def _add(packages: dict[tuple[str, str], Package], item: Package) -> None:
    there = packages.get((item.ecosystem, item.text))
    if there is None or _RANK[item.certainty] < _RANK[there.certainty]:
        packages[item.ecosystem, item.text] = item


def _without_weaker(packages: Iterable[Package]) -> Iterator[Package]:
    """Leave out guesses of packages that are declared, and optional ones that are needed."""
    listed = list(packages)
    best = dict[tuple[str, str], int]()
    for package in listed:
        key, rank = (package.ecosystem, package.name), _RANK[package.certainty]
        best[key] = min(rank, best.get(key, rank))
    for package in sorted(listed, key=lambda one: (_RANK[one.certainty], one.text)):
        if _RANK[package.certainty] == best[package.ecosystem, package.name]:
            yield package
