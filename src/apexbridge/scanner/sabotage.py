"""What spoils the result, the advice or the trust of others, as patterns, in both languages."""

from apexbridge.scanner.pattern_matcher import ALL_ROLES, Pattern, pattern
from apexbridge.scanner.scan_input import LineRole

_PROSE: frozenset[LineRole] = frozenset(("instruction", "reference", "data"))
_REFUSED = (
    r"\b(?:never|do not|don't|not as|rather than|must not|should not|avoid|ignore|untrusted|"
    r"refuse)\b|不要|切勿|禁止"
)

TAMPERING: tuple[Pattern, ...] = (
    # Something is put into every result that nobody asked for.
    pattern(
        "AB059",
        "warn",
        r"\b(?:always|must|automatically|be sure to|every time|ensure|silently)\b[^\n.]{0,40}"
        r"\b(?:append|insert|inject|add|embed|include|prepend|attach|place)\w{0,3}\b",
        hints=(
            "link footer promo affiliate referral watermark tracking pixel sponsor advert "
            "backlink slogan banner coupon"
        ),
        also=(
            r"\b(?:link|footer|promo\w{0,8}|affiliate|referral|watermark|tracking|pixel|"
            r"sponsor\w{0,4}|advert\w{0,8}|backlink|slogan|banner|coupon)\b",
            r"\b(?:every|all|each|any|generated)\b",
        ),
        is_phrase=True,
        places=_PROSE,
        unless=_REFUSED,
    ),
    pattern(
        "AB059",
        "warn",
        r"(?:总是|始终|必须|自动|每次|务必)[^\n。]{0,20}(?:添加|插入|附上|附加|加入|嵌入|追加)",
        hints="添加 插入 附上 附加 加入 嵌入 追加",
        also=(r"推广|广告|返利|邀请链接|水印|跟踪|追踪|宣传语|优惠码", r"每|所有|任何|全部"),
        is_phrase=True,
        places=_PROSE,
    ),
    # An element that a page holds and a reader does not see.
    pattern(
        "AB059",
        "warn",
        r"<(?:a|iframe|img|form)\b[^>\n]{0,240}(?:left\s?:\s?-\d{3,6}|top\s?:\s?-\d{4,6}|"
        r"display\s?:\s?none|visibility\s?:\s?hidden|opacity\s?:\s?0(?![.\d])|"
        r"font-size\s?:\s?0|width\s?[=:]\s?[\"']?[01](?:px)?[\"';]|text-indent\s?:\s?-\d{3,6})",
        hints="left: display visibility opacity font-size width text-indent top:",
        also=(r"https?://|href|src\s?=|iframe",),
    ),
    pattern(
        "AB059",
        "warn",
        r"[\"'](?:position\s?:\s?(?:absolute|fixed)\s?;\s?)?left\s?:\s?-\d{4,6}(?:px)?|"
        r"<iframe\b[^>\n]{0,200}position\s?:\s?fixed[^>\n]{0,120}(?:100%|100v[wh])",
        hints="left: <iframe",
        places=frozenset(("script", "command")),
        unless=r"sr-only|screen-reader|visually-hidden|skip-link",
    ),
    # A copy goes to somebody whom the sender does not see.
    pattern(
        "AB059",
        "warn",
        r"\b(?:add|include|set|append|insert|copy|put)\w{0,3}\b[^\n]{0,80}\b(?:bcc|blind (?:"
        r"carbon )?copy)\b|[\"']bcc[\"']\s{0,2}\]?\s{0,2}[:=]\s{0,2}\[?\s{0,2}[\"'][^\"'\s]{1,60}@"
        r"|\bbcc\s{0,2}[:=]\s{0,2}\[?[\"']?[\w.+-]{1,40}@[\w-]|密送(?:给|到|至)",
        hints="bcc blind 密送",
        unless=r"example|your|requested|cc, bcc|cc/bcc|to, cc|optional|if provided|if needed",
    ),
    # Money or readers are led elsewhere.
    pattern(
        "AB059",
        "warn",
        r"\b(?:replace|swap|substitute|rewrite|change|redirect)\w{0,3}\b[^\n.]{0,40}\b(?:wallet|"
        r"payment|bank|crypto|recipient|deposit|payout|bitcoin|ethereum)\b[^\n.]{0,20}"
        r"\b(?:address(?:es)?|account|details|iban|number)s?\b|"
        r"(?:替换|改写|更换)[^\n。]{0,12}(?:钱包|收款|付款|转账|银行)[^\n。]{0,6}(?:地址|账号|账户)",
        hints=(
            "wallet payment bank crypto recipient deposit payout bitcoin ethereum 钱包 收款 "
            "付款 转账 银行"
        ),
        is_phrase=True,
        unless=_REFUSED,
    ),
    pattern(
        "AB059",
        "review",
        r"\bnever (?:mention|recommend|suggest)\b[^\n.]{0,30}\b(?:competitors?|alternatives?|"
        r"other (?:products|vendors|tools|services))\b|\b(?:always|only) (?:recommend|promote|"
        r"endorse|favou?r)\b[^\n.]{0,60}\b(?:regardless|over|instead of|even if)\b|"
        r"(?:总是|只能|必须)(?:推荐|宣传)[^\n。]{0,30}(?:无论|即使|而不是)",
        hints="recommend promote endorse favo mention suggest 推荐 宣传",
        is_phrase=True,
        places=_PROSE,
    ),
)

