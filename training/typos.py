"""Data augmentation: typing errors in English and Chinese.

English words get the slips of a keyboard. Chinese ones get those of an input method, where the
wrong character sounds the same, and a few of the eye.
"""

import random
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

_KEY_ROWS = ("qwertyuiop", "asdfghjkl", "zxcvbnm")
_WORD = re.compile(r"[A-Za-z]{4,}")
_SPACE = re.compile(r"(?<=[a-z]) (?=[a-z])")
_CHINESE = re.compile(r"[\u4e00-\u9fff]+")
_LOOKALIKES = (
    "未末来", "已己巳", "人入八", "大太天", "日目曰白", "土士", "千干于", "王玉主", "力刀", "贝见",
    "田由甲申", "今令", "侯候", "折拆析", "拔拨", "清请情晴", "测侧则", "栏拦烂", "密蜜", "裁栽载",
    "徽微", "班斑", "复夏", "签检险捡", "编偏遍篇", "缓援暖", "准淮", "摘滴", "暑署著", "末未",
    "代伐", "壁璧", "慢漫", "幕募墓", "撤撒", "竞竟", "免兔", "鸟乌", "历厉", "处外", "问间",
)  # fmt: skip
_FEW, _MANY = (1, 2, 2), 0.35
"""Slips in most texts, and the share of words with one in the others."""
_MANY_SHARE = 0.45
_SPACE_SHARE = 0.12
_SHORTEN = {
    "please": "pls", "you": "u", "your": "ur", "are": "r", "with": "w/", "without": "w/o",
    "because": "bc", "people": "ppl", "message": "msg", "picture": "pic", "thanks": "thx",
}  # fmt: skip
_SHORTENED = re.compile(rf"\b(?:{'|'.join(_SHORTEN)})\b")


def _neighbours() -> dict[str, str]:
    near = dict[str, str]()
    for above, row in enumerate(_KEY_ROWS):
        for place, key in enumerate(row):
            close = row[max(0, place - 1) : place] + row[place + 1 : place + 2]
            for other in _KEY_ROWS[max(0, above - 1) : above] + _KEY_ROWS[above + 1 : above + 2]:
                close += other[max(0, place - 1) : place + 1]
            near[key] = close
    return near


_NEAR_KEYS = _neighbours()


class Typos:
    """Typing errors with a table of homophones."""

    def __init__(self, homophones: Iterable[Sequence[str]] = ()) -> None:
        others = dict[str, list[str]]()
        for group in homophones:
            for word in group:
                others[word] = [other for other in group if other != word]
        self._homophones: Mapping[str, Sequence[str]] = others
        self._lookalikes: Mapping[str, str] = {
            one: group.replace(one, "") for group in _LOOKALIKES for one in group
        }

    @classmethod
    def read(cls, path: Path) -> "Typos":
        """Read lines of words with the same sound, the most frequent ones first."""
        return cls(line.split() for line in path.read_text(encoding="utf-8").splitlines())

    def misspelt(self, text: str, chance: random.Random, *, is_light: bool = False) -> str:
        """Put slips into a text, in its longer words rather than the shorter.

        Light: one or two, and no careless spaces or short forms.
        """
        spans = [
            *((found.span(), False) for found in _WORD.finditer(text)),
            *((span, True) for found in _CHINESE.finditer(text) for span in _pairs(found)),
        ]
        if not spans:
            return text
        count = chance.choice(_FEW)
        if not is_light and chance.random() < _MANY_SHARE:
            count = max(count, round(len(spans) * _MANY))
        chosen = set[tuple[tuple[int, int], bool]]()
        for _ in range(count):
            chosen.add(max(chance.choices(spans, k=2), key=lambda span: span[0][1] - span[0][0]))
        for (start, end), is_chinese in sorted(chosen, reverse=True):
            slip = self._chinese if is_chinese else _english
            text = text[:start] + slip(text[start:end], chance) + text[end:]
        return text if is_light else _careless(text, chance)

    def _chinese(self, word: str, chance: random.Random) -> str:
        """Replace one of two characters, or both, by what sounds or looks like them."""
        kind = chance.random()
        if kind < 0.1 and len(word) > 1:
            return word[::-1]
        at = chance.randrange(len(word))
        if kind < 0.2:
            return word[:at] + word[at + 1 :]
        if word in self._homophones and kind < 0.7:
            return chance.choice(self._homophones[word])
        if kind < 0.3 and word[at] in self._lookalikes:
            return word[:at] + chance.choice(self._lookalikes[word[at]]) + word[at + 1 :]
        if kind < 0.5:
            return "".join(self._same_sound(one, chance) for one in word)
        return word[:at] + self._same_sound(word[at], chance) + word[at + 1 :]

    def _same_sound(self, character: str, chance: random.Random) -> str:
        others = self._homophones.get(character)
        if not others:
            return character
        return others[min(int(chance.expovariate(0.3)), len(others) - 1)]


def _pairs(run: re.Match[str]) -> Iterable[tuple[int, int]]:
    """Yield spans of two characters, the length of most words."""
    start, end = run.span()
    return ((at, min(at + 2, end)) for at in range(start, end, 2))


def _english(word: str, chance: random.Random) -> str:
    at = chance.randrange(1 if chance.random() < 0.85 else 0, len(word))  # first letters are seen
    here, before, after = word[at], word[:at], word[at + 1 :]
    kind = chance.randrange(10)
    if kind < 3 and after:  # swap
        return before + after[0] + here + after[1:]
    if kind < 6:  # omission
        return before + after
    if kind < 7:  # repetition
        return before + here * 2 + after
    near = _NEAR_KEYS.get(here.lower())
    if kind < 9 and near:  # neighbouring key
        return before + chance.choice(near) + after
    vowels = "aeiou"
    if here.lower() in vowels:  # spelling by ear
        return before + chance.choice(vowels.replace(here.lower(), "")) + after
    return before + chance.choice(near or here) + here + after


def _careless(text: str, chance: random.Random) -> str:
    """Drop a space or the capitals, or shorten words, as those who type in a hurry do."""
    spaces = [found.start() for found in _SPACE.finditer(text)]
    if spaces and chance.random() < _SPACE_SHARE:
        at = chance.choice(spaces)
        text = text[:at] + text[at + 1 :]
    if chance.random() < _SPACE_SHARE:
        text = _SHORTENED.sub(lambda found: _SHORTEN[found[0]], text)
    return text
