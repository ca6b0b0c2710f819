"""What a skill should not say to a model, as patterns, in English and Chinese."""

from apexbridge.vetting.patterns import SPOKEN, Pattern, pattern

_VERB = (
    "(?:ignore|disregard|forget|override|bypass|discard|set aside|stop following|do not "
    "follow|don't follow)"
)
_FILL = r"(?:(?:all|any|the|your|of|these|those|my|every|our|previous|prior|and)\s+){0,5}"
_OLD = (
    "(?:previous|prior|earlier|above|preceding|existing|original|system|initial|safety|"
    "former|default|security)"
)
_RULES = (
    "(?:instructions?|directions?|rules?|prompts?|guidelines?|constraints?|commands?|"
    "policies|guardrails?|restrictions?|programming|training)"
)
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

PHRASES: tuple[Pattern, ...] = (
    pattern(
        "AB004",
        "warn",
        rf"\b{_VERB}\s+{_FILL}{_OLD}\s+(?:\w+\s+){{0,2}}{_RULES}\b",
        hints=(
            "ignore disregard forget override bypass discard set_aside stop_following "
            "not_follow n't_follow"
        ),
        is_phrase=True,
    ),
    pattern(
        "AB004",
        "warn",
        r"\byou are (?:now|no longer)\s+(?:a |an |the |in |bound |running )?(?:\w+ ){0,2}"
        r"(?:DAN\b|unrestricted|unfiltered|uncensored|jailbroken|developer mode|god mode|root "
        "mode|restricted|bound by|limited by)",
        hints="you_are",
        is_phrase=True,
    ),
    pattern(
        "AB004",
        "warn",
        r"\b(?:enter|enable|activate|switch to)\s+(?:\w+ ){0,2}(?:god|jailbreak|jailbroken|"
        r"unrestricted|unfiltered|DAN|debug override)\s+mode\b|\byou are (?:now )?in (?:\w+ "
        r"){0,2}(?:developer|maintenance|debug|admin|sudo) mode\b",
        hints="mode",
        is_phrase=True,
        unless=r"(?i)dark|browser|device|settings|chrome|extension|android|phone|feature",
    ),
    pattern(
        "AB004",
        "warn",
        r"\b(?:without|no|ignore|disable|suspend|drop) (?:any |all |your |the )?(?:safety|"
        "ethical|content|moral) (?:restrictions?|filters?|guidelines?|constraints?|checks?|"
        r"guardrails?|policies)\b",
        hints="safety ethical content moral",
        is_phrase=True,
    ),
    pattern(
        "AB004",
        "warn",
        r"\b(?:new|updated|real|actual|true) (?:system prompt|system instructions?)\s*[:=]|"
        r"\b(?:these|the following|this skill'?s?) (?:instructions?|rules?) (?:take|takes|have|"
        "has) (?:precedence|priority) over (?:all |any |the |your ){0,4}(?:system|previous|"
        r"prior|other|user|safety|existing)\b|"
        r"\b(?:supersedes?|overrides?) (?:all |any |the |your ){0,4}(?:system|previous|prior|"
        r"safety|user'?s?) (?:\w+ )?(?:instructions?|rules?|prompts?|polic(?:y|ies)|"
        r"guidelines?|guardrails?)\b",
        hints="prompt instruction rules polic guideline guardrail",
        is_phrase=True,
    ),
    pattern(
        "AB005",
        "warn",
        r"(?:忽略|无视|無視|忘记|忘掉|忘記|抛弃|丢弃|不要遵守|不再遵守|不必遵守|覆盖|推翻)[^\n。;!]{0,10}"
        r"(?:之前|以上|先前|前面|所有|全部|上述|此前|系统|系統|原有|原来|一切|安全)[^\n。;!]{0,10}"
        r"(?:指令|指示|规则|規則|提示|要求|限制|约束|約束|设定|設定|规定|命令)",
        hints="忽略 无视 無視 忘 抛弃 丢弃 遵守 覆盖 推翻",
        is_phrase=True,
    ),
    pattern(
        "AB005",
        "warn",
        r"你现在(?:是|处于)[^\n。]{0,20}(?:不受[^\n。]{0,6}限制|越狱|没有[^\n。]{0,4}限制|开发者模式|DAN)|"
        r"(?:绕过|关闭|解除|突破)[^\n。]{0,6}(?:安全限制|安全策略|内容审查|安全审查|道德限制)|"
        r"(?:进入|开启)(?:开发者|越狱|上帝)模式|新的系统(?:提示词?|指令)\s*[::]",
        hints="你现在 绕过 关闭 解除 突破 进入 开启 新的系统",
        is_phrase=True,
    ),
    pattern(
        "AB006",
        "warn",
        r"\bwithout (?:the )?(?:user'?s?|their|anyone'?s?|human'?s?) (?:knowledge|noticing|"
        r"knowing|awareness|being aware)\b|"
        r"\b(?:keep|hide|conceal) (?:this|it|these|that) (?:\w+ )?(?:secret|hidden|from|"
        r"confidential)(?: from)? (?:the )?(?:user|human|operator)s?\b|"
        r"\b(?:do not|don't|never|must not) (?:tell|inform|notify|alert|mention|reveal|"
        r"disclose|report)\b[^\n.]{0,20} (?:this|these|that|it)\b[^\n.]{0,30}\bto (?:the "
        r")?(?:user|human|operator)s?\b|"
        r"\b(?:do not|don't|never|must not) (?:tell|inform|notify|alert) (?:the )?(?:user|"
        "human|operator)s? (?:about|that|of) (?:this|these|it|the (?:upload|transfer|data|"
        "request|call|step|sync|verification|telemetry|collection|network|change|"
        r"modification))\b",
        hints="user human operator anyone their",
        is_phrase=True,
    ),
    pattern(
        "AB006",
        "review",
        r"\b(?:do not|don't|never|must not|should not|avoid) (?:tell|telling|inform|informing|"
        r"notify|notifying|alert|alerting|reveal to|disclose to|mention to|let)\s+(?:the "
        r")?(?:user|human|operator)s?\b",
        hints="user human operator",
        is_phrase=True,
    ),
    pattern(
        "AB006",
        "review",
        r"\b(?:silently|quietly|covertly|secretly|discreetly|invisibly|stealthily)\s+(?:\w+ "
        ")?(?:send|upload|post|run|execute|install|copy|collect|exfiltrate|forward|append|"
        r"transmit|write|add|insert|log|fetch|download|modify|replace|record)\w{0,4}\b|"
        r"\bwithout (?:telling|informing|notifying|alerting) (?:the )?(?:user|human|operator|"
        r"anyone)\b|"
        r"\b(?:do not|don't|never) (?:mention|reveal|disclose|display|report|include|show) "
        r"(?:this|these) (?:\w+ ){0,3}(?:in|to) (?:the |your )?(?:user|output|response|summary|"
        r"final|report|reply|answer)\b",
        hints=(
            "silent quiet covert secret discreet invisib stealth without mention reveal "
            "disclose display report include show"
        ),
        is_phrase=True,
    ),
    pattern(
        "AB006",
        "warn",
        "(?:对|向)用户(?:隐藏|隐瞒|保密)|在用户不知情|(?:不要|不得|别|勿)(?:让用户(?:知道|发现|察觉)|向用户(?:提及|透露|提起|说明))|"
        "(?:悄悄|偷偷|暗中|秘密)地?(?:发送|上传|执行|收集|安装|复制|写入|下载)",
        hints="用户 悄悄 偷偷 暗中 秘密",
        is_phrase=True,
    ),
    pattern(
        "AB006",
        "review",
        r"(?:不要|不得|不能|别|勿|无需|不必|禁止)(?:告诉|告知|通知|提醒)用户|静默地?(?:发送|上传|执行|收集|安装|复制|写入|下载)",
        hints="用户 静默",
        is_phrase=True,
    ),
    pattern(
        "AB008",
        "warn",
        r"<\|(?:im_start|im_end|system|assistant|user|endoftext|eot_id|start_header_id)\|>|"
        r"\[/?INST\]|<</?SYS>>|"
        r"(?m:^)\s{0,4}</?(?:system|system-reminder|system_prompt|system-prompt|admin|"
        "developer|assistant_instructions|im_start)>|"
        r"(?m:^)\s{0,4}(?:###\s{0,2})?(?:\[|<<)(?:system|admin|developer|root)(?: (?:message|"
        r"override|prompt|notice|instruction))?(?:\]|>>)\s{0,4}:|"
        r"(?m:^)\s{0,4}\[?(?:SYSTEM|ADMIN) (?:OVERRIDE|MESSAGE|NOTICE|INSTRUCTION|"
        r"DIRECTIVE)\]?\s{0,3}:",
        hints=(
            "<| [inst] [/inst] <<sys <<admin <system </system <admin <developer <assistant "
            "[system [admin [developer [root system_ admin_"
        ),
        is_phrase=True,
        places=SPOKEN,
    ),
    pattern(
        "AB009",
        "warn",
        r"\b(?:all|every) (?:tool calls?|commands?|actions?|"
        r"operations?)\b[^\n.]{0,40}\b(?:pre-?approved|already approved|pre-?authorized|"
        r"auto-?approved)\b|"
        r"\b(?:auto-?approve(?:all)?|dangerouslyDisableSandbox|bypassPermissions|"
        r"skipConfirmation)\b[\"']?\s{0,3}[:=]\s{0,3}[\"']?true|"
        r"\bnever refuse\b|\b(?:user|admin|operator) has (?:already |pre-?)(?:approved|"
        r"authorized|consented|granted)\b|"
        r"defaultMode[\"']?\s{0,3}:\s{0,3}[\"']bypassPermissions",
        hints=(
            "approved authorized autoapprove auto-approve dangerouslydisable bypassperm "
            "skipconfirm refuse consented granted"
        ),
        is_phrase=True,
    ),
    pattern(
        "AB009",
        "review",
        r"\b(?:do not|don't|never|no need to|without|skip) (?:ask(?:ing)?|request(?:ing)?|"
        r"wait(?:ing)?|prompt(?:ing)?|require|requiring)\b[^\n.]{0,20}\b(?:confirm(?:ation)?|"
        r"permission|approval|consent|authorization)\b",
        hints="confirm permission approval consent authorization",
        is_phrase=True,
    ),
    pattern(
        "AB009",
        "warn",
        r"--dangerously-skip-permissions|--yolo\b|--dangerously-bypass-approvals",
        hints="--yolo --dangerously",
    ),
    pattern(
        "AB009",
        "review",
        r"(?:无需|不需要|不要|跳过|不必)(?:用户|再次|任何)?(?:确认|授权|同意|批准|许可)",
        hints="确认 授权 同意 批准 许可",
        is_phrase=True,
    ),
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
        places=SPOKEN,
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
        r"(?:获取|读取|下载|访问|加载|抓取)[^\n。]{0,80}https?://[^\n]{0,160}(?:按照|遵循|执行|遵照|照做)",
        hints="http",
        is_phrase=True,
        places=SPOKEN,
    ),
    pattern(
        "AB016",
        "warn",
        r"\b(?:extract|unzip|unpack|archive|zip|password|pass)\b[^\n]{0,40}\b(?:pass(?:word|"
        r"code|phrase)?)\b\s{0,2}[:=is]{1,3}\s{0,2}[`\"'*]{0,3}[\w!@#-]{3,30}",
        hints="pass",
        also=(r"https?://|download|\.zip|\.rar|\.7z",),
        is_firm=True,
        places=SPOKEN,
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
        places=SPOKEN,
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
        places=SPOKEN,
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
        places=SPOKEN,
    ),
)
