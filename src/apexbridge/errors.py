"""Exception hierarchy of ApexBridge.

ApexBridgeError
├── ConfigError                  invalid settings, or an extension that cannot be loaded
│   └── SettingNotFoundError     unknown setting name
├── StorageError                 a file or folder cannot be read, written or renamed
│   ├── StateDamagedError        a file of the data folder is damaged; it is left as it is
│   ├── AuditBrokenError         the hash chain of the audit log does not verify
│   └── UnsafePathError          path traversal: a path resolves outside its base folder
├── SkillError
│   ├── SkillNotFoundError       unknown skill name
│   ├── AgentNotFoundError       a skill names an unknown subagent profile
│   ├── SkillInvalidError        SKILL.md violates the format (carries all problems)
│   ├── SkillExistsError         an install would overwrite a skill
│   ├── SkillChangedError        concurrent modification: the hash is not the expected one
│   ├── SkillVersionError        unknown version, or a downgrade that is not allowed
│   ├── SkillNotInvocableError   the skill cannot be invoked by this caller, or is inactive
│   └── SkillReadOnlyError       the source allows no edits or removal
├── ArchiveError
│   ├── ArchiveLayoutError       not exactly one folder with a SKILL.md
│   └── ArchiveUnsafeError       zip slip, symlink, zip bomb or name collision
├── SourceError                  a skill source cannot be read at all
├── ToolError
│   ├── ToolNotFoundError        unknown tool name
│   ├── ToolInputError           arguments do not match the JSON schema; the model may retry
│   └── ToolFailedError          the tool ran and failed; the model should adapt
│       └── ScriptStartError     a script cannot be started here: why, and what would help
├── PermissionDeniedError        denied by a rule, a hook or the user
│   ├── SignatureError           a wrong signature, or none where one is required
│   └── SkillDangerousError      blocked by findings of the security scan
├── SandboxUnavailableError      no sandbox with the required isolation works here
├── DependencyError              packages of a skill cannot be resolved, built or used
├── RetrievalError
│   ├── EmbedderUnavailableError no embeddings: the model is missing or does not respond
│   ├── EmbedderOutputError      invalid vectors: rejected, never stored
│   └── IndexMismatchError       the stored vectors come from another embedder
├── RequestError                 invalid HTTP or MCP request
├── EvalInputError               invalid evaluation file
├── ModelError
│   ├── ModelUnavailableError    transient: worth a retry with backoff
│   ├── ModelRejectedError       permanent: the provider rejected the request
│   └── ModelOutputError         the response cannot be parsed
└── LoopError
    ├── StepLimitError           round limit of the agent loop reached
    └── BudgetError              token budget or timeout of the agent loop exhausted

An error is a stable `code` with `details`; its texts, in each language, are in `locales`.
The result of a child process (timeout, output limit, non-zero exit) is not an exception: it is
the `outcome` of an `ExecutionResult`.
"""

from collections.abc import Sequence
from typing import Any, Protocol

from apexbridge import locales


class ApexBridgeError(Exception):
    """Base of all exceptions; `code` is stable and safe to expose to clients."""

    code: str = "error"

    def __init__(self, detail: str = "", *, code: str | None = None, **details: object) -> None:
        self.code = code or self.code
        self.details: dict[str, object] = {"detail": detail, **details}
        # Rendered in English: tracebacks and logs are not localized.
        super().__init__(self.localized().message)

    @property
    def message(self) -> str:
        """Error message in English."""
        return self.localized().message

    @property
    def hint(self) -> str:
        """Hint on how to fix the cause, in English; may be empty."""
        return self.localized().hint

    def localized(self, language: locales.Language = "en") -> locales.LocalizedText:
        """Render message and hint in a language."""
        return locales.localize(self.code, self.details, language)


class ConfigError(ApexBridgeError):
    """Invalid settings, or an extension that cannot be loaded."""

    code = "config_invalid"


