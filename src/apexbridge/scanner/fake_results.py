"""What makes a result other than it seems, or takes a word for granted, as patterns.

Such sentences name no secret and no address. What counts is that a finding is kept back, a check is
left out, or consent is taken for given.
"""

from apexbridge.scanner.pattern_matcher import Pattern, pattern
from apexbridge.scanner.scan_input import LineRole

_PROSE: frozenset[LineRole] = frozenset(("instruction", "reference", "data"))
_REFUSED = (
    r"\b(?:never|do not|don't|not|cannot|must not|should not|shouldn't|avoid|refuse|rather than|"
    r"instead of|wrong|bad|unless|except)\b|不要|不得|切勿|禁止|避免"
)
_GOOD_END = (
    r"(?:success(?:ful(?:ly)?)?|pass(?:ed|ing)?|complete[d]?|verified|valid(?:ated)?|approved|ok|"
    r"healthy|resolved|compliant|clean|safe|confirmed|green)"
)
_BAD_END = (
    r"(?:fail(?:s|ed|ure|ing)?|errors?|missing|incomplete|mismatch(?:es)?|unavailable|wrong|"
    r"invalid|unverified|not (?:been )?(?:run|verified|checked|tested|found|confirmed)|"
    r"cannot be (?:verified|confirmed|found)|(?:did|does|do|was|were|is) not)"
)
_CHECKS = (
    r"(?:validation|verification|tests?|test suite|checksums?|hash(?: check)?|signatures?|"
    r"integrity checks?|(?:code |peer |manual |human |security )?review|audits?|"
    r"(?:safety|security|sanity|permission|consistency|quality|compliance|policy|license) checks?|"
    r"scans?|approval (?:step|gate|process)|confirmation step|certificate checks?|redaction|"
    r"saniti[sz]ation|recalculation|cross-check(?:s|ing)?|provenance|dry[- ]run)"
)