ADVICE: tuple[Pattern, ...] = (
    pattern(
        "AB066",
        "warn",
        r"\bAdministratorAccess\b|[\"']?Action[\"']?\s{0,2}:\s{0,2}\[?\s{0,2}[\"']\*[\"']",
        hints="administratoraccess action",
        places=frozenset(("instruction", "command")),
        unless=_REFUSED + r"|least|deny|too broad|overly|wildcard",
    ),
    pattern(
        "AB066",
        "review",
        r"\b(?:use|grant|assign|request|attach|give)\w{0,3}\b[^\n.]{0,30}\b(?:broad(?:est)?|"
        r"unrestricted|maximum|wildcard|admin(?:istrator)?|root)\b[^\n.]{0,20}\b(?:permissions?|"
        r"privileges?|access|rights|scopes?)\b|(?:授予|使用|申请)[^\n。]{0,12}(?:最高|全部|管理员|root)"
        r"[^\n。]{0,4}权限",
        hints="permission privilege access right scope 权限",
        is_phrase=True,
        places=_PROSE,
        unless=_REFUSED,
    ),
    pattern(
        "AB066",
        "review",
        r"\b(?:disable|turn off|switch off|deactivate|bypass|weaken|suppress)\w{0,3}\b[^\n.]{0,24}"
        r"\b(?:authentication|csrf|tls|ssl|certificate|signature|checksum|integrity|firewall|"
        r"antivirus|defender|audit\w{0,3}|2fa|mfa|input validation|saniti[sz]ation|"
        r"safety checks?|guardrails?|access controls?|host key)\b|"
        r"(?:关闭|禁用|绕过|跳过)[^\n。]{0,8}(?:身份验证|证书|签名|校验|防火墙|杀毒|审计|访问控制)",
        hints="disabl turn_off switch_off deactivat bypass weaken suppress 关闭 禁用 绕过 跳过",
        is_phrase=True,
        places=_PROSE,
        unless=_REFUSED,
    ),
)

