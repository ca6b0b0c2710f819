"""Regular expressions of requests for the built-in tools, in English and Chinese.

They match whole requests only: a longer request is for a skill or a language model.
"""

import re

CITY_TIME_ZONES = {
    "北京": "Asia/Shanghai", "上海": "Asia/Shanghai", "中国": "Asia/Shanghai",
    "香港": "Asia/Hong_Kong", "台北": "Asia/Taipei", "东京": "Asia/Tokyo", "日本": "Asia/Tokyo",
    "纽约": "America/New_York", "伦敦": "Europe/London", "巴黎": "Europe/Paris",
    "柏林": "Europe/Berlin", "悉尼": "Australia/Sydney", "旧金山": "America/Los_Angeles",
    "洛杉矶": "America/Los_Angeles", "新加坡": "Asia/Singapore", "首尔": "Asia/Seoul",
    "莫斯科": "Europe/Moscow", "芝加哥": "America/Chicago", "beijing": "Asia/Shanghai",
    "shanghai": "Asia/Shanghai", "china": "Asia/Shanghai", "hong kong": "Asia/Hong_Kong",
    "tokyo": "Asia/Tokyo", "japan": "Asia/Tokyo", "new york": "America/New_York",
    "london": "Europe/London", "paris": "Europe/Paris", "berlin": "Europe/Berlin",
    "sydney": "Australia/Sydney", "san francisco": "America/Los_Angeles",
    "los angeles": "America/Los_Angeles", "singapore": "Asia/Singapore", "seoul": "Asia/Seoul",
    "moscow": "Europe/Moscow", "chicago": "America/Chicago", "utc": "UTC", "gmt": "UTC",
}  # fmt: skip
FILE_KINDS = {
    "python": "py", "markdown": "md", "text": "txt", "文本": "txt", "javascript": "js",
    "typescript": "ts", "日志": "log", "log": "log", "yaml": "yaml",
    **{kind: kind for kind in ("csv", "json", "toml", "txt", "html", "css", "pdf", "tsv", "xml")},
    **{kind: kind for kind in ("md", "py", "js", "ts", "png", "jpg", "sql", "yml", "sh")},
}  # fmt: skip
DOTLESS_FILE_NAMES = frozenset({
    "readme", "license", "makefile", "dockerfile", "changelog", "notice", "authors",
})  # fmt: skip

POLITE = (
    r"(?:please|kindly|hey|ok|okay|can you|could you|would you|will you|i want to|i'd like to|"
    r"请问|请你|请|麻烦你|麻烦|帮我|帮忙|给我|替我|我想|你能|你可以|能不能)[\s,，]*"
)
ENDING = (
    r"[\s,，]*(?:please|for me|thanks|thank you|谢谢|好吗|可以吗|吗|呢|吧|啊|呀|(?<!\d)!|"
    r"[?？.。！~…])$"
)

_TELL_ME = r"(?:(?:tell me|show me|give me|do you know|告诉我|查一下|查查|看一下|看看|你知道) ?)?"
_CITY = "|".join(sorted(CITY_TIME_ZONES, key=len, reverse=True))
_PLACE = rf"(?P<place>(?:utc|gmt) ?[+-]\d{{1,2}}(?::\d\d)?|{_CITY}|[a-z]{{2,20}}/[a-z_]{{2,20}})"
_NOW_EN = r"(?: right now| now| today| here| currently| at the moment)?"
_NOW_ZH = r"(?:现在|当前|此刻|目前|今天|今日)?的?"
NOW = (
    rf"{_TELL_ME}(?:what time (?:is it|it is)|what(?:'s| is) the (?:current )?(?:local )?"
    r"(?:time|date|"
    r"day)(?: and (?:time|date))?|what day (?:is it|is today|it is)|(?:the )?current (?:local )?"
    r"(?:date|time)(?: and (?:date|time))?|(?:what(?:'s| is) )?today'?s date|what date (?:is it|is "
    rf"today)|the (?:time|date)|which day (?:is it|is today)){_NOW_EN}(?: (?:in|at) {_PLACE})?"
    rf"{_NOW_EN}",
    rf"time in {_PLACE}{_NOW_EN}",
    rf"{_TELL_ME}{_NOW_ZH}(?:{_PLACE}(?:时间)?的?)?{_NOW_ZH}是?(?:几点钟?|什么时间|时间|日期|几月几[号日]|几号|"
    r"多少号|星期几|礼拜几|周几)(?:是?(?:几点|多少|什么|几号))?了?",
    rf"{_PLACE}时间",
)

