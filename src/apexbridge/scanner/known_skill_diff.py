"""Numbers of very many lines in little room, to be asked whether one is among them.

A number has 28 bits. Its upper 20 say in which box it lies, its lower 8 are kept: about ten bits
a line, and one strange line in some two hundred is taken for a known one.
"""

import re
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from itertools import accumulate

from apexbridge.scanner.pattern_matcher import Hit
from apexbridge.scanner.rules import RiskLevel
from apexbridge.scanner.scan_input import SKILL_MD, TextFile

MIN_WORDS = 5
"""Words below which a line is nobody's own."""

_BUCKETS = 1 << 20
_INDEX_STEP = 64
"""Boxes that share one remembered start."""
_LENGTH_BYTES = 4
_FINGERPRINT_WORD = re.compile("[a-z0-9]+|[\u4e00-\u9fff]")


def line_fingerprint(line: str) -> int | None:
    """The number of a line in small letters; None if it is too short to tell."""
    words = _FINGERPRINT_WORD.findall(line)
    if len(words) < MIN_WORDS:
        return None
    return zlib.crc32(" ".join(words).encode("utf-8")) >> 4


@dataclass(frozen=True, slots=True)
class FingerprintSet:
    """Numbers as they lie in a file."""

    counts: bytes
    """How many lie in each box."""
    starts: tuple[int, ...]
    """Where the first of every few boxes begins."""
    lows: bytes

    def __contains__(self, number: int) -> bool:
        """Say whether a number is among them."""
        box = number >> 8
        first = box - box % _INDEX_STEP
        start = self.starts[box // _INDEX_STEP] + sum(self.counts[first:box])
        return number & 255 in self.lows[start : start + self.counts[box]]


def pack_fingerprints(numbers: Iterable[int]) -> bytes:
    """The bytes of some numbers."""
    counts, lows = bytearray(_BUCKETS), bytearray()
    for number in sorted(set(numbers)):
        counts[number >> 8] += 1
        lows.append(number & 255)
    small = zlib.compress(counts, 9)
    return len(small).to_bytes(_LENGTH_BYTES, "big") + small + lows


def unpack_fingerprints(data: bytes) -> FingerprintSet:
    """Read what `packed` wrote."""
    end = _LENGTH_BYTES + int.from_bytes(data[:_LENGTH_BYTES], "big")
    counts = zlib.decompress(data[_LENGTH_BYTES:end])
    sums = (sum(counts[at : at + _INDEX_STEP]) for at in range(0, _BUCKETS, _INDEX_STEP))
    return FingerprintSet(counts, tuple(accumulate(sums, initial=0)), data[end:])


RULE = "AB075"
FINGERPRINT_FILE = "line_fingerprints.bin"
MIN_LINES = 10
"""Lines below which nothing can be said about a copy."""
COPY_SHARE = 0.7
"""The share of known lines from which a skill is a copy."""
CLOSE_COPY_SHARE = 0.85
"""The share from which so little is new that it was put in."""
OWN_FILE_SHARE = 0.5
"""The share of known lines below which a file is new as a whole."""
MAX_CHANGED_REGIONS = 6
"""Places from which on a text was worked over, and not one thing put in."""
MAX_REPORTED_LINES = 10
MAX_LINES = 20_000
MAX_LENGTH = 2_000

_ACTION_WORDS = re.compile(
    r"https?://|\$\(|~/|\.\./|\.env\b|\b(?:npx|npm|pip|python3?|node|bash|curl|wget|git|ssh|sudo)\b"
    r"|\b(?:always|must|never|do not|don't|ensure|before|after|whenever|without|silently|instead"
    r"|run|execute|invoke|call|read|open|load|import|include|send|post|upload|fetch|download"
    r"|install|copy|move|write|save|store|append|insert|embed|return|collect|record|log|export"
    r"|delete|remove|compress|encode|skip|ignore|omit|hide|disable|enable|set)\b"
    "|必须|务必|总是|始终|不要|不得|切勿|确保|之前|之后|运行|执行|调用|读取|打开|加载|包含|发送|上传"
    "|下载|安装|复制|移动|写入|保存|附加|插入|嵌入|返回|收集|记录|导出|删除|压缩|编码|跳过|忽略|隐藏"
    "|禁用|启用|设置"
)
"""Words with which something is done or ordered; most lines of programs need none."""
_COMMENT_LINE = re.compile(r"\s{0,200}(?:#|//|\*|/\*|\"\"\"|''')")
_HEADING_OR_TABLE = re.compile(r"\s{0,200}(?:#{1,6} |\|)")
"""Heads and rows of tables: they name and list."""


@dataclass(slots=True)
class _FileDiff:
    """A document, and which of its lines are not known."""

    view: TextFile
    count: int = 0
    places: int = 0
    strange: list[int] = field(default_factory=list[int])

    @property
    def share(self) -> float:
        """How much of it is known."""
        return 1 - len(self.strange) / max(1, self.count)


@cache
def known_fingerprints() -> FingerprintSet:
    """The numbers of the lines of well-known skills."""
    return unpack_fingerprints(
        resources.files("apexbridge.scanner").joinpath(FINGERPRINT_FILE).read_bytes()
    )


def file_fingerprints(view: TextFile) -> Iterator[tuple[int, int]]:
    """The lines of a document that can be told, with their numbers; its front is left out."""
    front = _frontmatter_end(view)
    rest = view.lines[front:-1]  # a last line without an end may be cut
    for at, line in enumerate(rest, front + 1):
        number = line_fingerprint(line[:MAX_LENGTH].lower())
        if number is not None:
            yield at, number


def _frontmatter_end(view: TextFile) -> int:
    """Where the front of a SKILL.md ends, one in a folder below too; 0 if there is none."""
    if not view.path.endswith(SKILL_MD) or view.lines[0].strip() != "---":
        return 0
    rest = enumerate(view.lines[1:], 2)
    return next((number for number, line in rest if line.strip() == "---"), 0)


def changed_known_skill(views: Sequence[TextFile]) -> Iterator[tuple[TextFile, Hit]]:
    """What is new in a copy of a well-known skill."""
    readings, new = list[_FileDiff](), set[int]()
    for view in views:
        if view.place_of(1) != "data":
            readings.append(_diff_file(view, new))
        if sum(reading.count for reading in readings) >= MAX_LINES:
            break
    share = _known_share(readings)
    if share < COPY_SHARE:
        return
    strange = [(reading.view, line) for reading in readings for line in reading.strange]
    strange.sort(key=lambda item: not _is_action(*item))
    places = sum(reading.places for reading in readings)
    put_in = (
        share >= CLOSE_COPY_SHARE
        and places <= MAX_CHANGED_REGIONS
        and strange
        and _is_action(*strange[0])
    )
    level: RiskLevel = "warn" if put_in else "review"
    for view, line in strange[:MAX_REPORTED_LINES]:
        yield view, Hit(rule=RULE, level=level, line=line, matched=view.raw_lines[line - 1].strip())


def _diff_file(view: TextFile, new: set[int]) -> _FileDiff:
    """Hold a document against the known lines; what is new in many places counts as one."""
    known, reading, was_known = known_fingerprints(), _FileDiff(view), True
    for line, number in file_fingerprints(view):
        reading.count += 1
        is_known = number in known
        if not is_known:
            reading.places += was_known and number not in new
            reading.strange.append(line)
            new.add(number)
        was_known = is_known
        if reading.count >= MAX_LINES:
            break
    if reading.share < OWN_FILE_SHARE:
        reading.places = 1
    return reading


def _known_share(readings: Sequence[_FileDiff]) -> float:
    """How much of a skill is known; SKILL.md tells by itself, for programs are put beside it."""
    count = sum(reading.count for reading in readings)
    known = count - sum(len(reading.strange) for reading in readings)
    main = next((reading for reading in readings if reading.view.is_skill_md), None)
    of_all = known / count if count >= MIN_LINES else 0.0
    return max(of_all, main.share if main and main.count >= MIN_LINES else 0.0)


def _is_action(view: TextFile, line: int) -> bool:
    """Say whether a line does or orders something."""
    text = view.lines[line - 1][:MAX_LENGTH]
    if view.place_of(line) in {"script", "command"}:
        return not _COMMENT_LINE.match(text)
    return not _HEADING_OR_TABLE.match(text) and bool(_ACTION_WORDS.search(text.lower()))
