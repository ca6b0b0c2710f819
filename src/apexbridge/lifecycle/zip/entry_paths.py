"""What an archive's entries are called, and which names are taken on no system. Pure."""

import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from apexbridge.errors import ArchiveError, ArchiveUnsafeError
from apexbridge.lifecycle.zip.limits import ArchiveLimits
from apexbridge.lifecycle.zip.records import ambiguous_zip, printable_name

_MAX_PART_BYTES = 255
_ENCODINGS = ("utf-8", "gb18030")
_WINDOWS_DEVICES = frozenset(
    {"con", "prn", "aux", "nul", "conin$", "conout$", "clock$"}
    | {f"{port}{number}" for port in ("com", "lpt") for number in range(10)}
)
_INVISIBLE_CATEGORIES = {"Cc", "Cf", "Cs", "Zl", "Zp"}
_INVISIBLE_FILLERS = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0") | {
    *map(chr, range(0x180B, 0x1810)),
    *map(chr, range(0xFE00, 0xFE0E)),
    *map(chr, range(0xE0100, 0xE01F0)),
}
"""Characters that show nothing, though they count as letters or marks."""
_VARIATION_SELECTORS = str.maketrans(dict.fromkeys("\ufe0e\ufe0f", ""))
"""They choose between a sign and its picture: allowed, but they do not tell two names apart."""


class RawName(NamedTuple):
    """A name as it is written in an archive."""

    raw: bytes
    is_utf8: bool = False
    """Whether the archive says so."""
    in_unicode: tuple[bytes, ...] = ()
    """The same name in UTF-8, where the archive writes it twice."""


class DecodedNames(NamedTuple):
    """The names as text, and the encoding of those that do not say theirs."""

    names: tuple[str, ...]
    encoding: str


def check_raw_length(raw: bytes, limits: ArchiveLimits) -> None:
    """Refuse a name that is far too long before time is spent on it, even if it would be dropped.

    What a desktop system adds to a path that can be taken is never twice as long.
    """
    separators = raw.count(b"/") + raw.count(b"\\")
    if len(raw) > 2 * limits.path_bytes or separators > 2 * limits.depth:
        detail = f"more than {limits.path_bytes} bytes, or {limits.depth} folders deep"
        raise ArchiveUnsafeError(detail, code="zip_path_too_long", name=printable_name(raw))


def decode_names(written: Sequence[RawName]) -> DecodedNames:
    """Read all names; those that are not marked as UTF-8 are in one encoding, UTF-8 or GB18030.

    All are asked, because a short name in one of the two often happens to be sound in the other.

    Raises:
        ArchiveError: If they are in neither, or a name that is written twice has two readings.
    """
    two_readings: ArchiveError | None = None
    for encoding in _ENCODINGS:
        try:
            names = tuple(
                name.raw.decode("utf-8" if name.is_utf8 else encoding) for name in written
            )
        except UnicodeDecodeError:
            continue
        differs = _first_mismatch(written, names)
        if differs is None:
            return DecodedNames(names, encoding)
        two_readings = two_readings or ambiguous_zip(
            f"'{printable_name(differs)}' has a second name"
        )
    raise two_readings or _undecodable(written)


def _first_mismatch(written: Sequence[RawName], names: Sequence[str]) -> str | None:
    for name, text in zip(written, names, strict=True):
        if any(second != text.encode() for second in name.in_unicode):
            return text
    return None


def _undecodable(written: Sequence[RawName]) -> ArchiveError:
    """Name the first that is in neither encoding; else one that does not go with the others."""
    odd = [name for name in written if not name.raw.isascii()]
    worst = next((name for name in odd if not any(_decodings(name))), odd[0])
    return ArchiveUnsafeError(code="zip_name_encoding", name=printable_name(worst.raw))


def _decodings(name: RawName) -> Iterator[bool]:
    for encoding in _ENCODINGS[:1] if name.is_utf8 else _ENCODINGS:
        yield "\ufffd" not in name.raw.decode(encoding, "replace")


