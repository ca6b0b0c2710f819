"""Arithmetic as text, worked out by a parser of its own: exact as long as it can be, and bounded.

Nothing is ever run as Python. Numbers are fractions, so `0.1 + 0.2` is `0.3`; what has no exact
value (most roots, sines, logarithms) goes on as a float and is shown rounded.
"""

import math
from collections.abc import Sequence
from decimal import Decimal
from fractions import Fraction

from apexbridge.tools.builtin.math_functions import (
    CONSTANTS,
    FUNCTIONS,
    CalculationError,
    Number,
    bounded,
    factorial,
    root,
)
from apexbridge.tools.builtin.math_notation import Token, tokenize

MAX_DEPTH = 50
_EXACT_DIGITS = 30
_SHOWN_DIGITS = 15
_LONG_NUMBER = 60

_LEFT = {"+": 10, "-": 10, "*": 20, "/": 20, "//": 20, "%": 20}
_NEGATION = 30
_POWER = 40
_AFTER = 50
"""How tightly operators bind; `-2 ** 2` is -4, and `2 ** 3 ** 2` is 2 ** 9."""


def calculate(text: str) -> Number:
    """Work an expression out.

    Raises:
        CalculationError: If it cannot be, in words.
    """
    return _Parser(tokenize(text)).whole()


def format_number(value: Number) -> str:
    """A number for people: exact if that is short, else rounded and said so.

    >>> show(Fraction(3, 8)), show(Fraction(1, 3)), show(Fraction(7))
    ('0.375', '0.333333333333333 (rounded; exactly 1/3)', '7')
    """
    if isinstance(value, float):
        return f"{_rounded(value)} (rounded)"
    if value.denominator == 1:
        digits = str(value.numerator)
        if len(digits) <= _LONG_NUMBER:
            return digits
        return f"{digits} (about {_rounded(value)}, {len(digits.lstrip('-')):,} digits)"
    exact = _as_decimal(value)
    if exact and len(exact) <= _EXACT_DIGITS:
        return exact
    fraction = f"{value.numerator}/{value.denominator}"
    more = f"; exactly {fraction}" if len(fraction) <= _EXACT_DIGITS else ""
    return f"{_rounded(value)} (rounded{more})"


def _as_decimal(value: Fraction) -> str:
    """All the digits, if they end."""
    rest, twos, fives = value.denominator, 0, 0
    while rest % 2 == 0:
        rest, twos = rest // 2, twos + 1
    while rest % 5 == 0:
        rest, fives = rest // 5, fives + 1
    places = max(twos, fives)
    if rest != 1 or places > _EXACT_DIGITS:
        return ""
    digits = str(abs(value.numerator) * 10**places // value.denominator).rjust(places + 1, "0")
    sign = "-" if value < 0 else ""
    return f"{sign}{digits[:-places]}.{digits[-places:]}"


def _rounded(value: Number) -> str:
    if isinstance(value, float):
        return f"{value:.{_SHOWN_DIGITS}g}"
    decimal = Decimal(value.numerator) / Decimal(value.denominator)
    return f"{decimal:.{_SHOWN_DIGITS}g}"


class _Parser:
    """A Pratt parser that works out what it reads."""

    def __init__(self, tokens: Sequence[Token]) -> None:
        self._tokens = tokens
        self._at = 0
        self._depth = 0

    def whole(self) -> Number:
        if not self._tokens:
            raise CalculationError("there is nothing to work out")
        value = self._expression(0)
        token = self._peek()
        if token is not None:
            raise _unexpected(token)
        return value

    def _expression(self, least: int) -> Number:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise CalculationError("it is nested too deep")
        value = self._operand()
        while (token := self._peek()) is not None:
            if token.kind == "after":
                self._at += 1
                value = factorial(value) if token.text == "!" else bounded(value / 100)
            elif token.text == "**" and least <= _POWER:
                self._at += 1
                value = _power(value, self._expression(_POWER))
            elif token.text in _LEFT and token.kind == "operator" and least < _LEFT[token.text]:
                self._at += 1
                value = _combine(token.text, value, self._expression(_LEFT[token.text]))
            else:
                break
        self._depth -= 1
        return value

    def _operand(self) -> Number:
        token = self._peek()
        if token is None:
            raise CalculationError("it ends where a number should come")
        self._at += 1
        if token.kind == "number":
            return token.value
        if token.kind == "name":
            return self._named(token)
        if token.text == "(":
            value = self._expression(0)
            self._close(token)
            return value
        if token.text in {"+", "-"}:
            value = self._expression(_NEGATION)
            return -value if token.text == "-" else value
        if token.text == "√":
            return root(self._expression(_AFTER))
        raise _unexpected(token)

    def _named(self, token: Token) -> Number:
        opening = self._peek()
        if opening is not None and opening.text == "(" and token.text in FUNCTIONS:
            self._at += 1
            return FUNCTIONS[token.text](self._arguments(opening))
        if token.text in CONSTANTS:
            return CONSTANTS[token.text]
        if token.text in FUNCTIONS:
            raise CalculationError(f"'{token.text}' needs its arguments in brackets")
        known = ", ".join(sorted((*FUNCTIONS, *CONSTANTS)))
        raise CalculationError(f"'{token.text}' is not known; there are {known}")

    def _arguments(self, opening: Token) -> list[Number]:
        values = list[Number]()
        closing = self._peek()
        if closing is not None and closing.text == ")":
            self._at += 1
            return values
        while True:
            values.append(self._expression(0))
            token = self._peek()
            if token is None or token.text != ",":
                break
            self._at += 1
        self._close(opening)
        return values

    def _close(self, opening: Token) -> None:
        token = self._peek()
        if token is None:
            raise CalculationError(f"the bracket at {opening.at + 1} is not closed")
        if token.text != ")":
            raise _unexpected(token)
        self._at += 1

    def _peek(self) -> Token | None:
        return self._tokens[self._at] if self._at < len(self._tokens) else None


def _unexpected(token: Token) -> CalculationError:
    hint = ""
    if token.kind in {"number", "name"} or token.text == "(":
        hint = "; write * to multiply"
    return CalculationError(f"'{token.text}' at {token.at + 1} is not expected there{hint}")


def _combine(operator: str, one: Number, other: Number) -> Number:
    if operator in {"/", "//", "%"} and other == 0:
        raise CalculationError("it divides by zero")
    try:
        match operator:
            case "+":
                return bounded(one + other)
            case "-":
                return bounded(one - other)
            case "*":
                return bounded(one * other)
            case "/":
                return bounded(one / other)
            case "//":
                return bounded(Fraction(math.floor(one / other)))
            case _:
                return bounded(one % other)
    except OverflowError:
        raise CalculationError("the numbers are too large") from None


def _power(base: Number, exponent: Number) -> Number:
    if base == 0 and exponent < 0:
        raise CalculationError("it divides by zero")
    if isinstance(base, Fraction) and isinstance(exponent, Fraction):
        if exponent.denominator == 1:
            bits = max(base.numerator.bit_length(), base.denominator.bit_length())
            bounded(Fraction(0), bits=(bits - 1) * abs(exponent.numerator))
            return bounded(Fraction(base**exponent.numerator))
        if exponent == Fraction(1, 2):
            return root(base)
    try:
        value = float(base) ** float(exponent)
    except OverflowError:
        raise CalculationError("the result is too large") from None
    if isinstance(value, complex):
        raise CalculationError("a negative number has no such power")
    return bounded(value)
