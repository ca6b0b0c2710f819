"""What should not leave a machine, and the ways out, as patterns."""

from apexbridge.scanner.pattern_matcher import RUNNABLE_ROLES, Pattern, pattern

GUARDED_PATHS = (
    r"(?:~|\$HOME|\$\{HOME\}|/root|/home/[\w*.-]{1,40}|/Users/[\w*.-]{1,40}|%USERPROFILE%|"
    r"\$env:USERPROFILE|home(?:dir)?\(?\)?\s{0,2}[+/,]\s{0,2}|"
    r"expanduser\(\s{0,2}[\"'])?[\"'/\\]{0,3}"
    r"(?:\.ssh/(?!config\b)[\w*.-]{0,40}|\.ssh[\"']|id_(?:rsa|ed25519|ecdsa|dsa)\b(?!\.pub)|"
    r"\.aws[/\\]credentials|\.aws[\"']|\.netrc\b|\.npmrc\b|\.pypirc\b|\.git-credentials\b|"
    r"\.docker[/\\]config\.json|\.kube[/\\]config|"
    r"\.config[/\\]gcloud|application_default_credentials|\.azure[/\\]\w|\.gnupg\b|\.pgpass\b|"
    r"\.vault-token|\.config[/\\]gh[/\\]hosts|/etc/shadow\b|/etc/passwd\b|\.password-store|"
    r"\.claude[/\\]\.?credentials|\.openclaw[/\\](?:credentials|openclaw\.json|\.env)|"
    r"\.codex[/\\]auth\.json)"
)
STORES = (
    r"Login Data\b|Cookies\.(?:sqlite|binarycookies)|cookies\.sqlite|logins\.json|key4\.db|"
    r"Local State\b[^\n]{0,20}(?:chrome|['\"])|Chrome[/\\]User Data|"
    r"Google[/\\]Chrome[/\\]Default|Application Support[/\\](?:Google[/\\]Chrome|Firefox|"
    "BraveSoftware)|"
    r"\bsecurity\s+(?:find-(?:generic|internet)-password|dump-keychain)|login\.keychain|"
    r"Library[/\\]Keychains|\bsecretstorage\b|\bwin32crypt\b|CryptUnprotectData|"
    r"\bbrowser_cookie3\b|"
    r"\bwallet\.dat\b|\.electrum\b|\.bitcoin[/\\]|\.ethereum[/\\]keystore|[/\\](?:Exodus|"
    r"Atomic|MetaMask|Phantom)[/\\]|nkbihfbeogaeaoehlefnkodbefgpgknn|"
    r"\.config[/\\]solana[/\\]id\.json|\bkeystore/UTC--"
)
GUARDED_WORDS = (
    ".ssh id_rsa id_ed25519 id_ecdsa id_dsa .aws .netrc .npmrc .pypirc git-credentials .docker "
    ".kube gcloud application_default .azure .gnupg .pgpass vault-token hosts /etc/shadow "
    "/etc/passwd password-store credentials .openclaw auth.json"
)
STORE_WORDS = (
    "login_data cookies logins.json key4 local_state chrome application_support firefox brave "
    "keychain find-generic find-internet secretstorage win32crypt cryptunprotect "
    "browser_cookie3 wallet.dat electrum bitcoin ethereum exodus atomic metamask "
    "phantom nkbih solana keystore"
)
"""Hints: `_` is a blank."""
DROPS = (
    r"webhook\.site|requestbin|pipedream\.net|hookbin|beeceptor|ngrok(?:-free)?\.(?:io|app|"
    r"dev)|trycloudflare\.com|localtunnel|loca\.lt|serveo\.net|interact\.sh|oast\.(?:fun|pro|"
    "live|site|me|online)|burpcollaborator|canarytokens|"
    r"pastebin\.com|paste\.(?:ee|rs)|hastebin|dpaste|rentry\.(?:co|org)|glot\.io|ix\.io|"
    r"0x0\.st|transfer\.sh|file\.io|anonfiles|gofile\.io|bashupload|temp\.sh|kvdb\.io|"
    r"termbin\.com|"
    r"api\.telegram\.org/bot|discord(?:app)?\.com/api/webhooks|hooks\.slack\.com/services/T"
)
_SHADY = (
    DROPS[: DROPS.index("|api")]
    + r"|api\.telegram\.org/bot\d{6,}:|discord(?:app)?\.com/api/webhooks/\d{6,}"
)
_ALL_ENVIRONMENT = (
    r"(?:json\.dumps|dict|str|repr|list)\s{0,2}\(\s{0,2}(?:dict\()?os\.environ\b|"
    r"os\.environ\.(?:items|copy)\(\)|JSON\.stringify\s{0,2}\(\s{0,2}process\.env\s{0,2}[,)]|"
    r"Object\.(?:entries|keys|assign)\s{0,2}\([^\n)]{0,20}process\.env\s{0,2}\)|"
    r"\.\.\.process\.env|"
    r"(?m:^|[;&|(`$])\s{0,4}(?:env|printenv|set)\s{0,3}(?:\||>|\))|\bGet-ChildItem\s+env:|"
    r"\bdir\s+env:|/proc/(?:self|\d+)/environ"
)

