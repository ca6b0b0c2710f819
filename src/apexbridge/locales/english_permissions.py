"""The English words about permissions and hooks, by code."""

from apexbridge.locales.phrase import LocalizedText

PERMISSIONS: dict[str, LocalizedText] = {
    "permission_denied": LocalizedText("Not allowed: {detail}"),
    "tool_pattern_invalid": LocalizedText("'{pattern}' is not a tool pattern: {detail}"),
    "hook_invalid": LocalizedText("The hook for '{event}' makes no sense: {detail}"),
    "rule_denied": LocalizedText("{tool} is not allowed here by the rule '{pattern}'{detail}"),
    "tool_restricted": LocalizedText(
        "{tool} is not among the tools that the skill '{skill}' may use",
        "Go on with the tools that it allows.",
    ),
    "person_denied": LocalizedText("{tool} was not allowed: a person said no"),
    "nobody_allowed": LocalizedText(
        "{tool} needs somebody's consent, and nobody gave it", "Add a rule that allows it."
    ),
    "hook_failed_closed": LocalizedText(
        "The hook {hook} for {event} failed, so the tool was not used: {detail}",
        "Mend the hook, or remove it.",
    ),
    "hook_failed_open": LocalizedText(
        "The hook {hook} for {event} failed and was passed over: {detail}"
    ),
    "hook_matcher_invalid": LocalizedText(
        "The matcher of the hook {hook} for {event} cannot be used: {detail}",
        "Write names with | between them, or a simple regular expression.",
    ),
    "hook_change_lost": LocalizedText(
        "What the hook {hook} made of the input is replaced by what {detail} made of it"
    ),
}
