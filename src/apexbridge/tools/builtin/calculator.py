"""Calculator: evaluate arithmetic by a white list of `ast` nodes, exactly and within bounds.

Nothing is run as Python. Numbers are fractions, so `0.1 + 0.2` is `0.3`; an irrational value (most
roots, sines, logarithms) is a float and marked as rounded.
"""

import ast
import functools
import math
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from fractions import Fraction

from apexbridge.tools.builtin.math_notation import MAX_DEPTH, CalculationError, Number, Translation

MAX_BITS = 13_000
"""Nearly 4,000 digits; Python refuses to print an integer of more than 4,300."""
_MAX_FACTORIAL = 1_000
_MAX_PLACES = 100
_EXACT_DIGITS = 30
_ROUNDED_DIGITS = 15
_LONG_NUMBER = 60
_NOT_ARITHMETIC = "that is no arithmetic"

CONSTANTS: Mapping[str, Number] = {
    "pi": math.pi,
    "π": math.pi,
    "e": math.e,
    "tau": math.tau,
    "τ": math.tau,
}


def calculate(text: str) -> Number:
    """Evaluate an expression.

    Raises:
        CalculationError: If it is not one, or its value is out of bounds; the text says why.
    """
    translation = Translation(text, _FUNCTIONS, CONSTANTS)
    try:
        tree = ast.parse(translation.source, mode="eval")
    except (RecursionError, MemoryError):
        raise CalculationError("it is nested too deep") from None
    return _Evaluator(translation.numbers).value(tree.body, 1)


class _Evaluator:
    def __init__(self, numbers: Sequence[Number]) -> None:
        self._numbers = numbers

    def value(self, node: ast.expr, depth: int) -> Number:
        if depth > MAX_DEPTH:
            raise CalculationError("it is nested too deep")
        chain = list[ast.BinOp]()
        # `1 + 2 + 3 + …` leans to the left: a loop, so that a long sum is not a deep one.
        while isinstance(node, ast.BinOp) and not isinstance(node.op, ast.Pow):
            chain.append(node)
            node = node.left
        value = self._operand(node, depth)
        for link in reversed(chain):
            value = _combine(link.op, value, self.value(link.right, depth + 1))
        return value

    def _operand(self, node: ast.expr, depth: int) -> Number:
        match node:
            case ast.Name(id=name):
                return self._numbers[int(name[1:])]
            case ast.UnaryOp(op=operator, operand=operand):
                return _unary(operator, self.value(operand, depth + 1))
            case ast.BinOp(left=left, op=ast.Pow(), right=right):
                return _power(self.value(left, depth + 1), self.value(right, depth + 1))
            case ast.Attribute(value=inner, attr=name):
                return _postfix(name, self.value(inner, depth + 1))
            case ast.Call(func=ast.Name(id=name), args=arguments, keywords=[]):
                return _call(name, [self.value(argument, depth + 1) for argument in arguments])
            case _:
                raise CalculationError(_NOT_ARITHMETIC)


def _unary(operator: ast.unaryop, value: Number) -> Number:
    match operator:
        case ast.UAdd():
            return value
        case ast.USub():
            return -value
        case ast.Invert():
            return square_root(value)
        case _:
            raise CalculationError(_NOT_ARITHMETIC)


def _postfix(name: str, value: Number) -> Number:
    match name:
        case "factorial":
            return factorial(value)
        case "percent":
            return _bounded(value / 100)
        case _:
            raise CalculationError(_NOT_ARITHMETIC)


def _combine(operator: ast.operator, left: Number, right: Number) -> Number:
    if right == 0 and isinstance(operator, ast.Div | ast.FloorDiv | ast.Mod):
        raise CalculationError("it divides by zero")
    try:
        match operator:
            case ast.Add():
                return _bounded(left + right)
            case ast.Sub():
                return _bounded(left - right)
            case ast.Mult():
                return _bounded(left * right)
            case ast.Div():
                return _bounded(left / right)
            case ast.FloorDiv():
                return _bounded(Fraction(math.floor(left / right)))
            case ast.Mod():
                return _bounded(left % right)
            case _:
                raise CalculationError(_NOT_ARITHMETIC)
    except OverflowError:
        raise CalculationError("the numbers are too large") from None


def _power(base: Number, exponent: Number) -> Number:
    if base == 0 and exponent < 0:
        raise CalculationError("it divides by zero")
    if isinstance(base, Fraction) and isinstance(exponent, Fraction):
        if exponent.denominator == 1:
            bits = max(base.numerator.bit_length(), base.denominator.bit_length())
            # Refused before it is computed: 9 ** 9 ** 9 would take all memory.
            _bounded(Fraction(0), bits=(bits - 1) * abs(exponent.numerator))
            return _bounded(Fraction(base**exponent.numerator))
        if exponent == Fraction(1, 2):
            return square_root(base)
    try:
        value = float(base) ** float(exponent)
    except OverflowError:
        raise CalculationError("the result is too large") from None
    if isinstance(value, complex):
        raise CalculationError("a negative number has no such power")
    return _bounded(value)


def _bounded(value: Number, *, bits: int = 0) -> Number:
    """Return the value, if it is finite and not too large.

    Raises:
        CalculationError: If not.
    """
    if isinstance(value, float):
        if not math.isfinite(value):
            raise CalculationError("the result is too large or not a number")
        return value
    bits = max(bits, value.numerator.bit_length(), value.denominator.bit_length())
    if bits > MAX_BITS:
        raise CalculationError("the result has too many digits")
    return value


def square_root(value: Number) -> Number:
    """Return the square root; exact where it is rational."""
    if value < 0:
        raise CalculationError("a negative number has no square root")
    if isinstance(value, Fraction):
        above, below = math.isqrt(value.numerator), math.isqrt(value.denominator)
        if (above * above, below * below) == (value.numerator, value.denominator):
            return Fraction(above, below)
    return _real(math.sqrt, value)


