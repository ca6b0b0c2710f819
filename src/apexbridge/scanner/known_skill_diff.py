"""Diff against known skills: detect copies of well-known skills in which something was changed.

An attacker copies a skill that people trust and adds a line. A fingerprint is stored for each line
of the known skills, not the line itself; a skill of which nearly all lines are known, but some are
not, is a modified copy. People adapt skills too, in many regions: few changed regions that contain
an action are rated higher. `scripts/fingerprint_known_skills.py` writes the fingerprints.

A fingerprint has 28 bits. The upper 20 select a bucket, the lower 8 are stored: about ten bits a
line, at a false positive rate of one unknown line in two hundred.

What is new is judged by what it does, because a new release differs from the known versions too. A
name or an author in the frontmatter is free text and proves nothing; only the address that the
installer itself fetched from does.
"""

import re
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from itertools import accumulate

from apexbridge.scanner.pattern_matcher import Hit
from apexbridge.scanner.rules import RiskLevel, fragment, word_list
from apexbridge.scanner.scan_input import SKILL_MD, TextFile

RULE = "AB075"
FINGERPRINT_FILE = "line_fingerprints.bin"
MIN_LINES = 10
"""Lines below which a skill is too short to be compared."""
COPY_SHARE = 0.7
"""Share of known lines from which a skill is a copy."""
CLOSE_COPY_SHARE = 0.85
"""Share of known lines from which the rest counts as inserted."""
OWN_FILE_SHARE = 0.5
"""Share of known lines below which a file is new as a whole."""
MAX_CHANGED_REGIONS = 6
"""Changed regions beyond which a text was edited throughout, rather than injected into."""
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
"""Words that do or order something, as opposed to explanations."""
_ORIGIN = re.compile(
    r"(?:github:|(?:https://|git@|ssh://git@)?github\.com[/:])([\w.-]{1,60}/[\w.-]{1,100}?)(?:\.git)?"
    # GitHub serves the commits of forks, and pull requests, under the address of the original:
    # only a branch or a release of the original is from its author.
    r"(?:(?:[@#]|/tree/)(?:main|master|v?\d{1,4}(?:\.\d{1,6}){1,3})(?:/[^\s]{0,400})?)?/?"
)
_COMMENT_LINE = re.compile(r"\s{0,200}(?:#|//|\*|/\*|\"\"\"|''')")
_HEADING_OR_TABLE = re.compile(r"\s{0,200}(?:#{1,6} |\|)")
"""Headings and table rows, which name things and order nothing."""

_CREDIT = re.compile(
    r"\s{0,40}[-*]?\s{0,8}(?:original|adapted|based|derived|inspired|ported|credits?|source|thanks)\b",
    re.IGNORECASE,
)
"""The start of a line by which whoever publishes a copy says where it is from."""
_LINK = re.compile(r"\[[^\]\n]{0,120}\]\(https?://[^)\s]{1,300}\)")
"""A Markdown link, which orders nothing by itself."""

_SENTENCE = re.compile(
    r"\s{0,40}(?:\d{1,3}[.)]|[-*])?\s{0,8}[A-Z][a-z]{1,20}\s[^{}<>=;]{20,2000}[.:!]\s{0,8}$"
)
"""Prose that was put into a code block."""

MIN_WORDS = 5
"""Words below which a line is too common to have a fingerprint."""

_BUCKETS = 1 << 20
_INDEX_STEP = 64
"""Buckets that share one stored offset."""
_LENGTH_BYTES = 4
_FINGERPRINT_WORD = re.compile("[a-z0-9]+|[\u4e00-\u9fff]")


def line_fingerprint(line: str) -> int | None:
    """Hash the words of a lower-case line, without punctuation; None if it is too short."""
    words = _FINGERPRINT_WORD.findall(line)
    if len(words) < MIN_WORDS:
        return None
    return zlib.crc32(" ".join(words).encode("utf-8")) >> 4


