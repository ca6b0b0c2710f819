"""Skills as they look on the wire: what both vendors' clients read, and what is ours beside it."""

from typing import Literal

from pydantic import BaseModel, ConfigDict

from apexbridge.lifecycle.skill_list import SkillState
from apexbridge.sandbox.base import Outcome
from apexbridge.scanner.rules import RiskLevel
from apexbridge.skills.model import Severity


class ResponseModel(BaseModel):
    """What every reply has in common: the fields that are written down, and no others."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


class SkillSourceSchema(ResponseModel):
    """Where a skill comes from."""

    type: Literal["custom", "plugin"]
    """In a vendor's words."""
    id: str
    """In ours: the source that lists it."""


class FindingCountSchema(ResponseModel):
    """How much vetting found in the state that a skill is in."""

    worst: RiskLevel | None
    count: int
    looked: bool
    """False where nobody has looked yet."""


class SkillSchema(ResponseModel):
    """A skill. `id` is `skill_` and the name; wherever an id is taken, the name is too."""

    id: str
    object: Literal["skill"] = "skill"
    type: Literal["skill"] = "skill"
    name: str
    display_name: str
    display_title: str
    description: str
    created_at: int
    """Seconds since the epoch; 0 where nobody knows."""
    updated_at: int
    default_version: str
    """The version in use."""
    latest_version: str
    """The version that came last, in use or not."""
    latest_version_id: str
    source: SkillSourceSchema
    state: SkillState
    origin: str
    writable: bool
    """Whether it can be edited, updated and removed here."""
    trusted: bool
    """Whether it may act: run scripts and hooks, lend tools."""
    pinned: bool
    size: int
    """Bytes of all its files."""
    files: int
    sha256: str
    """The hash of all its files; empty where it has none. In quotes it is the ETag."""
    version: str
    """What its SKILL.md calls its version, if anything."""
    findings: FindingCountSchema
    has_script: bool
    user_invocable: bool
    model_invocable: bool


class SkillListSchema(ResponseModel):
    """A page of skills."""

    object: Literal["list"] = "list"
    data: list[SkillSchema]
    has_more: bool
    first_id: str | None
    last_id: str | None
    next_page: str | None
    """What to ask for the next page with, as `page`."""
    total: int
    """How many there are on all pages."""


class ProblemSchema(ResponseModel):
    """A rule that a skill breaks."""

    code: str
    where: str
    severity: Severity
    message: str
    hint: str


class FindingSchema(ResponseModel):
    """Something that looks dangerous."""

    rule: str
    level: RiskLevel
    title: str
    advice: str
    path: str
    line: int
    excerpt: str
    details: dict[str, str]
    owasp: list[str]


class InstallResultSchema(ResponseModel):
    """What came of a change."""

    changed: bool
    """False if everything was so before."""
    indexed: bool
    """False if it is found by its words only, until the index can be brought up."""
    problems: list[ProblemSchema]
    findings: list[FindingSchema]


class NewSkillSchema(SkillSchema):
    """A skill that was just installed."""

    change: InstallResultSchema


class AffectedSkillSchema(ResponseModel):
    """How many places another skill loses and gains over all queries."""

    name: str
    lost: int
    gained: int


class QueryRankSchema(ResponseModel):
    """A query, and the skill's rank before and after; null: not among the first ten."""

    query: str
    kind: Literal["saved", "old", "new"]
    """From the skill's saved queries, from the text as it is, or from the text as it would be."""
    before: int | None
    after: int | None
    gains: list[str]
    """Other skills that go up."""
    loses: list[str]
    """Other skills that go down."""


class PreviewSchema(ResponseModel):
    """What another description would do to the ranks."""

    queries: list[QueryRankSchema]
    others: list[AffectedSkillSchema]


class SkillChangeSchema(ResponseModel):
    """A skill after a change, or as it would stay in a dry run."""

    changed: bool
    skill: SkillSchema
    indexed: bool = True
    preview: PreviewSchema | None = None
    """Of a dry run only."""


class DeletedSkillSchema(ResponseModel):
    """A skill that was taken away; it can be brought back for a while."""

    id: str
    object: Literal["skill.deleted"] = "skill.deleted"
    type: Literal["skill_deleted"] = "skill_deleted"
    deleted: Literal[True] = True
    name: str
    undo_days: float
    """For how long."""


