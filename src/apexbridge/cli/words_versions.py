"""What the commands about versions say: English, Chinese."""

from collections.abc import Mapping

VERSIONS: Mapping[str, tuple[str, str]] = {
    "update_ask": ("Update {name}? [y/N]", "更新 {name} 吗？[y/N]"),
    "updated": (
        "Updated {name}; 'apexbridge rollback {name}' goes back",
        "已更新 {name}；可用 apexbridge rollback {name} 回退",
    ),
    "updated_not": ("{name} is in this state already", "{name} 已是这个版本"),
    "rolled_back": ("{name} is version {version} again", "{name} 已回到版本 {version}"),
    "pinned": (
        "{name} is held to version {version}: nothing changes it until 'pin {name} --off'",
        "{name} 已固定在版本 {version}，执行 pin {name} --off 之前不会改动",
    ),
    "unpinned": ("{name} may change again", "{name} 可以改动了"),
    "unpinned_not": ("{name} was not held", "{name} 本来就没有固定"),
    "version": ("version", "版本"),
    "version_hash": ("hash", "哈希"),
    "version_since": ("put aside", "替换时间"),
    "version_now": ("in use", "使用中"),
    "version_pinned": ("in use, held", "使用中，已固定"),
    "diff_none": ("No file is different.", "没有不同的文件。"),
    "diff_added": ("added", "新增"),
    "diff_removed": ("removed", "删除"),
    "diff_changed": ("changed", "修改"),
    "diff_cut": ("no text, or too large to show", "不是文本，或过大而不显示"),
    "diff_runs": ("can be run now", "现在可执行"),
    "diff_runs_not": ("can no longer be run", "不再可执行"),
    "findings": ("findings", "可疑"),
    "state_pinned": ("held", "已固定"),
    "page_more": (
        "More: --after {after} (in all: {total})",
        "还有更多：--after {after}（共 {total} 个）",
    ),
    "inspect_commands": ("commands in its text", "文中命令"),
}