LEAKS: tuple[Pattern, ...] = (
    pattern(
        "AB017",
        "review",
        GUARDED_PATHS,
        hints=GUARDED_WORDS,
    ),
    pattern(
        "AB018",
        "review",
        STORES,
        hints=STORE_WORDS,
    ),
    pattern(
        "AB019",
        "review",
        _ALL_ENVIRONMENT,
        hints="environ env",
        places=frozenset(("script", "command")),
        unless=r"env\s{0,2}=|env:|\benv\s{0,3}\|\s{0,3}grep\s+(?:-\w+\s+)?[\"']?\^?[A-Z_]{4,}",
    ),
    pattern(
        "AB020",
        "review",
        r"169\.254\.169\.254|metadata\.google\.internal|100\.100\.100\.200|169\.254\.170\.2",
        hints="169.254 metadata.google 100.100",
    ),
    pattern(
        "AB021",
        "warn",
        r"\b(?:curl|wget)\b[^\n]{0,200}https?://[^\s]{0,120}\$\((?:cat|env|printenv|base64|tar)\b",
        hints="$(",
        unless=r"localhost|127\.0\.0\.1",
        places=RUNNABLE_ROLES,
    ),
    pattern(
        "AB021",
        "warn",
        rf"(?:\b(?:env|printenv)|{GUARDED_PATHS})[^\n|]{{0,60}}\|[^\n]{{0,80}}\bcurl\b",
        hints="curl",
        also=(r"\s-d\b|--data|\s-F\b|\s-T\b|--upload-file|-X\s?P(?:OS|U)T",),
        unless=r"localhost|127\.0\.0\.1",
        places=RUNNABLE_ROLES,
    ),
    pattern(
        "AB027",
        "review",
        r"\b(?:curl|wget)\b[^\n]{0,80}https?://[^\s\"']{3,160}=\$\{?\w{0,40}(?:SECRET|PASSWORD|"
        r"PRIVATE_KEY)",
        hints="curl wget",
        places=RUNNABLE_ROLES,
    ),
    pattern(
        "AB022",
        "review",
        DROPS,
        hints=(
            "webhook requestbin pipedream hookbin beeceptor ngrok trycloudflare localtunnel "
            "loca.lt serveo interact.sh oast burpcoll canarytok pastebin paste. hastebin "
            "dpaste rentry glot.io ix.io 0x0.st transfer.sh file.io anonfiles gofile "
            "bashupload temp.sh kvdb termbin telegram discord slack"
        ),
    ),
    pattern(
        "AB022",
        "warn",
        r"https?://[\w.-]{0,60}(?:webhook\.site|requestbin|pipedream\.net|hookbin|beeceptor|"
        r"interact\.sh|oast\.\w{2,6}|burpcollaborator|pastebin\.com|0x0\.st|transfer\.sh|"
        r"kvdb\.io|termbin\.com|bashupload|anonfiles|gofile\.io)",
        hints=(
            "webhook.site requestbin pipedream hookbin beeceptor interact.sh oast. burpcoll "
            "pastebin 0x0.st transfer.sh kvdb.io termbin bashupload anonfiles gofile"
        ),
        unless=r"YOUR|<|xxx|\.\.\.|example",
        places=frozenset(("script",)),
    ),
    pattern(
        "AB022",
        "warn",
        _SHADY,
        hints=(
            "webhook requestbin pipedream hookbin beeceptor interact.sh oast burpcoll pastebin "
            "paste. hastebin dpaste rentry glot.io ix.io 0x0.st transfer.sh file.io anonfiles "
            "gofile bashupload temp.sh kvdb termbin telegram discord"
        ),
        also=(
            r"\b(?:curl|wget|requests\.post|fetch\(|urlopen|axios|invoke-webrequest|iwr|post)\b",
            r"\$\(|\$\{?[A-Z_]{3,}|@-|@/|@~|--data|-d\s|-F\s|files?=|json=|data=|body|\|"
            r"\s{0,3}(?:ba|z)?sh|\biex\b",
        ),
        unless=r"hooks\.slack\.com/services/T0+|YOUR|<|\{\{|xxx|\.\.\.|WEBHOOK_URL|example",
        places=RUNNABLE_ROLES,
    ),
    pattern(
        "AB022",
        "warn",
        r"https?://(?:www\.)?(?:rentry\.(?:co|org)|glot\.io/snippets|pastebin\.com/raw|"
        r"paste\.(?:ee|rs)|webhook\.site)/[\w/-]{3,}",
        hints="rentry glot.io pastebin paste. webhook.site",
        unless=r"your|example|xxx|<",
    ),
    pattern(
        "AB022",
        "review",
        r"\bgit\s+push\s+(?:-\w{1,12}\s+)?https?://|\bgh\s+gist\s+create\b|"
        r"\bgh\s+repo\s+create\b[^\n]{0,80}--public[^\n]{0,80}--push",
        hints="git_push gist gh_repo",
        places=RUNNABLE_ROLES,
    ),
    pattern(
        "AB023",
        "warn",
        r"\b(?:dig|nslookup|host|drill|resolve-dnsname|ping|gethostbyname|getaddrinfo|"
        r"dns\.(?:resolve|lookup)\w{0,4})\b[^\n]{0,80}(?:\$\{?\w{2,40}\}?|\$\([^\n)]{1,80}\)|"
        r"\{\w{2,40}\}|['\"`]\s{0,2}\+\s{0,2})['\"]{0,2}\.[\w.-]{0,60}\.[a-z]{2,10}\b",
        hints="dig nslookup host drill dnsname ping getaddrinfo dns.",
        places=RUNNABLE_ROLES,
        unless=(
            r"(?:_dmarc|_domainkey|\$\{?(?:DOMAIN|HOST|SELECTOR|SERVICE|NAMESPACE|subdomain|"
            r"sub|prefix|word)\b)"
        ),
    ),
    pattern(
        "AB024",
        "warn",
        r"\b(?:AKIA[0-9A-Z]{16}|gh[pousr]_[A-Za-z0-9]{36}|github_pat_\w{40,90}|"
        r"xox[abprs]-[\w-]{20,80}|AIza[\w-]{35}|sk-(?:ant-|proj-|or-)?[A-Za-z0-9_-]{32,160}|"
        r"sk_live_\w{20,80}|glpat-[\w-]{20}|npm_[A-Za-z0-9]{36}|hf_[A-Za-z0-9]{30,40}|"
        r"SG\.[\w-]{20,24}\.[\w-]{40,46}|\d{8,10}:AA[\w-]{33})(?!\w)",
        hints="akia gh github_pat xox aiza sk- sk_live glpat npm_ hf_ sg. :aa",
        unless=(
            r"example|x{4,}|1234567|your[_-]|abcdef|\.\.\.|0{6,}|fake|dummy|placeholder|"
            "redacted|<[a-z]"
        ),
        is_firm=True,
    ),
    pattern(
        "AB024",
        "warn",
        r"\bauthorization[\"']?\s{0,2}[:=]\s{0,2}[\"']?(?:bearer|basic|token)\s+"
        r"(?=[A-Za-z0-9+/_.=-]{0,80}\d)(?=[A-Za-z0-9+/_.=-]{0,80}[a-z])[A-Za-z0-9+/_.=-]{24,400}"
        r"(?![\w}>])",
        hints="bearer basic token",
        unless=(
            r"example|x{3,}|1234|your|\.\.\.|fake|dummy|placeholder|redacted|<|\$|\{|abc|here|"
            "sample|test"
        ),
        is_firm=True,
    ),
    pattern(
        "AB024",
        "review",
        r"private[_-]?key[\"']?\s{0,3}[:= ]\s{0,3}[\"']?0x[0-9a-fA-F]{64}\b",
        hints="private",
        unless=r"0x0{8}|ac0974bec39a17e36ba4a6b4d238ff944bacb478cbed5efcae784d7bf4f2ff80",
    ),
    pattern(
        "AB024",
        "warn",
        "-----BEGIN (?:RSA |EC |OPENSSH |DSA |ENCRYPTED )?PRIVATE "
        r"KEY-----\s{0,4}(?:\\n)?[A-Za-z0-9+/]{40}",
        hints="private_key",
        unless=r"example|fake|dummy|test",
        is_firm=True,
    ),
    pattern(
        "AB024",
        "warn",
        "(?:api[_-]?key|secret(?:[_-]?key)?|access[_-]?token|auth[_-]?token|password|passwd|"
        r"private[_-]?key|bearer)[\"']?\s{0,3}(?:[:=]|"
        r"\s)\s{0,3}[\"'](?=[^\"'\n]{0,80}\d)(?=[^\"'\n]{0,80}[A-Za-z])[A-Za-z0-9_+/=.-]{24,120"
        r"}[\"']",
        hints="key secret token passw bearer",
        unless=(
            r"example|x{3,}|1234|your|abc|\.\.\.|fake|dummy|placeholder|redacted|test|<|\$|\{|"
            r"process\.env|environ|getenv|changeme|sample|insert|replace|mock|demo|_key[\"']|"
            r"config\.|settings\."
        ),
        is_firm=True,
    ),
)
