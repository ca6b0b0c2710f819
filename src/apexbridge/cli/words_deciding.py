"""What `trust` and `migrate` say: English, Chinese."""

from collections.abc import Mapping

DECIDING: Mapping[str, tuple[str, str]] = {
    "migrate_ask": (
        "Install them? (skills: {count}) Their scripts, hooks and tools may act then. [y/N]",
        "安装这 {count} 个技能吗？安装后它们的脚本、钩子和工具即可使用。[y/N]",
    ),
    "migrate_none": (
        "Nothing was found in: {places}",
        "以下位置没有找到任何技能：{places}",
    ),
    "migrate_nowhere": (
        "None of the usual places is there. Name one: apexbridge migrate PLACE",
        "常用位置都不存在。请指定位置：apexbridge migrate 位置",
    ),
    "migrate_looking": ("Looking at skills", "正在检查技能"),
    "migrating": ("Installing skills", "正在安装技能"),
    "migrate_kept": ("The originals were not changed.", "原文件未作任何改动。"),
    "migrate_dry": ("Nothing was done: this is a dry run.", "这是预演，没有执行任何操作。"),
    "migrate_hidden": (
        "The originals still come first and hide what is installed: {count} ({names}). Move them "
        "away, or let 'installed' come earlier in skills.precedence",
        "有 {count} 个技能的原文件优先级更高，会遮蔽已安装的技能（{names}）。请移走原文件，"
        "或在 skills.precedence 中将 installed 提前",
    ),
    "migrate_other": ("{other} has the name", "名称已被 {other} 使用"),
    "migrate_like": ("like {other}", "与 {other} 相同"),
    "migrate_findings": ("findings: {count}, {level}", "{count} 处可疑，{level}"),
    "migrate_from_name": ("from {name}", "原名 {name}"),
    "migrate_by_words": ("found by its words only", "只能按词语搜索"),
    "migrate_problems": ("problems: {count}", "{count} 个问题"),
    "fate_new": ("installed", "已安装"),
    "fate_renamed": ("installed, renamed", "已改名安装"),
    "fate_same": ("there already", "已存在"),
    "fate_taken": ("name taken", "名称被占用"),
    "fate_invalid": ("invalid", "无效"),
    "fate_dangerous": ("dangerous", "危险"),
    "fate_failed": ("failed", "失败"),
    "trust_none": ("No skill waits for that.", "没有需要处理的技能。"),
    "trust_given": (
        "Approved: {count}. A skill that changes has to be approved again.",
        "已批准 {count} 个技能。技能改动后需要重新批准。",
    ),
    "trust_revoked": ("Approvals taken back: {count}", "已撤销 {count} 个批准"),
    "trust_unchanged": (
        "Nothing was changed (skills: {count}).",
        "没有任何改动（{count} 个技能）。",
    ),
    "trust_waiting": (
        "Skills: {count}. To approve: apexbridge trust NAME, or --all; --revoke takes it back.",
        "共 {count} 个技能。批准：apexbridge trust 名称 或 --all；撤销：--revoke。",
    ),
    "trust_ask": (
        "Let them run scripts and hooks and lend tools? (skills: {count}) [y/N]",
        "允许这 {count} 个技能运行脚本和钩子并授予工具吗？[y/N]",
    ),
    "trust_ask_revoke": (
        "Take these approvals back? (skills: {count}) [y/N]",
        "撤销这 {count} 个批准吗？[y/N]",
    ),
    "trust_tools": ("tools", "工具"),
    "trust_hooks": ("hooks", "钩子"),
    "trust_scripts": ("scripts", "脚本"),
}