class VersionSchema(ResponseModel):
    """A state of a skill: in use, or kept."""

    id: str
    object: Literal["skill.version"] = "skill.version"
    type: Literal["skill_version"] = "skill_version"
    skill_id: str
    name: str
    description: str
    created_at: int
    version: str
    """The first twelve digits of its hash."""
    sha256: str
    declared: str
    """What its SKILL.md calls it, if anything."""
    size: int
    current: bool
    """Whether it is the one in use."""
    pinned: bool


class NewVersionSchema(VersionSchema):
    """A version that was just taken in."""

    change: InstallResultSchema


class VersionListSchema(ResponseModel):
    """A page of versions."""

    object: Literal["list"] = "list"
    data: list[VersionSchema]
    has_more: bool
    first_id: str | None
    last_id: str | None
    next_page: str | None


class DeletedVersionSchema(ResponseModel):
    """A version that is not kept any more."""

    id: str
    object: Literal["skill.version.deleted"] = "skill.version.deleted"
    type: Literal["skill_version_deleted"] = "skill_version_deleted"
    deleted: Literal[True] = True
    version: str


class FileSchema(ResponseModel):
    """A file of a skill."""

    path: str
    size: int
    executable: bool


class SkillTextSchema(ResponseModel):
    """SKILL.md as it is written, and what lies beside it."""

    object: Literal["skill.text"] = "skill.text"
    id: str
    name: str
    text: str
    files: list[FileSchema]
    """Empty where the source lists none."""
    sha256: str


class ScorePartsSchema(ResponseModel):
    """What a hit's score is made of."""

    dense: float
    view: float
    view_text: str
    lexical: float
    words: dict[str, float]
    meaning: float
    usage: float
    language: Literal["en", "zh"]
    total: float


class HitSchema(ResponseModel):
    """A skill that was found."""

    rank: int
    id: str
    name: str
    description: str
    score: float
    """The chance that it is the one wanted."""
    parts: ScorePartsSchema


class NoticeSchema(ResponseModel):
    """Why something was done in a lesser way."""

    code: str
    message: str
    hint: str


class SearchSchema(ResponseModel):
    """The skills that fit a request, the best first."""

    object: Literal["search"] = "search"
    query: str
    confidence: float
    """How sure it is that any skill fits at all."""
    threshold: float
    """Below this confidence none is taken to fit."""
    searched: int
    problem: NoticeSchema | None
    """Why the search had to do without vectors, where it had to."""
    hits: list[HitSchema]


class ScriptSchema(ResponseModel):
    """A file that can be run, and what with."""

    path: str
    runner: str
    executable: bool


class ScanReportSchema(ResponseModel):
    """All that looks dangerous in a skill, the gravest first."""

    worst: RiskLevel | None
    partial: bool
    """Whether something could not be looked at."""
    files: int
    bytes: int
    notice: str
    findings: list[FindingSchema]


class InspectionSchema(ResponseModel):
    """Everything a person should know of a skill before it may stay."""

    object: Literal["skill.inspection"] = "skill.inspection"
    name: str
    description: str
    version: str
    sha256: str
    size: int
    files: list[FileSchema]
    tools: list[str]
    """What it asks to be allowed."""
    hooks: list[str]
    """The events it wants commands run at."""
    commands: list[str]
    """What is run when its text is read."""
    scripts: list[ScriptSchema]
    problems: list[ProblemSchema]
    report: ScanReportSchema
    exists: bool
    """Whether an installed skill has the name: it would be an update."""
    refused: bool
    """Whether what was found is grave enough that an install is refused."""


class OutputFileSchema(ResponseModel):
    """A file that a script left in its workspace."""

    path: str
    size: int
    base64: str | None
    """What is in it; null where all files together are too large for a reply."""


class ScriptRunSchema(ResponseModel):
    """What a script did. `exit_code` is null when it never started, and `error` says why."""

    object: Literal["skill.run"] = "skill.run"
    skill: str
    script: str
    outcome: Outcome
    exit_code: int | None
    stdout: str
    stderr: str
    seconds: float
    error: str | None
    timed_out: bool
    truncated: bool
    isolation: str
    files: list[OutputFileSchema]
    not_taken: dict[str, str]
    """What else it left there, and why that does not come back."""


class TrashedSkillSchema(ResponseModel):
    """A skill that was taken away and can be brought back."""

    id: str
    name: str
    removed_at: int
    expires_at: int


class TrashSchema(ResponseModel):
    """What can be brought back, the latest first."""

    object: Literal["list"] = "list"
    data: list[TrashedSkillSchema]
