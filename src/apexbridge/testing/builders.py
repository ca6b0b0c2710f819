"""Builders of skills and zip archives for tests."""

import json
import zipfile
from collections.abc import Mapping
from pathlib import Path

from apexbridge.skills.editor import quote

DEFAULT_BODY = "# Instructions\n\nDo what the description says.\n"


def skill_md(
    name: str = "example",
    description: str = "An example for tests.",
    body: str = DEFAULT_BODY,
    **fields: object,
) -> bytes:
    """Build a SKILL.md; further frontmatter fields are written as JSON, which is valid YAML.

    Underscores in field names become hyphens, except in `when_to_use`.
    """
    lines = [f"name: {quote(name)}", f"description: {quote(description)}"]
    for key, value in fields.items():
        written = key if key == "when_to_use" else key.replace("_", "-")
        lines.append(f"{written}: {json.dumps(value, ensure_ascii=False)}")
    return "\n".join(("---", *lines, "---", body)).encode()


def make_skill(
    parent: Path,
    name: str = "example",
    *,
    raw: bytes | None = None,
    files: Mapping[str, str | bytes] | None = None,
    **fields: object,
) -> Path:
    """Create a skill directory below `parent`; `raw` replaces the whole SKILL.md.

    Files below `scripts/` become executable.
    """
    root = parent / name
    root.mkdir(parents=True)
    data = skill_md(name, **fields) if raw is None else raw  # pyright: ignore[reportArgumentType]
    (root / "SKILL.md").write_bytes(data)
    for path, content in (files or {}).items():
        target = root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content.encode() if isinstance(content, str) else content)
        if path.startswith("scripts/"):
            target.chmod(0o755)
    return root


def make_zip(path: Path, entries: Mapping[str, str | bytes]) -> Path:
    """Create a zip archive with exactly these entries, also invalid or hostile names."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in entries.items():
            archive.writestr(name, content)
    return path