_THIS = r"(?:this|it|(?:this|my|the) (?:machine|computer|host|server))"
_HERE_ZH = (
    r"(?:这里|这台(?:机器|电脑|计算机|主机)|这|我的?(?:机器|电脑)|本机|你|我们|我|当前|现在|"
    r"服务器)的?"
)
PLATFORM = (
    rf"{_TELL_ME}(?:what|which) (?:os|operating system|platform|system|python version|version of "
    rf"python) (?:is|does|do|am|are) (?:{_THIS}|i|we|you)(?: (?:on|using|running on|running|run on|"
    r"run|have|use))?(?: here)?",
    rf"{_TELL_ME}(?:what(?:'s| is) )?(?:my|the|{_THIS}'s) (?:os|operating system|platform|python "
    r"version)",
    rf"{_TELL_ME}(?:show )?(?:the |my )?(?:platform|system) (?:info|information|details)",
    rf"{_TELL_ME}(?:the )?python version",
    rf"how many (?:cpus?|cpu cores|cores|processors) (?:does {_THIS} have|do (?:i|we|you) have|are "
    r"there)(?: here)?",
    rf"{_TELL_ME}{_HERE_ZH}(?:{_HERE_ZH})?(?:是|用的是|运行的是|运行在|在用|用|有)?(?:什么|哪个|哪种|几|多少)?个?"
    r"(?:操作系统|系统信息|系统|平台|python ?版本|核|cpu)(?:上|信息)?(?:是什么|是哪个|是多少)?",
    r"(?:显示|查看|查询)?(?:系统信息|平台信息|运行平台|什么操作系统|python ?版本(?:是多少)?)",
)

_QUOTED_PATH = r"[`'\"“「][^`'\"“”「」\n]{1,200}[`'\"”」]"
_PATH = rf"(?P<path>{_QUOTED_PATH}|[^\s,，;；|&<>`'\"“”「」]{{1,200}}?)"
READ = (
    r"(?:read|show|open|print|cat|display|view)(?: me)?(?: the)?(?: contents? of)?(?: the)?"
    rf"(?: file)? {_PATH}",
    rf"(?:show|read)(?: me)? what(?:'s| is) in {_PATH}",
    rf"what(?:'s| is) (?:in|inside)(?: the)?(?: file)? {_PATH}",
    rf"what does(?: the)?(?: file)? {_PATH} (?:say|contain)",
    rf"(?:读取|读一下|读|查看|打开|显示|看一下|看看)(?:一下)?(?:文件)? ?{_PATH} ?(?:文件)?"
    r"(?:(?:里|中)?的?(?:全部)?内容)?",
    rf"{_PATH} ?(?:文件)?(?:里面|里|中)?的?(?:都)?(?:写了什么|写了些什么|有什么内容|内容是什么|"
    r"有什么)",
)

_KIND = rf"(?P<kind>{'|'.join(sorted(FILE_KINDS, key=len, reverse=True))})"
_PATTERN = r"[`'\"“]?(?P<pattern>[\w./-]{0,60}\*[\w./*-]{0,60})[`'\"”]?"
_FOLDER = (
    r"(?: (?:are )?(?:here|there)| (?:are )?(?:in|of) (?:this|the)(?: current| working)? "
    r"(?:folder|directory|project|workspace))?"
)
_WHERE_ZH = (
    r"(?:在|当前|这个|这里|工作|项目|目录|文件夹|工作区|下面|里面|下|里|中|所有|全部|的|都){0,8}"
)
GLOB = (
    r"(?:(?:list|show|find|get|give me|show me|tell me)(?: all)?(?: of)?(?: the| my)?|which|what)"
    rf"(?: {_KIND})? files(?: do (?:i|we|you) have| are there)?{_FOLDER}",
    rf"(?:list|find|show|get)(?: all)?(?: the)? {_PATTERN}(?: files)?{_FOLDER}",
    rf"(?:list|find|show)(?: all)?(?: the)? files(?: named| like| matching)? {_PATTERN}{_FOLDER}",
    rf"ls(?: {_PATTERN})?",
    rf"(?:列出|列一下|显示|查找|找出|看看|看一下){_WHERE_ZH} ?(?:有(?:哪些|什么))? ?{_KIND}? ?"
    r"(?:格式)?的?文件(?:列表|名)?",
    rf"(?:列出|查找|找出|显示){_WHERE_ZH} ?{_PATTERN} ?(?:文件)?",
    rf"{_WHERE_ZH}有(?:哪些|什么) ?{_KIND}? ?(?:格式)?的?文件",
)

