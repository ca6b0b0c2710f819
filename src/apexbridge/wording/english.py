"""The English words, by code."""

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
    "skill_invalid": Phrase("{where}: {detail}"),
    "skill_exists": Phrase(
        "A skill named '{name}' exists already", "Uninstall it first, or update it."
    ),
    "skill_changed": Phrase(
        "The skill '{name}' has changed since: it is {now} now, not {seen}",
        "Look at it again, then repeat the change.",
    ),
    "skill_asleep": Phrase(
        "The skill '{name}' sleeps until a file it is about is touched: {paths}",
        "Read or change such a file first; a person may call it by its name at any time.",
    ),
    "skill_for_users_only": Phrase(
        "The skill '{name}' may be called by people only", "Ask the user to call it."
    ),
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
    "zip_error": Phrase("{detail}"),
    "zip_invalid": Phrase("The archive cannot be read: {detail}", "Pack it again: apexbridge pack"),
    "zip_no_root_folder": Phrase(
        "The archive has files at its root instead of one folder",
        "Put all files into one folder named like the skill: my-skill/SKILL.md. "
        "'apexbridge pack' does so.",
    ),
    "zip_multiple_roots": Phrase(
        "The archive holds more than one top folder: {names}", "One archive, one skill."
    ),
    "zip_no_skill_md": Phrase("The archive's folder '{name}' has no SKILL.md"),
    "zip_path_traversal": Phrase("The archive entry '{name}' points outside of its folder"),
    "zip_absolute_path": Phrase("The archive entry '{name}' has an absolute path"),
    "zip_link_entry": Phrase("The archive entry '{name}' is a link"),
    "zip_special_entry": Phrase("The archive entry '{name}' is neither a file nor a folder"),
    "zip_reserved_name": Phrase(
        "The archive entry '{name}' has a name that some systems refuse or change: {detail}",
        "Rename it.",
    ),
    "zip_name_invalid": Phrase(
        "The archive entry '{name}' has a name that cannot be used: {detail}", "Rename it."
    ),
    "zip_name_encoding": Phrase(
        "The name of the archive entry '{name}' is neither UTF-8 nor GB18030",
        "Pack it again with names in UTF-8: apexbridge pack",
    ),
    "zip_path_too_long": Phrase("The path of the archive entry '{name}' is too long: {detail}"),
    "zip_duplicate_entry": Phrase("The archive holds '{name}' twice"),
    "zip_name_collision": Phrase(
        "The archive entries '{name}' and '{other}' get in each other's way",
        "Rename one: on some systems both are one name.",
    ),
    "zip_ambiguous": Phrase(
        "Programs would disagree on what the archive holds: {detail}",
        "Pack it again: apexbridge pack",
    ),
    "zip_unsupported": Phrase(
        "The archive is of a kind that is not read here: {detail}",
        "Pack it again: apexbridge pack",
    ),
    "zip_encrypted": Phrase("The archive is encrypted", "Pack it without a password."),
    "zip_too_large": Phrase("The archive is too large: {detail}"),
    "source_unreadable": Phrase("The skill source {source} cannot be read: {detail}"),
    "remote_refused": Phrase(
        "{url} may not be asked: {detail}",
        "Skills come by https from public hosts; remote.allow_networks opens private networks.",
    ),
    "remote_unreachable": Phrase("{url} cannot be fetched: {detail}"),
    "remote_unusable": Phrase("{url} gave nothing that can be used: {detail}"),
    "remote_digest": Phrase(
        "{url} is not what its index says: sha256 {expected} is listed, {found} came",
        "Tell the publisher; the file is not used.",
    ),
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
    "skill_dangerous": Phrase(
        "The skill '{name}' looks dangerous ({level}: {rules}) and was not installed",
        "Look at it with 'apexbridge scan'; --despite-findings installs it all the same.",
    ),
    "not_agreed": Phrase("Nobody agreed to it", "Answer yes, or give --yes."),
    "permission_denied": Phrase("Not allowed: {detail}"),
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
    "zip_names_decoded": Phrase(
        "The names are not marked as UTF-8 and were read as {encoding}: {names}",
        "If they look wrong, pack it again: apexbridge pack",
    ),
    "zip_entries_dropped": Phrase("Left out, because it is no part of a skill: {names}"),
    "zip_built_files": Phrase(
        "The archive ships what is installed or compiled: {names}",
        "Leave it out; nobody can read what it does.",
    ),
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
    "tool_pattern_invalid": Phrase("'{pattern}' is not a tool pattern: {detail}"),
    "path_pattern_invalid": Phrase("'{pattern}' is not a path pattern: {detail}"),
    "path_pattern_too_wide": Phrase(
        "The braces of '{pattern}' stand for more than {limit} patterns"
    ),
    "hook_invalid": Phrase("The hook for '{event}' makes no sense: {detail}"),
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
    "remote_changed": Phrase(
        "{url} has changed: its sha256 was {old}, and is {new} now",
        "The new version is not used. Look at it, and accept the change if it is wanted.",
    ),
    "remote_entry_invalid": Phrase("The entry '{name}' of the index cannot be used: {detail}"),
    "remote_name_taken": Phrase("The name '{name}' is taken by {other}", "Remove one of the two."),
    "remote_limit": Phrase("Only the first {limit} entries of the index were read"),
    "skill_entry_invalid": Phrase("The server's entry '{name}' makes no sense: {detail}"),
    "digests_missing": Phrase(
        "'{name}' comes without digests, so nothing of it could be checked; it is left out"
    ),
    "listing_limit": Phrase("Only the first {limit} entries of the server were listed"),
    "folder_limit": Phrase("Only the first {limit} folders were scanned"),
    "folder_unreadable": Phrase("The folder cannot be read: {detail}"),
    "path_external": Phrase(
        "{path} lies outside of the project and was not scanned",
        "Allow it with skills.allow_external_paths = true.",
    ),
    "plugin_missing": Phrase(
        "{path} is no plugin: it has no .claude-plugin/plugin.json and lists no plugins"
    ),
    "plugin_manifest_missing": Phrase(
        "The plugin '{name}' has no .claude-plugin/plugin.json",
        'Add one, or write "strict": false into the marketplace.',
    ),
    "plugin_manifest_invalid": Phrase("The manifest cannot be used: {detail}"),
    "plugin_name_missing": Phrase(
        "The plugin has no name; '{used}' is used", 'Write "name": "{used}".'
    ),
    "plugin_name_replaced": Phrase(
        "The plugin's name '{name}' is not usable; it is known as '{used}'"
    ),
    "plugin_source_unsupported": Phrase(
        "The plugin '{name}' is not at a path inside the marketplace: {source}",
        "Fetch it yourself and add its folder to plugins.paths.",
    ),
    "plugin_shadowed": Phrase("The plugin '{name}' in {path} is hidden by the one in {winner}"),
    "plugin_config_missing": Phrase(
        "The text asks for ${{user_config.{key}}}, which is not set",
        "Set {key} for {plugin} in plugins.config.",
    ),
    "plugin_config_secret": Phrase(
        "The text asks for ${{user_config.{key}}}, which the plugin declares a secret: "
        "it is not filled in"
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
