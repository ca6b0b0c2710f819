"""An expression cut into tokens, also one in full-width signs or in Chinese words. Pure."""

import re
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

from apexbridge.tools.builtin.math_functions import CalculationError, Number

MAX_CHARS = 1_000
_MAX_EXPONENT = 3_000

Kind = Literal["number", "name", "operator", "after"]

_WIDE = {code: code - 0xFEE0 for code in range(0xFF01, 0xFF5F)}
"""Full-width signs and digits."""
_SIGNS = str.maketrans(
    {"×": "*", "✕": "*", "·": "*", "⋅": "*", "∙": "*", "÷": "/", "∕": "/", "−": "-", "–": "-",
     "—": "-", "^": "**", "，": ",", "、": ",", "【": "(", "】": ")", "[": "(", "]": ")",
     "{": "(", "}": ")", "\u3000": " ", "\u00a0": " "}
)  # fmt: skip
_SUPERSCRIPTS = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁻", "0123456789-")
_RAISED = re.compile("⁻?[⁰¹²³⁴⁵⁶⁷⁸⁹]+")
_WORDS = (
    ("除以", "/"), ("乘以", "*"), ("乘", "*"), ("加上", "+"), ("加", "+"), ("减去", "-"),
    ("减", "-"), ("负", "-"), ("根号", "√"), ("的阶乘", "!"), ("的平方", "**2"),
    ("的立方", "**3"), ("圆周率", "pi"),
)  # fmt: skip
_QUESTION = re.compile(r"^\s*(?:请?计算(?:一下)?|请?算一下|求)\s*")
_ANSWER = re.compile(r"\s*(?:=|等于)?\s*(?:是?多少|几)?\s*[?=。.]*\s*$")

_DIGITS = {char: value for value, char in enumerate("零一二三四五六七八九")} | {"〇": 0, "两": 2}
_TENS = {"十": 10, "百": 100, "千": 1_000}
_LARGE = {"万": 10**4, "亿": 10**8}
_CHINESE = "".join((*_DIGITS, *_TENS, *_LARGE))

_TOKEN = re.compile(
    rf"""\s*(?:
      (?P<share>百分之)
    | (?P<number>(?:\d+(?:_\d+)*)?\.?\d+(?:_\d+)*\.?(?:[eE][+-]?\d+)?)(?P<unit>[万亿]?)
    | (?P<chinese>[{_CHINESE}]+(?:点[{"".join(_DIGITS)}]+)?)
    | (?P<name>[A-Za-zπτ_][A-Za-z0-9_]*)
    | (?P<sign>\*\*|//|[-+*/%(),!√])
    )""",
    re.VERBOSE,
)
_GROUPED = re.compile(r"(?<![\w.,])\d{1,3}(?:,\d{3})+(?![\d,])")


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """A piece of an expression, and where it stands."""

    kind: Kind
    text: str
    at: int
    value: Number = Fraction(0)


def tokenize(text: str) -> list[Token]:
    """Cut an expression into pieces.

    Raises:
        CalculationError: If something in it is no part of an expression.
    """
    if len(text) > MAX_CHARS:
        raise CalculationError(f"it is longer than {MAX_CHARS:,} characters")
    plain = _plain(text)
    tokens, at, is_share = list[Token](), 0, False
    while at < len(plain.rstrip()):
        found = _TOKEN.match(plain, at)
        if found is None:
            raise CalculationError(_odd(plain[at:].strip()))
        if found["share"]:
            is_share = True
        else:
            token = _token(found, plain)
            if is_share:
                token = Token(kind="number", text=token.text, at=token.at, value=token.value / 100)
            tokens.append(token)
            is_share = False
        at = found.end()
    return tokens


def _plain(text: str) -> str:
    text = text.translate(_WIDE)
    text = _ANSWER.sub("", _QUESTION.sub("", text))
    text = _RAISED.sub(lambda found: f"**({found[0].translate(_SUPERSCRIPTS)})", text)
    text = text.translate(_SIGNS)
    for word, sign in _WORDS:
        text = text.replace(word, sign)
    return _without_grouping(text)


def _without_grouping(text: str) -> str:
    """1,234 is a number, except among the arguments of a function, where commas divide them."""
    pieces, last = list[str](), 0
    for found in _GROUPED.finditer(text):
        if not _is_among_arguments(text[: found.start()]):
            pieces += [text[last : found.start()], found[0].replace(",", "")]
            last = found.end()
    return "".join((*pieces, text[last:]))


def _is_among_arguments(before: str) -> bool:
    closed = 0
    for at in range(len(before) - 1, -1, -1):
        if before[at] == ")":
            closed += 1
        elif before[at] == "(" and closed:
            closed -= 1
        elif before[at] == "(" and before[:at].rstrip()[-1:].isalnum():
            return True
    return False


def _token(found: "re.Match[str]", plain: str) -> Token:
    text = found[0].strip()
    at = found.end() - len(text)
    if found["number"]:
        value = _decimal(found["number"]) * _LARGE.get(found["unit"], 1)
        return Token(kind="number", text=text, at=at, value=value)
    if found["chinese"]:
        return Token(kind="number", text=text, at=at, value=_chinese(text))
    if found["name"]:
        word = found["name"].lower()
        operator = {"mod": "%", "of": "*", "x": "*"}.get(word)
        kind: Kind = "operator" if operator else "name"
        return Token(kind=kind, text=operator or word, at=at)
    if text == "!" or (text == "%" and not _begins_operand(plain[found.end() :])):
        return Token(kind="after", text=text, at=at)
    return Token(kind="operator", text=text, at=at)


def _begins_operand(rest: str) -> bool:
    """Whether a `%` before this divides; else it means hundredths."""
    found = _TOKEN.match(rest)
    if found is None or found["sign"]:
        return found is not None and found["sign"] in {"(", "√"}
    return (found["name"] or "").lower() not in {"of", "mod", "x"}


def _decimal(text: str) -> Fraction:
    mantissa, _, exponent = text.lower().replace("_", "").partition("e")
    if abs(int(exponent or 0)) > _MAX_EXPONENT:
        raise CalculationError(f"'{text}' is too large or too small")
    return Fraction(mantissa.rstrip(".") or "0") * Fraction(10) ** int(exponent or 0)


def _chinese(text: str) -> Fraction:
    """A number in Chinese words, such as 三百二十一 or 三点一四."""
    whole, _, decimals = text.partition("点")
    value = Fraction(_chinese_whole(whole))
    if decimals:
        digits = "".join(str(_DIGITS[char]) for char in decimals)
        value += Fraction(int(digits), 10 ** len(digits))
    return value


def _chinese_whole(text: str) -> int:
    if all(char in _DIGITS for char in text):  # 二〇二六, digit by digit
        return int("".join(str(_DIGITS[char]) for char in text))
    total, section, digit = 0, 0, 0
    for char in text:
        if char in _DIGITS:
            digit = _DIGITS[char]
        elif char in _TENS:
            section += (digit or 1) * _TENS[char]
            digit = 0
        else:
            # 一万亿 is ten thousand times 亿, 一亿二万 is not.
            below = total if _LARGE[char] > 10**4 else 0
            total = total - below + (below + section + digit or 1) * _LARGE[char]
            section, digit = 0, 0
    return total + section + digit


def _odd(rest: str) -> str:
    if rest.startswith("除"):
        return "'除' is unclear: write 除以 or /"
    if rest.startswith("="):
        return "it holds '=': give one expression, not an equation"
    return f"'{rest[:20]}' is no part of an expression"
