"""Entry paths of a zip: decoding, path traversal (zip slip), reserved names and collisions."""

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
"""Invisible characters whose category is letter or mark."""
_VARIATION_SELECTORS = str.maketrans(dict.fromkeys("\ufe0e\ufe0f", ""))
"""Text or emoji presentation: allowed, but ignored when names are compared."""


class RawName(NamedTuple):
    """An undecoded entry name."""

    raw: bytes
    is_utf8: bool = False
    """The UTF-8 flag of the entry."""
    in_unicode: tuple[bytes, ...] = ()
    """Unicode path extra fields: the same name in UTF-8."""


class DecodedNames(NamedTuple):
    """Decoded names, and the encoding of those without the UTF-8 flag."""

    names: tuple[str, ...]
    encoding: str


def check_raw_length(raw: bytes, limits: ArchiveLimits) -> None:
    """Refuse an overlong name before any costly work, even if its entry would be dropped.

    Metadata names of desktop systems are less than twice as long as the path they belong to.
    """
    separators = raw.count(b"/") + raw.count(b"\\")
    if len(raw) > 2 * limits.path_bytes or separators > 2 * limits.depth:
        detail = f"more than {limits.path_bytes} bytes, or {limits.depth} folders deep"
        raise ArchiveUnsafeError(detail, code="zip_path_too_long", name=printable_name(raw))


def decode_names(written: Sequence[RawName]) -> DecodedNames:
    """Decode all names; those without the UTF-8 flag share one encoding, UTF-8 or GB18030.

    The encoding is detected over all names: a short one is often valid in both.

    Raises:
        ArchiveError: If neither encoding fits, or a Unicode path contradicts a name.
    """
    mismatch: ArchiveError | None = None
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
        mismatch = mismatch or ambiguous_zip(
            f"'{printable_name(differs)}' has a different Unicode path"
        )
    raise mismatch or _undecodable(written)


def _first_mismatch(written: Sequence[RawName], names: Sequence[str]) -> str | None:
    for name, text in zip(written, names, strict=True):
        if any(second != text.encode() for second in name.in_unicode):
            return text
    return None


def _undecodable(written: Sequence[RawName]) -> ArchiveError:
    """Report the first name that fits neither encoding, or else one that contradicts the others."""
    candidates = [name for name in written if not name.raw.isascii()]
    worst = next((name for name in candidates if not any(_decodings(name))), candidates[0])
    return ArchiveUnsafeError(code="zip_name_encoding", name=printable_name(worst.raw))


def _decodings(name: RawName) -> Iterator[bool]:
    for encoding in _ENCODINGS[:1] if name.is_utf8 else _ENCODINGS:
        yield "\ufffd" not in name.raw.decode(encoding, "replace")


def normalize_separators(names: Sequence[str]) -> tuple[str, ...]:
    """Replace backslashes by slashes if all separators are backslashes.

    Raises:
        ArchiveError: On path traversal, an absolute path, or mixed separators.
    """
    for name in names:
        _check_path_traversal(name)
    with_backslash = next((name for name in names if "\\" in name), None)
    if with_backslash is None:
        return tuple(names)
    if any("/" in name for name in names):
        raise _name_error("zip_name_invalid", with_backslash, "mixed slashes and backslashes")
    return tuple(name.replace("\\", "/") for name in names)


def _check_path_traversal(name: str) -> None:
    """Zip slip guard: refuse absolute paths, drive letters and `..`, also in full-width dots."""
    if name.startswith(("/", "\\")) or name[1:2] == ":":
        raise ArchiveUnsafeError(code="zip_absolute_path", name=printable_name(name))
    if any(fold_part(part) == ".." for part in name.replace("\\", "/").split("/")):
        raise ArchiveUnsafeError(code="zip_path_traversal", name=printable_name(name))


