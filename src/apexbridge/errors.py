"""Every exception ApexBridge raises.

ApexBridgeError
├── ConfigError                  settings or an extension make no sense
│   └── SettingNotFoundError     no setting has that name
├── StorageError                 a file or folder could not be read, written or moved
│   ├── AuditBrokenError         the audit log does not fit together
│   └── UnsafePathError          a path leads out of the folder it belongs to
├── SkillError
│   ├── SkillNotFoundError       no skill of that name is known
│   ├── SkillInvalidError        SKILL.md breaks the rules (carries the problems)
│   ├── SkillExistsError         install would replace a skill
│   ├── SkillChangedError        the skill is not in the state that the caller saw
│   ├── SkillVersionError        no such version, or none that may take the other's place
│   ├── SkillNotInvocableError   the skill may not be called this way, or is asleep
│   └── SkillReadOnlyError       the source does not allow edits or removal
├── ArchiveError
│   ├── ArchiveLayoutError       not exactly one folder with a SKILL.md
│   └── ArchiveUnsafeError       traversal, link, bomb, or name collision
├── SourceError                  a source could not be read at all
├── ToolError
│   ├── ToolNotFoundError
│   ├── ToolInputError           arguments do not fit the schema; the model may retry
│   └── ToolFailedError          the tool ran and failed; the model should adapt
├── PermissionDeniedError        a rule, a hook or a person said no
│   └── SkillDangerousError      what vetting found in a skill is too grave
├── SandboxUnavailableError      no sandbox of the demanded strength exists here
├── RetrievalError
│   ├── EmbedderUnavailableError
│   ├── EmbedderOutputError      vectors that cannot be right: refused, never stored
│   └── IndexMismatchError       stored vectors come from another embedder
├── RequestError                 a request from the network cannot be taken as it is
├── EvalInputError               a file with queries or skills to evaluate makes no sense
├── ModelError
│   ├── ModelUnavailableError    worth trying again
│   ├── ModelRejectedError       the request itself was refused
│   └── ModelOutputError         the reply could not be understood
└── LoopError
    ├── StepLimitError
    └── BudgetError

An error is a stable `code` and `details`; its words, in each language, live in `wording`.
What a child process did (timeout, overflow, non-zero exit) is not an exception:
it is the `outcome` of an `ExecutionResult`.
"""

from collections.abc import Sequence
from typing import Any, Protocol

from apexbridge import locales


class ApexBridgeError(Exception):
    """Base of all errors; `code` is stable and safe to show to clients."""

    code: str = "error"

    def __init__(self, detail: str = "", *, code: str | None = None, **details: object) -> None:
        self.code = code or self.code
        self.details: dict[str, object] = {"detail": detail, **details}
        super().__init__(self.localized().message)

    @property
    def message(self) -> str:
        """What happened, in English."""
        return self.localized().message

    @property
    def hint(self) -> str:
        """How to mend it, in English; empty where nothing can be said."""
        return self.localized().hint

    def localized(self, language: locales.Language = "en") -> locales.LocalizedText:
        """What happened and how to mend it, in the reader's language."""
        return locales.localize(self.code, self.details, language)


class ConfigError(ApexBridgeError):
    """Settings or an extension make no sense."""

    code = "config_invalid"


class StorageError(ApexBridgeError):
    """A file or folder could not be read, written or moved."""

    code = "storage_failed"


class UnsafePathError(StorageError):
    """A path leads out of the folder it belongs to."""

    code = "path_unsafe"


class AuditBrokenError(StorageError):
    """The audit log does not fit together from some line on."""

    code = "audit_broken"


class SkillError(ApexBridgeError):
    """Something is wrong with a skill."""

    code = "skill_error"


class _UnknownNameError(ApexBridgeError):
    """A name is unknown; names close to it become the hint."""

    def __init__(self, name: str, *, near: Sequence[str] = ()) -> None:
        self.name = name
        self.near = tuple(near)
        super().__init__(name=name)

    def localized(self, language: locales.Language = "en") -> locales.LocalizedText:
        """The message, with the near names as its hint."""
        phrase = super().localized(language)
        if not self.near:
            return phrase
        names = " / ".join(self.near)
        return phrase._replace(
            hint=locales.localize("did_you_mean", {"names": names}, language).message
        )


class SettingNotFoundError(_UnknownNameError, ConfigError):
    """No setting has that name."""

    code = "setting_not_found"


class SkillNotFoundError(_UnknownNameError, SkillError):
    """No known skill has that name."""

    code = "skill_not_found"


class LocalizedProblem(Protocol):
    """What a problem in a skill can say of itself."""

    def localized(self, language: locales.Language = "en") -> locales.LocalizedText:
        """The broken rule and how to mend it."""
        ...


