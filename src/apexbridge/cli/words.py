"""The words of the terminal's own screens, in English and Chinese."""

from collections.abc import Mapping

from apexbridge.cli.words_chat import CHAT
from apexbridge.cli.words_checking import CHECKING
from apexbridge.cli.words_deciding import DECIDING
from apexbridge.cli.words_mcp import MCP
from apexbridge.cli.words_serving import SERVING
from apexbridge.cli.words_versions import VERSIONS
from apexbridge.locales import Language
from apexbridge.locales.doctor import DOCTOR

WORDS: Mapping[str, tuple[str, str]] = {
    "error": ("Error", "错误"),
    "hint": ("Hint", "提示"),
    "severity_error": ("error", "错误"),
    "severity_warning": ("warning", "警告"),
    "sound": ("{name}: sound", "{name}：没有问题"),
    "not_sound": (
        "{name}: errors: {errors}, warnings: {warnings}",
        "{name}：{errors} 个错误，{warnings} 个警告",
    ),
    "made": ("Made {path}", "已创建 {path}"),
    "would_make": ("Would make {path}", "将创建 {path}"),
    "next_steps": (
        "Next: edit {path}/SKILL.md, then run 'apexbridge validate {path}'",
        "下一步：编辑 {path}/SKILL.md，然后运行 apexbridge validate {path}",
    ),
    "packed": (
        "Packed {path} (files: {count}, bytes: {size})",
        "已将 {count} 个文件打包到 {path}（{size} 字节）",
    ),
    "would_pack": ("Would pack {path} (files: {count})", "将把 {count} 个文件打包到 {path}"),
    "name": ("Name", "名称"),
    "origin": ("Origin", "来源"),
    "description": ("Description", "描述"),
    "where": ("Where", "位置"),
    "problem": ("Problem", "问题"),
    "no_skills": ("No skills found.", "没有找到技能。"),
    "skill_count": ("Skills: {count}", "共 {count} 个技能"),
    "problem_count": (
        "Problems: {count}; 'apexbridge ls --problems' names them",
        "{count} 个问题；用 apexbridge ls --problems 查看",
    ),
    "shadowed_count": (
        "Hidden by others of their name: {count}; 'apexbridge ls --all' names them",
        "{count} 个技能被同名技能遮蔽；用 apexbridge ls --all 查看",
    ),
    "disabled_count": (
        "Switched off: {count}; 'apexbridge ls --all' names them",
        "{count} 个技能已停用；用 apexbridge ls --all 查看",
    ),
    "untrusted_count": (
        "Waiting for your approval: {count}; 'apexbridge trust' tells more",
        "{count} 个技能等待批准；用 apexbridge trust 查看",
    ),
    "state_shadowed": ("hidden", "被遮蔽"),
    "state_asleep": ("asleep", "休眠"),
    "state_untrusted": ("untrusted", "未批准"),
    "state_users_only": ("users only", "仅限用户"),
    "why_alone": (
        "It has the name because no other skill claims it ({source}).",
        "没有其他同名技能，因此由它使用该名称（{source}）。",
    ),
    "why_wins": (
        "It has the name because its source is the strongest ({source}). It hides:",
        "它的来源优先级最高，因此由它使用该名称（{source}）。被它遮蔽的有：",
    ),
    "why_stronger": (
        "'{winner}' comes before '{rival}' in skills.precedence",
        "在 skills.precedence 中 {winner} 排在 {rival} 之前",
    ),
    "why_nearer": ("of the same origin, and looked at later", "来源类别相同，但查找顺序在后"),
    "why_asleep": (
        "It sleeps until a file matches {paths}; a user may call it by name.",
        "它在休眠，直到触及匹配 {paths} 的文件；用户可以按名称调用。",
    ),
    "why_untrusted": (
        "Nobody approved it: it runs no scripts or hooks and lends no tools. "
        "Approve it: apexbridge trust {name}",
        "尚未批准：不会运行脚本或钩子，也不授予工具。批准：apexbridge trust {name}",
    ),
    "why_users_only": (
        "The model may not call it (disable-model-invocation).",
        "模型不能调用它（disable-model-invocation）。",
    ),
    "why_callable": ("The model and the user may call it.", "模型和用户都可以调用它。"),
    "field_trust": ("trust", "批准"),
    "skills": ("Skills", "技能数"),
    "problems": ("Problems", "问题数"),
    "source_ok": ("ok", "正常"),
    "source_down": ("down", "不可用"),
    "source_missing": ("not there", "不存在"),
    "state": ("State", "状态"),
    "extent": ("Told", "告知程度"),
    "characters": ("Characters", "字符数"),
    "extent_full": ("in full", "完整"),
    "extent_shortened": ("shortened", "已缩短"),
    "extent_name_only": ("name only", "仅名称"),
    "extent_left_out": ("left out", "未列出"),
    "budget_used": (
        "Characters: {used} of {room}, for a window of {window} tokens",
        "已用 {used}/{room} 个字符（上下文窗口 {window} 个 token）",
    ),
    "budget_cut": (
        "Not in full: {count}. The rest is found by searching.",
        "{count} 个未完整列出，其余可通过搜索找到。",
    ),
    "scan_nothing": ("{name}: nothing looks dangerous", "{name}：没有发现可疑之处"),
    "scan_partial": (
        "{name}: not everything could be looked at",
        "{name}：未能检查全部内容",
    ),
    "level_info": ("info", "提示"),
    "level_review": ("review", "待查"),
    "level_warn": ("warn", "警告"),
    "level_block": ("block", "阻止"),
    "add_ask": ("Install {name}? [y/N]", "安装 {name} 吗？[y/N]"),
    "added": ("Installed {name}", "已安装 {name}"),
    "coming_new": ("to install", "待安装"),
    "coming_renamed": ("to install, renamed", "待改名安装"),
    "remark": ("Remark", "备注"),
    "rm_ask": ("Remove {name}? [y/N]", "移除 {name} 吗？[y/N]"),
    "removed": (
        "Removed {name}; 'apexbridge undo {name}' brings it back for {days} days",
        "已移除 {name}；{days} 天内可用 apexbridge undo {name} 恢复",
    ),
    "brought_back": ("{name} is back", "已恢复 {name}"),
    "edited": ("Changed the description of {name}", "已修改 {name} 的描述"),
    "edited_not": ("{name} says so already", "{name} 的描述已是如此"),
    "enabled": ("{name} is on", "{name} 已启用"),
    "disabled": ("{name} is off", "{name} 已停用"),
    "exported": ("Wrote {path} (bytes: {size})", "已写入 {path}（{size} 字节）"),
    "state_disabled": ("off", "已停用"),
    "when": ("When", "时间"),
    "what": ("What", "操作"),
    "facts": ("Facts", "详情"),
    "audit_empty": ("Nothing is recorded.", "没有记录。"),
    "audit_sound": ("The chain holds; records: {count}", "记录链完好，共 {count} 条"),
    "remote_unchanged": (
        "{url} gives what it gave when it was first read.",
        "{url} 的内容与首次读取时相同。",
    ),
    "remote_ask": ("Use what {url} gives now? [y/N]", "使用 {url} 现在的内容吗？[y/N]"),
    "remote_accepted": (
        "{url} is held to what it gives now.",
        "已改用 {url} 现在的内容。",
    ),
    "remote_refused": ("Nothing was changed.", "没有任何改动。"),
    "no_problems": ("No problems found.", "没有发现问题。"),
    "asleep": ("sleeps until a file matches {paths}", "休眠，直到触及匹配 {paths} 的文件"),
    "field_origin": ("origin", "来源"),
    "field_folder": ("folder", "文件夹"),
    "field_state": ("state", "状态"),
    "field_files": ("files", "文件"),
    "field_size": ("size", "大小"),
    "field_sha256": ("sha256", "sha256"),
    "bytes": ("{count} bytes", "{count} 字节"),
    "setting": ("Setting", "设置"),
    "value": ("Value", "值"),
    "from": ("From", "来自"),
    "check": ("Check", "检查"),
    "result": ("Result", "结果"),
    "doctor_ok": ("All is well.", "一切正常。"),
    "doctor_warn": ("Works; remarks: {count}.", "可以使用，有 {count} 处需要注意。"),
    "doctor_fail": ("Failed checks: {count}.", "{count} 项检查未通过。"),
    **CHAT,
    **CHECKING,
    **DECIDING,
    **DOCTOR,
    **MCP,
    **SERVING,
    **VERSIONS,
    "run_error": (
        "The script did not end well: {error} (isolation: {isolation})",
        "脚本未正常结束：{error}（隔离：{isolation}）",
    ),
    "run_left": (
        "It left {names}; '--output DIR' keeps such files",
        "它留下了 {names}；用 --output DIR 可保存这些文件",
    ),
    "run_not_taken": ("Not brought back: {reasons}", "未取回：{reasons}"),
    "rank": ("Rank", "排名"),
    "score": ("Score", "得分"),
    "query": ("Query", "查询"),
    "queries": ("Queries", "查询数"),
    "language": ("Language", "语言"),
    "all": ("all", "全部"),
    "en": ("English", "英文"),
    "zh": ("Chinese", "中文"),
    "vectorising": ("Indexing skills", "正在为技能建立索引"),
    "comparing": ("Comparing skills", "正在比较技能"),
    "search_by_words": (
        "Searching by words only: {message}",
        "只能按词语搜索：{message}",
    ),
    "find_blank": (
        "An empty request finds nothing. Say what you want to do.",
        "空请求找不到任何技能。请说出你想做什么。",
    ),
    "find_unsure": (
        "No skill clearly fits: confidence {confidence}, and it takes {threshold}. "
        "The nearest ones:",
        "没有明显合适的技能：把握为 {confidence}，至少需要 {threshold}。以下是最接近的：",
    ),
    "explain_meaning": (
        "meaning: {meaning} standard deviations from what this request gets elsewhere "
        "(whole text {dense}, nearest part {view})",
        "含义：与该请求的一般水平相差 {meaning} 个标准差（全文 {dense}，最接近的部分 {view}）",
    ),
    "explain_view": ("nearest part: “{text}”", "最接近的部分：“{text}”"),
    "explain_no_view": ("nearest part: the skill as a whole", "最接近的部分：技能整体"),
    "explain_words": (
        "words: {words}; together {lexical} of the best attainable",
        "词语：{words}；合计为最高可得的 {lexical}",
    ),
    "explain_no_words": ("words: none of the request's", "词语：没有请求中的词"),
    "explain_usage": ("usage: {usage}", "使用频率：{usage}"),
    "explain_language_en": ("language: English", "语言：英文"),
    "explain_language_zh": ("language: Chinese", "语言：中文"),
    "index_embedder": (
        "embedder: {name} (dimensions: {dimensions})",
        "向量模型：{name}（{dimensions} 维）",
    ),
    "index_store": (
        "store: {store}, {path} (bytes: {bytes})",
        "存储：{store}，{path}（{bytes} 字节）",
    ),
    "index_rows": ("entries: {rows}, skills: {skills}", "{rows} 个条目，{skills} 个技能"),
    "index_missing": ("not indexed yet: {count} ({names})", "尚未索引：{count} 个（{names}）"),
    "index_stale": ("changed since: {count} ({names})", "索引后有改动：{count} 个（{names}）"),
    "index_orphaned": (
        "without a skill: {count} ({names})",
        "对应的技能已不存在：{count} 个（{names}）",
    ),
    "index_sound": ("Index and skills agree.", "索引与技能一致。"),
    "index_behind": (
        "The index is behind; the next search brings it up to date.",
        "索引落后于技能；下次搜索时会自动更新。",
    ),
    "index_broken": (
        "The index is damaged. Make it anew: apexbridge index rebuild",
        "索引已损坏。请重建：apexbridge index rebuild",
    ),
    "index_made": (
        "Entries made anew: {count}, dropped: {dropped}",
        "已重建 {count} 个条目，移除 {dropped} 个",
    ),
    "index_failed": ("Could not be read: {names}", "无法读取：{names}"),
    "eval_skills": ("Skills searched: {count}", "在 {count} 个技能中搜索"),
    "eval_unknown": (
        "Accepted ids that the corpus does not have: {count}",
        "有 {count} 个可接受的 id 不在语料中",
    ),
    "margin": ("Margin", "领先"),
    "trigger_pass_yes": ("ok: triggers", "通过：已触发"),
    "trigger_pass_no": ("ok: stays silent", "通过：未触发"),
    "trigger_fail_yes": ("FAILS: stays silent", "未通过：应触发而未触发"),
    "trigger_fail_no": ("FAILS: triggers", "未通过：不应触发却触发"),
    "trigger_totals": (
        "Queries: {count}; accuracy {accuracy}, precision {precision}, recall {recall}",
        "共 {count} 个查询；准确率 {accuracy}，精确率 {precision}，召回率 {recall}",
    ),
    "owner": ("Skill", "技能"),
    "thief": ("Loses to", "输给"),
    "coexist_asked": (
        "Skills: {skills}, queries of their own: {queries}",
        "{skills} 个技能，共 {queries} 个自身查询",
    ),
    "coexist_none": (
        "No skill takes another's queries.",
        "没有技能抢走其他技能的查询。",
    ),
    "alike": ("Nearly the same", "几乎相同"),
    "alike_to": ("As", "与之相同"),
    "cosine": ("Cosine", "余弦"),
    "before": ("Before", "之前"),
    "after": ("After", "之后"),
    "preview_saved": ("saved query", "已存查询"),
    "preview_old": ("old text", "原文本"),
    "preview_new": ("new text", "新文本"),
    "other_skill": ("Other skill", "其他技能"),
    "places_lost": ("Places lost", "下降名次"),
    "places_gained": ("Places gained", "上升名次"),
    "preview_no_others": ("No other skill moves.", "其他技能的排名不变。"),
}


def word(key: str, language: Language, **fields: object) -> str:
    """One text of the screens, in the reader's language."""
    english, chinese = WORDS[key]
    return (chinese if language == "zh" else english).format(**fields)