def factorial(value: Number) -> Number:
    """Return the product of the integers from 1 to this one."""
    number = _integer(value, "factorial")
    if not 0 <= number <= _MAX_FACTORIAL:
        raise CalculationError(f"factorial takes whole numbers from 0 to {_MAX_FACTORIAL:,}")
    return Fraction(math.factorial(number))


def _integer(value: Number, name: str) -> int:
    if value != int(value):
        raise CalculationError(f"{name} takes whole numbers")
    return int(value)


def _real(function: Callable[[float], float], value: Number) -> float:
    try:
        result = function(float(value))
    except OverflowError:
        raise CalculationError("the number is too large for that") from None
    except ValueError:
        raise CalculationError(f"that has no value at {float(value):g}") from None
    _bounded(result)
    return result


def _round(value: Number, places: Number = Fraction(0)) -> Number:
    """Round half away from zero, as people do; Python's `round` takes halves to even."""
    digits = _integer(places, "round")
    if abs(digits) > _MAX_PLACES:
        raise CalculationError(f"round takes at most {_MAX_PLACES} places")
    scale = Fraction(10) ** digits
    scaled = Fraction(value) * scale
    whole = math.floor(abs(scaled) + Fraction(1, 2))
    return Fraction(whole if scaled >= 0 else -whole) / scale


def _logarithm(value: Number, base: Number = math.e) -> Number:
    if base <= 0 or base == 1:
        raise CalculationError("that is no base of a logarithm")
    if base in {2, 10}:
        return _real(math.log2 if base == 2 else math.log10, value)
    natural = _real(math.log, value)
    return natural if base == math.e else natural / _real(math.log, base)


def _sum(*values: Number) -> Number:
    return functools.reduce(lambda one, other: _bounded(one + other), values)


def _mean(*values: Number) -> Number:
    return _sum(*values) / len(values)


def _median(*values: Number) -> Number:
    ranked = sorted(values)
    return _mean(*ranked[(len(ranked) - 1) // 2 : len(ranked) // 2 + 1])


def _of_integers(name: str, function: Callable[[int, int], int]) -> Callable[..., Number]:
    def both(one: Number, other: Number) -> Number:
        return _bounded(Fraction(function(_integer(one, name), _integer(other, name))))

    return lambda *values: functools.reduce(both, values, values[0])


def _to_integer(function: Callable[[Number], int]) -> Callable[[Number], Number]:
    return lambda value: Fraction(function(value))


def _absolute(value: Number) -> Number:
    return abs(value)


_REAL_FUNCTIONS = {
    "sin": math.sin, "cos": math.cos, "tan": math.tan, "asin": math.asin, "acos": math.acos,
    "atan": math.atan, "sinh": math.sinh, "cosh": math.cosh, "tanh": math.tanh, "exp": math.exp,
    "ln": math.log, "log2": math.log2, "log10": math.log10, "lg": math.log10, "cbrt": math.cbrt,
    "degrees": math.degrees, "radians": math.radians,
}  # fmt: skip
_FUNCTIONS: Mapping[str, tuple[int, int, Callable[..., Number]]] = {
    **{name: (1, 1, functools.partial(_real, real)) for name, real in _REAL_FUNCTIONS.items()},
    "log": (1, 2, _logarithm), "sqrt": (1, 1, square_root), "abs": (1, 1, _absolute),
    "round": (1, 2, _round), "floor": (1, 1, _to_integer(math.floor)),
    "ceil": (1, 1, _to_integer(math.ceil)), "trunc": (1, 1, _to_integer(math.trunc)),
    "factorial": (1, 1, factorial), "min": (1, 1_000, lambda *values: min(values)),
    "max": (1, 1_000, lambda *values: max(values)), "sum": (1, 1_000, _sum),
    "mean": (1, 1_000, _mean), "avg": (1, 1_000, _mean), "median": (1, 1_000, _median),
    "gcd": (1, 100, _of_integers("gcd", math.gcd)), "lcm": (1, 100, _of_integers("lcm", math.lcm)),
}  # fmt: skip
"""Each function with the least and the largest number of its arguments."""


def _call(name: str, values: Sequence[Number]) -> Number:
    least, most, function = _FUNCTIONS[name]
    if not least <= len(values) <= most:
        wanted = str(least) if least == most else f"{least} or more"
        raise CalculationError(f"{name} takes {wanted} arguments, not {len(values)}")
    return _bounded(function(*values))


def format_number(value: Number) -> str:
    """Format a number: exact if that is short, else rounded and marked as such.

    >>> format_number(Fraction(3, 8)), format_number(Fraction(1, 3)), format_number(Fraction(7))
    ('0.375', '0.333333333333333 (rounded; exactly 1/3)', '7')
    """
    if isinstance(value, float):
        return f"{_rounded(value)} (rounded)"
    if value.denominator == 1:
        digits = str(value.numerator)
        if len(digits) <= _LONG_NUMBER:
            return digits
        return f"{digits} (about {_rounded(value)}, {len(digits.lstrip('-')):,} digits)"
    exact = _terminating_decimal(value)
    if exact and len(exact) <= _EXACT_DIGITS:
        return exact
    fraction = f"{value.numerator}/{value.denominator}"
    more = f"; exactly {fraction}" if len(fraction) <= _EXACT_DIGITS else ""
    return f"{_rounded(value)} (rounded{more})"


def _terminating_decimal(value: Fraction) -> str:
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
        return f"{value:.{_ROUNDED_DIGITS}g}"
    decimal = Decimal(value.numerator) / Decimal(value.denominator)
    return f"{decimal:.{_ROUNDED_DIGITS}g}"
