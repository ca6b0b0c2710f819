"""What a skill brings in from elsewhere, as patterns: downloads, packages, addresses."""

import re

from apexbridge.scanner.dangerous_commands import INTERPRETERS, SHELLS
from apexbridge.scanner.pattern_matcher import RUNNABLE_ROLES, Pattern, pattern

_KNOWN_INSTALLERS = (
    r"(?:bun\.sh|astral\.sh|rustup\.rs|get\.docker\.com|deno\.(?:land|com)|"
    r"githubusercontent\.com/(?:Homebrew|nvm-sh|ohmyzsh"
    r"|helm|rbenv|pyenv|anthropics|aquasecurity|anchore|golangci|huggingface|exploreomni)|fly\.io|nodesource\.com|"
    r"claude\.ai/install|ollama\.(?:com|ai)"
    r"|install\.python-poetry\.org|pypa\.io|get\.pnpm\.io|foundry\.paradigm\.xyz|"
    r"sdk\.cloud\.google\.com|cli\.github\.com|volta\.sh"
    r"|nixos\.org|determinate\.systems|get\.sdkman\.io|starship\.rs|mise\.(?:run|jdx\.dev)|"
    r"vite\.plus|pixi\.sh|tailscale\.com"
    r"|awscli\.amazonaws\.com|dot\.net|aka\.ms|packages\.microsoft\.com|apt\.kubernetes\.io|"
    r"dl\.google\.com|scoop\.sh|chocolatey\.org"
    r"|release\.solana\.com|install\.anza\.xyz|sh\.rustup|k3s\.io|cursor\.com/install|"
    r"cli\.run\.nu|raw\.githubusercontent\.com/astral-sh"
    r"|hf\.co/|huggingface\.co/|resend\.com/install|sentry\.io/get-cli|cli\.doppler\.com|install\.duckdb\.org|"
    r"get\.helm\.sh|railway\.(?:app|com)/install"
    r"|getcomposer\.org|install\.meteor\.com|temporal\.download|fnm\.vercel\.app|"
    r"encore\.dev/install|moonrepo\.dev|supabase\.com|cli\.coderabbit\.ai"
    r"|cli\.inference\.sh|cli\.tavily\.com|rclone\.org|fluxcd\.io"
    r"|download\.docker\.com|deb\.debian|apt\.postgresql|pgp\.mit|keyserver)"
)
KNOWN_INSTALLERS = re.compile(_KNOWN_INSTALLERS, re.IGNORECASE)
_IP = (
    r"https?://(?!127\.|0\.0\.0\.0|10\.|192\.168\.|172\.(?:1[6-9]|2\d|3[01])\.|169\.254|"
    r"1\.2\.3\.4|8\.8\.)\d{1,3}\.\d{1,3}\.\d{1,3}\.\d{1,3}"
)

