"""What the model that needs no key says: English, Chinese."""

from collections.abc import Mapping

from apexbridge.models.intent_rules import is_chinese

_CONNECT = (
    "Connect a language model for more: set model.base_url and model.name, see docs/models.md.",
    "接入语言模型可以做得更多：设置 model.base_url 与 model.name，见 docs/models.md。",
)
_WORDS: Mapping[str, tuple[str, str]] = {
    "result": ("{text}", "{text}"),
    "failed": ("{tool} did not work: {text}", "{tool} 没有成功：{text}"),
    "script_ran": ("{text}\n\n(by the skill {name})", "{text}\n\n（由技能 {name} 完成）"),
    "script_ran_plainly": (
        "{text}\n\n(by the skill {name}, which could do nothing with: {options})",
        "{text}\n\n（由技能 {name} 完成；它无法使用：{options}）",
    ),
    "script_failed": (
        "The script of the skill {name} did not succeed:\n{text}",
        "技能 {name} 的脚本没有成功：\n{text}",
    ),
    "needs_model": (
        "The skill {name} fits. Its instructions are for a language model to follow, and none is "
        f"connected: these replies come from fixed rules. {_CONNECT[0]}",
        "技能 {name} 适合这个请求。它的说明要由语言模型执行，而目前没有接入：这些回复来自固定规则。"
        f"{_CONNECT[1]}",
    ),
    "found": (
        "These skills may fit, none of them clearly:\n{names}\n"
        f"Call one by its name: /name and what it is to do. {_CONNECT[0]}",
        "下面的技能可能适合，但没有一个明显最合适：\n{names}\n"
        f"可以按名称调用：/名称 加上要做的事。{_CONNECT[1]}",
    ),
    "nothing_found": (
        f"No skill fits, and no built-in tool plainly does. {_CONNECT[0]}",
        f"没有合适的技能，内置工具也不能直接完成。{_CONNECT[1]}",
    ),
    "destroys_nothing": (
        "Nothing was deleted. These replies come from fixed rules, and no rule deletes anything. "
        f"{_CONNECT[0]}",
        f"没有删除任何东西。这些回复来自固定规则，没有一条规则会删除东西。{_CONNECT[1]}",
    ),
    "no_model": (
        "No language model is connected: these replies come from fixed rules, which know what "
        f"built-in tools and skills can do. {_CONNECT[0]}",
        f"没有接入语言模型：这些回复来自固定规则，只能使用内置工具和技能。{_CONNECT[1]}",
    ),
}


def say(key: str, request: str, **facts: str) -> str:
    """A sentence in the language of the request."""
    words = _WORDS[key][is_chinese(request)]
    return words.format(**facts)
