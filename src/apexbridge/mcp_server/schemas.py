"""Input and output schemas of the MCP tools."""

from pydantic import BaseModel, Field

from apexbridge.activation.input_files import MAX_INPUT_FILES, InputFile
from apexbridge.retrieval.results import Kind, Match
from apexbridge.tools.typed import Arguments

MAX_ARGUMENTS = 256
MAX_INPUT_CHARS = 200_000
_MAX_NAME = 300


class LoadArguments(Arguments):
    """Arguments of `load_skill`."""

    name: str = Field(min_length=1, max_length=_MAX_NAME, description="The skill's name.")
    file: str = Field(
        default="",
        max_length=1_000,
        description="A file of the skill to read instead of its instructions.",
    )


class RunArguments(Arguments):
    """Arguments of `run_skill`."""

    name: str = Field(min_length=1, max_length=_MAX_NAME, description="The skill's name.")
    script: str = Field(
        default="", max_length=1_000, description="The script, if there is more than one."
    )
    arguments: list[str] = Field(
        default_factory=list[str],
        max_length=MAX_ARGUMENTS,
        description="Its arguments, one by one.",
    )
    stdin: str = Field(
        default="", max_length=MAX_INPUT_CHARS, description="What it reads from standard input."
    )
    seconds: float | None = Field(
        default=None, gt=0, description="When to end it, if earlier than settings do."
    )
    files: list[InputFile] = Field(
        default_factory=list[InputFile],
        max_length=MAX_INPUT_FILES,
        description="Files for its working directory; `a/b.csv` is in a folder.",
    )


class SearchHit(BaseModel):
    """Search hit."""

    name: str
    description: str
    score: float = Field(description="How well it fits, from 0 to 1.")
    match: Match = Field(description="`weak` below the confidence threshold, else `good`.")
    alike: list[str] = Field(description="Near duplicates that it stands for, best first.")
    kind: Kind = Field(description="What was found: a skill, or a tool.")
    uri: str = Field(description="Its SKILL.md as a resource; empty if it is not served as one.")


class SearchResults(BaseModel):
    """Output of `search_skills`."""

    query: str
    confidence: float = Field(description="How sure it is that any of them fits, from 0 to 1.")
    searched: int
    hits: list[SearchHit]


class LoadedFile(BaseModel):
    """File of a skill."""

    path: str
    uri: str
    sha256: str
    size: int


class LoadedSkill(BaseModel):
    """Output of `load_skill`: instructions or a file, and the list of files."""

    name: str
    description: str
    text: str
    truncated: bool
    is_cut: bool = Field(description="Deprecated: use `truncated`.")
    files: list[LoadedFile]


class OutputFile(BaseModel):
    """Output file of a script."""

    name: str
    size: int
    uri: str = Field(description="Its resource; empty if the file is not kept.")


class RunResult(BaseModel):
    """Output of `run_skill`."""

    name: str
    outcome: str
    exit_code: int | None
    stdout: str
    stderr: str
    error: str = ""
    reason: str = ""
    seconds: float
    isolation: str
    truncated: bool
    files: list[OutputFile]
    skipped_files: dict[str, str] = Field(
        default_factory=dict[str, str],
        description="Files that it made and that are not kept, with the reason.",
    )
    id: str = ""
