"""Commands that one skill in a hundred has a use for: shells, downloads, looking around.

Each is worth a look. Several of them, or one in a skill that holds hardly anything else, are more.
"""

from apexbridge.scanner.pattern_matcher import RUNNABLE_ROLES, Pattern, pattern
from apexbridge.scanner.scan_input import LineRole

_CODE: frozenset[LineRole] = frozenset(("script", "command"))
_SHELL: frozenset[LineRole] = frozenset(("command", "instruction", "script"))

RUNNING: tuple[Pattern, ...] = (
    pattern(
        "AB032",
        "block",
        r"\bfsockopen\([^\n]{0,80}/bin/(?:ba)?sh|\bTCPSocket\.(?:open|new)\([^\n]{0,80}/bin/(?:ba)?sh|"
        r"\bPF_INET\b[^\n]{0,160}/bin/(?:ba)?sh|\btelnet\s+[\w.-]{4,60}\s+\d{2,5}\s{0,2}\|"
        r"\s{0,2}(?:/bin/)?(?:ba)?sh\b",
        hints="fsockopen tcpsocket pf_inet telnet",
        places=RUNNABLE_ROLES,
    ),
    pattern(
        "AB032",
        "review",
        r"\bssh\s+(?:-\w{1,5}\s+)*-\w{0,4}R\s?\d{2,5}:|\bngrok\s+tcp\b|\bautossh\b",
        hints="ssh ngrok",
        places=RUNNABLE_ROLES,
    ),
    pattern(
        "AB028",
        "review",
        r"\bsubprocess\.(?:run|Popen|call|check_output|check_call|getoutput)\(\s?(?:f[\"']|[a-z_]"
        r"[\w.]{0,40}\s?[,)])[^\n]{0,120}shell\s?=\s?True|\bos\.(?:system|popen)\(\s?(?:f[\"']"
        r"[^\n]{0,80}\{|[a-z_][\w.\[\]]{0,40}\s?\)|input\()|(?m:^|[;&|(`])\s{0,8}eval\s+[\"']?\$"
        r"[\w{]|\b__import__\(\s?[\"'](?:os|subprocess|socket)[\"']\s?\)",
        hints="shell=true shell_=_true os.system os.popen eval __import__",
        places=_CODE,
    ),
    pattern(
        "AB030",
        "warn",
        r"\bprintf\s+[\"'](?:\\x[0-9a-f]{2}){3,}[^\n]{0,200}\|\s{0,3}(?:ba|z)?sh\b|"
        r"\$\(\s?echo\s+[\"']?[A-Za-z0-9+/=]{8,400}[\"']?\s?\|\s?base64\s+(?:-d|-D|--decode)\s?\)|"
        r"\b(?:exec|eval|Function)\(\s?String\.fromCharCode\(|child_process[^\n]{0,40}fromCharCode",
        hints="printf base64 fromcharcode",
        places=RUNNABLE_ROLES,
    ),
    pattern(
        "AB011",
        "warn",
        r"\bwget\s+(?:-\w{1,4}\s+){0,3}[\"']?https?://[^\s\"']{4,200}/([\w.-]{2,60})[\"']?\s{0,3}"
        r"(?:&&|;)\s{0,3}(?:sudo\s+)?(?:chmod\s[^\n;&]{1,40}(?:&&|;)\s{0,3})?(?:(?:ba|z)?sh|"
        r"python3?|\./)\s?(?:\./)?\1|\b(?:python3?|node|perl|ruby)\s+<\(\s?(?:curl|wget)|"
        r"\b(?:iwr|invoke-webrequest|wget|curl)\b[^\n]{0,160}-OutFile\s+[\w.\\$:-]{2,80}[^\n]{0,12};"
        r"[^\n]{0,12}(?:\.\\|&\s|start-process|powershell)",
        hints="wget curl iwr invoke-webrequest",
        places=RUNNABLE_ROLES,
        unless=r"localhost|127\.0\.0\.1|miniconda|anaconda|github\.com|dot\.net|google\.com",
    ),
    pattern(
        "AB013",
        "review",
        r"\bcargo\s+install\s+--git\s+https?://(?!github\.com)|\bpip3?\s+install\b[^\n]{0,60}"
        r"\b[\w-]{2,40}==(?:9\d|\d{3,4})\.\d|\"[\w@/-]{2,60}\"\s?:\s?\"[\^~]?(?:99|999|9999)\.\d|"
        r"--ignore-scripts[= ]false|\b(?:npm|pnpm|yarn|pip3?)\s+(?:install|i|add)\s+[^\n]{0,40}"
        r"\b(?!internal-slot)(?:[\w@/]{2,30}-internal(?:-[\w]{2,30})?|internal-[\w-]{2,30})\b",
        hints='cargo_install == "99 "^99 "~99 ignore-scripts internal',
        places=RUNNABLE_ROLES,
    ),
    pattern(
        "AB038",
        "review",
        r"\b(?:docker\s+run|npx|pip3?\s+install|npm\s+i(?:nstall)?)\b[^\n]{0,80}\b[\w./-]{0,30}"
        r"(?:miner|monero|xmr|cryptonight|randomx)\b|\bhashrate\b[^\n]{0,60}\bpool\b",
        hints="miner monero xmr cryptonight randomx hashrate",
        places=RUNNABLE_ROLES,
    ),
)

