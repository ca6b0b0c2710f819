"""Translate arithmetic as people write it, also in Chinese, to the syntax of Python expressions.

`√`, `!` and `%` have no Python operator with their meaning. They are written as `~`, `.factorial`
and `.percent`, which have the precedence that is wanted, and the evaluator knows them.
"""

import re
from collections.abc import Collection, Mapping
from fractions import Fraction

MAX_CHARS = 1_000
MAX_DEPTH = 50
_MAX_EXPONENT = 3_000

Number = Fraction | float

_FULL_WIDTH = {code: code - 0xFEE0 for code in range(0xFF01, 0xFF5F)}
_SYMBOLS = str.maketrans(
    {"×": "*", "✕": "*", "·": "*", "⋅": "*", "∙": "*", "÷": "/", "∕": "/", "−": "-", "–": "-",
     "—": "-", "^": "**", "，": ",", "、": ",", "【": "(", "】": ")", "[": "(", "]": ")",
     "{": "(", "}": ")", "\u3000": " ", "\u00a0": " "}
)  # fmt: skip
_SUPERSCRIPTS = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁻", "0123456789-")
_SUPERSCRIPT = re.compile("⁻?[⁰¹²³⁴⁵⁶⁷⁸⁹]+")
_CHINESE_OPERATORS = (
    ("除以", "/"), ("乘以", "*"), ("乘", "*"), ("加上", "+"), ("加", "+"), ("减去", "-"),
    ("减", "-"), ("负", "-"), ("根号", "√"), ("的阶乘", "!"), ("的平方", "**2"),
    ("的立方", "**3"), ("圆周率", "pi"),
)  # fmt: skip
_WORD_OPERATORS = {"mod": "%", "of": "*", "x": "*"}
_QUESTION = re.compile(r"^\s*(?:请?计算(?:一下)?|请?算一下|求)\s*")
_ANSWER = re.compile(r"\s*(?:=|等于)?\s*(?:是?多少|几)?\s*[?=。.]*\s*$")

_DIGITS = {char: value for value, char in enumerate("零一二三四五六七八九")} | {"〇": 0, "两": 2}
_TENS = {"十": 10, "百": 100, "千": 1_000}
_MYRIADS = {"万": 10**4, "亿": 10**8}
_NUMERALS = "".join((*_DIGITS, *_TENS, *_MYRIADS))

_TOKEN = re.compile(
    rf"""\s*(?:
      (?P<percent>百分之\s*)?(?:
        (?P<number>(?:\d+(?:_\d+)*)?\.?\d+(?:_\d+)*\.?(?:[eE][+-]?\d+)?)(?P<unit>[万亿]?)
      | (?P<chinese>[{_NUMERALS}]+(?:点[{"".join(_DIGITS)}]+)?))
    | (?P<name>[A-Za-zπτ_][A-Za-z0-9_]*)
    | (?P<sign>\*\*|//|[-+*/%(),!√])
    )""",
    re.VERBOSE,
)
_GROUPED = re.compile(r"(?<![\w.,])\d{1,3}(?:,\d{3})+(?![\d,])")


class CalculationError(Exception):
    """An expression cannot be evaluated; the text says why."""


class Translation:
    """The Python source of an expression, and its numbers: `_0` in the source is the first.

    Every token is checked against what may come next, so the source always parses, and errors name
    the place in what was written. Numbers are kept apart because a Python literal such as `0.1`
    would be a float.
    """

    def __init__(self, text: str, functions: Collection[str], constants: Mapping[str, Number]):
        """Translate.

        Raises:
            CalculationError: If it is not an expression.
        """
        if len(text) > MAX_CHARS:
            raise CalculationError(f"it is longer than {MAX_CHARS:,} characters")
        self.numbers = list[Number]()
        self._functions, self._constants = functions, constants
        self._parts = list[str]()
        self._brackets = list[tuple[int, bool]]()
        """Each open bracket: where it is, and whether it is a function call's."""
        self._expects_operand = True
        self._translate(_normalized(text))

    @property
    def source(self) -> str:
        """The Python expression."""
        return " ".join(self._parts)

    def _translate(self, text: str) -> None:
        for found in _tokens(text):
            token, rest = found[0].strip(), text[found.end() :]
            start = found.end() - len(token)
            if found["name"]:
                self._add_name(found["name"].lower(), start, rest)
            elif found["sign"]:
                self._add_sign(token, start, rest)
            else:
                self._add_number(_number(found), token, start)
        if not self._parts:
            raise CalculationError("there is nothing to work out")
        if self._expects_operand:
            raise CalculationError("it ends where a number should come")
        if self._brackets:
            raise CalculationError(f"the bracket at {self._brackets[-1][0] + 1} is not closed")

    def _add_number(self, value: Number, token: str, start: int) -> None:
        self._require(self._expects_operand, token, start)
        self._parts.append(f"_{len(self.numbers)}")
        self.numbers.append(value)
        self._expects_operand = False

    def _add_name(self, name: str, start: int, rest: str) -> None:
        if name in _WORD_OPERATORS:
            self._add_sign(_WORD_OPERATORS[name], start, "0")
        elif name in self._functions and rest.lstrip().startswith("("):
            self._require(self._expects_operand, name, start)
            self._parts.append(name)
        elif name in self._constants:
            self._add_number(self._constants[name], name, start)
        elif name in self._functions:
            raise CalculationError(f"'{name}' needs its arguments in brackets")
        else:
            known = ", ".join(sorted((*self._functions, *self._constants)))
            raise CalculationError(f"'{name}' is not known; there are {known}")

    def _add_sign(self, sign: str, start: int, rest: str) -> None:
        is_postfix = sign == "!" or (sign == "%" and not _begins_operand(rest))
        match sign:
            case "(":
                self._open(start)
            case ")":
                self._close(start)
            case "√":
                self._require(self._expects_operand, sign, start)
                self._parts.append("~")
            case "!" | "%" if is_postfix:
                self._require(not self._expects_operand, sign, start)
                self._parts.append(".factorial" if sign == "!" else ".percent")
            case "+" | "-" if self._expects_operand:
                self._parts.append(sign)
            case _:
                is_call = bool(self._brackets) and self._brackets[-1][1]
                is_allowed = not self._expects_operand and (sign != "," or is_call)
                self._require(is_allowed, sign, start)
                self._parts.append(sign)
                self._expects_operand = True

    def _open(self, start: int) -> None:
        is_call = self._parts[-1:] != [] and self._parts[-1] in self._functions
        self._require(self._expects_operand, "(", start)
        if len(self._brackets) >= MAX_DEPTH:  # before Python's parser meets its own limit
            raise CalculationError("it is nested too deep")
        self._brackets.append((start, is_call))
        self._parts.append("(")

    def _close(self, start: int) -> None:
        is_empty_call = bool(self._brackets) and self._brackets[-1][1] and self._parts[-1] == "("
        is_complete = is_empty_call or not self._expects_operand
        self._require(bool(self._brackets) and is_complete, ")", start)
        self._brackets.pop()
        self._parts.append(")")
        self._expects_operand = False

    def _require(self, is_allowed: bool, text: str, start: int) -> None:
        if not is_allowed:
            is_operand = text[0] in "(." or text[0].isalnum()
            hint = "; write * to multiply" if is_operand else ""
            raise CalculationError(f"'{text}' at {start + 1} is not expected there{hint}")