@dataclass(frozen=True, slots=True)
class FingerprintSet:
    """An immutable set of fingerprints in compact form."""

    counts: bytes
    """Number of fingerprints in each bucket."""
    starts: tuple[int, ...]
    """Offset of every 64th bucket."""
    lows: bytes

    def __contains__(self, number: int) -> bool:
        """Return whether a fingerprint is in the set."""
        bucket = number >> 8
        first = bucket - bucket % _INDEX_STEP
        start = self.starts[bucket // _INDEX_STEP] + sum(self.counts[first:bucket])
        return number & 255 in self.lows[start : start + self.counts[bucket]]


def pack_fingerprints(numbers: Iterable[int]) -> bytes:
    """Serialize fingerprints."""
    # 1.1 million fingerprints take 2.3 MB of RAM in this form, and 65 MB as a set of integers.
    counts, lows = bytearray(_BUCKETS), bytearray()
    for number in sorted(set(numbers)):
        counts[number >> 8] += 1
        lows.append(number & 255)
    packed = zlib.compress(counts, 9)
    return len(packed).to_bytes(_LENGTH_BYTES, "big") + packed + lows


def unpack_fingerprints(data: bytes) -> FingerprintSet:
    """Deserialize what `pack_fingerprints` returned."""
    end = _LENGTH_BYTES + int.from_bytes(data[:_LENGTH_BYTES], "big")
    counts = zlib.decompress(data[_LENGTH_BYTES:end])
    sums = (sum(counts[at : at + _INDEX_STEP]) for at in range(0, _BUCKETS, _INDEX_STEP))
    return FingerprintSet(counts, tuple(accumulate(sums, initial=0)), data[end:])


@dataclass(slots=True)
class _FileDiff:
    """The unknown lines of one file."""

    file: TextFile
    count: int = 0
    regions: int = 0
    unknown: list[int] = field(default_factory=list[int])

    @property
    def share(self) -> float:
        """The share of known lines."""
        return 1 - len(self.unknown) / max(1, self.count)

    @property
    def is_new(self) -> bool:
        """Whether the file is new as a whole."""
        return self.share < OWN_FILE_SHARE


@cache
def known_fingerprints() -> FingerprintSet:
    """Load the fingerprints of well-known skills, once a process."""
    return unpack_fingerprints(
        resources.files("apexbridge.scanner").joinpath(FINGERPRINT_FILE).read_bytes()
    )


def file_fingerprints(file: TextFile) -> Iterator[tuple[int, int]]:
    """Return line numbers and fingerprints of a file, without its frontmatter."""
    first = _frontmatter_end(file)
    rest = file.lines[first:-1]  # the last line may be cut off by a limit
    for at, line in enumerate(rest, first + 1):
        number = line_fingerprint(line[:MAX_LENGTH].lower())
        if number is not None:
            yield at, number


def _frontmatter_end(file: TextFile) -> int:
    """Return the last line of the frontmatter, of a nested SKILL.md too; 0 if there is none."""
    if not file.path.endswith(SKILL_MD) or file.lines[0].strip() != "---":
        return 0
    rest = enumerate(file.lines[1:], 2)
    return next((number for number, line in rest if line.strip() == "---"), 0)


def is_known_origin(origin: str) -> bool:
    """Return whether an address belongs to one of the collections that fingerprints are of."""
    match = _ORIGIN.fullmatch(origin.strip())
    return match is not None and match[1].lower() in word_list("known_collections")


def changed_known_skill(
    files: Sequence[TextFile], origin: str = ""
) -> Iterator[tuple[TextFile, Hit]]:
    """Match the unknown lines in a copy of a well-known skill that is not from its author."""
    if is_known_origin(origin):
        return  # a new release of the original is no copy; the other rules judge what it does
    diffs, new = list[_FileDiff](), set[int]()
    for file in files:
        if file.role_of(1) != "data":
            diffs.append(_diff_file(file, new))
        if sum(diff.count for diff in diffs) >= MAX_LINES:
            break
    share = _known_share(diffs)
    if share < COPY_SHARE:
        return
    unknown = [(diff, line) for diff in diffs for line in diff.unknown]
    unknown.sort(key=lambda item: not _is_suspicious(*item))
    regions = sum(diff.regions for diff in diffs)
    is_injected = (
        share >= CLOSE_COPY_SHARE
        and regions <= MAX_CHANGED_REGIONS
        and unknown
        and _is_suspicious(*unknown[0])
    )
    level: RiskLevel = "warn" if is_injected else "review"
    for diff, line in unknown[:MAX_REPORTED_LINES]:
        matched = diff.file.raw_lines[line - 1].strip()
        yield diff.file, Hit(rule=RULE, level=level, line=line, matched=matched)


def _diff_file(file: TextFile, new: set[int]) -> _FileDiff:
    """Compare a file with the known lines; the same addition in many regions counts once."""
    known, diff, was_known = known_fingerprints(), _FileDiff(file), True
    for line, number in file_fingerprints(file):
        diff.count += 1
        is_known = number in known
        if not is_known:
            diff.regions += was_known and number not in new
            diff.unknown.append(line)
            new.add(number)
        was_known = is_known
        if diff.count >= MAX_LINES:
            break
    if diff.is_new:
        diff.regions = 1
    return diff


def _known_share(diffs: Sequence[_FileDiff]) -> float:
    """Return the share of known lines in all files, or in SKILL.md alone if that is higher."""
    count = sum(diff.count for diff in diffs)
    known = count - sum(len(diff.unknown) for diff in diffs)
    main = next((diff for diff in diffs if diff.file.is_skill_md), None)
    overall = known / count if count >= MIN_LINES else 0.0
    return max(overall, main.share if main and main.count >= MIN_LINES else 0.0)


def _is_suspicious(diff: _FileDiff, line: int) -> bool:
    """Return whether an unknown line was put there to do something.

    Between known lines, any sentence that orders something: an injection needs no more. In code,
    and in a new file, which every release brings, only what reaches for the network, secrets or the
    system.
    """
    text = diff.file.lines[line - 1][:MAX_LENGTH]
    is_code = diff.file.role_of(line) in {"script", "command"} and not _SENTENCE.match(text)
    if _COMMENT_LINE.match(text) if is_code else _HEADING_OR_TABLE.match(text):
        return False
    if is_code or diff.is_new:
        return is_code and bool(fragment("reaching_code").search(text))
    if _CREDIT.match(text):
        text = _LINK.sub("", text)
    return bool(_ACTION_WORDS.search(text.lower()))
