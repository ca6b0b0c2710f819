"""The English words about permissions and hooks, by code."""

from apexbridge.wording.phrase import Phrase

PERMISSIONS: dict[str, Phrase] = {
    "permission_denied": Phrase("Not allowed: {detail}"),
    "tool_pattern_invalid": Phrase("'{pattern}' is not a tool pattern: {detail}"),
    "hook_invalid": Phrase("The hook for '{event}' makes no sense: {detail}"),
    "rule_denied": Phrase("{tool} is not allowed here by the rule '{pattern}'{detail}"),
    "tool_restricted": Phrase(
        "{tool} is not among the tools that the skill '{skill}' may use",
        "Go on with the tools that it allows.",
    ),
    "person_denied": Phrase("{tool} was not allowed: a person said no"),
    "nobody_allowed": Phrase(
        "{tool} needs somebody's consent, and nobody gave it", "Add a rule that allows it."
    ),
    "hook_failed_closed": Phrase(
        "The hook {hook} for {event} failed, so the tool was not used: {detail}",
        "Mend the hook, or remove it.",
    ),
    "hook_failed_open": Phrase("The hook {hook} for {event} failed and was passed over: {detail}"),
    "hook_matcher_invalid": Phrase(
        "The matcher of the hook {hook} for {event} cannot be used: {detail}",
        "Write names with | between them, or a simple regular expression.",
    ),
    "hook_change_lost": Phrase(
        "What the hook {hook} made of the input is replaced by what {detail} made of it"
    ),
}