def _tokens(text: str) -> "list[re.Match[str]]":
    tokens, at = list[re.Match[str]](), 0
    while at < len(text.rstrip()):
        found = _TOKEN.match(text, at)
        if found is None:
            raise CalculationError(_explain_unknown(text[at:].strip()))
        tokens.append(found)
        at = found.end()
    return tokens


def _normalized(text: str) -> str:
    text = text.translate(_FULL_WIDTH)
    text = _ANSWER.sub("", _QUESTION.sub("", text))
    text = _SUPERSCRIPT.sub(lambda found: f"**({found[0].translate(_SUPERSCRIPTS)})", text)
    text = text.translate(_SYMBOLS)
    for word, sign in _CHINESE_OPERATORS:
        text = text.replace(word, sign)
    return _without_grouping(text)


def _without_grouping(text: str) -> str:
    """Remove thousands separators, except in a call, where a comma separates arguments."""
    pieces, last = list[str](), 0
    for found in _GROUPED.finditer(text):
        if not _is_in_call(text[: found.start()]):
            pieces += [text[last : found.start()], found[0].replace(",", "")]
            last = found.end()
    return "".join((*pieces, text[last:]))


def _is_in_call(before: str) -> bool:
    closed = 0
    for at in range(len(before) - 1, -1, -1):
        if before[at] == ")":
            closed += 1
        elif before[at] == "(" and closed:
            closed -= 1
        elif before[at] == "(" and before[:at].rstrip()[-1:].isalnum():
            return True
    return False


def _begins_operand(rest: str) -> bool:
    """Say whether a `%` before this is the modulo operator; else it is a percentage."""
    found = _TOKEN.match(rest)
    if found is None or found["sign"]:
        return found is not None and found["sign"] in {"(", "√"}
    return (found["name"] or "").lower() not in _WORD_OPERATORS


def _number(found: "re.Match[str]") -> Fraction:
    value = _chinese_number(found["chinese"]) if found["chinese"] else _decimal(found["number"])
    return value * _MYRIADS.get(found["unit"], 1) / (100 if found["percent"] else 1)


def _decimal(text: str) -> Fraction:
    mantissa, _, exponent = text.lower().replace("_", "").partition("e")
    if abs(int(exponent or 0)) > _MAX_EXPONENT:
        raise CalculationError(f"'{text}' is too large or too small")
    return Fraction(mantissa.rstrip(".") or "0") * Fraction(10) ** int(exponent or 0)


def _chinese_number(text: str) -> Fraction:
    """Parse a Chinese numeral, such as 三百二十一 or 三点一四."""
    whole, _, decimals = text.partition("点")
    value = Fraction(_chinese_integer(whole))
    if decimals:
        digits = "".join(str(_DIGITS[char]) for char in decimals)
        value += Fraction(int(digits), 10 ** len(digits))
    return value


def _chinese_integer(text: str) -> int:
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
            below = total if _MYRIADS[char] > 10**4 else 0
            total = total - below + (below + section + digit or 1) * _MYRIADS[char]
            section, digit = 0, 0
    return total + section + digit


def _explain_unknown(rest: str) -> str:
    if rest.startswith("除"):
        return "'除' is unclear: write 除以 or /"
    if rest.startswith("="):
        return "it holds '=': give one expression, not an equation"
    return f"'{rest[:20]}' is no part of an expression"