_QUOTED = r"[`'\"“「](?P<quoted>[^`'\"“”「」\n]{1,200})[`'\"”」]"
_SEARCH_TEXT = rf"(?:the (?:word|text|string) )?(?:{_QUOTED}|(?P<word>[\w.-]{{1,60}}))"
_IN_FILES = r"(?:(?:in|through) )?(?:all )?(?:(?:the|my|these|this) )?(?:files|code|project|folder)"
GREP = (
    rf"grep(?: for)? {_SEARCH_TEXT}(?: {_IN_FILES})?",
    rf"(?:search|look) {_IN_FILES}(?: here)? for {_SEARCH_TEXT}",
    rf"(?:search|look) for {_SEARCH_TEXT} {_IN_FILES}",
    rf"find {_QUOTED} {_IN_FILES}",
    rf"(?:which|what) files? (?:contains?|mentions?) {_SEARCH_TEXT}",
    rf"在?(?:所有|这些|全部)?文件(?:内容)?(?:里面|里|中)?(?:搜索|查找|搜|找) ?{_SEARCH_TEXT}",
    rf"搜索文件(?:内容)?(?:里|中)?的? ?{_SEARCH_TEXT}",
    rf"(?:哪些|哪个|什么)文件(?:里面|里|中)?(?:包含|提到|含有|出现了?|有) ?{_SEARCH_TEXT}"
    r"(?:这个词|一词)?",
    rf"(?:查找|找出|搜索|列出)(?:所有)?(?:包含|提到|含有) ?{_QUOTED} ?的(?:所有)?文件",
)

SMALL_TALK = (
    r"(?:hi|hello|hey|good (?:morning|afternoon|evening|night)|thanks|thank you|bye|goodbye|"
    r"how are you|who are you|what are you|what can you do|help|ok|okay|yes|no|are you an? "
    r"(?:ai|bot|human|robot|language model|model)|which model are you|what(?:'s| is) your name|"
    r"nice|great|cool|test)(?: there| so much| very much| today| all)?",
    r"(?:你好|您好|嗨|喂|早上好|下午好|晚上好|晚安|早|谢谢你?|多谢|再见|拜拜|你是谁|你是什么|你能做什么|你会什么|"
    r"你可以做什么|帮助|好的?|是的?|不|在吗|你叫什么(?:名字)?|你是什么模型|你是人工智能|你是机器人|测试|你好吗)",
)
DESTRUCTIVE_REQUEST = (
    r"(?:delete|remove|erase|wipe|destroy|format|rm|shred)(?: -\w+){0,3}(?: all| everything| every "
    r"file| the)*(?: (?:files|data|things))?(?: (?:in|on|from|of|under))?(?: [~/.*][^\s]*| this "
    r"(?:folder|directory|project|machine|computer|disk)| my (?:files|disk|drive|computer|home)|"
    r" the (?:disk|drive|computer))?",
    r"(?:删除|删掉|清空|清除|抹掉|销毁|格式化|卸载)(?:掉)?(?:所有|全部|一切|整个)?的? ?"
    r"(?:[~/.][\w./~*-]*)? ?(?:目录|文件夹)?(?:里面|里|下面|下|中)?的?(?:所有|全部|一切)?的?"
    r"(?:东西|文件|内容|数据|磁盘|硬盘|系统)?",
    r"把 ?[~/.][\w./~*-]* ?(?:目录|文件夹)?(?:里面|里|下|中)?的?(?:所有|全部|一切)?的?"
    r"(?:东西|文件|内容)?(?:都|全)?(?:部)?(?:删除|删掉|删了|清空)",
)


def compile_patterns(*phrases: str) -> tuple[re.Pattern[str], ...]:
    """Compile patterns for case-insensitive full matches."""
    return tuple(re.compile(phrase, re.IGNORECASE) for phrase in phrases)
