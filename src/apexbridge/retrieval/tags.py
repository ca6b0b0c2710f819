"""Search tags of a skill: keywords, sanitising of untrusted labels, storage by content hash.

Tags make a skill findable in the language it is not written in. They come from its own text or from
a language model that has read it; either way they are untrusted labels, never instructions.
"""

import os
import re
import stat
import time
import unicodedata
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict

from apexbridge.errors import StorageError, UnsafePathError
from apexbridge.paths import create_bytes, fsync_dir, staging_dir
from apexbridge.retrieval.keyword_extraction import extract_phrases, has_content_words
from apexbridge.retrieval.skill_document import strip_markup
from apexbridge.tree_removal import remove_tree

MAX_TAGS = 16
MAX_TAG = 40
MAX_DESCRIPTION = 300
MAX_MODEL_NAME = 100
_MAX_KEYWORDS = 8
_MAX_DECLARED = 1_000
_BETWEEN_TAGS = re.compile(r"[,，、;；\n]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Tags:
    """Labels of a skill and a translated description; `by` names the model, or is `text`."""

    tags: tuple[str, ...]
    other_language: str = ""
    by: str = "text"

    def __post_init__(self) -> None:
        if len(self.tags) > MAX_TAGS or any(len(tag) > MAX_TAG for tag in self.tags):
            raise ValueError(f"at most {MAX_TAGS} tags of {MAX_TAG} characters")
        if len(self.other_language) > MAX_DESCRIPTION or len(self.by) > MAX_MODEL_NAME:
            raise ValueError("the description or the name is too long")


_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|.?)")
_INVISIBLE_CATEGORIES = frozenset({"Cc", "Cf", "Cs", "Co", "Cn"})
_INVISIBLE_FILLERS = re.compile("[\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0\ufe00-\ufe0f]")
"""Characters that are letters or marks by category and yet render as nothing."""
_MARKUP = re.compile(r"[<>\[\]{}|`*\\]+")
_TRIMMED = " -:;,.，；：。、\"'“”‘’「」"


def visible_line(text: str) -> str:
    """Collapse a text to one line without control, format and invisible characters."""
    if text.isascii() and text.isprintable():
        return " ".join(text.split())
    letters = (
        " " if letter.isspace() else letter
        for letter in _INVISIBLE_FILLERS.sub("", _ESCAPES.sub("", text))
        if letter.isspace() or unicodedata.category(letter) not in _INVISIBLE_CATEGORIES
    )
    return " ".join("".join(letters).split())


def plain_line(text: str) -> str:
    """Collapse a text to one visible line without Markdown or HTML markup."""
    return strip_markup(_MARKUP.sub(" ", strip_markup(visible_line(text))))


def clean_tag(text: str) -> str:
    """Sanitise a label; empty if it is too long or has no letter or digit."""
    if len(text) > 4 * MAX_TAG:
        return ""
    tag = plain_line(text).strip(_TRIMMED).lstrip(f"#{_TRIMMED}")
    return tag if len(tag) <= MAX_TAG and any(map(str.isalnum, tag)) else ""


def plain_description(text: str) -> str:
    """Sanitise a description; empty if it is too long."""
    line = plain_line(text[: 4 * MAX_DESCRIPTION])
    return line if len(line) <= MAX_DESCRIPTION else ""


def distinct_tags(tags: Iterable[str], limit: int) -> tuple[str, ...]:
    """Drop empty tags and duplicates by NFKC case folding; keep at most `limit`."""
    kept: dict[str, str] = {}
    for tag in tags:
        if tag:
            kept.setdefault(unicodedata.normalize("NFKC", tag).casefold(), tag)
        if len(kept) == limit:
            break
    return tuple(kept.values())


def keyword_tags(*, name: str, summary: str, body: str, declared: Sequence[str]) -> Tags:
    """Extract tags without a model: the author's own first, then keywords of the text.

    >>> keyword_tags(name="pdf-forms", summary="Fill PDF forms.", body="", declared=["tax"]).tags
    ('tax', 'PDF forms')
    """
    own = chain.from_iterable(_BETWEEN_TAGS.split(tag[:_MAX_DECLARED]) for tag in declared)
    found = chain(own, extract_phrases(name=name, summary=summary, body=body))
    return Tags(tags=distinct_tags(filter(has_content_words, map(clean_tag, found)), _MAX_KEYWORDS))


_SHA256 = re.compile(r"[0-9a-f]{64}")
_MAX_FILE = 16 * 1024
_STALE_SECONDS = 3600


class _StoredTags(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    version: Literal[1] = 1
    sha256: str
    tags: tuple[str, ...]
    other_language: str
    by: str


class TagStore:
    """Tags of a language model on disk, one JSON file for each content hash.

    A file that is damaged, or not written by this class, is ignored.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def get(self, sha256: str) -> Tags | None:
        """Return the stored tags for a content hash, if there are any."""
        try:
            kept = _StoredTags.model_validate_json(_read_small(self._path(sha256)))
            tags = Tags(tags=kept.tags, other_language=kept.other_language, by=kept.by)
        except (OSError, ValueError):
            return None
        is_ours = kept.sha256 == sha256 and all(clean_tag(tag) == tag for tag in tags.tags)
        is_plain = (
            plain_line(kept.other_language) == kept.other_language
            and visible_line(kept.by) == kept.by
        )
        return tags if is_ours and is_plain else None

    def put(self, sha256: str, tags: Tags) -> None:
        """Store tags by an atomic rename: after a crash they are the old ones or the new ones.

        Raises:
            StorageError: If the disk refuses.
        """
        path = self._path(sha256)
        kept = _StoredTags(
            sha256=sha256, tags=tags.tags, other_language=tags.other_language, by=tags.by
        )
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            with staging_dir(self._folder) as place:
                fresh = place / path.name
                create_bytes(fresh, kept.model_dump_json().encode(), mode=0o600)
                fresh.replace(path)
                fsync_dir(self._folder)
        except OSError as error:
            raise StorageError(error.strerror or str(error), path=path) from error

    def prune(self, keep: set[str]) -> None:
        """Delete all but these content hashes, and what a crash has left in staging."""
        for path in self._folder.glob("*.json"):
            if _SHA256.fullmatch(path.stem) and path.stem not in keep:
                with suppress(OSError):
                    path.unlink()
        for path in self._folder.glob(".staging/*"):
            with suppress(OSError):
                if path.lstat().st_mtime < time.time() - _STALE_SECONDS:
                    remove_tree(path)

    def _path(self, sha256: str) -> Path:
        if not _SHA256.fullmatch(sha256):
            raise UnsafePathError(path=sha256)
        return self._folder / f"{sha256}.json"


def _read_small(path: Path) -> bytes:
    """Read a small regular file; symlinks are not followed, and a FIFO does not block."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        is_plain = stat.S_ISREG(os.fstat(descriptor).st_mode)
        content = os.read(descriptor, _MAX_FILE + 1) if is_plain else b""
    finally:
        os.close(descriptor)
    if not content or len(content) > _MAX_FILE:
        raise ValueError(path)
    return content
