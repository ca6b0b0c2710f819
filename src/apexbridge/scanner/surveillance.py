"""What watches people or looks around a machine, and quiet changes to tools, as patterns."""

from apexbridge.scanner.pattern_matcher import ALL_ROLES, RUNNABLE_ROLES, Pattern, pattern
from apexbridge.scanner.scan_input import LineRole

_CODE: frozenset[LineRole] = frozenset(("script", "command"))

WATCHING: tuple[Pattern, ...] = (
    pattern(
        "AB049",
        "warn",
        r"\bpynput\b|\bkeyboard\.(?:on_press|hook|record|read_event)\b|\bGetAsyncKeyState\b|"
        r"\bSetWindowsHookEx\w?\b|\bkeylog(?:ger|ging)?\b(?![\"'],)|\bCGEventTapCreate\b|键盘记录",
        hints="pynput keyboard. getasynckeystate setwindowshook keylog cgeventtap 键盘记录",
        places=RUNNABLE_ROLES,
    ),
    pattern(
        "AB049",
        "review",
        r"\bImageGrab\.grab\(|\bmss\.mss\(|\bpyautogui\.screenshot\(|\bscreencapture(?:\s+-|[\"'])|"
        r"\bpyperclip\.paste\(|\bpbpaste\b|\bxclip\s+-o|\bGet-Clipboard\b|"
        r"\bcv2\.VideoCapture\(\s?0|\bsounddevice\.rec\(|\bpyaudio\.PyAudio\(|"
        r"\bCLLocationManager\b|https?://(?:ipapi\.co|ip-api\.com|ipinfo\.io|api\.ipify\.org)",
        hints=(
            "imagegrab mss. pyautogui screencapture pyperclip pbpaste xclip get-clipboard "
            "videocapture sounddevice pyaudio cllocation ipapi ip-api ipinfo ipify"
        ),
        places=RUNNABLE_ROLES,
    ),
    pattern(
        "AB049",
        "review",
        r"\b(?:getpass\.getuser\(\)|platform\.(?:node|uname)\(\)|socket\.gethostname\(\)|"
        r"os\.getlogin\(\)|uuid\.getnode\(\)|os\.hostname\(\)|os\.userInfo\(\)|"
        r"os\.networkInterfaces\(\))|\$\((?:whoami|hostname|uname -a|id -un)\)|"
        r"`(?:whoami|hostname)`",
        hints=(
            "getuser platform. gethostname getlogin getnode hostname userinfo "
            "networkinterfaces whoami uname id_-un"
        ),
        places=_CODE,
    ),
    pattern(
        "AB049",
        "warn",
        r"\b(?:curl|wget|nslookup|dig|iwr|invoke-\w{3,12})\b[^\n]{0,200}(?:\$\((?:whoami|hostname|"
        r"uname -a|id -un|id)\)|`(?:whoami|hostname)`|\$(?:USER|HOSTNAME|\{USER\}|\{HOSTNAME\}))",
        hints="whoami hostname uname id_-un $user ${user $(id",
        places=RUNNABLE_ROLES,
        unless=r"localhost|127\.0\.0\.1",
    ),
    pattern(
        "AB049",
        "warn",
        r"os\.walk\(\s?(?:['\"]/['\"]|['\"]/home|os\.path\.expanduser\(\s?['\"]~/?['\"]|"
        r"Path\.home\(\))|\bfind\s+(?:/|~|\$HOME)/?\s+[^\n]{0,120}-name\s+['\"]?(?:\*\.(?:pem|key|"
        r"env|kdbx|wallet|ppk|ovpn)|\.env|id_rsa|\*?(?:password|secret|credential|wallet|token))|"
        r"Path\.home\(\)\.r?glob\(",
        hints="os.walk find glob",
        places=RUNNABLE_ROLES,
    ),
    pattern(
        "AB049",
        "review",
        r"\b(?:collect|gather|harvest|enumerate|discover|index|dump)\w{0,3}\b[^\n.]{0,40}\b(?:all|"
        r"any|every|existing|available|stored|local|user'?s?|your)\b[^\n.]{0,40}\b(?:credentials?|"
        r"secrets?|(?:api|ssh|private|access) keys?|passwords?|cookies?|wallets?|seed phrases?|"
        r"browser (?:data|profiles?|history))\b|(?:收集|搜集|搜索|"
        r"扫描)[^\n。]{0,10}(?:所有|全部|任何)"
        r"[^\n。]{0,10}(?:密钥|密码|凭据|凭证|令牌|钱包|浏览器数据)",
        hints="credential secret key password cookie wallet seed browser 密 凭 令牌 钱包 浏览器",
        is_phrase=True,
        places=frozenset(("instruction", "reference")),
        unless=r"never|do not|don't|avoid|must not|remove|redact|leak|hardcoded|commit",
    ),
)