class StorageError(ApexBridgeError):
    """A file or folder cannot be read, written or renamed."""

    code = "storage_failed"


class UnsafePathError(StorageError):
    """Path traversal: a path resolves outside its base folder."""

    code = "path_unsafe"


class StateDamagedError(StorageError):
    """A file of the data folder is damaged; it is neither replaced nor taken for an empty one."""

    code = "state_damaged"


class AuditBrokenError(StorageError):
    """The hash chain of the audit log does not verify."""

    code = "audit_broken"


class SkillError(ApexBridgeError):
    """Base of errors about a skill."""

    code = "skill_error"


class _UnknownNameError(ApexBridgeError):
    """Unknown name; close matches become the hint."""

    def __init__(self, name: str, *, near: Sequence[str] = ()) -> None:
        self.name = name
        self.near = tuple(near)
        super().__init__(name=name)

    def localized(self, language: locales.Language = "en") -> locales.LocalizedText:
        """Render the message, with close matches as its hint."""
        phrase = super().localized(language)
        if not self.near:
            return phrase
        near = locales.localize("did_you_mean", {"names": " / ".join(self.near)}, language)
        return phrase._replace(hint=near.message)


class SettingNotFoundError(_UnknownNameError, ConfigError):
    """Unknown setting name."""

    code = "setting_not_found"


class SkillNotFoundError(_UnknownNameError, SkillError):
    """Unknown skill name."""

    code = "skill_not_found"


class AgentNotFoundError(_UnknownNameError, SkillError):
    """A skill names a subagent that nobody has defined."""

    code = "agent_not_found"


class LocalizedProblem(Protocol):
    """Protocol of a problem in a skill, whose class is in a higher layer."""

    def localized(self, language: locales.Language = "en") -> locales.LocalizedText:
        """Render message and hint in a language."""
        ...


class SkillInvalidError(SkillError):
    """SKILL.md violates the format; `problems` has every violation."""

    code = "skill_invalid"

    def __init__(self, where: str, problems: Sequence[LocalizedProblem]) -> None:
        self.where = where
        self.problems = tuple(problems)
        super().__init__(where=where)

    def localized(self, language: locales.Language = "en") -> locales.LocalizedText:
        """Join the messages of all problems; a single problem's hint is kept."""
        rules = [problem.localized(language) for problem in self.problems]
        details = {"where": self.where, "detail": "; ".join(rule.message for rule in rules)}
        phrase = locales.localize(self.code, details, language)
        return phrase._replace(hint=rules[0].hint if len(rules) == 1 else "")


class SkillExistsError(SkillError):
    """An install would overwrite a skill."""

    code = "skill_exists"


class SkillChangedError(SkillError):
    """Concurrent modification: the skill's hash is not the expected one."""

    code = "skill_changed"


class SkillVersionError(SkillError):
    """Unknown version of a skill, or a downgrade that is not allowed."""

    code = "version_unknown"


class SkillNotInvocableError(SkillError):
    """The skill cannot be invoked by this caller, or is inactive."""

    code = "skill_not_invocable"


class SkillReadOnlyError(SkillError):
    """The skill's source is read-only."""

    code = "skill_read_only"


class ArchiveError(ApexBridgeError):
    """Invalid archive."""

    code = "zip_error"


class ArchiveLayoutError(ArchiveError):
    """The archive is not exactly one folder with a SKILL.md."""

    code = "zip_invalid"


class ArchiveUnsafeError(ArchiveError):
    """Zip slip, symlink, zip bomb or name collision in an archive."""

    code = "zip_path_traversal"


class SourceError(ApexBridgeError):
    """A skill source cannot be read at all."""

    code = "source_unreadable"


class ToolError(ApexBridgeError):
    """Base of errors of a tool call."""

    code = "tool_error"


class ToolNotFoundError(_UnknownNameError, ToolError):
    """Unknown tool name."""

    code = "tool_not_found"