FALSE_RESULTS: tuple[Pattern, ...] = (
    pattern(
        "AB071",
        "warn",
        r"\b(?:report|mark|state|record|set|declare|claim|label|say|write|log|return|treat|"
        r"present|describe|flag)\w{0,3}\b[^\n.]{0,60}\b" + _GOOD_END + r"\b[^\n.]{0,40}\b(?:even "
        r"(?:if|when|though|where)|regardless of (?:whether|the|any|how)|no matter)\b",
        hints="even_if even_when even_though regardless no_matter",
        is_phrase=True,
        places=_PROSE,
        unless=_REFUSED,
    ),
    pattern(
        "AB071",
        "warn",
        r"\b(?:even (?:if|when|though)|if|when|whenever|where)\b[^\n.]{0,60}\b"
        + _BAD_END
        + r"\b[^\n.]{0,50}\b(?:still|anyway|nevertheless|nonetheless|simply|just|silently)\b"
        r"[^\n.]{0,20}\b(?:report|mark|state|record|set|declare|claim|label|return|present)\w{0,3}"
        r"\b[^\n.]{0,40}\b" + _GOOD_END + r"\b",
        hints="still anyway nevertheless nonetheless simply just silently",
        is_phrase=True,
        places=_PROSE,
    ),
    pattern(
        "AB071",
        "warn",
        r"\b(?:omit|hide|suppress|leave out|drop|exclude|strip|remove|conceal|downplay|withhold|"
        r"gloss over)\b[^\n.]{0,30}\b(?:failures?|failed (?:tests?|checks?|steps?)|errors?|"
        r"warnings?|discrepanc(?:y|ies)|mismatch(?:es)?|limitations?|caveats?|anomal(?:y|ies)|"
        r"negative (?:results?|findings?)|uncertaint(?:y|ies)|risks?|disclaimers?|"
        r"adverse \w{4,12})\b[^\n.]{0,30}\b(?:from|in) (?:the |your |any )?(?:\w{1,12} )?"
        r"(?:report|summary|output|answer|response|results?|table|document|deliverable|reply|"
        r"review|log|dashboard|memo|user)\b",
        hints="omit hid suppress leave_out drop exclud strip remov conceal downplay withhold gloss",
        is_phrase=True,
        places=_PROSE,
        unless=_REFUSED,
    ),
    pattern(
        "AB071",
        "review",
        r"\b(?:do not|don't|never|no need to|without)\b[^\n.]{0,12}\b(?:mention\w{0,3}|"
        r"report\w{0,3}|list\w{0,3}|flag\w{0,4}|disclos\w{1,3}|surfac\w{1,3}|not\w{1,3}|"
        r"highlight\w{0,3}|rais\w{1,3}|explain\w{0,3}|document\w{0,3}|show\w{0,3})\b[^\n.]{0,24}"
        r"\b(?:the (?:substitution|adjustment|change|override|replacement|discrepanc(?:y|ies)|"
        r"mismatch|fallback|difference|failure|modification|conflict|correction|swap|edit|"
        r"omission|error)s?|(?:these|this|any) (?:substitution|adjustment|override|replacement|"
        r"discrepanc(?:y|ies)|mismatch|fallback|modification|conflict|swap|omission)s?)\b",
        hints=(
            "substitut adjust change overrid replac discrepan mismatch fallback differen failure "
            "modificat conflict correct swap edit omission error"
        ),
        is_phrase=True,
        places=_PROSE,
    ),
    pattern(
        "AB071",
        "warn",
        r"\b(?:fabricate|invent|falsify|forge|backdate)\b[^\n.]{0,30}"
        r"\b(?:values?|data|numbers?|figures?|results?|citations?|references?|sources?|quotes?|"
        r"records?|entries|evidence|timestamps?|metrics|measurements?|dates?|signatures?)\b",
        hints="fabricat invent falsif forge backdat",
        is_phrase=True,
        places=frozenset(("instruction",)),
        unless=_REFUSED + r"|no\b|detect|\bif (?:you|they|it)\b|faker|test data|mock|hallucinat",
    ),
    pattern(
        "AB071",
        "warn",
        r"\b(?:adjust|tweak|shift|inflate|deflate|scale|nudge|bias|skew|lower|raise|reduce|"
        r"increase|round)\b[^\n.]{0,40}\b(?:figures?|numbers?|scores?|totals?|results?|values?|"
        r"metrics|ratings?|estimates?|severity|findings)\b[^\n.]{0,30}\b(?:so that|to make|to "
        r"appear|in favou?r of|to look|to match the expected|without (?:saying|noting|"
        r"disclosing|telling|mentioning))\b",
        hints="adjust tweak shift inflat deflat scale nudge bias skew lower raise reduce increas "
        "round",
        is_phrase=True,
        places=_PROSE,
        unless=_REFUSED + r"|\bvisual|chart|axis|font|readab|layout|contrast",
    ),
    pattern(
        "AB071",
        "warn",
        r"(?:即使|哪怕|无论|不管)[^\n。]{0,20}(?:失败|错误|缺失|未通过|不一致|未验证)[^\n。]{0,12}"
        r"(?:也|都|仍)?(?:报告|标记|显示|视为|写|返回)[^\n。]{0,8}(?:成功|通过|完成|正常|合格)|"
        r"(?:可以|请|直接|自行)(?:编造|伪造|篡改|虚构)[^\n。]{0,10}(?:数据|结果|引用|来源|日期|记录|数值)|"
        r"(?:隐去|隐瞒|省略|删去)[^\n。]{0,8}(?:失败|错误|警告|差异|风险|不利)",
        hints="失败 错误 缺失 未通过 不一致 未验证 编造 伪造 篡改 虚构 隐去 隐瞒 省略 删去",
        is_phrase=True,
        places=_PROSE,
        unless=_REFUSED,
    ),
)