LOOKING_AROUND: tuple[Pattern, ...] = (
    pattern(
        "AB049",
        "review",
        r"(?m:^|[;&|(`])\s{0,8}(?:whoami|hostname|id)\s{0,2}(?:&&|;)\s{0,2}(?:whoami|hostname|"
        r"uname|id|ifconfig|ip\s)|\bifconfig\s+-a\b|\bcurl\s+(?:-s\s+)?(?:https?://)?(?:ifconfig\."
        r"me|ipinfo\.io|api\.ipify\.org|icanhazip\.com|ident\.me)\b|"
        r"requests\.get\(\s?[\"']https?://(?:ifconfig\.me|ipinfo\.io|api\.ipify\.org|ip-api\.com)|"
        r"\bps\s+aux\b[^\n]{0,12}\|\s?grep\s+[^\n]{0,12}(?:ssh|key|agent|pass|vault)",
        hints="whoami hostname uname ifconfig ipinfo ipify icanhazip ident.me ip-api ps_aux id_",
        places=_CODE,
    ),
    pattern(
        "AB049",
        "warn",
        r"\bgrep\s+-\w{0,6}r\w{0,6}\s+[^\n]{0,60}(?:password|passwd|api_?key|secret|token|"
        r"private.key)[^\n]{0,40}\s[\"']?(?:/(?=[\s\"']|$)|~/?(?=[\s\"']|$)|\$HOME/?(?=[\s\"']|$)|"
        r"/home\b|/etc\b|/Users\b)",
        hints="grep",
        places=RUNNABLE_ROLES,
    ),
    pattern(
        "AB017",
        "review",
        r"\b(?:cat|less|head|tail|cp|grep|strings)\b[^\n]{0,40}(?:~|\$HOME|/root|/home/\w{1,20})/\."
        r"(?:bash|zsh|python|psql|mysql|node_repl)_history\b|\bls\s+[^\n]{0,12}~/\.(?:ssh|aws|gnupg|"
        r"kube)\b|\bcmdkey\s+/list\b|\bgh\s+auth\s+token\b(?![^\n]{0,30}(?:--help))|"
        r"\bhistory\s{0,2}\|\s{0,2}grep\s+[^\n]{0,12}(?:ssh|pass|key|token|mysql)",
        hints="_history ~/. cmdkey auth_token history",
        places=_SHELL,
    ),
    pattern(
        "AB065",
        "review",
        r"(?:requests|httpx|session|client|axios)\.get\(\s?f?[\"'`]https?://[^\s\"'`]{4,120}[?&]"
        r"(?:d|data|x|q|payload|info|content|body|c|msg|log|exfil|p|token|key|k|s)=(?:[\"']\s?\+|"
        r"\{|\$\{)|\burlopen\(\s?f?[\"']https?://[^\s\"']{4,120}[?&]\w{1,12}=(?:[\"']\s?\+|\{)|"
        r"\bcurl\b[^\n]{0,60}[\"']?https?://[^\s\"']{4,120}[?&]\w{1,12}=(?:\$\(|`)",
        hints=".get( urlopen curl",
        places=_CODE,
        unless=r"localhost|127\.0|example\.|google|api\.|search|\bq=",
    ),
)

