"""Response schemas of the skills API: a superset of OpenAI's and Anthropic's."""

from typing import Generic, Literal, TypeVar

from pydantic import BaseModel, ConfigDict

from apexbridge.lifecycle.skill_list import SkillState
from apexbridge.retrieval.results import Kind, Match
from apexbridge.scanner.rules import RiskLevel
from apexbridge.server.routing import former_name
from apexbridge.skills.model import Severity

Item = TypeVar("Item")


class ResponseModel(BaseModel):
    """Base of the response schemas: immutable, and with declared fields only."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", use_attribute_docstrings=True, from_attributes=True
    )


class PageSchema(ResponseModel, Generic[Item]):
    """Page of a list, with the cursors of OpenAI's and Anthropic's clients."""

    object: Literal["list"] = "list"
    data: list[Item]
    has_more: bool
    first_id: str | None
    last_id: str | None
    next_page: str | None
    """Cursor of the next page, for the parameter `page`."""


class SkillSourceSchema(ResponseModel):
    """Source of a skill."""

    type: Literal["custom", "plugin"]
    """In Anthropic's terms."""
    id: str
    """Id of the source that lists it."""


class FindingCountSchema(ResponseModel):
    """Scanner findings in the current content of a skill."""

    worst: RiskLevel | None
    count: int
    scanned: bool
    """False if this content was not scanned yet."""
    looked = former_name("scanned", bool)


class SkillSchema(ResponseModel):
    """Skill. `id` is `skill_` and the name; endpoints accept either."""

    id: str
    object: Literal["skill"] = "skill"
    type: Literal["skill"] = "skill"
    name: str
    display_name: str
    display_title: str
    description: str
    created_at: int
    """Unix time; 0 if unknown."""
    updated_at: int
    default_version: str
    """The version in use."""
    latest_version: str
    """The version added last, in use or not."""
    latest_version_id: str
    source: SkillSourceSchema
    state: SkillState
    origin: str
    writable: bool
    """Whether it can be edited, updated and removed."""
    trusted: bool
    """Whether it may run scripts and hooks and grant tools."""
    pinned: bool
    size: int
    """Total size of its files, in bytes."""
    files: int
    sha256: str
    """Hash of all its files, empty if it has none; in quotes it is the ETag."""
    version: str
    """Version declared in SKILL.md, if any."""
    findings: FindingCountSchema
    has_script: bool
    user_invocable: bool
    model_invocable: bool


class SkillListSchema(PageSchema[SkillSchema]):
    """Page of skills."""

    total: int
    """Total over all pages."""


class ProblemSchema(ResponseModel):
    """Validation problem of a skill."""

    code: str
    where: str
    severity: Severity
    message: str
    hint: str


class FindingSchema(ResponseModel):
    """Scanner finding."""

    rule: str
    level: RiskLevel
    title: str
    advice: str
    path: str
    line: int
    excerpt: str
    details: dict[str, str]
    owasp: list[str]


class SignatureSchema(ResponseModel):
    """Checked signature of an upload; a wrong one is an error."""

    status: Literal["valid", "untrusted", "absent"]
    key: str
    """Id of the key, as minisign prints it."""
    comment: str
    """Comment that the key signed; empty if it is not verified."""


class InstallResultSchema(ResponseModel):
    """Result of an install or update."""

    changed: bool
    """False if the content was already installed."""
    indexed: bool
    """False if search finds it by keywords only until it is indexed."""
    problems: list[ProblemSchema]
    findings: list[FindingSchema]
    signature: SignatureSchema


class NewSkillSchema(SkillSchema):
    """Skill that was just installed."""

    change: InstallResultSchema


class AffectedSkillSchema(ResponseModel):
    """Ranks that another skill loses and gains over all queries."""

    name: str
    lost: int
    gained: int


class QueryRankSchema(ResponseModel):
    """Rank of the skill for a query before and after; null: not in the top ten."""

    query: str
    kind: Literal["saved", "old", "new"]
    """From the saved queries, the current description, or the new description."""
    before: int | None
    after: int | None
    gains: list[str]
    """Other skills whose rank improves."""
    loses: list[str]
    """Other skills whose rank drops."""


class PreviewSchema(ResponseModel):
    """Preview of the search ranks with a new description."""

    queries: list[QueryRankSchema]
    others: list[AffectedSkillSchema]


