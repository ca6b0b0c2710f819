"""What `chat` and `explain` say: English, Chinese."""

from collections.abc import Mapping

CHAT: Mapping[str, tuple[str, str]] = {
    "chat_hello": (
        "Model: {model}. /skills lists the skills, /name calls one, /exit ends.",
        "模型：{model}。/skills 列出技能，/名称 调用技能，/exit 退出。",
    ),
    "chat_embedded": (
        "No language model is connected: replies come from fixed rules (settings: model.*).",
        "没有接入语言模型：回复来自固定规则（设置：model.*）。",
    ),
    "chat_cancelled": ("Cancelled.", "已取消。"),
    "chat_finish": ("The turn ended early: {finish}", "本轮提前结束：{finish}"),
    "chat_tool": ("· {tool} {seconds}", "· {tool} {seconds}"),
    "chat_tool_failed": ("· {tool} failed", "· {tool} 失败"),
    "chat_skill": ("· skill {name} ({mode})", "· 技能 {name}（{mode}）"),
    "chat_allow": (
        "Allow {tool}: {argument}\n  y once, a always ({rule}), n no:",
        "允许 {tool}：{argument}\n  y 本次，a 始终（{rule}），n 不允许：",
    ),
    "chat_session": (
        "Session {session}: go on with --session {session}",
        "会话 {session}：用 --session {session} 继续",
    ),
    "turn_none": ("No turn was recorded yet.", "还没有任何一轮对话的记录。"),
    "turn_unknown": ("No turn has the id {id}.", "没有编号为 {id} 的对话记录。"),
    "turn_turn": (
        "Turn {id}: {rounds} rounds, {calls} calls, {tokens} tokens, {seconds} s, ended: {finish}",
        "对话 {id}：询问 {rounds} 次，调用 {calls} 次，{tokens} 令牌，{seconds} 秒，结束：{finish}",
    ),
    "turn_confidence": (
        "Confidence that a skill fits: {confidence}",
        "有合适技能的把握：{confidence}",
    ),
    "turn_candidates": ("Skills that search brought up", "搜索到的技能"),
    "turn_listed": ("Listed: {names}", "已列出：{names}"),
    "turn_shortened": ("Shortened: {names}", "被缩短：{names}"),
    "turn_dropped": ("Left out: {names}", "未列出：{names}"),
    "turn_asleep": ("Asleep: {count}", "休眠：{count}"),
    "turn_woken": ("Woken: {names}", "被唤醒：{names}"),
    "turn_time": (
        "Model {model} s, tools {tools} s, search {search} s",
        "模型 {model} 秒，工具 {tools} 秒，搜索 {search} 秒",
    ),
    "run_id": ("Run", "运行"),
    "run_script": ("Script", "脚本"),
    "run_none": ("No script has run yet.", "还没有运行过脚本。"),
    "run_unknown": ("There is no run '{id}'.", "没有运行记录“{id}”。"),
    "run_line": (
        "{when}: {skill} {script}: {outcome}, exit code {code}, {seconds} s, isolation {isolation}",
        "{when}：{skill} {script}：{outcome}，退出码 {code}，{seconds} 秒，隔离 {isolation}",
    ),
    "turn_score": ("score", "分数"),
    "turn_meaning": ("meaning", "含义"),
    "turn_lexical": ("words", "词语"),
    "turn_usage": ("usage", "使用"),
    "turn_fate": ("what became of it", "结果"),
    "turn_tool": ("tool", "工具"),
    "turn_seconds": ("seconds", "秒"),
    "turn_code": ("refused or failed", "拒绝或失败"),
    "fate_offered": ("offered", "已推荐"),
    "fate_weak": ("not sure enough", "把握不足"),
    "fate_denied": ("forbidden or for people only", "被禁止或仅限用户"),
    "fate_asleep": ("asleep", "休眠"),
    "fate_known": ("told before", "此前已告知"),
}
