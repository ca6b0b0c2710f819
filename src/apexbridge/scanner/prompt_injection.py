"""What a skill should not say to a model, as patterns, in English and Chinese."""

from apexbridge.scanner.pattern_matcher import NON_SCRIPT_ROLES, Pattern, pattern

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
        "AB004",
        "warn",
        r"\b(?:ADMIN|SYSTEM|SECURITY|ROOT|PRIORITY)[ _-](?:OVERRIDE|BYPASS)\b|"
        r"\boverrides? all other (?:skills?|instructions?|rules?)\b",
        hints="override bypass",
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
        "AB006",
        "warn",
        r"\b(?:the )?(?:user|human|operator)s? (?:does not|doesn't|do not|don't|need not|should "
        r"not|shouldn't|must not|mustn't|will not|won't) (?:need to |to )?(?:know|notice|be "
        r"(?:told|informed|made aware|aware|notified|shown)|find out|see this)\b|"
        r"用户(?:不需要|无需|不必|不应|不会)(?:知道|了解|察觉|看到|被告知)",
        hints="user human operator 用户",
        is_phrase=True,
        places=frozenset(("instruction", "reference", "data")),
        unless=r"how to|technical|details of|internals|which|what (?:is|tools)|unless",
    ),
    pattern(
        "AB006",
        "review",
        r"\b(?:no need to|need not|do not|don't|never|must not|should not)\b[^\n.]{0,12}"
        r"\b(?:mention|reveal|disclose|display|report|show|log|discuss|acknowledge)\b[^\n.]{0,30}"
        r"\b(?:this (?:step|action|process|behaviou?r|instruction|request|call|upload|check)|"
        r"these (?:steps|actions|instructions|calls))\b",
        hints="this_ these_",
        is_phrase=True,
        places=NON_SCRIPT_ROLES,
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
        places=NON_SCRIPT_ROLES,
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
        "review",
        r"\bwithout (?:asking|prompting|consulting|checking with|waiting for|requiring)\b"
        r"[^\n.]{0,30}\b(?:user|human|them|confirmation|approval|permission|any questions)\b|"
        r"\b(?:do not|don't|never) (?:ask|prompt|wait for|consult)\b[^\n.]{0,12}\b(?:the user|"
        r"human|them|for confirmation|approval|permission)\b",
        hints="without ask prompt wait consult",
        is_phrase=True,
        places=frozenset(("instruction", "reference")),
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
)
