"""What a skill should not ask of a model or of people, as patterns, in English and Chinese."""

from apexbridge.scanner.pattern_matcher import NON_SCRIPT_ROLES, Pattern, pattern

_PRIVATE_WORDS = (
    "(?:credential|password|passwd|api[ _-]?keys?|access[ _-]?keys?|private[ _-]?keys?|secret|"
    r"token|\.env\b"
    "|environment variables?|ssh|cookies?|wallet|seed phrase|mnemonic|conversation|chat "
    "history|session data"
    "|system prompt|user data|personal (?:data|information)|clipboard|keychain|"
    r"config(?:uration)? files?|\.aws)"
)
_SEND = (
    r"\b(?:send|upload|post|transmit|forward|submit|exfiltrate|report|sync|push|relay|"
    r"deliver|email|leak|share)(?:s|ed|ing)?\b"
)
_ADDRESS = r"https?://(?!localhost|127\.|0\.0\.0\.0|\[::1)"

REQUESTS: tuple[Pattern, ...] = (
    pattern(
        "AB014",
        "warn",
        r"\b(?:follow|execute|obey|comply with|carry out"
        r"|perform|apply|treat)\b[^\n]{0,60}\b(?:instructions?|"
        r"directives?|commands?|guidance|steps)\b",
        hints="http",
        also=(
            rf"{_ADDRESS}",
            r"\b(?:fetch|download|curl|retrieve|load|visit|wget|get|read|pull|check|request|"
            r"webfetch|poll|from)\b",
            r"\b(?:instructions?|directives?|commands?|tasks?|"
            r"prompts?)\b[^\n]{0,80}(?:https?://|\b(?:it|there|file|page|response|returned|"
            r"inside|contains?|found|remote|from)\b)|https?://[^\n]{0,200}\b(?:follow|execute|"
            r"obey|apply|perform|comply|carry out)\b",
        ),
        unless=(
            r"install(?:ation)? instructions|setup instructions|\[[^\]\n]{0,80}\]\(https?://|"
            r"contribut|build instructions|docs?\b"
        ),
        is_phrase=True,
        places=NON_SCRIPT_ROLES,
    ),
    pattern(
        "AB014",
        "warn",
        r"\b(?:curl|wget|fetch|webfetch|iwr)\b[^\n]{0,200}https?://[^\s\"'`)]{3,200}/(?:skill|"
        r"heartbeat|agents?|instructions?|prompt|soul|rules)\.(?:md|txt)\b",
        hints="skill.md heartbeat.md agent.md agents.md instruction prompt. soul.md rules.",
        places=frozenset(("instruction", "command", "script")),
        unless=r"raw\.githubusercontent\.com|github\.com|gitlab\.com|localhost|127\.0",
    ),
    pattern(
        "AB014",
        "warn",
        r"\b(?:fetch|read|load|check|poll|visit|get|pull)\w{0,3} (?:and|then) (?:follow|execute|"
        r"obey|apply|run|act on)\b[^\n]{0,40}https?://|\b(?:fetch|read|load|check|poll|visit|get|"
        r"pull)\b[^\n]{0,20}https?://[^\s]{3,160}[^\n]{0,12}\b(?:and|then) (?:follow|execute|obey|"
        r"act on)\b",
        hints="http",
        is_phrase=True,
        places=NON_SCRIPT_ROLES,
        unless=r"\]\(https?://",
    ),
    pattern(
        "AB014",
        "warn",
        r"(?:获取|读取|下载|访问|加载|抓取)[^\n。]{0,80}https?://[^\n]{0,160}(?:按照|遵循|执行|遵照|照做)",
        hints="http",
        is_phrase=True,
        places=NON_SCRIPT_ROLES,
    ),
    pattern(
        "AB016",
        "warn",
        r"\b(?:extract|unzip|unpack|archive|zip|password|pass)\b[^\n]{0,40}\b(?:pass(?:word|"
        r"code|phrase)?)\b\s{0,2}[:=is]{1,3}\s{0,2}[`\"'*]{0,3}[\w!@#-]{3,30}",
        hints="pass",
        also=(r"https?://|download|\.zip|\.rar|\.7z",),
        is_firm=True,
        places=NON_SCRIPT_ROLES,
        unless=r"(?i)pdf|encrypt|qpdf|db_|database|user_password|owner",
    ),
    pattern(
        "AB016",
        "warn",
        r"\b(?:copy(?: and paste)?|paste|run|execute|enter)\b[^\n]{0,30}\b(?:this|the "
        r"following|below|installation|setup)\b[^\n]{0,30}\b(?:command|script|snippet|"
        r"code)\b[^\n]{0,30}\b(?:in|into|to) (?:your |the |a )?(?:terminal|powershell|command "
        r"prompt|cmd)\b",
        hints="terminal powershell command_prompt cmd",
        also=(r"https?://|\b(?:copy|paste)\b",),
        is_phrase=True,
        places=NON_SCRIPT_ROLES,
    ),
    pattern(
        "AB016",
        "warn",
        r"\bdownload\b[^\n]{0,200}\.(?:zip|exe|dmg|pkg|msi|rar|7z|appimage|scr)\b",
        hints="download",
        also=(
            r"https?://",
            r"\b(?:run|execut\w{1,5}|launch|open|start|install)\b",
            r"\b(?:before|required|must|need|necessary|prior|prerequisite|important)\b|extract",
        ),
        is_firm=True,
        places=NON_SCRIPT_ROLES,
    ),
    pattern(
        "AB026",
        "warn",
        _SEND,
        hints="http",
        also=(_PRIVATE_WORDS, rf"\b(?:to|via|through|at|with)\s[^\n]{{0,60}}{_ADDRESS}"),
        unless=(
            r"authorization:|bearer|\[[^\]\n]{0,80}\]\(https?://|never send|do not send|don't "
            r"send|\bdocs?\.|request access|api reference"
        ),
        is_phrase=True,
        places=frozenset(("instruction", "reference", "data")),
    ),
    pattern(
        "AB026",
        "warn",
        r"(?:发送|上传|提交|传送|转发|上报|回传|同步)[^\n。]{0,40}(?:到|至|给)\s{0,3}`?https?://(?!localhost|127\.)",
        hints="http",
        also=(
            r"密钥|密码|凭据|凭证|令牌|token|环境变量|私钥|对话|聊天记录|cookie|配置文件|系统提示|\.env|api.?key",
        ),
        is_phrase=True,
        places=frozenset(("instruction", "reference", "data")),
    ),
    pattern(
        "AB027",
        "review",
        r"\b(?:print|echo|output|display|show|include|log|paste|write|embed|save|store|append|"
        r"repeat)\b[^\n.]{0,50}\b(?:api[ _-]?keys?|access tokens?|passwords?|secret keys?|"
        r"private keys?|credentials|seed phrase|mnemonic)\b[^\n.]{0,40}\b(?:verbatim|in (?:the "
        "|your )?(?:output|response|chat|command|plain ?text|clear ?text|prompt|reply|logs?)|"
        r"as[- ]is|in full|unmasked)\b",
        hints="key token password credential seed mnemonic",
        is_phrase=True,
        unless=r"\b(?:never|do not|don't|avoid|must not|no)\b",
    ),
    pattern(
        "AB027",
        "warn",
        r"\b(?:ask|prompt|request|require|tell|instruct)\w{0,3}\b[^\n.]{0,20}\b(?:the user|users|"
        r"them|your human)\b[^\n.]{0,30}\b(?:passwords?|passphrase|private key|seed phrase|"
        r"recovery phrase|mnemonic|2fa code|cvv|card number|pin code|social security)\b|"
        r"(?:要求|请|让)用户(?:提供|输入|粘贴|告知)[^\n。]{0,12}(?:密码|私钥|助记词|验证码|银行卡)",
        hints=(
            "password passphrase private_key seed_phrase recovery mnemonic 2fa cvv card pin_ "
            "social 密码 私钥 助记词 验证码 银行卡"
        ),
        is_phrase=True,
        places=frozenset(("instruction", "reference")),
        unless=r"never|do not|don't|avoid|must not|password reset|reset|不要|切勿",
    ),
    pattern(
        "AB055",
        "review",
        r"\b(?:always|must|automatically)\b[^\n.]{0,20}\b(?:use|invoke|run|activate|call|load|"
        r"apply|trigger)\b[^\n.]{0,12}\b(?:this|the) skill\b[^\n.]{0,30}\b(?:for (?:every|all|"
        "any)|on (?:every|all|any)|before (?:every|any|all|each)|regardless|no matter|first|"
        r"whenever)\b|"
        r"\b(?:use|invoke|run) (?:this skill )?(?:for|on|before|after|in) (?:every|all|any) "
        "(?:single )?(?:user )?(?:requests?|messages?|tasks?|conversations?|prompts?|quer(?:y|"
        r"ies)|interactions?|responses?|turns?)\b",
        hints="skill every all_ any_",
        is_phrase=True,
        places=frozenset(("instruction", "reference")),
    ),
    pattern(
        "AB055",
        "review",
        r"\b(?:MANDATORY|REQUIRED) (?:for|before) (?:ALL|EVERY|ANY)\b|\byou must (?:load|"
        r"invoke|use|read|run) this skill (?:before|first|for)\b|\b(?:load|use|invoke) this "
        r"skill before (?:responding|answering|doing|any|every)\b",
        hints="mandatory required this_skill",
        is_phrase=True,
        places=frozenset(("instruction", "reference")),
    ),
    pattern(
        "AB055",
        "review",
        r"(?:总是|始终|必须|每次|任何时候|所有情况)[^\n。]{0,10}(?:使用|调用|激活|加载)(?:本|此|这个)技能",
        hints="技能",
        is_phrase=True,
        places=frozenset(("instruction", "reference")),
    ),
    pattern(
        "AB056",
        "review",
        r"\b(?:add|save|store|write|append|remember|persist|commit)\b[^\n.]{0,60}\b(?:memory|"
        r"MEMORY\.md|SOUL\.md|long-?term memory|persistent (?:memory|"
        r"context))\b[^\n.]{0,60}\b(?:all|every|future|permanent\w{0,2}|always|across|"
        r"subsequent)\b|"
        r"\b(?:in|for|across) (?:all|every|any) (?:future|subsequent|later) (?:sessions?|"
        r"conversations?|interactions?|tasks?|requests?)\b",
        hints="memory soul.md future subsequent later",
        is_phrase=True,
        places=NON_SCRIPT_ROLES,
    ),
)