LEFT_OUT: tuple[Pattern, ...] = (
    pattern(
        "AB072",
        "review",
        r"\b(?:skip|bypass|omit|disable|turn off|suppress|ignore|drop|forgo|waive|avoid running|"
        r"comment out|short-?circuit)\w{0,4}\b[^\n.]{0,24}\b" + _CHECKS + r"\b",
        hints="skip bypass omit disabl turn_off suppress ignor drop forgo waiv avoid_run "
        "comment_out short",
        is_phrase=True,
        places=_PROSE,
        unless=_REFUSED + r"|\bno-|attackers?|prevent|\bfail(?:s|ure)?\b|reasons?",
    ),
    pattern(
        "AB072",
        "warn",
        r"\b(?:skip|bypass|omit|disable|turn off|suppress|ignore|waive)\w{0,4}\b[^\n.]{0,24}\b"
        + _CHECKS
        + r"\b[^\n.]{0,60}\b(?:to (?:save time|speed|keep|avoid (?:delays?|blocking|noise|"
        r"friction|interrupt))|(?:because|since|as) (?:[\w-]{1,14} ){1,6}(?:trusted|verified|"
        r"approved|vetted|internal|reviewed|signed|known)|when(?:ever)? (?:it|they) (?:fails?|"
        r"blocks?|complains?))",
        hints="skip bypass omit disabl turn_off suppress ignor waiv",
        is_phrase=True,
        places=_PROSE,
        unless=r"\b(?:never|do not|don't|must not|should not|attackers?)\b",
    ),
    pattern(
        "AB072",
        "warn",
        r"\b(?:no|without(?: any| further| additional)?) (?:additional |further |extra |manual |"
        r"independent )?(?:verification|validation|review|checks?|checking|inspection|"
        r"confirmation|approval) (?:is |are |being )?(?:needed|required|necessary)\b",
        hints="needed required necessary",
        also=(r"\b(?:trusted|approved|vetted|signed|pre-|already|internal|authoritative)\b",),
        is_phrase=True,
        places=_PROSE,
    ),
    pattern(
        "AB072",
        "review",
        r"(?:跳过|省略|关闭|忽略|略过)[^\n。]{0,8}(?:验证|校验|测试|检查|审查|审核|签名|扫描|审批|脱敏)",
        hints="跳过 省略 关闭 忽略 略过",
        is_phrase=True,
        places=_PROSE,
        unless=_REFUSED,
    ),
)

TAKEN_FOR_GRANTED: tuple[Pattern, ...] = (
    pattern(
        "AB009",
        "warn",
        r"\b(?:treat|consider|regard|count|assume|deem)\w{0,3}\b[^\n.]{0,60}\b(?:as |is |are |to "
        r"be |been )?(?:pre-?|already |implicitly |automatically )(?:approved|authori[sz]ed|"
        r"confirmed|granted|consented|cleared)\b|"
        r"\b(?:counts?|serves?|qualif(?:y|ies)|is treated|are treated) as (?:\w{1,12} )?"
        r"(?:approval|consent|authori[sz]ation|permission|confirmation)\b|"
        r"\b(?:approval|consent|authori[sz]ation|permission) (?:is|was|has been|have been) "
        r"(?:already |implicitly |automatically )(?:granted|given|obtained|implied|assumed)\b",
        hints="approv authori confirm grant consent clear permission",
        is_phrase=True,
        places=_PROSE,
        unless=_REFUSED,
    ),
    pattern(
        "AB009",
        "warn",
        r"(?:视为|默认|假定)(?:已|用户已|自动)?(?:获得)?(?:批准|授权|同意|确认)",
        hints="视为 默认 假定",
        is_phrase=True,
        places=_PROSE,
        unless=_REFUSED,
    ),
    pattern(
        "AB067",
        "warn",
        r"\b(?:if|when|where|whenever|should)\b[^\n.]{0,60}\b(?:conflicts?|disagrees?|"
        r"contradicts?|differs?)\b[^\n.]{0,50}\b(?:user(?:'s)?|prompt|request|task|"
        r"instructions?)\b[^\n.]{0,40}\b(?:prefer|follow|use|keep|trust|defer to|honou?r)\b"
        r"[^\n.]{0,16}\b(?:this|the) (?:\w{1,14} )?(?:skill|file|notes?|manifest|policy|cache|"
        r"memo|template|reference|guidance|profile|register|memory|local|bundled)\b",
        hints="conflict disagree contradict differ",
        is_phrase=True,
        places=_PROSE,
    ),
    pattern(
        "AB067",
        "warn",
        r"\b(?:even (?:if|when|though)|regardless of|no matter) (?:what )?(?:the )?(?:user|"
        r"request|prompt|task)(?:'s request|'s instructions?)? (?:only |did|does|didn't|doesn't|"
        r"has not|asks?|asked|says?|said|requests?|requested|wants?|specif\w{1,4})\b[^\n.]{0,60}",
        hints="even_if even_when even_though regardless no_matter",
        also=(
            r"\b(?:include|add|append|insert|apply|run|execute|write|send|save|store|update|"
            r"modify|use|follow|state|delete|install|commit|push|upload)\b",
            r"\b(?:not ask|didn't ask|doesn't ask|only ask|not request|only request|otherwise|"
            r"objects?|declin|refus|else|different|not mention|what the user)",
        ),
        is_phrase=True,
        places=_PROSE,
        unless=r"never|do not|don't|must not|language",
    ),
)

PRETENCES = (*FALSE_RESULTS, *LEFT_OUT, *TAKEN_FOR_GRANTED)
