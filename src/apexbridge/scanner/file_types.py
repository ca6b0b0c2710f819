"""File types: bytecode, native executables, archives, mismatched suffixes and misplaced scripts.

Formats are detected by magic numbers, because a suffix is no evidence. Nothing is unpacked to disk,
and decompression is bounded against a zip bomb.
"""

import struct
import zlib
from collections.abc import Iterator
from pathlib import PurePosixPath

from apexbridge.scanner.pattern_matcher import Hit
from apexbridge.scanner.rules import RiskLevel
from apexbridge.scanner.scan_input import SKILL_MD, ScannedFile, is_script

_BYTECODE_SUFFIXES = frozenset({".pyc", ".pyo", ".class", ".luac", ".elc"})
_EXECUTABLE_MAGIC = (
    (b"\x7fELF", "ELF"),
    (b"\xcf\xfa\xed\xfe", "Mach-O"),
    (b"\xce\xfa\xed\xfe", "Mach-O"),
    (b"\xfe\xed\xfa\xcf", "Mach-O"),
    (b"\xca\xfe\xba\xbe", "Java or Mach-O"),
)
_BINARY_SUFFIXES = frozenset(
    {".exe", ".dll", ".so", ".dylib", ".scr", ".com", ".msi", ".node", ".apk", ".jar"}
)
_DISGUISED_SUFFIXES = _BINARY_SUFFIXES | {".sh", ".bat", ".cmd", ".ps1", ".vbs", ".js"}
_DOCUMENT_SUFFIXES = frozenset({".pdf", ".doc", ".docx", ".png", ".jpg", ".txt"})
"""Second suffixes that disguise an executable, as in `report.pdf.exe`."""
_ARCHIVE_MAGIC = (
    (b"PK\x03\x04", "zip"),
    (b"\x1f\x8b", "gzip"),
    (b"BZh", "bzip2"),
    (b"\xfd7zXZ\0", "xz"),
    (b"7z\xbc\xaf\x27\x1c", "7z"),
    (b"Rar!\x1a\x07", "rar"),
    (b"(\xb5/\xfd", "zstd"),
)
_ARCHIVE_SUFFIXES = frozenset(
    {".zip", ".gz", ".tgz", ".tar", ".bz2", ".xz", ".7z", ".rar", ".zst", ".skill"}
)
_ZIP_BASED_SUFFIXES = frozenset(
    {".docx", ".xlsx", ".pptx", ".odt", ".ods", ".odp", ".epub", ".jar", ".apk", ".whl",
     ".vsix", ".ipa", ".xpi", ".nupkg", ".skill", ".zip", ".mcpb", ".dxt", ".potx", ".dotx",
     ".xltx", ".docm", ".xlsm", ".pptm", ".key", ".pages", ".numbers", ".sketch", ".crx",
     ".aar", ".war", ".kmz", ".3mf", ".npz", ".pt", ".pth", ".keras", ".mxl"}
)  # fmt: skip
_MEDIA_MAGIC = (
    (b"\x89PNG", frozenset({".png"})),
    (b"\xff\xd8\xff", frozenset({".jpg", ".jpeg"})),
    (b"GIF8", frozenset({".gif"})),
    (b"%PDF", frozenset({".pdf", ".ai"})),
)
_MEDIA_SUFFIXES = frozenset(
    {".png", ".jpg", ".jpeg", ".gif", ".pdf", ".webp", ".ico", ".bmp", ".mp3", ".mp4", ".wav",
     ".ttf", ".woff", ".woff2"}
)  # fmt: skip
_TEXT_SUFFIXES = frozenset(
    {".md", ".txt", ".json", ".yaml", ".yml", ".csv", ".toml", ".xml", ".html", ".css", ".py",
     ".sh", ".js", ".ts"}
)  # fmt: skip
_EXECUTABLE_MEMBER_SUFFIXES = (
    b".py", b".sh", b".js", b".mjs", b".ps1", b".bat", b".cmd", b".exe", b".dll", b".so",
    b".dylib", b".vbs", b".rb", b".pl", b".php", b".lua", b".jar", b".scr", b".hta", b".command",
    b".bin", b"vbaproject.bin",
)  # fmt: skip
_COMMON_DOT_FOLDERS = frozenset(
    {".github", ".gitlab", ".vscode", ".devcontainer", ".husky", ".circleci", ".storybook"}
)
_MAX_ENTRIES = 2_000
_MAX_UNPACKED = 4 * 1024 * 1024


def file_type_hits(file: ScannedFile) -> Iterator[Hit]:
    """Match the type, name and location of one file."""
    path, data = file.path, file.data
    suffix = path.suffix.lower()
    if suffix in _BYTECODE_SUFFIXES:
        yield _file_hit("AB040", "warn", suffix)
        return
    executable = _executable_format(data)
    if executable or (suffix in _BINARY_SUFFIXES and not _archive_format(data)):
        yield _file_hit("AB041", "warn", executable or suffix)
    yield from _archive_hits(path, data)
    yield from _mismatched_suffix(path, data, executable)
    yield from _misplaced_scripts(file)


