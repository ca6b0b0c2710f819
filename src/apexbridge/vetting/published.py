"""Copies of well-known skills in which something was changed.

Whoever wants a skill to be trusted takes one that everybody knows and adds a line. Of well-known
skills a number for each line is kept, not the line; a skill whose lines are nearly all among them,
and some are not, is a changed copy. People adapt skills too, all over the text: what is new in few
places and acts is graver. `scripts/fingerprint_published.py` writes the numbers.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import resources

from apexbridge.vetting.material import SKILL_MD
from apexbridge.vetting.numbered import Numbers, number_of, unpacked
from apexbridge.vetting.patterns import Hit
from apexbridge.vetting.rulebook import Level
from apexbridge.vetting.view import View

RULE = "AB075"
DATA = "published.bin"
FEWEST_LINES = 10
"""Lines below which nothing can be said about a copy."""
COPY = 0.7
"""The share of known lines from which a skill is a copy."""
CLOSE_COPY = 0.85
"""The share from which so little is new that it was put in."""
OWN = 0.5
"""The share of known lines below which a file is new as a whole."""
MOST_PLACES = 6
"""Places from which on a text was worked over, and not one thing put in."""
SHOWN = 10
MAX_LINES = 20_000
MAX_LENGTH = 2_000

_ACTS = re.compile(
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
_REMARK = re.compile(r"\s{0,200}(?:#|//|\*|/\*|\"\"\"|''')")
_POINTER = re.compile(r"\s{0,200}(?:#{1,6} |\|)")
"""Heads and rows of tables: they name and list."""


@dataclass(slots=True)
class _Reading:
    """A document, and which of its lines are not known."""

    view: View
    count: int = 0
    places: int = 0
    strange: list[int] = field(default_factory=list[int])

    @property
    def share(self) -> float:
        """How much of it is known."""
        return 1 - len(self.strange) / max(1, self.count)


@cache
def published() -> Numbers:
    """The numbers of the lines of well-known skills."""
    return unpacked(resources.files("apexbridge.vetting").joinpath(DATA).read_bytes())


def numbers(view: View) -> Iterator[tuple[int, int]]:
    """The lines of a document that can be told, with their numbers; its front is left out."""
    front = _front_end(view)
    rest = view.lines[front:-1]  # a last line without an end may be cut
    for at, line in enumerate(rest, front + 1):
        number = number_of(line[:MAX_LENGTH].lower())
        if number is not None:
            yield at, number


def _front_end(view: View) -> int:
    """Where the front of a SKILL.md ends, one in a folder below too; 0 if there is none."""
    if not view.path.endswith(SKILL_MD) or view.lines[0].strip() != "---":
        return 0
    rest = enumerate(view.lines[1:], 2)
    return next((number for number, line in rest if line.strip() == "---"), 0)


def changed(views: Sequence[View]) -> Iterator[tuple[View, Hit]]:
    """What is new in a copy of a well-known skill."""
    readings, new = list[_Reading](), set[int]()
    for view in views:
        if view.place_of(1) != "data":
            readings.append(_read(view, new))
        if sum(reading.count for reading in readings) >= MAX_LINES:
            break
    share = _share(readings)
    if share < COPY:
        return
    strange = [(reading.view, line) for reading in readings for line in reading.strange]
    strange.sort(key=lambda item: not _acts(*item))
    places = sum(reading.places for reading in readings)
    put_in = share >= CLOSE_COPY and places <= MOST_PLACES and strange and _acts(*strange[0])
    level: Level = "warn" if put_in else "review"
    for view, line in strange[:SHOWN]:
        yield view, Hit(rule=RULE, level=level, line=line, matched=view.raw_lines[line - 1].strip())


def _read(view: View, new: set[int]) -> _Reading:
    """Hold a document against the known lines; what is new in many places counts as one."""
    known, reading, was_known = published(), _Reading(view), True
    for line, number in numbers(view):
        reading.count += 1
        is_known = number in known
        if not is_known:
            reading.places += was_known and number not in new
            reading.strange.append(line)
            new.add(number)
        was_known = is_known
        if reading.count >= MAX_LINES:
            break
    if reading.share < OWN:
        reading.places = 1
    return reading


def _share(readings: Sequence[_Reading]) -> float:
    """How much of a skill is known; SKILL.md tells by itself, for programs are put beside it."""
    count = sum(reading.count for reading in readings)
    known = count - sum(len(reading.strange) for reading in readings)
    main = next((reading for reading in readings if reading.view.is_skill_md), None)
    of_all = known / count if count >= FEWEST_LINES else 0.0
    return max(of_all, main.share if main and main.count >= FEWEST_LINES else 0.0)


def _acts(view: View, line: int) -> bool:
    """Say whether a line does or orders something."""
    text = view.lines[line - 1][:MAX_LENGTH]
    if view.place_of(line) in {"script", "command"}:
        return not _REMARK.match(text)
    return not _POINTER.match(text) and bool(_ACTS.search(text.lower()))