def normalize_separators(names: Sequence[str]) -> tuple[str, ...]:
    """Turn backslashes into slashes where all separators are backslashes.

    Raises:
        ArchiveError: If a name leads out of the archive, or has one separator and others the other.
    """
    for name in names:
        _check_path_traversal(name)
    with_backslash = next((name for name in names if "\\" in name), None)
    if with_backslash is None:
        return tuple(names)
    if any("/" in name for name in names):
        raise _name_error("zip_name_invalid", with_backslash, "a backslash beside slashes")
    return tuple(name.replace("\\", "/") for name in names)


def _check_path_traversal(name: str) -> None:
    if name.startswith(("/", "\\")) or name[1:2] == ":":
        raise ArchiveUnsafeError(code="zip_absolute_path", name=printable_name(name))
    if any(fold_part(part) == ".." for part in name.replace("\\", "/").split("/")):
        raise ArchiveUnsafeError(code="zip_path_traversal", name=printable_name(name))


def safe_parts(name: str) -> tuple[str, ...]:
    """The folders on the way and the last name, each of which every system can have.

    Raises:
        ArchiveError: If one is empty, reserved, or shows other than what it is.
    """
    parts = tuple(name.removesuffix("/").split("/"))
    unseen = next(filter(_is_invisible, name), None)
    if unseen is not None:
        raise _name_error("zip_name_invalid", name, f"the character U+{ord(unseen):04X}")
    for part in parts:
        if not part:
            raise _name_error("zip_name_invalid", name, "a part is empty")
        reason = _reserved_name(part)
        if reason:
            raise _name_error("zip_reserved_name", name, reason)
    return parts


def _is_invisible(char: str) -> bool:
    return unicodedata.category(char) in _INVISIBLE_CATEGORIES or char in _INVISIBLE_FILLERS


def _reserved_name(part: str) -> str:
    if part.endswith(".") or part[-1].isspace():
        return "it ends with a dot or a blank"
    if ":" in part:
        return "it holds a colon"
    stem = fold_part(part).split(".", 1)[0].rstrip()
    return f"'{stem}' is a device" if stem in _WINDOWS_DEVICES else ""


def check_path_length(parts: Sequence[str], limits: ArchiveLimits) -> None:
    """Refuse a path that is deeper or longer than can be written everywhere."""
    name = "/".join(parts)
    if len(parts) > limits.depth:
        raise _name_error("zip_path_too_long", name, f"more than {limits.depth} folders deep")
    if len(name.encode()) > limits.path_bytes:
        raise _name_error("zip_path_too_long", name, f"more than {limits.path_bytes} bytes")
    if any(len(part.encode()) > _MAX_PART_BYTES for part in parts):
        raise _name_error(
            "zip_path_too_long", name, f"a part has more than {_MAX_PART_BYTES} bytes"
        )


def fold_part(part: str) -> str:
    """The form in which names are compared: those that are one file on some system are equal.

    >>> folded("Straße") == folded("STRASSE")
    True
    """
    plain = unicodedata.normalize("NFKC", part.translate(_VARIATION_SELECTORS)).casefold()
    return unicodedata.normalize("NFKC", plain)


class EntryPath(NamedTuple):
    """A name taken apart, and whether it is a folder's."""

    parts: tuple[str, ...]
    is_folder: bool


def check_collisions(places: Iterable[EntryPath]) -> None:
    """Refuse names that cannot all exist: twice, spelled alike, or a file that is a folder too.

    Raises:
        ArchiveError: At the first.
    """
    seen = dict[tuple[str, ...], EntryPath]()
    for place in places:
        for key, step in _ancestors(place):
            other = seen.setdefault(key, step)
            if other is step or (other == step and step.is_folder):
                continue
            name, rival = ("/".join(each.parts) for each in (step, other))
            if other == step:
                raise ArchiveUnsafeError(code="zip_duplicate_entry", name=printable_name(name))
            raise ArchiveUnsafeError(
                code="zip_name_collision", name=printable_name(name), other=printable_name(rival)
            )


def _ancestors(place: EntryPath) -> Iterator[tuple[tuple[str, ...], EntryPath]]:
    """The folders on the way, then the place itself."""
    key = tuple(map(fold_part, place.parts))
    for length in range(1, len(place.parts)):
        yield key[:length], EntryPath(place.parts[:length], is_folder=True)
    yield key, place


def _name_error(code: str, name: str, detail: str) -> ArchiveError:
    return ArchiveUnsafeError(detail, code=code, name=printable_name(name))