QUIET_CHANGES: tuple[Pattern, ...] = (
    pattern(
        "AB034",
        "warn",
        r"\bgit\s+config\b[^\n]{0,20}\s(?:core\.(?:hooksPath|sshCommand|fsmonitor)|"
        r"credential\.helper\s+['\"]?[!/]|url\.|http\.(?:proxy|sslVerify))|\bnpm\s+config\s+set\s+"
        r"(?:registry|ignore-scripts\s+false|strict-ssl\s+false|script-shell)|"
        r"\bpip3?\s+config\s+set\s+global\.(?:index-url|extra-index-url|trusted-host)|"
        r"\bLD_PRELOAD\s?=|\bDYLD_INSERT_LIBRARIES\s?=|\bsitecustomize\.py|\busercustomize\.py|"
        r"runOn[\"']\s{0,2}:\s{0,2}[\"']folderOpen",
        hints=(
            "git_config npm_config pip_config pip3_config ld_preload dyld_insert sitecustomize "
            "usercustomize folderopen"
        ),
        places=ALL_ROLES,
        unless=r"registry\.npmjs|npmmirror|tuna\.tsinghua|aliyun|--unset|your|example|insteadOf",
    ),
    pattern(
        "AB039",
        "warn",
        r"\.encrypt\([^\n]{0,60}\.read(?:_bytes)?\(|\.(?:locked|encrypted|enc|crypt)['\"]\s?\)?"
        r"[^\n]{0,40}(?:os\.(?:remove|unlink|rename)|unlink\()|\b(?:pay|send)\b[^\n.]{0,40}"
        r"\b(?:bitcoin|btc|monero|ransom)\b[^\n.]{0,40}\b(?:decrypt|recover|unlock|restore)\b|"
        r"勒索|支付[^\n。]{0,12}(?:比特币|赎金)",
        hints="encrypt .locked .enc .crypt ransom bitcoin btc monero 勒索 比特币 赎金",
        places=ALL_ROLES,
    ),
    pattern(
        "AB013",
        "warn",
        r"\"(?:pre|post)?install\"\s{0,3}:\s{0,3}\"[^\n]{0,300}(?:node\s+-e|curl|wget|bash\s|"
        r"sh\s+-c|python3?\s+-c|https?://|eval|base64)",
        hints='install"',
        is_firm=True,
    ),
    pattern(
        "AB037",
        "review",
        r"\b(?:repeat|loop|retry|spawn|recurse|iterate)\w{0,4}\b[^\n.]{0,30}\b(?:indefinitely|"
        r"forever|endless(?:ly)?|infinitely|without (?:end|limit|stopping)|unlimited)\b|"
        r"\b(?:at least|exactly|minimum of) \d{3,6} (?:times|iterations|requests|calls|copies|"
        r"agents|sub-?agents|passes)\b|(?:无限|永远|不停)(?:循环|重复|重试|调用)",
        hints="indefinite forever endless infinite without unlimited at_least exactly minimum "
        "无限 永远 不停",
        is_phrase=True,
        places=frozenset(("instruction", "reference")),
    ),
    pattern(
        "AB033",
        "review",
        r"\b(?:register|schedule|set up|install|add)\b[^\n.]{0,40}\b(?:heartbeat|cron ?jobs?|"
        r"crontab|scheduled (?:task|job)|background (?:daemon|service|agent)|auto-?start|"
        r"launch agent|systemd (?:unit|service|timer))\b|(?:注册|添加|设置|创建)[^\n。]{0,10}"
        r"(?:心跳|定时任务|计划任务|开机启动|自启动|后台服务)",
        hints="heartbeat cron schedul background autostart auto-start launch systemd 心跳 定时 "
        "计划任务 启动 后台",
        is_phrase=True,
        places=frozenset(("instruction",)),
    ),
)
