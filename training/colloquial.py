"""Data augmentation: colloquial templates around mined phrases, and product names swapped."""

import random
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from training.jsonl import read_rows

_FRAMES = {
    "en": (
        "can you {}",
        "could you {} for me",
        "i need to {}",
        "i want to {}",
        "how do i {}",
        "{} please",
        "hey, {}",
        "my boss wants me to {}",
        "is there a way to {}",
        "i have to {} by tomorrow",
        "not sure how to {}, can you do it",
        "quick one: {}",
    ),
    "zh": (
        "帮我{}",
        "能不能{}",
        "我想{}",
        "怎么{}",
        "麻烦{}一下",
        "有没有办法{}",
        "老板让我{}",
        "请问如何{}",
        "{}，急用",
        "我需要{}",
        "明天之前要{}",
        "给我{}",
    ),
}
_LEAD = re.compile(
    r"^(?:the )?user(?:s)? (?:wants?|needs?|asks?|requests?|would like) (?:you )?(?:to|for|about) |"
    r"^(?:when )?(?:you )?(?:need(?:ing)?|want(?:ing)?) to |"
    r"^当?用户(?:想要?|需要|要求|希望|请求)|^需要|^想要",
    re.IGNORECASE,
)
_LONGEST_FRAMED = 90
_SHORTEST_NAME = {True: 2, False: 3}


def bare(phrase: str) -> str:
    """Strip phrases such as "user wants to" from a trigger.

    >>> bare("User wants to merge two PDFs")
    'merge two PDFs'
    """
    return _LEAD.sub("", phrase.strip(" .;:,-*•。；：，")).strip()


def framed(phrase: str, language: str, chance: random.Random) -> str | None:
    """Put a phrase into a colloquial template; None if it is too long."""
    said = bare(phrase)
    if not 3 <= len(said) <= _LONGEST_FRAMED:
        return None
    if language == "en" and said[1:2].islower():
        said = said[0].lower() + said[1:]
    return chance.choice(_FRAMES[language]).format(said)


@dataclass(frozen=True, slots=True)
class Product:
    """A product with its names and descriptions in both languages."""

    chinese: tuple[str, ...]
    english: tuple[str, ...]
    what_chinese: str
    what_english: str


class Products:
    """Products with different names in the two languages."""

    def __init__(self, known: Iterable[Product]) -> None:
        self.known = tuple(known)
        self._others = dict[str, Sequence[str]]()
        for product in self.known:
            for names, others in (
                (product.chinese, product.english),
                (product.english, product.chinese),
            ):
                for name in names:
                    if len(name) >= _SHORTEST_NAME[not name.isascii()]:
                        self._others.setdefault(name.lower(), others)
        names = sorted(self._others, key=len, reverse=True)
        inner = "|".join(rf"\b{re.escape(n)}\b" if n.isascii() else re.escape(n) for n in names)
        self._pattern = re.compile(inner or r"(?!)", re.IGNORECASE)

    @classmethod
    def read(cls, path: Path) -> "Products":
        """Read lines of `zh`, `en`, `what_zh`, `what_en`."""
        return cls(
            Product(tuple(row["zh"]), tuple(row["en"]), row["what_zh"], row["what_en"])
            for row in read_rows(path)
        )

    def renamed(self, text: str, chance: random.Random) -> str | None:
        """Replace every product by its other name; None if there is none."""
        lower = text.lower()
        if not any(name in lower for name in self._others):  # far cheaper than the pattern
            return None
        changed = self._pattern.sub(lambda found: self._other(found[0], chance), text)
        return changed if changed != text else None

    def pairs(self) -> Iterator[tuple[str, str]]:
        """Yield names and descriptions as translation pairs."""
        for product in self.known:
            for english in product.english:
                for chinese in product.chinese:
                    yield english, chinese
                    yield f"{english}: {product.what_english}", f"{chinese}：{product.what_chinese}"
                    yield f"{english}: {product.what_english}", chinese
            yield product.what_english, product.what_chinese

    def _other(self, name: str, chance: random.Random) -> str:
        other = chance.choice(self._others[name.lower()])
        return f" {other} " if other.isascii() else other
