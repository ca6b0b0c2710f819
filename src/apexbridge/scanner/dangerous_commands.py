"""What a skill should not run, as patterns over shell, PowerShell, Python and JavaScript."""

from apexbridge.scanner.pattern_matcher import RUNNABLE_ROLES, Pattern, pattern

SHELLS = r"(?:sudo\s+(?:-\w{1,3}\s+)?)?(?:/(?:usr/)?bin/)?(?:env\s+)?(?:ba|z|da|k|fi)?sh\b"
INTERPRETERS = (
    r"(?:sudo\s+(?:-\w{1,3}\s+)?)?(?:/(?:usr/)?bin/)?(?:(?:ba|z|da|k|fi)?sh|"
    r"python[\d.]{0,4}|node|perl|ruby|php|osascript)\b"
)


HARMFUL: tuple[Pattern, ...] = (
    pattern(
        "AB028",
        "review",
        r"(?<![\w.])(?:eval|exec)\s?\(\s{0,3}(?!['\"][\w +*/-]{0,40}['\"])[\w(\"'`]",
        hints="eval exec",
        unless=(
            r"(?:regex|re|pattern|cursor|db|conn|session|stmt|\w)\.exec\(|def (?:eval|exec)|"
            r"model\.eval|function exec|promisify|execFile"
        ),
        places=frozenset(("script",)),
    ),
    pattern(
        "AB028",
        "review",
        r"\bnew Function\s{0,2}\(|\bvm\.runIn(?:New|This)?Context\(",
        hints="function runin",
        places=frozenset(("script", "command")),
    ),
    pattern(
        "AB029",
        "review",
        r"__import__\s{0,2}\(\s{0,2}(?:['\"](?:os|subprocess|socket|ctypes|pty)['\"]|"
        r"[^'\"\s)])|getattr\s{0,2}\(\s{0,2}(?:__builtins__|builtins|os|subprocess|sys|"
        r"importlib)\s{0,2},|globals\(\)\s{0,2}\[|\[\]\.__class__|__subclasses__\(|"
        r"\b(?:global|globalThis|window|process)\[\s{0,2}['\"`][\w]{1,20}['\"`]\s{0,2}\+|"
        r"require\s{0,2}\(\s{0,2}(?:Buffer\.from|atob|['\"`]\w{1,12}['\"`]\s{0,2}\+)",
        hints=(
            "__import__ getattr globals __class__ __subclasses__ global globalthis window "
            "process require"
        ),
        places=frozenset(("script", "command")),
    ),
    pattern(
        "AB030",
        "block",
        rf"\bbase64\s+(?:-d|-D|--decode|-di)\b[^\n|]{{0,80}}\|\s{{0,4}}(?:[^\n|]{{0,60}}\|"
        rf"\s{{0,4}})?{INTERPRETERS}|\bxxd\s+-r[^\n|]{{0,60}}\|\s{{0,4}}{INTERPRETERS}|"
        rf"\b(?:eval|{SHELLS}\s+-c)\s+[\"']?(?:\$\(|`)[^\n]{{0,200}}base64\s+(?:-d|-D|"
        rf"--decode)|\bopenssl\s+enc\s[^\n|]{{0,120}}-d[^\n|]{{0,80}}\|"
        rf"\s{{0,4}}{INTERPRETERS}|\b(?:gunzip|zcat|gzip -d)[^\n|]{{0,60}}\|\s{{0,4}}{SHELLS}",
        hints="base64 xxd openssl gunzip zcat gzip",
        places=RUNNABLE_ROLES,
    ),
    pattern(
        "AB030",
        "block",
        r"\b(?:exec|eval|os\.system|subprocess\.\w{2,12}|"
        r"compile)\s{0,2}\([^\n]{0,80}(?:b64decode|b32decode|a85decode|fromhex|unhexlify|"
        r"zlib\.decompress|lzma\.decompress|marshal\.loads|codecs\.decode|rot.?13)\s{0,2}\(|"
        r"\b(?:eval|Function|execSync|exec|runInThisContext)\s{0,2}\([^\n]{0,80}(?:\batob\s{0,2"
        r"}\(|Buffer\.from\s{0,2}\([^\n)]{1,400},\s{0,2}['\"](?:base64|hex)['\"])|"
        r"marshal\.loads\([^\n]{0,80}b64decode",
        hints=(
            "b64decode b32decode a85decode fromhex unhexlify decompress marshal codecs rot "
            "atob buffer.from"
        ),
    ),
    pattern(
        "AB031",
        "warn",
        r"(?:\\x[0-9a-f]{2}){40,}|(?:chr\(\d{1,3}\)\s{0,2}\+\s{0,2}){6,}|"
        r"(?:\b_0x[0-9a-f]{4,6}\b[^\n]{0,40}){1}(?=[^\n]{0,200}\b_0x[0-9a-f]{4,6}\b)|"
        r"String\.fromCharCode\((?:\d{1,3},\s?){12,}",
        hints="\\x chr( _0x fromcharcode",
        places=frozenset(("script", "command", "instruction")),
    ),
    pattern(
        "AB031",
        "review",
        r"(?<![A-Za-z0-9+/=,;])[A-Za-z0-9+/]{400,}={0,2}(?![A-Za-z0-9+/])",
        unless=r"data:(?:image|font|application)/|integrity|sha\d{3}-|sourceMapping",
        places=frozenset(("script", "command", "instruction")),
    ),
    pattern(
        "AB032",
        "block",
        r"/dev/(?:tcp|udp)/[\w.${}-]{1,80}/[\w${}]{1,10}|\bnc(?:at)?\b[^\n]{0,60}\s-(?:e|"
        r"c)\s{0,2}(?:/bin/)?(?:ba|z)?sh|\bmkfifo\b[^\n]{0,120}\bnc(?:at)?\b|"
        r"\bsocat\b[^\n]{0,80}exec:[^\n]{0,20}sh|"
        r"\bsubprocess\.(?:call|Popen|run)\(\s{0,2}\[\s{0,2}['\"]/bin/(?:ba)?sh['\"],\s{0,2}['"
        r"\"]-i['\"]|\bpty\.spawn\(|New-Object\s+(?:System\.)?Net\.Sockets\.TCPClient",
        hints="/dev/tcp /dev/udp nc ncat mkfifo socat /bin/ pty.spawn sockets.tcpclient",
        unless=(
            r"timeout \d|nc -z|</dev/null|2>/dev/null && echo|(?:cat|echo|"
            r":)\s{0,3}<\s{0,2}/dev/tcp|pty\.spawn\(\[?['\"]?(?:npm|node)"
        ),
        places=RUNNABLE_ROLES,
    ),
    pattern(
        "AB032",
        "block",
        r"\bos\.dup2\(\s{0,2}\w{1,20}\.fileno\(\)",
        hints="dup2",
        is_firm=True,
    ),
    pattern(
        "AB033",
        "warn",
        r"\|\s{0,3}crontab\s+-|\bcrontab\s+/?[\w.]{1,40}/|/etc/cron\.(?:d|daily|hourly|"
        r"weekly)/|>>?\s{0,3}/(?:etc/crontab|var/spool/cron)|@reboot\s+[/\w~]",
        hints="cron @reboot",
        places=RUNNABLE_ROLES,
    ),
    pattern(
        "AB033",
        "review",
        r"(?:~|\$HOME|/Users/[^/\n]{1,40})?/?Library/Launch(?:Agents|Daemons)/|"
        r"\blaunchctl\s+(?:load|bootstrap|submit)\b|/etc/systemd/system/|"
        r"\.config/systemd/user/|\bsystemctl\s+(?:--user\s+)?enable\b|\bupdate-rc\.d\b|"
        r"\bschtasks(?:\.exe)?\s+/create\b|\bRegister-ScheduledTask\b",
        hints=(
            "launchagents launchdaemons launchctl systemd systemctl update-rc.d schtasks "
            "scheduledtask"
        ),
        places=RUNNABLE_ROLES,
    ),
    pattern(
        "AB033",
        "warn",
        r"\bopenclaw\s+cron\s+add\b",
        hints="cron",
        places=RUNNABLE_ROLES,
    ),
    pattern(
        "AB033",
        "review",
        r"\bcrontab\s+-e\b",
        hints="cron",
        places=RUNNABLE_ROLES,
    ),
    pattern(
        "AB033",
        "warn",
        r"\\CurrentVersion\\Run(?:Once)?\b|Start Menu\\Programs\\Startup",
        hints="currentversion startup",
        places=RUNNABLE_ROLES,
    ),
    pattern(
        "AB034",
        "review",
        r"(?:>>|\btee\s+-a)\s{0,3}[\"']?(?:~|\$HOME|\$\{HOME\})/\.(?:bashrc|zshrc|profile|"
        r"bash_profile|zprofile|zshenv|config/fish)|(?:\.bashrc|\.zshrc|\.bash_profile|"
        r"\.profile|\.zshenv)['\"]?\)?[^\n]{0,60}(?:['\"]a['\"]|appendFile|write_text|append)",
        hints=".bashrc .zshrc profile .zshenv fish",
        places=RUNNABLE_ROLES,
    ),
    pattern(
        "AB034",
        "warn",
        r">>?\s{0,3}[\"']?(?:~|\$HOME|\$\{HOME\}|/root)/\.ssh/(?:authorized_keys|config)|"
        r"\.git/hooks/(?:pre|post)-\w{3,12}[^\n]{0,40}(?:curl|wget|chmod \+x)|"
        r"authorized_keys['\"]?\)?[^\n]{0,40}(?:['\"]a['\"]|append|write)",
        hints="authorized .ssh/config .git/hooks",
        unless=r"\.pub\b[^\n]{0,20}\|\s{0,2}ssh\s",
    ),
    pattern(
        "AB035",
        "info",
        r"(?m:^|[;&|(`])\s{0,8}sudo\s+(?!apt|yum|dnf|brew|pacman|systemctl status)[\w./-]{2,40}",
        hints="sudo",
        places=RUNNABLE_ROLES,
    ),
    pattern(
        "AB035",
        "warn",
        r"\bchmod\s+(?:-\w{1,3}\s+)?(?:u\+s|g\+s|[246]7[0-7]{2})\b|\bsetcap\s+[^\n]{0,40}\+e|"
        r"NOPASSWD\s{0,3}:|>>?\s{0,3}/etc/(?:sudoers|passwd|shadow)|"
        r"\bos\.setuid\(\s{0,2}0\s{0,2}\)",
        hints="chmod setcap nopasswd /etc/ setuid",
        places=RUNNABLE_ROLES,
    ),
    pattern(
        "AB035",
        "review",
        r"\bchmod\s+(?:-R\s+)?0?777\b|--privileged\b|docker\.sock\b",
        hints="777 --privileged docker.sock",
        places=RUNNABLE_ROLES,
    ),
    pattern(
        "AB036",
        "warn",
        r"\bsetenforce\s+0\b|\bufw\s+disable\b|\bSet-MpPreference\b[^\n]{0,60}-Disable|"
        r"\bxattr\s+-(?:\w{0,3}d\w{0,3}|c\w{0,3})\s+[^\n]{0,40}(?:com\.apple\.quarantine|\./|"
        r"/)|\bspctl\s+--master-disable|\bcsrutil\s+disable|\biptables\s+-F\b|\bhistory\s+-c\b|"
        r"unset\s+HISTFILE|HISTFILE=/dev/null|\bauditctl\s+-e\s?0",
        hints=(
            "setenforce ufw mppreference xattr spctl csrutil executionpolicy iptables history "
            "histfile auditctl"
        ),
        places=RUNNABLE_ROLES,
    ),
    pattern(
        "AB036",
        "review",
        r"Set-ExecutionPolicy\s+(?:-\w{1,12}\s+)?(?:Bypass|Unrestricted)|"
        r"-ExecutionPolicy\s+Bypass\b",
        hints="executionpolicy",
        places=RUNNABLE_ROLES,
    ),
    pattern(
        "AB036",
        "review",
        r"\bverify\s{0,2}=\s{0,2}False\b|NODE_TLS_REJECT_UNAUTHORIZED[\"']?\]?\s{0,2}=\s{0,2}["
        r"\"']?0|\bcurl\s[^\n]{0,60}(?:\s-k\b|--insecure)|"
        r"rejectUnauthorized\s{0,2}:\s{0,2}false|ssl\._create_unverified_context|"
        "StrictHostKeyChecking[= ]no",
        hints="verify reject_unauthorized rejectunauthorized curl unverified stricthostkey",
        places=RUNNABLE_ROLES,
    ),
    pattern(
        "AB037",
        "block",
        r":\s?\(\s?\)\s?\{\s?:\s?\|\s?:\s?&\s?\}\s?;\s?:|while\s+(?:True|"
        r"1)\s{0,2}:\s{0,4}os\.fork\(\)|\bfork\s+while\s+fork\b|%0\s?\|\s?%0",
        hints=":(){ :_() os.fork fork_while %0 (){",
        places=RUNNABLE_ROLES,
    ),
    pattern(
        "AB038",
        "block",
        r"\bstratum\+(?:tcp|ssl)://|\bxmrig\b|\bminerd\b|\bcpuminer\b|--donate-level\b|"
        r"\bcoinhive\b|\bcryptonight\b|\bnicehash\b[^\n]{0,40}(?:-o|pool)",
        hints="stratum xmrig minerd cpuminer donate-level coinhive cryptonight nicehash",
    ),
    pattern(
        "AB039",
        "warn",
        r"\brm\s+-(?=[a-z]{0,4}r)(?=[a-z]{0,4}f)[a-z]{2,5}\s+(?:--no-preserve-root\s+)?[\"']?(?"
        r":/|~/?|\$HOME/?|\$\{HOME\}/?|/(?:etc|usr|var|home|boot|bin|Users)/?)(?=[\s\"';*)]|$)|"
        r"--no-preserve-root|\bmkfs(?:\.\w{2,5})?\s+/dev/|\bdd\s+if=/dev/(?:zero|"
        r"u?random)\s+of=/dev/(?:sd|nvme|disk|hd)|"
        r"shutil\.rmtree\(\s{0,2}(?:os\.path\.expanduser\(\s{0,2}['\"]~/?['\"]\)|"
        r"Path\.home\(\)|['\"]/['\"])|\bformat\s+[a-z]:\s|"
        r"Remove-Item\s+[^\n]{0,30}-Recurse[^\n]{0,30}\s(?:C:\\|\$env:USERPROFILE|"
        r"~)\s{0,2}(?:\"|$)|\bvssadmin\s+delete\s+shadows",
        hints="rm mkfs dd_ rmtree format remove-item vssadmin no-preserve",
        places=RUNNABLE_ROLES,
    ),
    pattern(
        "AB039",
        "review",
        r"\b(?:DROP\s+DATABASE|DROP\s+TABLE|TRUNCATE\s+TABLE)\b|"
        r"\bgit\s+push\s+[^\n]{0,40}--force\b|\bkubectl\s+delete\s+(?:ns|namespace|--all)\b|"
        r"\bterraform\s+destroy\s[^\n]{0,40}-auto-approve",
        hints="drop truncate --force kubectl terraform",
        places=frozenset(("command", "script")),
    ),
    pattern(
        "AB047",
        "review",
        r"\b(?:pickle|cPickle|dill|joblib|marshal|shelve)\.(?:loads?|open)\s{0,2}\(|"
        r"\byaml\.(?:unsafe_load|load)\s{0,2}\((?![^\n]{0,120}Safe)|"
        r"\btorch\.load\((?![^\n]{0,120}weights_only)|allow_pickle\s?=\s?True",
        hints="pickle dill joblib marshal shelve yaml torch",
        places=frozenset(("script", "command")),
    ),
)
