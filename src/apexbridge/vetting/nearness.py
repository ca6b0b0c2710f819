"""How far two names are apart."""


def slips(one: str, other: str) -> int:
    """How many letters were changed, left out, put in or swapped; more than one counts as two."""
    start = 0
    while start < min(len(one), len(other)) and one[start] == other[start]:
        start += 1
    a, b = one[start:], other[start:]
    if a == b:
        return 0
    if a[1:] == b[1:] or a[1:] == b or a == b[1:]:
        return 1
    return 1 if a[:2] == b[:2][::-1] and a[2:] == b[2:] else 2