def safe_parts(name: str) -> tuple[str, ...]:
    """Split a path into components that are valid on every operating system.

    Raises:
        ArchiveError: If one is empty, reserved on Windows, or has invisible characters.
    """
    parts = tuple(name.removesuffix("/").split("/"))
    invisible = next(filter(_is_invisible, name), None)
    if invisible is not None:
        raise _name_error("zip_name_invalid", name, f"the character U+{ord(invisible):04X}")
    for part in parts:
        if not part:
            raise _name_error("zip_name_invalid", name, "an empty component")
        reason = _reserved_name(part)
        if reason:
            raise _name_error("zip_reserved_name", name, reason)
    return parts


def _is_invisible(char: str) -> bool:
    return unicodedata.category(char) in _INVISIBLE_CATEGORIES or char in _INVISIBLE_FILLERS


def _reserved_name(part: str) -> str:
    if part.endswith(".") or part[-1].isspace():
        return "it ends with a dot or a space"
    if ":" in part:
        return "it contains a colon"
    stem = fold_part(part).split(".", 1)[0].rstrip()
    return f"'{stem}' is a Windows device" if stem in _WINDOWS_DEVICES else ""


def check_path_length(parts: Sequence[str], limits: ArchiveLimits) -> None:
    """Refuse a path that exceeds depth or length limits of common file systems."""
    name = "/".join(parts)
    if len(parts) > limits.depth:
        raise _name_error("zip_path_too_long", name, f"more than {limits.depth} folders deep")
    if len(name.encode()) > limits.path_bytes:
        raise _name_error("zip_path_too_long", name, f"more than {limits.path_bytes} bytes")
    if any(len(part.encode()) > _MAX_PART_BYTES for part in parts):
        raise _name_error(
            "zip_path_too_long", name, f"a component of more than {_MAX_PART_BYTES} bytes"
        )


def fold_part(part: str) -> str:
    """Fold a component so that names which are one file on some file system become equal.

    >>> fold_part("Straße") == fold_part("STRASSE")
    True
    """
    plain = unicodedata.normalize("NFKC", part.translate(_VARIATION_SELECTORS)).casefold()
    return unicodedata.normalize("NFKC", plain)


class EntryPath(NamedTuple):
    """Path components of an entry, and whether it is a folder."""

    parts: tuple[str, ...]
    is_folder: bool


def check_collisions(paths: Iterable[EntryPath]) -> None:
    """Refuse duplicate paths, case-insensitive collisions, and a file that is also a folder.

    Raises:
        ArchiveError: On the first collision.
    """
    for collision in find_collisions(paths):
        raise collision.error


class Collision(NamedTuple):
    """A path that is the same file as an earlier one, at least on some file system."""

    path: EntryPath
    error: ArchiveError
    is_exact: bool
    """True if every file system takes both for the same."""


def find_collisions(paths: Iterable[EntryPath]) -> Iterator[Collision]:
    """Yield the paths that collide with an earlier one, each once."""
    seen = dict[tuple[str, ...], EntryPath]()
    for path in paths:
        for key, step in _ancestors(path):
            other = seen.setdefault(key, step)
            if other is step or (other == step and step.is_folder):
                continue
            name, rival = (printable_name("/".join(each.parts)) for each in (step, other))
            if other == step:
                error = ArchiveUnsafeError(code="zip_duplicate_entry", name=name)
            else:
                error = ArchiveUnsafeError(code="zip_name_collision", name=name, other=rival)
            yield Collision(path, error, is_exact=other.parts == step.parts)
            break


def _ancestors(path: EntryPath) -> Iterator[tuple[tuple[str, ...], EntryPath]]:
    """Yield the folders above a path, then the path itself, with folded keys."""
    key = tuple(map(fold_part, path.parts))
    for length in range(1, len(path.parts)):
        yield key[:length], EntryPath(path.parts[:length], is_folder=True)
    yield key, path


def _name_error(code: str, name: str, detail: str) -> ArchiveError:
    return ArchiveUnsafeError(detail, code=code, name=printable_name(name))