INCOMING: tuple[Pattern, ...] = (
    pattern(
        "AB011",
        "warn",
        rf"\b(?:curl|wget)\b[^\n|]{{0,300}}\|\s{{0,4}}{INTERPRETERS}(?!\s+-[mc]\b)",
        hints="curl wget",
        unless=(
            rf"{_KNOWN_INSTALLERS}|localhost|127\.0\.0\.1|\|\s*(?:python[\d.]*|node|ruby|perl|"
            rf"php)\s+-\w{{0,2}}[cem]|json\.tool"
        ),
        places=RUNNABLE_ROLES,
    ),
    pattern(
        "AB011",
        "review",
        rf"\b(?:curl|wget)\b[^\n|]{{0,300}}\|\s{{0,4}}{SHELLS}",
        hints="curl wget",
        also=(_KNOWN_INSTALLERS,),
        places=RUNNABLE_ROLES,
    ),
    pattern(
        "AB011",
        "warn",
        rf"(?:{INTERPRETERS}\s+-[ce]\s+[\"']?\$\(|{SHELLS}\s+<\(|\beval\s+[\"']?\$\(|\bsource\s+<\(|"
        rf"\.\s+<\()\s{{0,3}}(?:curl|wget)\b",
        hints="curl wget",
        unless=_KNOWN_INSTALLERS,
        places=RUNNABLE_ROLES,
    ),
    pattern(
        "AB011",
        "warn",
        r"\b(?:curl|wget)\b[^\n]{0,300}(?:-o|-O|>|--output)\s{0,3}[^\n;&|]{1,120}(?:&&|"
        r";)\s{0,3}(?:sudo\s+)?(?:chmod\s+(?:\+x|[0-7]{3,4})|(?:ba|z)?sh\s|\./|python3?\s|"
        r"nohup\s)",
        hints="curl wget",
        unless=_KNOWN_INSTALLERS,
        places=RUNNABLE_ROLES,
    ),
    pattern(
        "AB012",
        "warn",
        r"\b(?:iwr|irm|invoke-webrequest|invoke-restmethod|downloadstring|downloadfile|wget|"
        r"curl)\b[^\n]{0,300}\|\s{0,4}(?:iex|invoke-expression)\b|"
        r"\b(?:iex|invoke-expression)\b[^\n]{0,60}\b(?:iwr|irm|invoke-webrequest|"
        r"invoke-restmethod|downloadstring|net\.webclient)\b",
        hints="iex invoke-expression",
        unless=_KNOWN_INSTALLERS,
        places=RUNNABLE_ROLES,
    ),
    pattern(
        "AB012",
        "review",
        r"\b(?:iwr|irm|invoke-webrequest|invoke-restmethod|downloadstring)\b[^\n]{0,300}\|"
        r"\s{0,4}(?:iex|invoke-expression)\b",
        hints="iex invoke-expression",
        also=(_KNOWN_INSTALLERS,),
        places=RUNNABLE_ROLES,
    ),
    pattern(
        "AB012",
        "warn",
        r"\b(?:mshta|regsvr32|rundll32|certutil|bitsadmin)(?:\.exe)?\b[^\n]{0,120}https?://|"
        r"\bpowershell(?:\.exe)?\b[^\n]{0,80}\s-(?:e|en|enc|"
        r"encodedcommand)\s+[A-Za-z0-9+/=]{20,}",
        hints="mshta regsvr32 rundll32 certutil bitsadmin powershell",
        places=RUNNABLE_ROLES,
    ),
    pattern(
        "AB013",
        "review",
        r"\b(?:pip3?|uv pip|uv tool|pipx)\s+install\b[^\n]{0,120}(?:\s|=|"
        r"git\+)(?:git\+)?https?://(?!(?:github\.com|pypi\.org|download\.pytorch\.org|"
        r"files\.pythonhosted)\b)",
        hints="install",
        places=RUNNABLE_ROLES,
    ),
    pattern(
        "AB013",
        "warn",
        "(?:--registry[ =]|--(?:extra-)?index-url[ =]|--trusted-host[ "
        r"=])\s{0,2}[\"']?(?:https?://)?(?!registry\.npmjs|registry\.yarnpkg|"
        r"registry\.npmmirror|pypi\.org|npm\.pkg\.github|download\.pytorch|pypi\.tuna|"
        r"mirrors?\.|localhost|127\.|test\.pypi|pypi\.nvidia|https?://|<|\$|\{)[\w.-]{4,}",
        hints="--registry index-url --trusted-host",
        also=(r"\b(?:npx|npm|pnpm|yarn|bun|pip3?|uv|uvx|pipx)\b",),
        places=RUNNABLE_ROLES,
        is_firm=True,
        unless=(
            r"jsr\.io|registry\.npmjs|pytorch\.org|npmmirror|tuna\.tsinghua|aliyun|example\.|"
            r"your|internal|pkg\.dev|codeartifact|azure|jfrog|artifactory|nexus|nvidia"
        ),
    ),
    pattern(
        "AB013",
        "review",
        r"\b(?:npm|pnpm|yarn|bun)\s+(?:install|i|add)\b[^\n]{0,80}\s(?:git\+)?https?://[^\s]{4,"
        r"200}|\b(?:npm|pnpm|bun)\s+(?:install|i|add)\b[^\n]{0,60}\sgit\+ssh",
        unless="--registry",
        hints="npm pnpm yarn bun",
        places=RUNNABLE_ROLES,
    ),
    pattern(
        "AB013",
        "review",
        r"\"(?:pre|post)?install\"\s{0,3}:\s{0,3}\"[^\"\n]{0,200}(?:node\s|curl|wget|sh\s|"
        "python|https?://)",
        hints='install"',
    ),
    pattern(
        "AB015",
        "info",
        r"\b(?:npx|uvx|pnpm dlx|bunx)\s+(?:-y\s+|--yes\s+)?(?![\w./-]{0,60}@\d)(?!-)[@\w][\w./@"
        "-]{1,80}",
        hints="npx uvx dlx bunx",
        places=RUNNABLE_ROLES,
    ),
    pattern(
        "AB015",
        "info",
        r"\b(?:pip3?|uv pip)\s+install\s+(?!-)(?![^\n]{0,120}==)[\w\[\]-]{2,60}",
        hints="pip",
        places=RUNNABLE_ROLES,
    ),
    pattern(
        "AB025",
        "warn",
        _IP,
        hints="http",
        also=(
            r"curl|wget|iwr|irm|invoke-|requests\.|fetch\(|urlopen|urlretrieve|nc\b|axios|"
            r"http\.|download|post|send|upload",
        ),
        unless=r"example|203\.0\.113\.|198\.51\.100\.|192\.0\.2\.|x-forwarded|your",
    ),
    pattern(
        "AB025",
        "review",
        r"https?://(?:bit\.ly|tinyurl\.com|t\.ly|is\.gd|rb\.gy|cutt\.ly|goo\.gl|shorturl\.at|"
        r"rebrand\.ly|v\.gd|tiny\.cc)/\w",
        hints="bit.ly tinyurl t.ly is.gd rb.gy cutt.ly goo.gl shorturl rebrand.ly v.gd tiny.cc",
    ),
    pattern(
        "AB025",
        "warn",
        r"https?://[\w.-]{1,100}\.onion\b",
        hints=".onion",
    ),
    pattern(
        "AB025",
        "review",
        r"https?://(?:[\w-]{1,60}\.){1,3}(?:duckdns\.org|no-ip\.\w{2,4}|ddns\.net|hopto\.org|"
        r"zapto\.org|dynu\.net|sslip\.io|nip\.io|000webhostapp\.com|onrender\.com|"
        r"herokuapp\.com|glitch\.me|repl\.co|railway\.app|pythonanywhere\.com|surge\.sh)\b",
        hints=(
            "duckdns no-ip ddns.net hopto zapto dynu sslip nip.io 000webhost onrender heroku "
            "glitch repl.co railway pythonanywhere surge.sh"
        ),
        also=(r"curl|wget|requests\.|fetch\(|urlopen|axios|post|send|upload|download|iwr|git ",),
    ),
    pattern(
        "AB025",
        "review",
        r"https?://(?:[\w-]{1,60}\.){1,3}(?:top|tk|ml|ga|cf|gq|click|icu|buzz|monster|zip|mov|cyou|"
        r"su|pw|cam|sbs|cfd)(?=[/\s\"'`)\]:]|$)",
        hints=(
            ".top .tk .ml .ga .cf .gq .click .icu .buzz .monster .zip .mov .cyou .su .pw .cam "
            ".sbs .cfd"
        ),
    ),
)
