"""Arithmetic expressions in requests, found only if the request is nothing else."""

import re

_QUESTION_PREFIX = re.compile(
    r"(?:what(?:'s| is| does)|how much (?:is|are)|calculate|compute|evaluate|work out|solve|"
    r"the result of|result of|tell me|show me|计算一下|计算|算一下|算算|算|求|等于)\s*[:：]?\s*",
    re.IGNORECASE,
)
_QUESTION_SUFFIX = re.compile(
    r"\s*(?:equals?|equal to|make|等于多少|等于几|是多少|得多少|的结果是多少|"
    r"的结果是什么|的结果|得几|等于|=)$",
    re.IGNORECASE,
)
_WORDS = (
    ("divided by", "/"), ("multiplied by", "*"), ("to the power of", "**"), ("times", "*"),
    ("plus", "+"), ("minus", "-"), ("mod", "%"), ("over", "/"), ("加上", "+"), ("加", "+"),
    ("减去", "-"), ("减", "-"), ("乘以", "*"), ("乘", "*"), ("除以", "/"),
)  # fmt: skip
_OPERATORS = tuple(
    (re.compile(rf"(?<=[\d)%])\s*{word}\s*(?=[\d(-])", re.IGNORECASE), f" {sign} ")
    for word, sign in _WORDS
)
_SIGNS = str.maketrans("（）×✕÷＋－＊／−·", "()**/+-*/-*")
_PERCENT_OF = re.compile(r"(\d[\d,.]*)\s?%\s*(?:of|的|\*)\s*(?=[\d(])", re.IGNORECASE)
_PERCENT_OF_CHINESE = re.compile(r"^(\d[\d,.]*)\s?的\s?(?:百分之)?(\d[\d.]*)\s?%?$")
_ROOT = re.compile(
    r"^(?:the )?square root of\s+(\d[\d,.]*)$|^(\d[\d.]*)\s?的(?:算术)?平方根$", re.IGNORECASE
)
_SQUARE = re.compile(r"^(\d[\d.]*)\s?(?:squared|的平方)$", re.IGNORECASE)
_FUNCTION = r"(?:sqrt|abs|log10|log2|log|ln|exp|sin|cos|tan|round|factorial|min|max|mean|gcd)"
_WHOLE_EXPRESSION = re.compile(rf"(?:{_FUNCTION}(?=\s?\()|[\d\s.,+*/%^()!-])+", re.IGNORECASE)
_HAS_OPERATOR = re.compile(rf"\d\s?[)!%]*\s?[-+*/%^]|\d\s?!|{_FUNCTION}\s?\(", re.IGNORECASE)
_NOT_ARITHMETIC = re.compile(
    r"\d{4}-\d{1,2}-\d{1,2}|\d{1,4}/\d{1,2}/\d{1,4}|\d+(?:\.\d+){2,}|"  # dates and versions
    r"\b\d{3,4}-\d{4,8}\b|\b\d{1,3}-\d{3}-\d{3,4}|\d-\d+-\d|"  # telephone numbers
    r"^(?:24/7|7/24|50/50|9/11|80/20)$|[\d.]\s+[\d.]|[-+*/%^(,]\s*$"  # idioms
)


def arithmetic_expression(text: str) -> str:
    """Extract the expression that a request consists of; empty if it is anything else.

    >>> arithmetic_expression("what is 3 plus 4")
    '3 + 4'
    >>> arithmetic_expression("what is 24/7 support")
    ''
    """
    rest = _QUESTION_SUFFIX.sub("", text.translate(_SIGNS)).strip()
    while found := _QUESTION_PREFIX.match(rest):
        rest = rest[found.end() :]
    for pattern, sign in _OPERATORS:
        rest = pattern.sub(sign, rest)
    rest = _PERCENT_OF.sub(r"\1 / 100 * ", rest.strip())
    rest = _PERCENT_OF_CHINESE.sub(r"\1 * \2 / 100", rest)
    rest = _ROOT.sub(lambda found: f"sqrt({found[1] or found[2]})", rest)
    rest = _SQUARE.sub(r"\1 ** 2", rest).strip()
    is_sum = _WHOLE_EXPRESSION.fullmatch(rest) and _HAS_OPERATOR.search(rest)
    if not is_sum or _NOT_ARITHMETIC.search(rest) or rest.count("(") != rest.count(")"):
        return ""
    return rest
