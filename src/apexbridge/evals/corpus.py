"""Evaluation corpus: parse skills and queries from JSON Lines, plain, gzip or xz."""

import gzip
import lzma
import zlib
from collections.abc import Container, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from io import BufferedIOBase
from pathlib import Path
from typing import Annotated, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from apexbridge.errors import EvalInputError

MAX_LINE = 1024 * 1024
MAX_BYTES = 1024 * MAX_LINE
"""Limit of the decompressed size, against decompression bombs."""
_BOM = b"\xef\xbb\xbf"
_GZIP, _XZ = b"\x1f\x8b", b"\xfd7zXZ\x00"


def _as_text(value: object) -> object:
    # Not isinstance: bool is an int, and `true` is no id.
    return str(value) if type(value) is int else value


Id = Annotated[str, BeforeValidator(_as_text)]
"""A number or a string; 7 and "7" are equal."""


class CorpusSkill(BaseModel):
    """A skill of the corpus; ids are unique, names need not be."""

    model_config = ConfigDict(frozen=True, strict=True)

    id: Id
    name: str = Field(min_length=1)
    description: str
    body: str = ""


class EvalQuery(BaseModel):
    """A query with the ids of its relevant skills."""

    model_config = ConfigDict(frozen=True, strict=True)

    query: str = Field(min_length=1)
    query_en: str | None = None
    query_zh: str | None = None
    accept: list[Id] = Field(min_length=1)
    lang: str | None = None
    pair: Id | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EvalQueries:
    """The queries of a file, and the number of relevant ids that the corpus lacks."""

    queries: tuple[EvalQuery, ...]
    unknown_accepts: int = 0


def read_corpus(path: Path) -> tuple[CorpusSkill, ...]:
    """Parse the skills of a file.

    Raises:
        EvalInputError: If a line is invalid, an id is duplicated, or the file is empty.
    """
    found = dict[str, CorpusSkill]()
    for number, skill in _parse_lines(path, CorpusSkill):
        if skill.id in found:
            raise EvalInputError(f"duplicate id {skill.id!r}", path=path, line=number)
        found[skill.id] = skill
    if not found:
        raise EvalInputError(code="eval_input_empty", path=path)
    return tuple(found.values())


def read_queries(path: Path, known: Container[str]) -> EvalQueries:
    """Parse the queries of a file; `known` are the ids of the corpus.

    Raises:
        EvalInputError: If a line is invalid or has no known id, or the file is empty.
    """
    queries, unknown = list[EvalQuery](), 0
    for number, query in _parse_lines(path, EvalQuery):
        unknown_ids = [id_ for id_ in query.accept if id_ not in known]
        if len(unknown_ids) == len(query.accept):
            detail = f"the corpus has none of the accepted ids {', '.join(unknown_ids[:5])}"
            raise EvalInputError(detail, path=path, line=number)
        unknown += len(unknown_ids)
        queries.append(query)
    if not queries:
        raise EvalInputError(code="eval_input_empty", path=path)
    return EvalQueries(queries=tuple(queries), unknown_accepts=unknown)


_Model = TypeVar("_Model", bound=BaseModel)


def _parse_lines(path: Path, kind: type[_Model]) -> Iterator[tuple[int, _Model]]:
    for number, line in _read_lines(path):
        try:
            yield number, kind.model_validate_json(line)
        except ValidationError as error:
            raise EvalInputError(validation_summary(error), path=path, line=number) from None


def validation_summary(error: ValidationError) -> str:
    """Format the first validation error on one line, without the rejected value."""
    first = error.errors(include_url=False, include_input=False, include_context=False)[0]
    place = ".".join(map(str, first["loc"]))
    return f"{place}: {first['msg']}" if place else first["msg"]


def _read_lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """Yield every non-blank line with its number."""
    number, remaining = 0, MAX_BYTES
    with _open_decompressed(path) as file:
        try:
            while line := file.readline(MAX_LINE + 1):
                number += 1
                remaining -= len(line)
                if len(line) > MAX_LINE or remaining < 0:
                    detail = f"more than {MAX_LINE if remaining >= 0 else MAX_BYTES} bytes"
                    raise EvalInputError(detail, path=path, line=number)
                # Editors on Windows write a byte order mark, which is no JSON.
                text = line.removeprefix(_BOM) if number == 1 else line
                if text.strip():
                    yield number, text
        except (EOFError, zlib.error, gzip.BadGzipFile, lzma.LZMAError) as error:
            raise EvalInputError(f"damaged: {error}", path=path, line=number + 1) from None


@contextmanager
def _open_decompressed(path: Path) -> Generator[BufferedIOBase]:
    """Open a file by its magic number, whatever its suffix."""
    with path.open("rb") as file:
        start = file.peek(len(_XZ))
        if start.startswith(_GZIP):
            with gzip.GzipFile(fileobj=file) as unpacked:
                yield unpacked
        elif start.startswith(_XZ):
            with lzma.LZMAFile(file) as unpacked:
                yield unpacked
        else:
            yield file
