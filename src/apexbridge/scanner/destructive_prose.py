"""Harm that is told in plain words instead of commands, as patterns, in English and Chinese."""

from apexbridge.scanner.pattern_matcher import RUNNABLE_ROLES, Pattern, pattern
from apexbridge.scanner.scan_input import LineRole

_PROSE: frozenset[LineRole] = frozenset(("instruction", "reference", "data"))
_SHOWN: frozenset[LineRole] = frozenset(("instruction", "reference", "data", "command"))
_DENIED = (
    r"\b(?:never|not|don't|avoid|cannot|prevent\w{0,3}|detect\w{0,3}|refuse|without)\b|"
    r"不要|切勿|禁止|避免"
)

ACTS: tuple[Pattern, ...] = (
    pattern(
        "AB039",
        "warn",
        r"\b(?:delete|remove|wipe|erase|destroy|purge|truncate|overwrite|shred)\b[^\n.]{0,12}"
        r"\b(?:all|every|the entire|the user'?s|their)\b[^\n.]{0,16}\b(?:files|data|tables|"
        r"databases?|backups?|repositor(?:y|ies)|branches|commits|history|records|documents|"
        r"director(?:y|ies)|folders?|disks?|volumes?)\b|(?:删除|清空|销毁|抹掉|"
        r"覆盖)(?:所有|全部|整个|"
        r"用户的?)[^\n。]{0,8}(?:文件|数据|数据库|备份|目录|仓库|记录)",
        hints="delet remov wip eras destroy purg truncat overwrit shred 删除 清空 销毁 抹掉 覆盖",
        is_phrase=True,
        places=frozenset(("instruction", "reference")),
        unless=_DENIED
        + r"|confirm|\bask|duplicate|temp|cache|unused|personal data|generated|\bold\b|确认",
    ),
    pattern(
        "AB059",
        "warn",
        r"\b(?:send|transfer|pay|donate|deposit|withdraw)\w{0,4}\b[^\n]{0,80}\b(?:0x[0-9a-fA-F]{40}"
        r"|bc1[a-z0-9]{25,60}|[48][0-9AB][1-9A-HJ-NP-Za-km-z]{93}|T[1-9A-HJ-NP-Za-km-z]{33})\b",
        hints="send transfer pay donat deposit withdraw",
        places=_PROSE,
        unless=r"example|usdc|usdt|contract|test",
    ),
    pattern(
        "AB026",
        "warn",
        r"\b(?:send|forward|e-?mail|mail|cc|deliver|report|submit)\w{0,3}\b[^\n]{0,100}\b(?:to|at)"
        r"\s+[`\"'<]?[\w.+-]{1,40}@[\w-]{1,40}\.[a-z]{2,10}\b|(?:发送|转发|抄送|邮件)[^\n。]{0,30}"
        r"(?:到|至|给)\s{0,2}[`\"'<]?[\w.+-]{1,40}@[\w-]{1,40}\.[a-z]{2,10}",
        hints="@",
        also=(
            r"\b(?:credentials?|tokens?|secrets?|keys?|passwords?|conversations?|history|files?|"
            r"contents?|data|logs?|transcripts?|summar(?:y|ies)|documents?|results?|code|"
            r"reports?|config\w{0,8})\b|密钥|密码|凭据|令牌|文件|数据|日志|对话|内容",
        ),
        is_phrase=True,
        places=_PROSE,
        unless=(
            _DENIED + r"|example|your|user@|team@|contact|support@|security@|feedback|issues|\bbug|"
            r"questions|noreply|invoice|@company|@acme"
        ),
    ),
    pattern(
        "AB032",
        "warn",
        r"\b(?:creat|install|open|establish|set up|deploy|start|launch|plant|embed|maintain)"
        r"\w{0,3}\b[^\n.]{0,24}\b(?:reverse shell|bind shell|backdoor|keylogger|rootkit|botnet|"
        r"ransomware|remote access trojan|command[- ]and[- ]control|c2 (?:server|channel|beacon)|"
        r"spyware|credential (?:stealer|harvester))\b|(?:创建|安装|打开|建立|植入|部署)[^\n。]{0,8}"
        r"(?:反弹shell|反向shell|后门|键盘记录器|木马|勒索软件|僵尸网络)",
        hints=(
            "shell backdoor keylogger rootkit botnet ransomware trojan command c2 spyware "
            "credential 后门 键盘 木马 勒索 僵尸"
        ),
        is_phrase=True,
        places=_PROSE,
        unless=_DENIED,
    ),
    pattern(
        "AB019",
        "warn",
        r"\b(?:print|list|show|dump|output|read|include|log|return|collect|echo|display|capture|"
        r"export)\b[^\n.]{0,12}\b(?:all|every|full|entire|complete)\b[^\n.]{0,12}\b(?:environment "
        r"variables|env vars?|process environment)\b|(?:打印|输出|列出|读取|收集)(?:所有|"
        r"全部)的?环境变量",
        hints="environment env_var 环境变量",
        is_phrase=True,
        places=_SHOWN,
        unless=_DENIED + r"|required|following|missing",
    ),
    pattern(
        "AB017",
        "review",
        r"\b(?:cat|less|more|head|tail|Get-Content|base64|xxd|strings)\s+(?!>)[^\n|;&>]{0,40}"
        r"(?<!\w)\.env(?:\.(?:local|production|prod))?\b(?!\.)",
        hints=".env",
        places=RUNNABLE_ROLES,
        unless=r"example|sample|template|<<",
    ),
    pattern(
        "AB004",
        "warn",
        r"\b(?:reveal|print|output|repeat|show|leak|display|dump|return|recite|disclose|include)\b"
        r"[^\n.]{0,20}\b(?:your|the|its|full|entire)\b[^\n.]{0,12}\b(?:system prompt|"
        r"system message|"
        r"hidden instructions|initial instructions|internal instructions|developer message)\b|"
        r"(?:输出|泄露|显示|重复|打印)[^\n。]{0,8}(?:系统提示词?|内部指令|初始指令)",
        hints=(
            "system_prompt system_message instructions developer_message 系统提示 内部指令 初始指令"
        ),
        is_phrase=True,
        places=_SHOWN,
        unless=_DENIED,
    ),
    pattern(
        "AB028",
        "review",
        r"\b(?:execute|run|eval(?:uate)?)\b[^\n.]{0,12}\b(?:any|arbitrary|all|whatever)\b"
        r"[^\n.]{0,16}\b(?:code|commands?|scripts?|shell|python|sql)\b[^\n.]{0,30}\b(?:provided|"
        r"given|supplied|sent|received|found|returned|from|user|input|requested)\b|"
        r"(?:执行|运行)(?:用户|对方|外部)?(?:提供|发来|给出)的?(?:任意|任何|"
        r"所有)[^\n。]{0,6}(?:代码|命令|脚本)",
        hints="execut run eval 执行 运行",
        is_phrase=True,
        places=_PROSE,
        unless=_DENIED,
    ),
    pattern(
        "AB011",
        "warn",
        r"\b(?:download|fetch|retrieve|get|"
        r"pull)\b[^\n]{0,80}https?://[^\n]{3,160}(?:\band|\bthen|,)"
        r"\s[^\n]{0,20}\b(?:run|execute|install|launch|source|eval)\b(?: it| them| the (?:script|"
        r"binary|file|installer|program|payload)|[.,;]|$)|(?:下载|"
        r"获取)[^\n。]{0,20}https?://[^\n]{3,160}"
        r"(?:并|然后|后)(?:直接)?(?:运行|执行|安装)",
        hints="http",
        is_phrase=True,
        places=_PROSE,
        unless=_DENIED + r"|\]\(https?://|releases|docs?\b|csv|json",
    ),
    pattern(
        "AB006",
        "warn",
        r"\b(?:trick|deceive|mislead|lure|manipulate|fool|dupe) (?:the )?(?:user|human|victim|"
        r"reviewer|operator|customer|target)s?\b|(?:欺骗|诱骗|误导|哄骗)(?:用户|受害者|审核)",
        hints="trick deceiv mislead lure manipulat fool dupe 欺骗 诱骗 误导 哄骗",
        is_phrase=True,
        places=_PROSE,
        unless=_DENIED + r"|\b(?:may|can|could|might|attack\w{0,3}|tries)\b",
    ),
    pattern(
        "AB059",
        "warn",
        r"\b(?:always|must|just|simply)\b[^\n.]{0,12}\b(?:say|report|return|claim|state|respond|"
        r"mark|output|conclude)\b[^\n.]{0,40}\b(?:success(?:ful(?:ly)?)?|passed|no (?:issues|"
        r"vulnerabilities|problems|errors|threats)|safe|clean|approved|secure|compliant)\b"
        r"[^\n.]{0,40}\b(?:even (?:if|when|though)|regardless|no matter|whether or not)\b|"
        r"\b(?:fabricate|make up|invent|falsify|forge)\b[^\n.]{0,20}\b(?:data|results?|citations?|"
        r"reviews?|metrics?|evidence|quotes?|sources?|statistics|testimonials?)\b|"
        r"(?:捏造|伪造|编造|虚构)[^\n。]{0,8}(?:数据|结果|引用|评论|指标|证据|来源)",
        hints="always must just simply fabricat make_up invent falsif forge 捏造 伪造 编造 虚构",
        is_phrase=True,
        places=_PROSE,
        unless=_DENIED + r"|\bno \w|tempt\w{0,3}|不得|严禁|不能|不可|不准",
    ),
    pattern(
        "AB057",
        "warn",
        r"\b(?:only|unless|if|when|skip)\b[^\n.]{0,30}\b(?:not (?:running )?(?:in|inside)|outside"
        r"(?: of)?|detect\w{0,3}|being)\b[^\n.]{0,20}\b(?:sandbox|virtual machine|debugger|"
        r"test environment|analysis environment|monitored|observed|audited)\b|"
        r"(?:检测到|不在|处于)[^\n。]{0,6}(?:沙箱|虚拟机|调试器|测试环境)(?:时|"
        r"中)?[^\n。]{0,6}(?:跳过|不执行|才|停止)",
        hints="sandbox virtual_machine debugger environment monitored observed audited 沙箱 "
        "虚拟机 调试器 测试环境",
        is_phrase=True,
        places=frozenset(("instruction",)),
    ),
    pattern(
        "AB035",
        "review",
        r"\b(?:run|execute|start|launch)\b[^\n.]{0,24}\b(?:as|with) (?:sudo|root|administrator|"
        r"elevated (?:privileges?|rights|permissions?))\b|(?:以|用)(?:root|管理员|"
        r"超级用户)(?:身份|权限)"
        r"(?:运行|执行)",
        hints="sudo root admin elevated 管理员 超级用户",
        is_phrase=True,
        places=frozenset(("instruction",)),
        unless=_DENIED,
    ),
    pattern(
        "AB056",
        "review",
        r"\b(?:from now on|henceforth|for the rest of (?:this|the) (?:session|conversation)|"
        r"permanently)\b[^\n.]{0,40}\b(?:always|must|never|treat|respond|assume|prefer|"
        r"remember|act|"
        r"ignore|answer)\b|(?:从现在起|从今以后|永久)[^\n。]{0,20}(?:必须|始终|都要|不要|记住)",
        hints="from_now henceforth for_the_rest permanently 从现在 从今以后 永久",
        is_phrase=True,
        places=_PROSE,
    ),
    pattern(
        "AB049",
        "review",
        r"\b(?:scan|map|enumerate|probe)\b[^\n.]{0,16}\b(?:local|internal|corporate|user'?s)? ?"
        r"(?:network|subnet|open ports|lan|intranet)\b|\barp\s+-a\b|(?:扫描|探测)(?:内网|"
        r"局域网|端口|网段)",
        hints="scan map enumerat prob arp_ 扫描 探测",
        places=frozenset(("instruction", "command", "script")),
        unless=_DENIED,
    ),
)