class SkillInvalidError(SkillError):
    """SKILL.md breaks the rules; every broken rule is in `problems`."""

    code = "skill_invalid"

    def __init__(self, where: str, problems: Sequence[LocalizedProblem]) -> None:
        self.where = where
        self.problems = tuple(problems)
        super().__init__(where=where)

    def localized(self, language: locales.Language = "en") -> locales.LocalizedText:
        """Every broken rule in one sentence; the hint of a single one."""
        rules = [problem.localized(language) for problem in self.problems]
        details = {"where": self.where, "detail": "; ".join(rule.message for rule in rules)}
        phrase = locales.localize(self.code, details, language)
        return phrase._replace(hint=rules[0].hint if len(rules) == 1 else "")


class SkillExistsError(SkillError):
    """An install would replace a skill."""

    code = "skill_exists"


class SkillChangedError(SkillError):
    """The skill is not in the state that the caller saw."""

    code = "skill_changed"


class SkillVersionError(SkillError):
    """There is no such version of a skill, or it may not take the other's place."""

    code = "version_unknown"


class SkillNotInvocableError(SkillError):
    """The skill may not be called this way, or is asleep."""

    code = "skill_not_invocable"


class SkillReadOnlyError(SkillError):
    """The skill's source does not allow edits or removal."""

    code = "skill_read_only"


class ArchiveError(ApexBridgeError):
    """An archive cannot be taken."""

    code = "zip_error"


class ArchiveLayoutError(ArchiveError):
    """The archive is not exactly one folder with a SKILL.md."""

    code = "zip_invalid"


class ArchiveUnsafeError(ArchiveError):
    """The archive would write where it must not, or far too much."""

    code = "zip_path_traversal"


class SourceError(ApexBridgeError):
    """A source could not be read at all."""

    code = "source_unreadable"


class ToolError(ApexBridgeError):
    """A tool call went wrong."""

    code = "tool_error"


class ToolNotFoundError(_UnknownNameError, ToolError):
    """No known tool has that name."""

    code = "tool_not_found"


class ToolInputError(ToolError):
    """The arguments do not fit the schema; the model may mend them and try again."""

    code = "tool_input_invalid"


class ToolFailedError(ToolError):
    """The tool ran and failed; the model should change its plan."""

    code = "tool_failed"


class PermissionDeniedError(ApexBridgeError):
    """A rule, a hook or a person said no."""

    code = "permission_denied"


class SerializableReport(Protocol):
    """What vetting can say of itself."""

    def to_json(self, language: locales.Language = "en") -> dict[str, Any]:
        """Everything, with words in one language."""
        ...


class SkillDangerousError(PermissionDeniedError):
    """What vetting found is too grave; all of it is in `report`."""

    code = "skill_dangerous"

    def __init__(self, report: SerializableReport, **details: str) -> None:
        self.report = report
        super().__init__(**details)


class SandboxUnavailableError(ApexBridgeError):
    """No sandbox of the demanded strength exists here; nothing was run."""

    code = "isolation_unavailable"


class RetrievalError(ApexBridgeError):
    """Skills could not be indexed or searched."""

    code = "retrieval_error"


class EmbedderUnavailableError(RetrievalError):
    """Texts could not be turned into vectors."""

    code = "embedder_unavailable"


class EmbedderOutputError(RetrievalError):
    """An embedder gave vectors that cannot be right; none of them is stored."""

    code = "embedder_output"


class IndexMismatchError(RetrievalError):
    """Stored vectors come from another embedder."""

    code = "index_mismatch"


class RequestError(ApexBridgeError):
    """A request from the network cannot be taken as it is; `param` says what of it is wrong."""

    code = "request_invalid"


class EvalInputError(ApexBridgeError):
    """A file with queries or skills to evaluate makes no sense; `line` 0 means all of it."""

    code = "eval_input_invalid"

    def __init__(
        self, detail: str = "", *, path: object, line: int = 0, code: str | None = None
    ) -> None:
        where = f"{path}:{line}" if line else str(path)
        super().__init__(detail, code=code, path=path, line=line, where=where)


class ModelError(ApexBridgeError):
    """A model did not do its part."""

    code = "model_error"


class ModelUnavailableError(ModelError):
    """The model does not answer; worth trying again."""

    code = "model_unavailable"


class ModelRejectedError(ModelError):
    """The model's provider refused the request itself."""

    code = "model_rejected"


class ModelOutputError(ModelError):
    """The model's reply could not be understood."""

    code = "model_output_invalid"


class LoopError(ApexBridgeError):
    """The agent's loop had to stop."""

    code = "loop_error"


class StepLimitError(LoopError):
    """The loop reached its last round."""

    code = "step_limit"


class BudgetError(LoopError):
    """The loop used up its tokens or its time."""

    code = "budget_spent"