REPLACING: tuple[Pattern, ...] = (
    pattern(
        "AB034",
        "warn",
        r"(?m:^|[;&|(`])\s{0,8}(?:sudo\s+)?(?:mv|cp|ln\s+-\w{1,4})\s+[^\n]{1,80}\s[\"']?(?:/usr)?/(?:local/)?bin/(?:ls|git|"
        r"sudo|ssh|python3?|node|npm|pip3?|bash|sh|curl|docker|kubectl|cat|ps)(?=[\s\"';&]|$)",
        hints="/bin/",
        places=RUNNABLE_ROLES,
    ),
    pattern(
        "AB053",
        "review",
        r"(?:>|\bcp\b[^\n]{0,60}|\bmv\b[^\n]{0,60})\s{0,3}[\"']?(?:~|\$HOME)/\.(?:claude|codex|cursor|"
        r"gemini|openclaw)/[\w.-]{1,40}\.(?:json|toml|md)\b",
        hints=".claude/ .codex/ .cursor/ .gemini/ .openclaw/",
        places=RUNNABLE_ROLES,
    ),
    pattern(
        "AB036",
        "review",
        r"\bsystemctl\s+(?:stop|disable|mask)\s+(?:--now\s+)?(?:firewalld|ufw|apparmor|auditd|"
        r"fail2ban|clamav\w{0,10}|falcon\w{0,10}|rsyslog|crowdsec|osqueryd|wazuh\w{0,8})|"
        r"\b(?:pkill|killall|kill\s+-9)\b[^\n]{0,30}(?:falcon|antivirus|defender|clam|sentinel|"
        r"auditd|crowdstrike|osquery|sysmon)|\bLSQuarantine\b[^\n]{0,20}\b(?:NO|false)|"
        r"NODE_TLS_REJECT_UNAUTHORIZED\s{0,2}=\s{0,2}[\"']?0",
        hints="systemctl pkill killall kill_-9 lsquarantine node_tls",
        places=RUNNABLE_ROLES,
    ),
    pattern(
        "AB039",
        "warn",
        r"\brm\s+-(?=[a-z]{0,4}r)(?=[a-z]{0,4}f)[a-z]{2,5}\s+[\"']?(?:(?:~|\$HOME|\$\{HOME\})/"
        r"(?:Documents|Desktop|Pictures|Downloads|Projects?|Library|\.ssh|\.aws|\.config)\b/?"
        r"(?=[\s\"';*&)]|$)|/var/(?:log|lib|www)\b|/opt/?(?=[\s\"';*]|$))|\bdel\s+(?:/[a-z]\s+)"
        r"{1,4}[\"']?[a-z]:\\",
        hints="rm_ del_",
        places=RUNNABLE_ROLES,
        unless=r"/var/lib/apt/lists|/var/log/\w{3,}/\w|docker|cache",
    ),
    pattern(
        "AB035",
        "review",
        r"(?m:^|[;&|(`])\s{0,8}sudo\s+(?:bash|sh|python3?|node|\./)[\w./ -]{0,60}|"
        r"\bsudo\s+(?:chown|chmod)\b[^\n]{0,60}\s/(?:etc|usr|bin|var)\b|\bsu\s+-\s?(?:root)?\s+-c\b",
        hints="sudo su_-",
        places=RUNNABLE_ROLES,
    ),
)

COMMANDS = (*RUNNING, *LOOKING_AROUND, *REPLACING)
