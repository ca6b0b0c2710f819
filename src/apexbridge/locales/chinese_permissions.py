"""The Chinese words about permissions and hooks, by code."""

from apexbridge.locales.phrase import LocalizedText

PERMISSIONS: dict[str, LocalizedText] = {
    "permission_denied": LocalizedText("不允许：{detail}"),
    "tool_pattern_invalid": LocalizedText("“{pattern}”不是工具模式：{detail}"),
    "hook_invalid": LocalizedText("“{event}”的钩子无效：{detail}"),
    "rule_denied": LocalizedText("规则“{pattern}”不允许在此使用 {tool}{detail}"),
    "tool_restricted": LocalizedText(
        "{tool} 不在技能“{skill}”可用的工具之列", "请改用它允许的工具。"
    ),
    "person_denied": LocalizedText("未允许使用 {tool}：用户拒绝了"),
    "nobody_allowed": LocalizedText(
        "使用 {tool} 需要有人同意，但没有人同意", "添加一条允许它的规则。"
    ),
    "hook_failed_closed": LocalizedText(
        "{event} 的钩子 {hook} 失败，因此未使用该工具：{detail}", "修复或移除该钩子。"
    ),
    "hook_failed_open": LocalizedText("{event} 的钩子 {hook} 失败，已跳过：{detail}"),
    "hook_matcher_invalid": LocalizedText(
        "{event} 的钩子 {hook} 的匹配式无法使用：{detail}",
        "写用 | 分隔的名称，或简单的正则表达式。",
    ),
    "hook_change_lost": LocalizedText("钩子 {hook} 对输入的修改被 {detail} 的修改取代"),
}
