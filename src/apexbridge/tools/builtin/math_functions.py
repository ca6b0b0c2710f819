"""What can be called in an expression, each in bounds. Pure."""

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction

Number = Fraction | float
Function = Callable[[Sequence[Number]], Number]

MAX_BITS = 13_000
"""Nearly 4,000 digits: all that Python writes out, and enough for anybody."""
_MAX_FACTORIAL = 1_000
_MAX_PLACES = 100


class CalculationError(Exception):
    """It cannot be worked out; the words say why."""


def bounded(value: Number, *, bits: int = 0) -> Number:
    """The value, if it is a number and not too large.

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


def root(value: Number) -> Number:
    """The square root; exact where there is one."""
    if value < 0:
        raise CalculationError("a negative number has no square root")
    if isinstance(value, Fraction):
        above, below = math.isqrt(value.numerator), math.isqrt(value.denominator)
        if (above * above, below * below) == (value.numerator, value.denominator):
            return Fraction(above, below)
    return _as_float(math.sqrt, value)


def factorial(value: Number) -> Number:
    """The product of the whole numbers up to this one."""
    number = _whole(value, "factorial")
    if not 0 <= number <= _MAX_FACTORIAL:
        raise CalculationError(f"factorial takes whole numbers from 0 to {_MAX_FACTORIAL:,}")
    return Fraction(math.factorial(number))


def _whole(value: Number, name: str) -> int:
    if value != int(value):
        raise CalculationError(f"{name} takes whole numbers")
    return int(value)


def _as_float(function: Callable[[float], float], value: Number) -> float:
    try:
        result = function(float(value))
    except OverflowError:
        raise CalculationError("the number is too large for that") from None
    except ValueError:
        raise CalculationError(f"that has no value at {float(value):g}") from None
    bounded(result)
    return result


def _of(name: str, least: int, most: int, function: Callable[..., Number]) -> Function:
    def call(values: Sequence[Number]) -> Number:
        if not least <= len(values) <= most:
            wanted = str(least) if least == most else f"{least} or more"
            raise CalculationError(f"{name} takes {wanted} arguments, not {len(values)}")
        return bounded(function(*values))

    return call


def _real(name: str, function: Callable[[float], float]) -> tuple[str, Function]:
    def call(value: Number) -> Number:
        return _as_float(function, value)

    return name, _of(name, 1, 1, call)


def _round(value: Number, places: Number = Fraction(0)) -> Number:
    """Halves go away from zero, as people round."""
    scale_by = _whole(places, "round")
    if abs(scale_by) > _MAX_PLACES:
        raise CalculationError(f"round takes at most {_MAX_PLACES} places")
    scale = Fraction(10) ** scale_by
    scaled = Fraction(value) * scale
    whole = math.floor(abs(scaled) + Fraction(1, 2))
    return Fraction(whole if scaled >= 0 else -whole) / scale


def _logarithm(value: Number, base: Number = math.e) -> Number:
    if base <= 0 or base == 1:
        raise CalculationError("that is no base of a logarithm")
    if base in {2, 10}:
        return _as_float(math.log2 if base == 2 else math.log10, value)
    natural = _as_float(math.log, value)
    return natural if base == math.e else natural / _as_float(math.log, base)


def _of_wholes(name: str, function: Callable[[int, int], int]) -> tuple[str, Function]:
    def both(one: Number, other: Number) -> Number:
        return bounded(Fraction(function(_whole(one, name), _whole(other, name))))

    def call(*values: Number) -> Number:
        return functools.reduce(both, values, values[0])

    return name, _of(name, 1, 100, call)


def _absolute(value: Number) -> Number:
    return abs(value)


def _floor(value: Number) -> Number:
    return Fraction(math.floor(value))


def _ceil(value: Number) -> Number:
    return Fraction(math.ceil(value))


def _trunc(value: Number) -> Number:
    return Fraction(math.trunc(value))


def _least(*values: Number) -> Number:
    return min(values)


def _largest(*values: Number) -> Number:
    return max(values)


def _total(*values: Number) -> Number:
    return functools.reduce(lambda one, other: bounded(one + other), values)


def _median(*values: Number) -> Number:
    ranked = sorted(values)
    return _mean(*ranked[(len(ranked) - 1) // 2 : len(ranked) // 2 + 1])


def _mean(*values: Number) -> Number:
    return _total(*values) / len(values)


FUNCTIONS: Mapping[str, Function] = dict([
    _real("sin", math.sin), _real("cos", math.cos), _real("tan", math.tan),
    _real("asin", math.asin), _real("acos", math.acos), _real("atan", math.atan),
    _real("sinh", math.sinh), _real("cosh", math.cosh), _real("tanh", math.tanh),
    _real("exp", math.exp), _real("ln", math.log), _real("log2", math.log2),
    _real("log10", math.log10), _real("lg", math.log10), _real("cbrt", math.cbrt),
    _real("degrees", math.degrees), _real("radians", math.radians),
    ("log", _of("log", 1, 2, _logarithm)),
    ("sqrt", _of("sqrt", 1, 1, root)),
    ("abs", _of("abs", 1, 1, _absolute)),
    ("round", _of("round", 1, 2, _round)),
    ("floor", _of("floor", 1, 1, _floor)),
    ("ceil", _of("ceil", 1, 1, _ceil)),
    ("trunc", _of("trunc", 1, 1, _trunc)),
    ("factorial", _of("factorial", 1, 1, factorial)),
    ("min", _of("min", 1, 1_000, _least)),
    ("max", _of("max", 1, 1_000, _largest)),
    ("sum", _of("sum", 1, 1_000, _total)),
    ("mean", _of("mean", 1, 1_000, _mean)),
    ("avg", _of("avg", 1, 1_000, _mean)),
    ("median", _of("median", 1, 1_000, _median)),
    _of_wholes("gcd", math.gcd), _of_wholes("lcm", math.lcm),
])  # fmt: skip

CONSTANTS: Mapping[str, Number] = {
    "pi": math.pi,
    "π": math.pi,
    "e": math.e,
    "tau": math.tau,
    "τ": math.tau,
}