class SkillChangeSchema(ResponseModel):
    """Skill after a change, or unchanged in a dry run."""

    changed: bool
    skill: SkillSchema
    indexed: bool = True
    preview: PreviewSchema | None = None
    """Dry run only."""


class DeletedSkillSchema(ResponseModel):
    """Confirmation of a removal, which can be undone."""

    id: str
    object: Literal["skill.deleted"] = "skill.deleted"
    type: Literal["skill_deleted"] = "skill_deleted"
    deleted: Literal[True] = True
    name: str
    undo_days: float
    """Days for which it can be restored."""


class VersionSchema(ResponseModel):
    """Version of a skill, in use or stored."""

    id: str
    object: Literal["skill.version"] = "skill.version"
    type: Literal["skill_version"] = "skill_version"
    skill_id: str
    name: str
    description: str
    created_at: int
    version: str
    """First twelve digits of its hash."""
    sha256: str
    declared: str
    """Version declared in SKILL.md, if any."""
    size: int
    current: bool
    """Whether it is the default version."""
    pinned: bool


class NewVersionSchema(VersionSchema):
    """Version that was just added."""

    change: InstallResultSchema


class VersionListSchema(PageSchema[VersionSchema]):
    """Page of versions."""


class DeletedVersionSchema(ResponseModel):
    """Confirmation that a version was deleted."""

    id: str
    object: Literal["skill.version.deleted"] = "skill.version.deleted"
    type: Literal["skill_version_deleted"] = "skill_version_deleted"
    deleted: Literal[True] = True
    version: str


class FileSchema(ResponseModel):
    """File of a skill."""

    path: str
    size: int
    executable: bool


class SkillTextSchema(ResponseModel):
    """Source text of SKILL.md, and the list of files."""

    object: Literal["skill.text"] = "skill.text"
    id: str
    name: str
    text: str
    files: list[FileSchema]
    """Empty if the source cannot list files."""
    sha256: str


class ScorePartsSchema(ResponseModel):
    """Components of a search score."""

    dense: float
    view: float
    view_text: str
    lexical: float
    words: dict[str, float]
    meaning: float
    usage: float
    name: float
    clause: str
    language: Literal["en", "zh"]
    total: float


class HitSchema(ResponseModel):
    """Search hit."""

    rank: int
    id: str
    name: str
    description: str
    score: float
    """Calibrated probability that it is relevant."""
    match: Match
    """`weak` below the threshold: not clearly relevant, but perhaps the one."""
    alike: list[str]
    """Names of near duplicates that this hit stands for, best first."""
    kind: Kind
    parts: ScorePartsSchema


class NoticeSchema(ResponseModel):
    """Warning about degraded operation."""

    code: str
    message: str
    hint: str


class SearchSchema(ResponseModel):
    """Search results, best first."""

    object: Literal["search"] = "search"
    query: str
    confidence: float
    """Probability that any skill is relevant."""
    threshold: float
    """Confidence below which a match is weak."""
    searched: int
    problem: NoticeSchema | None
    """Reason for keyword-only search without embeddings, if there was one."""
    hits: list[HitSchema]


class ScriptSchema(ResponseModel):
    """Script, and the interpreter that runs it."""

    path: str
    runner: str
    executable: bool


class ScanReportSchema(ResponseModel):
    """Scan report, most severe findings first."""

    worst: RiskLevel | None
    partial: bool
    """Whether some content could not be scanned."""
    files: int
    bytes: int
    notice: str
    findings: list[FindingSchema]


class InspectionSchema(ResponseModel):
    """Inspection of a skill before it is installed."""

    object: Literal["skill.inspection"] = "skill.inspection"
    name: str
    description: str
    version: str
    sha256: str
    size: int
    files: list[FileSchema]
    tools: list[str]
    """Values of `allowed-tools`."""
    hooks: list[str]
    """Events of its hooks."""
    commands: list[str]
    """Inline commands, which run when the skill is loaded."""
    scripts: list[ScriptSchema]
    problems: list[ProblemSchema]
    report: ScanReportSchema
    signature: SignatureSchema
    exists: bool
    """Whether a skill of that name is installed, which makes it an update."""
    refused: bool
    """Whether the findings are severe enough that an install is refused."""


class TrashedSkillSchema(ResponseModel):
    """Removed skill that can be restored."""

    id: str
    name: str
    removed_at: int
    expires_at: int


class TrashSchema(ResponseModel):
    """Removed skills, latest first."""

    object: Literal["list"] = "list"
    data: list[TrashedSkillSchema]
