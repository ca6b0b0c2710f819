"""The English words, by code."""

from apexbridge.locales.english_arrivals import ARRIVALS
from apexbridge.locales.english_checks import CHECKS
from apexbridge.locales.english_permissions import PERMISSIONS
from apexbridge.locales.english_server import SERVER
from apexbridge.locales.phrase import LocalizedText

PHRASES = {
    # errors
    "error": LocalizedText("{detail}"),
    "config_invalid": LocalizedText(
        "Setting '{key}' from {origin} makes no sense: {detail}",
        "Run 'apexbridge config' to see each setting and where it comes from.",
    ),
    "config_unreadable": LocalizedText("The settings file {path} cannot be read: {detail}"),
    "setting_not_found": LocalizedText("There is no setting named '{name}'"),
    "extension_failed": LocalizedText(
        "The extension '{name}' could not be loaded: {detail}", "Update or uninstall it."
    ),
    "path_unsafe": LocalizedText(
        "The path '{path}' leads outside of the folder it belongs to",
        "Use a relative path without '..' and without links.",
    ),
    "path_exists": LocalizedText(
        "{path} exists already", "Choose another name or remove it first."
    ),
    "path_missing": LocalizedText("{path} does not exist"),
    "storage_failed": LocalizedText("{path} could not be written: {detail}"),
    "audit_broken": LocalizedText(
        "The audit log {path} was changed: line {line} does not fit the one before it",
        "Keep the file as evidence, and start a new one by moving it away.",
    ),
    "skill_error": LocalizedText("{detail}"),
    "skill_not_found": LocalizedText("No skill named '{name}'"),
    "data_in_use": LocalizedText(
        "Another server uses {path} (process {process})",
        "Stop that one, or give this one a folder of its own with data_dir.",
    ),
    "skill_invalid": LocalizedText("{where}: {detail}"),
    "skill_exists": LocalizedText(
        "A skill named '{name}' exists already", "Uninstall it first, or update it."
    ),
    "skill_changed": LocalizedText(
        "The skill '{name}' has changed since: it is {now} now, not {seen}",
        "Look at it again, then repeat the change.",
    ),
    "version_unknown": LocalizedText(
        "The skill '{name}' has no version that '{version}' means", "Kept are: {known}"
    ),
    "version_damaged": LocalizedText(
        "Version {version} of the skill '{name}' is damaged and was not brought back",
        "Look at the others with 'apexbridge versions {name}'.",
    ),
    "version_older": LocalizedText(
        "Version {version} of the skill '{name}' is older than {now}, which is there",
        "Go back with 'apexbridge rollback', or give --allow-older.",
    ),
    "version_in_use": LocalizedText(
        "Version {version} of the skill '{name}' is in use and cannot be removed",
        "Let another version be used first, or remove the whole skill.",
    ),
    "version_of_another": LocalizedText(
        "This is the skill '{other}' and no version of '{name}'",
        "Install it as a skill of its own.",
    ),
    "skill_pinned": LocalizedText(
        "The skill '{name}' is held to version {version}",
        "Let it go with 'apexbridge pin {name} --off'.",
    ),
    "skill_asleep": LocalizedText(
        "The skill '{name}' sleeps until a file it is about is touched: {paths}",
        "Read or change such a file first; a person may call it by its name at any time.",
    ),
    "skill_for_users_only": LocalizedText(
        "The skill '{name}' may be called by people only", "Ask the user to call it."
    ),
    "skill_name_missing": LocalizedText(
        "No skill was named", "Say which: /name and its arguments."
    ),
    "skill_for_models_only": LocalizedText("The skill '{name}' may be called by the model only"),
    "skill_no_prompt": LocalizedText("The skill '{name}' has no instructions to follow"),
    "skill_out_of_reach": LocalizedText(
        "The skill '{name}' cannot be fetched now: {detail}", "Try again later."
    ),
    "inline_command_failed": LocalizedText(
        "A command in the text of '{name}' failed: {detail}", "The command: {command}"
    ),
    "fork_recursion": LocalizedText(
        "The skill '{name}' is at work already in this line of child sessions",
        "Do the task without it.",
    ),
    "fork_too_deep": LocalizedText(
        "The skill '{name}' would need a child session more than {limit} deep",
        "Do the task without it.",
    ),
    "fork_too_many": LocalizedText(
        "This turn has its {limit} child sessions, and '{name}' would be one more",
        "Go on with what the others found.",
    ),
    "call_repeated": LocalizedText("This very call was made before", "Its result is above: go on."),
    "hook_blocked": LocalizedText("A hook does not allow {name}: {detail}"),
    "skill_untrusted": LocalizedText(
        "The skill '{name}' comes from {source}, and nobody approved what it holds now",
        "Look at it, then run: apexbridge trust {name}",
    ),
    "skill_unhashed": LocalizedText(
        "The files of '{name}' from {source} cannot be hashed, so nobody can approve them",
        "'apexbridge ls --problems' says why.",
    ),
    "skill_not_invocable": LocalizedText("The skill '{name}' may not be called this way: {detail}"),
    "skill_read_only": LocalizedText(
        "The skill '{name}' comes from {origin}, which allows no changes",
        "Copy it to a folder of your own and change it there.",
    ),
    "field_not_editable": LocalizedText(
        "Only the description can be changed, not: {fields}",
        "Change other things in the skill itself, and install that.",
    ),
    "source_unreadable": LocalizedText("The skill source {source} cannot be read: {detail}"),
    "pins_unreadable": LocalizedText(
        "The memory of remote skills, {path}, cannot be read: {detail}",
        "Mend it, or move it away: then every address is taken as it is next seen.",
    ),
    "digest_mismatch": LocalizedText(
        "'{path}' of {source} is not what was announced, so it was not used: {detail}",
        "Refresh the skills and look at what changed.",
    ),
    "argument_missing": LocalizedText(
        "The skill '{name}' needs the argument '{argument}'", "Write /{name} {hint}"
    ),
    "tool_error": LocalizedText("{detail}"),
    "tool_not_found": LocalizedText("No tool named '{name}'"),
    "tool_input_invalid": LocalizedText("The arguments of tool '{name}' do not fit: {detail}"),
    "tool_failed": LocalizedText("The tool '{name}' failed: {detail}"),
    "path_outside": LocalizedText(
        "The tool '{name}' cannot go to {path}: it may work in {folders}",
        "Give a path inside these folders; a path counts by where its links really lead.",
    ),
    "skill_dangerous": LocalizedText(
        "The skill '{name}' looks dangerous ({level}: {rules}) and was not installed",
        "Look at it with 'apexbridge scan'; --despite-findings installs it all the same.",
    ),
    "not_agreed": LocalizedText("Nobody agreed to it", "Answer yes, or give --yes."),
    **PERMISSIONS,
    "isolation_unavailable": LocalizedText(
        "No working sandbox was found, so nothing was run: {detail}",
        "Run 'apexbridge doctor' to see what is missing.",
    ),
    "retrieval_error": LocalizedText("{detail}"),
    "embedder_unavailable": LocalizedText("The embedder {name} does not answer: {detail}"),
    "extra_missing": LocalizedText(
        "The package {name} is not installed", "Install it: pip install 'apexbridge[{extra}]'"
    ),
    "embedder_output": LocalizedText(
        "The embedder {name} gave vectors that cannot be right: {detail}",
        "Check that the model and its settings fit together",
    ),
    "index_mismatch": LocalizedText(
        "The index was made by {found}, but {expected} is configured",
        "Rebuild it: apexbridge index rebuild",
    ),
    "eval_input_invalid": LocalizedText("{where}: {detail}"),
    "eval_input_empty": LocalizedText("{path} holds nothing to evaluate"),
    "eval_queries_missing": LocalizedText(
        "The skill '{path}' has no queries to check it with: {detail}",
        "Write a list of objects with 'query' and 'should_trigger' to evals/eval_queries.json.",
    ),
    "model_error": LocalizedText("{detail}"),
    "model_unavailable": LocalizedText(
        "The model {name} does not answer: {detail}", "Try again later."
    ),
    "model_rejected": LocalizedText("The model {name} refused the request: {detail}"),
    "model_output_invalid": LocalizedText("The reply of {name} could not be understood: {detail}"),
    "loop_error": LocalizedText("{detail}"),
    "step_limit": LocalizedText("Stopped after {limit} rounds without an end"),
    "budget_spent": LocalizedText("Stopped: {detail} is used up"),
    # hints that several errors share
    "did_you_mean": LocalizedText("Did you mean {names}?"),
    # problems in a skill
    "skill_md_missing": LocalizedText(
        "There is no SKILL.md", "A skill is a folder with a file named SKILL.md."
    ),
    "skill_md_case": LocalizedText("The file is named '{name}'", "Rename it to SKILL.md."),
    "skill_md_not_a_file": LocalizedText("SKILL.md is {kind}, not a regular file"),
    "skill_md_too_large": LocalizedText(
        "SKILL.md has more than {limit} bytes", "Move details into files under references/."
    ),
    "skill_md_unreadable": LocalizedText("SKILL.md cannot be read: {detail}"),
    "encoding_utf16": LocalizedText("SKILL.md is UTF-16", "Save it as UTF-8."),
    "encoding_nul": LocalizedText("SKILL.md holds a NUL byte at line {line}", "Remove it."),
    "encoding_not_utf8": LocalizedText(
        "SKILL.md is not UTF-8 (line {line})", "It looks like {guess}: convert it to UTF-8."
    ),
    "frontmatter_missing": LocalizedText(
        "SKILL.md must start with YAML frontmatter: its first line is not '---'",
        "Start the file with '---', name and description, and another '---'.",
    ),
    "frontmatter_unclosed": LocalizedText(
        "The frontmatter is not closed", "End it with a line that is just '---'."
    ),
    "frontmatter_too_large": LocalizedText("The frontmatter has more than {limit} bytes"),
    "frontmatter_too_deep": LocalizedText("The frontmatter is nested deeper than {limit} levels"),
    "frontmatter_too_many_nodes": LocalizedText("The frontmatter holds more than {limit} values"),
    "frontmatter_alias": LocalizedText(
        "YAML aliases and merge keys are not allowed ({name})",
        "Write the value out, or put it in quotes if it is meant as text.",
    ),
    "frontmatter_tag": LocalizedText(
        "The YAML tag {name} is not allowed", "Put the value in quotes if it is meant as text."
    ),
    "frontmatter_not_mapping": LocalizedText(
        "The frontmatter must be a YAML mapping", "Write lines of the form 'key: value'."
    ),
    "frontmatter_repaired": LocalizedText(
        "The value of '{key}' needs quotes; it was read as if it had them",
        "Write {key}: {quoted}",
    ),
    "yaml_invalid": LocalizedText("The frontmatter is not valid YAML: {detail}"),
    "duplicate_key": LocalizedText("The key '{key}' stands twice", "Keep one of them."),
    "key_not_text": LocalizedText("A key of the frontmatter is not plain text"),
    "unknown_key": LocalizedText("Unknown key '{key}'", "It is kept, but nothing here reads it."),
    "unknown_key_near": LocalizedText("Unknown key '{key}'", "Did you mean '{near}'?"),
    "key_not_in_spec": LocalizedText(
        "The key '{key}' is not part of the Agent Skills format",
        "Other clients may refuse it. Write it as metadata: apexbridge.{key} to stay portable.",
    ),
    "alias_shadowed": LocalizedText("'{key}' and '{other}' mean the same; '{other}' is used"),
    "field_invalid": LocalizedText("'{key}' makes no sense: {detail}"),
    "name_missing": LocalizedText(
        "The required field 'name' is missing", "Write name: {suggestion}"
    ),
    "name_empty": LocalizedText("'name' must not be empty"),
    "name_too_long": LocalizedText("The name has {length} characters; at most {limit} are allowed"),
    "name_not_lowercase": LocalizedText(
        "The name '{name}' must be lower case", "Write {suggestion}"
    ),
    "name_edge_hyphen": LocalizedText("The name '{name}' must not start or end with a hyphen"),
    "name_double_hyphen": LocalizedText("The name '{name}' must not hold two hyphens in a row"),
    "name_characters": LocalizedText(
        "The name '{name}' holds characters other than letters, digits and hyphens",
        "Write {suggestion}",
    ),
    "name_reserved": LocalizedText("The name '{name}' is reserved", "Choose another name."),
    "name_mismatch": LocalizedText(
        "The folder is called '{folder}', but the skill '{name}'",
        "Give both the same name.",
    ),
    "name_replaced": LocalizedText(
        "The name '{name}' is not usable; the skill is known as '{used}'"
    ),
    "description_missing": LocalizedText(
        "The required field 'description' is missing",
        "Say what the skill does and when to use it.",
    ),
    "description_empty": LocalizedText(
        "'description' must not be empty", "Say what the skill does and when to use it."
    ),
    "description_too_long": LocalizedText(
        "The description has {length} characters; at most {limit} are allowed"
    ),
    "description_derived": LocalizedText(
        "There is no description; '{text}' is used", "Add one: it decides when the skill is found."
    ),
    "description_placeholder": LocalizedText(
        "The description is still the one of the scaffold",
        "Say what the skill does and when to use it.",
    ),
    "compatibility_too_long": LocalizedText(
        "'compatibility' has {length} characters; at most {limit} are allowed"
    ),
    "field_not_text": LocalizedText("'{key}' must be text"),
    "metadata_not_map": LocalizedText("'metadata' must map text to text"),
    "tools_not_text": LocalizedText(
        "'allowed-tools' must be one text with blanks between the tools",
        "Write allowed-tools: {suggestion}",
    ),
    "path_pattern_invalid": LocalizedText("'{pattern}' is not a path pattern: {detail}"),
    "path_pattern_too_wide": LocalizedText(
        "The braces of '{pattern}' stand for more than {limit} patterns"
    ),
    "reference_missing": LocalizedText("The text points to '{path}', which does not exist"),
    "reference_outside": LocalizedText(
        "The text points to '{path}', outside of the skill", "A skill can only read its own files."
    ),
    "body_empty": LocalizedText("SKILL.md has no instructions after the frontmatter"),
    "tree_too_large": LocalizedText("The folder holds more than {limit} files"),
    "tree_odd_file": LocalizedText("'{path}' is {kind}: only files and folders can be packed"),
    "skill_shadowed": LocalizedText("'{name}' from {source} is hidden by the one from {winner}"),
    "last_good_kept": LocalizedText("The last good version stays in use until this is mended"),
    "source_twice": LocalizedText(
        "Two sources of skills call themselves {id}: only the first is used",
        "Give each source an id of its own.",
    ),
    "source_stale": LocalizedText("{url} was not fetched, its last good version is used: {detail}"),
    "skill_entry_invalid": LocalizedText("The server's entry '{name}' makes no sense: {detail}"),
    "digests_missing": LocalizedText(
        "'{name}' comes without digests, so nothing of it could be checked; it is left out"
    ),
    "listing_limit": LocalizedText("Only the first {limit} entries of the server were listed"),
    "folder_limit": LocalizedText("Only the first {limit} folders were scanned"),
    "folder_unreadable": LocalizedText("The folder cannot be read: {detail}"),
    "link_leads_out": LocalizedText(
        "{path} is a link that leads out, to {target}, and was not followed",
        "Name the place that it leads to; skills.allow_external_paths allows it to installed ones.",
    ),
    **CHECKS,
    **ARRIVALS,
    **SERVER,
    "path_external": LocalizedText(
        "{path} lies outside of the project and was not scanned",
        "Allow it with skills.allow_external_paths = true.",
    ),
    "command_unreadable": LocalizedText("The command cannot be read: {detail}"),
    "command_not_text": LocalizedText(
        "The command is not UTF-8 text (line {line})", "Save it as UTF-8."
    ),
    "frontmatter_line_breaks": LocalizedText(
        "The frontmatter holds odd line separators; they were read as blanks",
        "Remove U+0085, U+2028 and U+2029.",
    ),
    "tree_odd_name": LocalizedText("The file name '{path}' is not UTF-8", "Rename it."),
    "config_not_here": LocalizedText(
        "A project may not set '{key}' ({origin}): it decides what is trusted",
        "Set it in your own config.toml or in the environment.",
    ),
    "usage": LocalizedText("The command line makes no sense", "See apexbridge --help."),
    "path_unreadable": LocalizedText("{path} cannot be used: {detail}"),
    "script_unusable": LocalizedText("The skill '{name}' cannot be run: {detail}"),
}