class ToolInputError(ToolError):
    """The arguments do not match the tool's JSON schema; the model may retry."""

    code = "tool_input_invalid"


class ToolFailedError(ToolError):
    """The tool ran and failed; the model should adapt."""

    code = "tool_failed"


class ScriptStartError(ToolFailedError):
    """A script cannot be started here; `reason` is the `error` of its result, such as `ENOENT`."""

    code = "interpreter_missing"

    def __init__(
        self, detail: str = "", *, code: str | None = None, reason: str = "", **details: object
    ) -> None:
        self.reason = reason or "ENOENT"
        super().__init__(detail, code=code, **details)


class PermissionDeniedError(ApexBridgeError):
    """Denied by a rule, a hook or the user."""

    code = "permission_denied"


class SignatureError(PermissionDeniedError):
    """A signature is wrong, or one is required and missing; or a signing key is unusable."""

    code = "signature_invalid"

    def __init__(self, detail: str = "", *, code: str | None = None, **details: object) -> None:
        super().__init__(detail, code=code, **{"name": "", **details})


class SerializableReport(Protocol):
    """Protocol of a scan report, whose class is in a higher layer."""

    def to_json(self, language: locales.Language = "en") -> dict[str, Any]:
        """Serialize the report, with texts in one language."""
        ...


class SkillDangerousError(PermissionDeniedError):
    """Blocked by findings of the security scan; `report` has all of them."""

    code = "skill_dangerous"

    def __init__(self, report: SerializableReport, **details: str) -> None:
        self.report = report
        super().__init__(**details)


class SandboxUnavailableError(ApexBridgeError):
    """No sandbox with the required isolation works here; nothing was executed."""

    code = "isolation_unavailable"


class DependencyError(ApexBridgeError):
    """Packages of a skill cannot be resolved, built or used; nothing was changed."""

    code = "dependencies_failed"

    def __init__(self, detail: str = "", *, code: str | None = None, **details: object) -> None:
        super().__init__(detail, code=code, **{"skill": "NAME", **details})


class RetrievalError(ApexBridgeError):
    """Indexing or search failed."""

    code = "retrieval_error"


class EmbedderUnavailableError(RetrievalError):
    """No embeddings: the model is missing or does not respond."""

    code = "embedder_unavailable"


class EmbedderOutputError(RetrievalError):
    """The embedder returned invalid vectors; none of them is stored."""

    code = "embedder_output"


class IndexMismatchError(RetrievalError):
    """The stored vectors come from another embedder."""

    code = "index_mismatch"


class RequestError(ApexBridgeError):
    """Invalid HTTP or MCP request; `param` names the invalid part."""

    code = "request_invalid"


class EvalInputError(ApexBridgeError):
    """Invalid evaluation file; `line` 0 stands for the whole file."""

    code = "eval_input_invalid"

    def __init__(
        self, detail: str = "", *, path: object, line: int = 0, code: str | None = None
    ) -> None:
        where = f"{path}:{line}" if line else str(path)
        super().__init__(detail, code=code, path=path, line=line, where=where)


class ModelError(ApexBridgeError):
    """Base of errors of a language model."""

    code = "model_error"


class ModelUnavailableError(ModelError):
    """Transient failure of a model: worth a retry with backoff."""

    code = "model_unavailable"


class ModelRejectedError(ModelError):
    """The provider rejected the request; a retry does not help."""

    code = "model_rejected"


class ModelOutputError(ModelError):
    """The model's response cannot be parsed."""

    code = "model_output_invalid"


class LoopError(ApexBridgeError):
    """Base of limits of the agent loop."""

    code = "loop_error"


class StepLimitError(LoopError):
    """The agent loop reached its round limit."""

    code = "step_limit"


class BudgetError(LoopError):
    """The agent loop exhausted its token budget or timeout."""

    code = "budget_spent"