def _file_hit(rule: str, level: RiskLevel, matched: str) -> Hit:
    return Hit(rule=rule, level=level, line=0, matched=matched)


def _executable_format(data: bytes) -> str:
    for magic, kind in _EXECUTABLE_MAGIC:
        if data.startswith(magic):
            return kind
    if data.startswith(b"MZ") and len(data) > 64:
        (offset,) = struct.unpack_from("<I", data, 60)
        if data[offset : offset + 4] == b"PE\0\0":
            return "PE"
    return ""


def _archive_format(data: bytes) -> str:
    for magic, kind in _ARCHIVE_MAGIC:
        if data.startswith(magic):
            return kind
    return "tar" if data[257:262] == b"ustar" else ""


def _archive_hits(path: PurePosixPath, data: bytes) -> Iterator[Hit]:
    kind = _archive_format(data)
    if not kind:
        return
    names, is_encrypted = _member_names(kind, data)
    scripts = [name for name in names if _is_executable_member(name)]
    if is_encrypted:
        yield _file_hit("AB042", "warn", f"{kind}: encrypted")
    elif scripts:
        yield _file_hit(
            "AB042", "warn", f"{kind}: {b', '.join(scripts[:5]).decode('utf-8', 'replace')}"
        )
    elif path.suffix.lower() in _ARCHIVE_SUFFIXES:
        yield _file_hit("AB042", "review", kind)


def _is_executable_member(name: bytes) -> bool:
    return name.lower().endswith(_EXECUTABLE_MEMBER_SUFFIXES)


def _member_names(kind: str, data: bytes) -> tuple[list[bytes], bool]:
    """Return the member names of an archive, and whether it is encrypted; nothing is extracted."""
    if kind == "zip":
        return _zip_member_names(data)
    if kind == "gzip":
        data = _gunzip_prefix(data)
    if kind in {"tar", "gzip"}:
        return [data[at : at + 100].rstrip(b"\0") for at in _tar_headers(data)], False
    return [], False


def _gunzip_prefix(data: bytes) -> bytes:
    """Decompress the first bytes only: enough for names, and safe against decompression bombs."""
    try:
        return zlib.decompressobj(wbits=31).decompress(data, _MAX_UNPACKED)
    except zlib.error:
        return b""


def _zip_member_names(data: bytes) -> tuple[list[bytes], bool]:
    # Entries are searched in the raw bytes: `zipfile` refuses an archive with a damaged end record,
    # which other programs unpack, so that damage would evade the scan.
    names, is_encrypted, at = list[bytes](), False, 0
    while len(names) < _MAX_ENTRIES:
        at = data.find(b"PK\x01\x02", at)
        if at < 0 or at + 46 > len(data):
            break
        flags, length = (
            struct.unpack_from("<H", data, at + 8)[0],
            struct.unpack_from("<H", data, at + 28)[0],
        )
        is_encrypted = is_encrypted or bool(flags & 1)
        names.append(data[at + 46 : at + 46 + length])
        at += 46 + length
    return names, is_encrypted


def _tar_headers(data: bytes) -> Iterator[int]:
    at = 0
    for _ in range(_MAX_ENTRIES):
        if data[at + 257 : at + 262] != b"ustar":
            return
        yield at
        digits = data[at + 124 : at + 136].strip(b"\0 ")
        size = int(digits, 8) if digits and set(digits) <= set(b"01234567") else 0
        at += 512 + (size + 511) // 512 * 512


def _mismatched_suffix(path: PurePosixPath, data: bytes, executable: str) -> Iterator[Hit]:
    suffix = path.suffix.lower()
    if executable and suffix in _MEDIA_SUFFIXES | _TEXT_SUFFIXES:
        yield _file_hit("AB043", "block", f"{suffix}: {executable}")
        return
    if suffix in _MEDIA_SUFFIXES and data[:2] == b"#!":
        yield _file_hit("AB043", "block", f"{suffix}: script")
        return
    kind = _archive_format(data)
    if (
        kind == "zip"
        and suffix not in _ZIP_BASED_SUFFIXES
        and suffix in _MEDIA_SUFFIXES | _TEXT_SUFFIXES
    ):
        yield _file_hit("AB043", "warn", f"{suffix}: zip")
    for magic, suffixes in _MEDIA_MAGIC:
        if data.startswith(magic) and suffix in _TEXT_SUFFIXES:
            yield _file_hit("AB043", "review", f"{suffix}: {'/'.join(sorted(suffixes))}")
    stem = PurePosixPath(path.stem).suffix.lower()
    if suffix in _DISGUISED_SUFFIXES and stem in _DOCUMENT_SUFFIXES:
        yield _file_hit("AB043", "warn", path.name)


def _misplaced_scripts(file: ScannedFile) -> Iterator[Hit]:
    path = file.path
    if path.name == SKILL_MD or not is_script(path, file.data, executable=file.executable):
        return
    dotted = [part for part in path.parts if part.startswith(".") and part not in {".", ".."}]
    if dotted and not set(dotted) & _COMMON_DOT_FOLDERS:
        yield _file_hit("AB045", "review", str(path))
    elif "scripts" not in path.parts[:-1]:
        yield _file_hit("AB046", "info", str(path))
