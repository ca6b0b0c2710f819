"""Validate, normalise and slugify skill names."""

import unicodedata

from apexbridge.skills.model import Problem

MAX_LENGTH = 64

NAME_PROBLEMS = frozenset({
    "name_too_long", "name_not_lowercase", "name_edge_hyphen", "name_double_hyphen",
    "name_characters",
})  # fmt: skip
"""Codes of names that `slug` makes valid."""
_VENDOR_PREFIXES = ("claude", "anthropic")
_DEVICES = frozenset(
    {"con", "prn", "aux", "nul"}
    | {f"{port}{number}" for port in ("com", "lpt") for number in range(1, 10)}
)


def normalise(name: str) -> str:
    """Normalise for comparison: NFKC, surrounding blanks stripped."""
    return unicodedata.normalize("NFKC", name.strip())


def slug(text: str) -> str:
    """Make a valid name from any text; empty if no character of it is allowed.

    >>> slug("PDF Miner_2")
    'pdf-miner-2'
    """
    words = "".join(char if char.isalnum() else " " for char in normalise(text).lower()).split()
    return "-".join(words)[:MAX_LENGTH].strip("-")


def name_problems(written: str, where: str) -> list[Problem]:
    """List the rules of the Agent Skills format that a name violates."""
    name = normalise(written)
    if not name:
        return [Problem(code="name_empty", where=where)]
    broken = {
        "name_too_long": len(name) > MAX_LENGTH,
        "name_not_lowercase": name != name.lower(),
        "name_edge_hyphen": name.startswith("-") or name.endswith("-"),
        "name_double_hyphen": "--" in name,
        "name_characters": not all(char.isalnum() or char == "-" for char in name),
    }
    codes = [code for code, is_broken in broken.items() if is_broken]
    if not codes:
        return []
    details = {"name": name, "suggestion": slug(name), "length": len(name), "limit": MAX_LENGTH}
    return [Problem(code=code, where=where, details=details) for code in codes]


def is_device(name: str) -> bool:
    """Return whether a name is one of a Windows device, which can be no folder there."""
    return name in _DEVICES


def is_of_vendor(name: str) -> bool:
    """Return whether a name begins like those that a vendor keeps for itself."""
    return name.startswith(_VENDOR_PREFIXES)