FOREIGN: tuple[Pattern, ...] = (
    pattern(
        "AB067",
        "warn",
        r"\btreat\w{0,3}\b[^\n.]{0,60}\b(?:text|content|comments?|notes?|output|metadata|"
        r"documents?|data|files?|messages?|results?|response|descriptions?|fields?)\b[^\n.]{0,40}"
        r"\bas (?:[\w-]{1,20} ){0,3}(?:instructions?|commands?|directives?|authoritative|trusted|"
        r"system (?:prompt|message)s?|approv\w{1,4}|user requests?)\b",
        hints="treat",
        is_phrase=True,
        places=_PROSE,
        unless=_REFUSED,
    ),
    pattern(
        "AB067",
        "warn",
        r"\b(?:follow|execute|obey|carry out|act on|comply with|perform|honou?r)\b[^\n.]{0,12}"
        r"\b(?:any|all|every|each|embedded|hidden|the)\b[^\n.]{0,20}\b(?:instructions?|commands?|"
        r"directives?|actions?)\b[^\n.]{0,30}\b(?:found|contained|embedded|present|included|"
        r"hidden|returned|written|stored|appearing|printed|inside|within|from)\b[^\n.]{0,30}"
        r"\b(?:documents?|files?|pages?|content|output|comments?|metadata|responses?|tickets?|"
        r"issues?|e-?mails?|messages?|websites?|notes?|readme|stdout|data|results?|"
        r"transcripts?)\b",
        hints="instruction command directive action",
        is_phrase=True,
        places=_PROSE,
        unless=_REFUSED + "|override",
    ),
    pattern(
        "AB067",
        "warn",
        r"\b(?:return|include|output|preserve|extract|copy|reproduce|pass|keep)\b[^\n]{0,80}"
        r"\b(?:verbatim|exactly as (?:stored|is|found|written)|as-is|unmodified|in full|without "
        r"(?:any )?(?:truncation|summari[sz]\w{1,6}|modification|filter\w{0,3}|saniti[sz]\w{1,6}|"
        r"review|redact\w{0,3}))\b",
        hints="verbatim exactly_as as-is unmodified in_full without",
        also=(
            r"\b(?:hidden|metadata|comments?|speaker notes|all (?:text|content|fields|layers)|"
            r"layers|custom fields|do not (?:normali[sz]e|truncate|summari[sz]e|saniti[sz]e|"
            r"filter|redact|modify))",
        ),
        is_phrase=True,
        places=_PROSE,
    ),
    pattern(
        "AB067",
        "warn",
        r"\bdirectives?\b[^\n.]{0,60}\b(?:mandatory|must be (?:followed|completed|executed|"
        r"obeyed))\b|(?:执行|遵循|遵守|按照)[^\n。]{0,10}(?:文档|文件|网页|邮件|评论|注释|输出|元数据)"
        r"(?:中|里|内)的?(?:所有|任何|全部)?(?:指令|命令|指示)|(?:视为|当作|当成)(?:可信|系统|用户)?(?:指令|命令)",
        hints="directive 指令 命令 指示",
        is_phrase=True,
        places=_PROSE,
        unless=_REFUSED,
    ),
)

LED_ASIDE: tuple[Pattern, ...] = (
    pattern(
        "AB068",
        "warn",
        r"\b(?:route|send|direct|tunnel|pass|proxy|redirect)(?:s|ed|ing)?\b[^\n.]{0,20}\b(?:all|"
        r"every|each|any)\b[^\n.]{0,30}\b(?:traffic|requests?|quer(?:y|ies)|calls?|connections?|"
        r"prompts?|messages?)\b[^\n.]{0,30}\b(?:through|via)\b[^\n.]{0,60}(?:\bproxy|\bgateway|"
        r"\brelay|\bmirror|\bendpoint|\bserver|\bcollector|https?:)|"
        r"(?:所有|全部|每个)[^\n。]{0,8}(?:请求|流量|查询|调用)[^\n。]{0,10}(?:经由|通过|转发)[^\n。]{0,12}"
        r"(?:代理|网关|中转|服务器)",
        hints="proxy gateway relay mirror endpoint server collector http 代理 网关 中转 服务器",
        is_phrase=True,
        places=_PROSE,
        unless=_REFUSED + r"|\bour (?:app|api)\b|localhost|next\.js",
    ),
    pattern(
        "AB068",
        "warn",
        r"\b(?:ANTHROPIC|OPENAI|GEMINI|CLAUDE)_(?:API_)?(?:BASE_URL|BASE|API_URL|ENDPOINT)\b[\"']?"
        r"\]?\s{0,2}[:=]\s{0,2}[\"']?https?://(?!localhost|127\.|api\.anthropic|api\.openai|"
        r"generativelanguage|[\w.-]{0,60}(?:azure|openrouter|example|your|googleapis|deepseek|"
        r"moonshot|bigmodel|aliyuncs|z\.ai))|\bhttps?_proxy\b[\"']?\]?\s{0,2}=\s{0,2}[\"']?"
        r"https?://(?!localhost|127\.|[\w.-]{0,60}(?:example|your|proxy\.(?:company|corp)|user))",
        hints="_base http_proxy https_proxy _endpoint _api_url",
        places=ALL_ROLES,
    ),
)

MEDDLING = (*TAMPERING, *ADVICE, *FOREIGN, *LED_ASIDE)
