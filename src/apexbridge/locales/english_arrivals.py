"""The English words about archives and sources beyond folders, by code."""

from apexbridge.locales.phrase import LocalizedText

ARRIVALS = {
    "zip_error": LocalizedText("{detail}"),
    "zip_invalid": LocalizedText(
        "The archive cannot be read: {detail}", "Pack it again: apexbridge pack"
    ),
    "zip_no_root_folder": LocalizedText(
        "The archive has files at its root instead of one folder",
        "Put all files into one folder named like the skill: my-skill/SKILL.md. "
        "'apexbridge pack' does so.",
    ),
    "zip_multiple_roots": LocalizedText(
        "The archive holds more than one top folder: {names}", "One archive, one skill."
    ),
    "zip_no_skill_md": LocalizedText("The archive's folder '{name}' has no SKILL.md"),
    "zip_path_traversal": LocalizedText("The archive entry '{name}' points outside of its folder"),
    "zip_absolute_path": LocalizedText("The archive entry '{name}' has an absolute path"),
    "zip_link_entry": LocalizedText("The archive entry '{name}' is a link"),
    "zip_special_entry": LocalizedText("The archive entry '{name}' is neither a file nor a folder"),
    "zip_reserved_name": LocalizedText(
        "The archive entry '{name}' has a name that some systems refuse or change: {detail}",
        "Rename it.",
    ),
    "zip_name_invalid": LocalizedText(
        "The archive entry '{name}' has a name that cannot be used: {detail}", "Rename it."
    ),
    "zip_name_encoding": LocalizedText(
        "The name of the archive entry '{name}' is neither UTF-8 nor GB18030",
        "Pack it again with names in UTF-8: apexbridge pack",
    ),
    "zip_path_too_long": LocalizedText(
        "The path of the archive entry '{name}' is too long: {detail}"
    ),
    "zip_duplicate_entry": LocalizedText("The archive holds '{name}' twice"),
    "zip_name_collision": LocalizedText(
        "The archive entries '{name}' and '{other}' get in each other's way",
        "Rename one: on some systems both are one name.",
    ),
    "zip_ambiguous": LocalizedText(
        "Programs would disagree on what the archive holds: {detail}",
        "Pack it again: apexbridge pack",
    ),
    "zip_unsupported": LocalizedText(
        "The archive is of a kind that is not read here: {detail}",
        "Pack it again: apexbridge pack",
    ),
    "zip_encrypted": LocalizedText("The archive is encrypted", "Pack it without a password."),
    "zip_too_large": LocalizedText("The archive is too large: {detail}"),
    "remote_refused": LocalizedText(
        "{url} may not be asked: {detail}",
        "Skills come by https from public hosts; remote.allow_networks opens private networks.",
    ),
    "remote_unreachable": LocalizedText("{url} cannot be fetched: {detail}"),
    "remote_unusable": LocalizedText("{url} gave nothing that can be used: {detail}"),
    "remote_digest": LocalizedText(
        "{url} is not what its index says: sha256 {expected} is listed, {found} came",
        "Tell the publisher; the file is not used.",
    ),
    "zip_names_decoded": LocalizedText(
        "The names are not marked as UTF-8 and were read as {encoding}: {names}",
        "If they look wrong, pack it again: apexbridge pack",
    ),
    "zip_entries_dropped": LocalizedText("Left out, because it is no part of a skill: {names}"),
    "zip_built_files": LocalizedText(
        "The archive ships what is installed or compiled: {names}",
        "Leave it out; nobody can read what it does.",
    ),
    "remote_changed": LocalizedText(
        "{url} has changed: its sha256 was {old}, and is {new} now",
        "The new version is not used. Look at it, and accept the change if it is wanted.",
    ),
    "remote_entry_invalid": LocalizedText(
        "The entry '{name}' of the index cannot be used: {detail}"
    ),
    "remote_name_taken": LocalizedText(
        "The name '{name}' is taken by {other}", "Remove one of the two."
    ),
    "remote_limit": LocalizedText("Only the first {limit} entries of the index were read"),
    "plugin_missing": LocalizedText(
        "{path} is no plugin: it has no .claude-plugin/plugin.json and lists no plugins"
    ),
    "plugin_manifest_missing": LocalizedText(
        "The plugin '{name}' has no .claude-plugin/plugin.json",
        'Add one, or write "strict": false into the marketplace.',
    ),
    "plugin_manifest_invalid": LocalizedText("The manifest cannot be used: {detail}"),
    "plugin_name_missing": LocalizedText(
        "The plugin has no name; '{used}' is used", 'Write "name": "{used}".'
    ),
    "plugin_name_replaced": LocalizedText(
        "The plugin's name '{name}' is not usable; it is known as '{used}'"
    ),
    "plugin_source_unsupported": LocalizedText(
        "The plugin '{name}' is not at a path inside the marketplace: {source}",
        "Fetch it yourself and add its folder to plugins.paths.",
    ),
    "plugin_shadowed": LocalizedText(
        "The plugin '{name}' in {path} is hidden by the one in {winner}"
    ),
    "plugin_config_missing": LocalizedText(
        "The text asks for ${{user_config.{key}}}, which is not set",
        "Set {key} for {plugin} in plugins.config.",
    ),
    "plugin_config_secret": LocalizedText(
        "The text asks for ${{user_config.{key}}}, which the plugin declares a secret: "
        "it is not filled in"
    ),
}
