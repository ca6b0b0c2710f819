"""The English words, by code."""

from apexbridge.wording.english_arrivals import ARRIVALS
from apexbridge.wording.english_checks import CHECKS
from apexbridge.wording.english_permissions import PERMISSIONS
from apexbridge.wording.english_server import SERVER
from apexbridge.wording.phrase import Phrase

PHRASES = {
    # errors
    "error": Phrase("{detail}"),
    "config_invalid": Phrase(
        "Setting '{key}' from {origin} makes no sense: {detail}",
        "Run 'apexbridge config' to see each setting and where it comes from.",
    ),
    "config_unreadable": Phrase("The settings file {path} cannot be read: {detail}"),
    "setting_not_found": Phrase("There is no setting named '{name}'"),
    "extension_failed": Phrase(
        "The extension '{name}' could not be loaded: {detail}", "Update or uninstall it."
    ),
    "path_unsafe": Phrase(
        "The path '{path}' leads outside of the folder it belongs to",
        "Use a relative path without '..' and without links.",
    ),
    "path_exists": Phrase("{path} exists already", "Choose another name or remove it first."),
    "path_missing": Phrase("{path} does not exist"),
    "storage_failed": Phrase("{path} could not be written: {detail}"),
    "audit_broken": Phrase(
        "The audit log {path} was changed: line {line} does not fit the one before it",
        "Keep the file as evidence, and start a new one by moving it away.",
    ),
    "skill_error": Phrase("{detail}"),
    "skill_not_found": Phrase("No skill named '{name}'"),
    "data_in_use": Phrase(
        "Another server uses {path} (process {process})",
        "Stop that one, or give this one a folder of its own with data_dir.",
    ),
    "skill_invalid": Phrase("{where}: {detail}"),
    "skill_exists": Phrase(
        "A skill named '{name}' exists already", "Uninstall it first, or update it."
    ),
    "skill_changed": Phrase(
        "The skill '{name}' has changed since: it is {now} now, not {seen}",
        "Look at it again, then repeat the change.",
    ),
    "version_unknown": Phrase(
        "The skill '{name}' has no version that '{version}' means", "Kept are: {known}"
    ),
    "version_damaged": Phrase(
        "Version {version} of the skill '{name}' is damaged and was not brought back",
        "Look at the others with 'apexbridge versions {name}'.",
    ),
    "version_older": Phrase(
        "Version {version} of the skill '{name}' is older than {now}, which is there",
        "Go back with 'apexbridge rollback', or give --allow-older.",
    ),
    "version_in_use": Phrase(
        "Version {version} of the skill '{name}' is in use and cannot be removed",
        "Let another version be used first, or remove the whole skill.",
    ),
    "version_of_another": Phrase(
        "This is the skill '{other}' and no version of '{name}'",
        "Install it as a skill of its own.",
    ),
    "skill_pinned": Phrase(
        "The skill '{name}' is held to version {version}",
        "Let it go with 'apexbridge pin {name} --off'.",
    ),
    "skill_asleep": Phrase(
        "The skill '{name}' sleeps until a file it is about is touched: {paths}",
        "Read or change such a file first; a person may call it by its name at any time.",
    ),
    "skill_for_users_only": Phrase(
        "The skill '{name}' may be called by people only", "Ask the user to call it."
    ),
    "skill_name_missing": Phrase("No skill was named", "Say which: /name and its arguments."),
    "skill_for_models_only": Phrase("The skill '{name}' may be called by the model only"),
    "skill_no_prompt": Phrase("The skill '{name}' has no instructions to follow"),
    "skill_out_of_reach": Phrase(
        "The skill '{name}' cannot be fetched now: {detail}", "Try again later."
    ),
    "inline_command_failed": Phrase(
        "A command in the text of '{name}' failed: {detail}", "The command: {command}"
    ),
    "fork_recursion": Phrase(
        "The skill '{name}' is at work already in this line of child sessions",
        "Do the task without it.",
    ),
    "fork_too_deep": Phrase(
        "The skill '{name}' would need a child session more than {limit} deep",
        "Do the task without it.",
    ),
    "fork_too_many": Phrase(
        "This turn has its {limit} child sessions, and '{name}' would be one more",
        "Go on with what the others found.",
    ),
    "call_repeated": Phrase("This very call was made before", "Its result is above: go on."),
    "hook_blocked": Phrase("A hook does not allow {name}: {detail}"),
    "skill_untrusted": Phrase(
        "The skill '{name}' comes from {source}, and nobody approved what it holds now",
        "Look at it, then run: apexbridge trust {name}",
    ),
    "skill_unhashed": Phrase(
        "The files of '{name}' from {source} cannot be hashed, so nobody can approve them",
        "'apexbridge ls --problems' says why.",
    ),
    "skill_not_invocable": Phrase("The skill '{name}' may not be called this way: {detail}"),
    "skill_read_only": Phrase(
        "The skill '{name}' comes from {origin}, which allows no changes",
        "Copy it to a folder of your own and change it there.",
    ),
    "field_not_editable": Phrase(
        "Only the description can be changed, not: {fields}",
        "Change other things in the skill itself, and install that.",
    ),
    "source_unreadable": Phrase("The skill source {source} cannot be read: {detail}"),
    "pins_unreadable": Phrase(
        "The memory of remote skills, {path}, cannot be read: {detail}",
        "Mend it, or move it away: then every address is taken as it is next seen.",
    ),
    "digest_mismatch": Phrase(
        "'{path}' of {source} is not what was announced, so it was not used: {detail}",
        "Refresh the skills and look at what changed.",
    ),
    "argument_missing": Phrase(
        "The skill '{name}' needs the argument '{argument}'", "Write /{name} {hint}"
    ),
    "tool_error": Phrase("{detail}"),
    "tool_not_found": Phrase("No tool named '{name}'"),
    "tool_input_invalid": Phrase("The arguments of tool '{name}' do not fit: {detail}"),
    "tool_failed": Phrase("The tool '{name}' failed: {detail}"),
    "path_outside": Phrase(
        "The tool '{name}' cannot go to {path}: it may work in {folders}",
        "Give a path inside these folders; a path counts by where its links really lead.",
    ),
    "skill_dangerous": Phrase(
        "The skill '{name}' looks dangerous ({level}: {rules}) and was not installed",
        "Look at it with 'apexbridge scan'; --despite-findings installs it all the same.",
    ),
    "not_agreed": Phrase("Nobody agreed to it", "Answer yes, or give --yes."),
    **PERMISSIONS,
    "isolation_unavailable": Phrase(
        "No working sandbox was found, so nothing was run: {detail}",
        "Run 'apexbridge doctor' to see what is missing.",
    ),
    "retrieval_error": Phrase("{detail}"),
    "embedder_unavailable": Phrase("The embedder {name} does not answer: {detail}"),
    "extra_missing": Phrase(
        "The package {name} is not installed", "Install it: pip install 'apexbridge[{extra}]'"
    ),
    "embedder_output": Phrase(
        "The embedder {name} gave vectors that cannot be right: {detail}",
        "Check that the model and its settings fit together",
    ),
    "index_mismatch": Phrase(
        "The index was made by {found}, but {expected} is configured",
        "Rebuild it: apexbridge index rebuild",
    ),
    "eval_input_invalid": Phrase("{where}: {detail}"),
    "eval_input_empty": Phrase("{path} holds nothing to evaluate"),
    "eval_queries_missing": Phrase(
        "The skill '{path}' has no queries to check it with: {detail}",
        "Write a list of objects with 'query' and 'should_trigger' to evals/eval_queries.json.",
    ),
    "model_error": Phrase("{detail}"),
    "model_unavailable": Phrase("The model {name} does not answer: {detail}", "Try again later."),
    "model_rejected": Phrase("The model {name} refused the request: {detail}"),
    "model_output_invalid": Phrase("The reply of {name} could not be understood: {detail}"),
    "loop_error": Phrase("{detail}"),
    "step_limit": Phrase("Stopped after {limit} rounds without an end"),
    "budget_spent": Phrase("Stopped: {detail} is used up"),
    # hints that several errors share
    "did_you_mean": Phrase("Did you mean {names}?"),
    # problems in a skill
    "skill_md_missing": Phrase(
        "There is no SKILL.md", "A skill is a folder with a file named SKILL.md."
    ),
    "skill_md_case": Phrase("The file is named '{name}'", "Rename it to SKILL.md."),
    "skill_md_not_a_file": Phrase("SKILL.md is {kind}, not a regular file"),
    "skill_md_too_large": Phrase(
        "SKILL.md has more than {limit} bytes", "Move details into files under references/."
    ),
    "skill_md_unreadable": Phrase("SKILL.md cannot be read: {detail}"),
    "encoding_utf16": Phrase("SKILL.md is UTF-16", "Save it as UTF-8."),
    "encoding_nul": Phrase("SKILL.md holds a NUL byte at line {line}", "Remove it."),
    "encoding_not_utf8": Phrase(
        "SKILL.md is not UTF-8 (line {line})", "It looks like {guess}: convert it to UTF-8."
    ),
    "frontmatter_missing": Phrase(
        "SKILL.md must start with YAML frontmatter: its first line is not '---'",
        "Start the file with '---', name and description, and another '---'.",
    ),
    "frontmatter_unclosed": Phrase(
        "The frontmatter is not closed", "End it with a line that is just '---'."
    ),
    "frontmatter_too_large": Phrase("The frontmatter has more than {limit} bytes"),
    "frontmatter_too_deep": Phrase("The frontmatter is nested deeper than {limit} levels"),
    "frontmatter_too_many_nodes": Phrase("The frontmatter holds more than {limit} values"),
    "frontmatter_alias": Phrase(
        "YAML aliases and merge keys are not allowed ({name})",
        "Write the value out, or put it in quotes if it is meant as text.",
    ),
    "frontmatter_tag": Phrase(
        "The YAML tag {name} is not allowed", "Put the value in quotes if it is meant as text."
    ),
    "frontmatter_not_mapping": Phrase(
        "The frontmatter must be a YAML mapping", "Write lines of the form 'key: value'."
    ),
    "frontmatter_repaired": Phrase(
        "The value of '{key}' needs quotes; it was read as if it had them",
        "Write {key}: {quoted}",
    ),
    "yaml_invalid": Phrase("The frontmatter is not valid YAML: {detail}"),
    "duplicate_key": Phrase("The key '{key}' stands twice", "Keep one of them."),
    "key_not_text": Phrase("A key of the frontmatter is not plain text"),
    "unknown_key": Phrase("Unknown key '{key}'", "It is kept, but nothing here reads it."),
    "unknown_key_near": Phrase("Unknown key '{key}'", "Did you mean '{near}'?"),
    "key_not_in_spec": Phrase(
        "The key '{key}' is not part of the Agent Skills format",
        "Other clients may refuse it. Write it as metadata: apexbridge.{key} to stay portable.",
    ),
    "alias_shadowed": Phrase("'{key}' and '{other}' mean the same; '{other}' is used"),
    "field_invalid": Phrase("'{key}' makes no sense: {detail}"),
    "name_missing": Phrase("The required field 'name' is missing", "Write name: {suggestion}"),
    "name_empty": Phrase("'name' must not be empty"),
    "name_too_long": Phrase("The name has {length} characters; at most {limit} are allowed"),
    "name_not_lowercase": Phrase("The name '{name}' must be lower case", "Write {suggestion}"),
    "name_edge_hyphen": Phrase("The name '{name}' must not start or end with a hyphen"),
    "name_double_hyphen": Phrase("The name '{name}' must not hold two hyphens in a row"),
    "name_characters": Phrase(
        "The name '{name}' holds characters other than letters, digits and hyphens",
        "Write {suggestion}",
    ),
    "name_reserved": Phrase("The name '{name}' is reserved", "Choose another name."),
    "name_mismatch": Phrase(
        "The folder is called '{folder}', but the skill '{name}'",
        "Give both the same name.",
    ),
    "name_replaced": Phrase("The name '{name}' is not usable; the skill is known as '{used}'"),
    "description_missing": Phrase(
        "The required field 'description' is missing",
        "Say what the skill does and when to use it.",
    ),
    "description_empty": Phrase(
        "'description' must not be empty", "Say what the skill does and when to use it."
    ),
    "description_too_long": Phrase(
        "The description has {length} characters; at most {limit} are allowed"
    ),
    "description_derived": Phrase(
        "There is no description; '{text}' is used", "Add one: it decides when the skill is found."
    ),
    "description_placeholder": Phrase(
        "The description is still the one of the scaffold",
        "Say what the skill does and when to use it.",
    ),
    "compatibility_too_long": Phrase(
        "'compatibility' has {length} characters; at most {limit} are allowed"
    ),
    "field_not_text": Phrase("'{key}' must be text"),
    "metadata_not_map": Phrase("'metadata' must map text to text"),
    "tools_not_text": Phrase(
        "'allowed-tools' must be one text with blanks between the tools",
        "Write allowed-tools: {suggestion}",
    ),
    "path_pattern_invalid": Phrase("'{pattern}' is not a path pattern: {detail}"),
    "path_pattern_too_wide": Phrase(
        "The braces of '{pattern}' stand for more than {limit} patterns"
    ),
    "reference_missing": Phrase("The text points to '{path}', which does not exist"),
    "reference_outside": Phrase(
        "The text points to '{path}', outside of the skill", "A skill can only read its own files."
    ),
    "body_empty": Phrase("SKILL.md has no instructions after the frontmatter"),
    "tree_too_large": Phrase("The folder holds more than {limit} files"),
    "tree_odd_file": Phrase("'{path}' is {kind}: only files and folders can be packed"),
    "skill_shadowed": Phrase("'{name}' from {source} is hidden by the one from {winner}"),
    "last_good_kept": Phrase("The last good version stays in use until this is mended"),
    "source_twice": Phrase(
        "Two sources of skills call themselves {id}: only the first is used",
        "Give each source an id of its own.",
    ),
    "source_stale": Phrase("{url} was not fetched, its last good version is used: {detail}"),
    "skill_entry_invalid": Phrase("The server's entry '{name}' makes no sense: {detail}"),
    "digests_missing": Phrase(
        "'{name}' comes without digests, so nothing of it could be checked; it is left out"
    ),
    "listing_limit": Phrase("Only the first {limit} entries of the server were listed"),
    "folder_limit": Phrase("Only the first {limit} folders were scanned"),
    "folder_unreadable": Phrase("The folder cannot be read: {detail}"),
    "link_leads_out": Phrase(
        "{path} is a link that leads out, to {target}, and was not followed",
        "Name the place that it leads to; skills.allow_external_paths allows it to installed ones.",
    ),
    **CHECKS,
    **ARRIVALS,
    **SERVER,
    "path_external": Phrase(
        "{path} lies outside of the project and was not scanned",
        "Allow it with skills.allow_external_paths = true.",
    ),
    "command_unreadable": Phrase("The command cannot be read: {detail}"),
    "command_not_text": Phrase("The command is not UTF-8 text (line {line})", "Save it as UTF-8."),
    "frontmatter_line_breaks": Phrase(
        "The frontmatter holds odd line separators; they were read as blanks",
        "Remove U+0085, U+2028 and U+2029.",
    ),
    "tree_odd_name": Phrase("The file name '{path}' is not UTF-8", "Rename it."),
    "config_not_here": Phrase(
        "A project may not set '{key}' ({origin}): it decides what is trusted",
        "Set it in your own config.toml or in the environment.",
    ),
    "usage": Phrase("The command line makes no sense", "See apexbridge --help."),
    "path_unreadable": Phrase("{path} cannot be used: {detail}"),
    "script_unusable": Phrase("The skill '{name}' cannot be run: {detail}"),
}
