"""The promise register and the tests' markers agree."""

import ast
import functools
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from tests.promises import PROMISES

TESTS = Path(__file__).parents[1]


def _marks(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Attribute(attr="promise"), args=arguments):
                yield from (str(a.value) for a in arguments if isinstance(a, ast.Constant))
            case _:
                pass


@functools.cache
def _proved() -> dict[str, list[str]]:
    proved = defaultdict[str, list[str]](list)
    for path in sorted(TESTS.rglob("test_*.py")):
        for promise in _marks(ast.parse(path.read_text(encoding="utf-8"))):
            proved[promise].append(path.name)
    return proved


def test_every_row_that_a_test_names_is_in_the_register() -> None:
    assert set(_proved()) <= set(PROMISES)


def test_every_row_that_is_not_open_has_a_test() -> None:
    claimed = {row.id for row in PROMISES.values() if row.state != "open"}
    assert claimed - set(_proved()) == set()


def test_a_row_with_a_test_is_no_longer_open() -> None:
    still_open = {row.id for row in PROMISES.values() if row.state == "open"}
    assert still_open & set(_proved()) == set()


def test_a_row_that_is_kept_in_part_says_what_remains() -> None:
    for row in PROMISES.values():
        assert bool(row.remains) is (row.state == "partly"), row.id


def test_the_register_has_every_table_without_gaps() -> None:
    sizes = {"Z": 36, "M": 16, "L": 16, "X": 15, "S": 16, "R": 7, "G": 13}
    expected = [f"{table}{n:02}" for table, size in sizes.items() for n in range(1, size + 1)]
    assert list(PROMISES) == expected
