"""What was read of a skill, as bytes that can be kept: reading them is far cheaper than parsing."""

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Any

from apexbridge import policy, skills
from apexbridge.policy.hookspec import Hook, HookEvent
from apexbridge.policy.rules import ToolPattern
from apexbridge.skills.manifest import SkillManifest
from apexbridge.skills.model import Fingerprint, FolderId, Problem, Provenance, Skill
from apexbridge.skills.reader import Reading


@cache
def reader_id() -> str:
    """Names the code that reads skills: what another version of it read is not used."""
    return hashlib.sha256(";".join(_sources()).encode()).hexdigest()[:16]


def _sources() -> Iterator[str]:
    for room in (skills, policy):
        for path in sorted(Path(place) for place in room.__path__):
            modules = sorted(path.glob("*.py"))
            # In a zipped package there are none to be seen: the archive speaks for them.
            for module in modules or [next(p for p in path.parents if p.exists())]:
                status = module.stat()
                yield f"{module.name} {status.st_size} {status.st_mtime_ns}"


def dump(reading: Reading) -> bytes | None:
    """Write a reading down; nothing where there is no skill, or no way to tell its state."""
    skill = reading.skill
    if skill is None or skill.fingerprint is None:
        return None
    mark = skill.fingerprint
    kept = {
        "name": skill.name,
        "description": skill.description,
        "manifest": skill.manifest.model_dump(by_alias=True, exclude_defaults=True, mode="json"),
        "tools": [[pattern.tool, pattern.argument] for pattern in skill.tools],
        "hooks": [asdict(hook) for hook in skill.hooks],
        "fingerprint": [mark.size, mark.files, mark.sha256],
        "problems": [[p.code, p.where, p.severity, p.details] for p in reading.problems],
    }
    try:
        return json.dumps(kept, ensure_ascii=False, allow_nan=False).encode()
    except (TypeError, ValueError):  # a detail that is no JSON, or a lone surrogate
        return None


def load(
    data: bytes, *, root: Path, provenance: Provenance, folder_id: FolderId | None = None
) -> Reading | None:
    """Read it back; nothing if it makes no sense."""
    try:
        kept: dict[str, Any] = json.loads(data)
        size, files, sha256 = kept["fingerprint"]
        if not all(isinstance(kept[key], str) for key in ("name", "description")):
            return None
        skill = Skill(
            name=kept["name"],
            description=kept["description"],
            manifest=SkillManifest.model_validate(kept["manifest"]),
            provenance=provenance,
            root=root,
            folder_id=folder_id,
            fingerprint=Fingerprint(size=size, files=files, sha256=sha256),
            tools=tuple(ToolPattern(tool, argument) for tool, argument in kept["tools"]),
            hooks=tuple(_hook(**declared) for declared in kept["hooks"]),
            is_trusted=not provenance.needs_trust,
        )
        problems = tuple(
            Problem(code=code, where=where, severity=severity, details=details)
            for code, where, severity, details in kept["problems"]
        )
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    return Reading(skill=skill, problems=problems)


def _hook(event: str, command: Sequence[str], **rest: Any) -> Hook:
    return Hook(event=HookEvent(event), command=tuple(command), **rest)
