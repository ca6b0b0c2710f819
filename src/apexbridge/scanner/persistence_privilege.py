"""What takes more rights, wipes traces, hides data in files or copies work away, as patterns."""

from apexbridge.scanner.pattern_matcher import RUNNABLE_ROLES, Pattern, pattern
from apexbridge.scanner.scan_input import LineRole

_CODE: frozenset[LineRole] = frozenset(("script", "command"))
_PROSE: frozenset[LineRole] = frozenset(("instruction", "reference", "data"))
_REFUSED = r"\b(?:never|do not|don't|must not|should not|avoid|refuse|prevent)\b|不要|切勿|禁止"

RIGHTS: tuple[Pattern, ...] = (
    pattern(
        "AB035",
        "warn",
        r"\busermod\s+[^\n]{0,20}-\w{0,3}G\s+[\w,]{0,30}\b(?:sudo|wheel|root|adm|admin)\b|"
        r"\buseradd\b[^\n]{0,40}-u\s?0\b|\bchmod\s+(?:-R\s+)?[a-z]{0,2}\+s\b|\bpkexec\s+\S|"
        r"\bsudo\s+-S\b|\bnsenter\s+[^\n]{0,20}(?:-t|--target)[ =]?1\b|"
        r"-v\s+/:/\w|\bmount\s+-o\s+remount,rw\s+/(?:\s|$)|[\"']runas[\"']|"
        r"\bPermitRootLogin\s+yes\b|\bnet\s+localgroup\s+administrators\b[^\n]{0,40}/add|"
        r"\bdscl\b[^\n]{0,60}-append\s+/Groups/admin|\bos\.set(?:e|re)?uid\(\s?0|\bvisudo\b",
        hints=(
            "usermod useradd chmod pkexec sudo_-s nsenter -v_/:/ remount runas permitrootlogin "
            "localgroup dscl setuid seteuid visudo"
        ),
        places=RUNNABLE_ROLES,
    ),
    pattern(
        "AB035",
        "warn",
        r"\bchmod\s+(?:-R\s+)?0?777\s+[\"']?(?:/(?=[\s\"']|$)|/(?:etc|usr|bin|var|opt|root)\b|"
        r"~/?(?=[\s\"']|$)|~/\.|\$HOME\b)|\bos\.chmod\(\s?[\"']/(?:etc|usr|bin)|"
        r"\bchown\b[^\n]{0,30}\s/etc/",
        hints="777 os.chmod chown",
        places=RUNNABLE_ROLES,
    ),
    pattern(
        "AB034",
        "warn",
        r">>?\s{0,3}[\"']?/etc/(?:hosts|profile|environment|ld\.so\.preload|resolv\.conf|"
        r"ssh/|pam\.d/|bash\.bashrc|zshrc)|\btee\s+(?:-a\s+)?/etc/(?:hosts|profile|environment|"
        r"ld\.so|ssh/|pam\.d/)|\bsed\s+-i\b[^\n]{0,120}/etc/(?:ssh/|passwd|hosts|pam|sudoers)|"
        r"open\(\s?[\"']/etc/[\w./-]{2,40}[\"']\s?,\s?[\"'][wa]|\.config/autostart\b|"
        r"\bwinreg\.SetValueEx\(|\bexport\s+(?:PYTHONPATH|PATH|NODE_PATH)=[\"']?(?:/tmp|/var/tmp|"
        r"/dev/shm|~/\.cache|\$HOME/\.cache)|\bexport\s+(?:PROMPT_COMMAND|BASH_ENV|"
        r"PYTHONSTARTUP|NODE_OPTIONS)=[\"']?[^\n]{0,60}(?:/tmp|curl|--require|\.cache)",
        hints=(
            "/etc/ autostart winreg pythonpath path=/tmp path=~ node_path prompt_command bash_env "
            "pythonstartup node_options path=/var path=/dev"
        ),
        places=RUNNABLE_ROLES,
    ),
    pattern(
        "AB034",
        "warn",
        r"\balias\s+(?:sudo|ssh|git|ls|cd|npm|pip3?|python3?|docker|kubectl|gpg|su)=[^\n]{2,120}"
        r">>\s{0,3}[\"']?(?:~|\$HOME|\$\{HOME\})/\.",
        hints="alias",
        places=RUNNABLE_ROLES,
    ),
)

TRACES: tuple[Pattern, ...] = (
    pattern(
        "AB074",
        "warn",
        r"\b(?:shred|rm|unlink|truncate)\b[^\n]{0,60}(?:/var/log/|_history\b|/var/mail|"
        r"\.viminfo)|(?<!>)>\s{0,2}(?:/var/log/|~/\.(?:bash|zsh)_history)|"
        r"\bfind\s+/\S{0,30}\s[^\n]{0,60}\*?\.log[\"']?\s[^\n]{0,20}-delete|\bwevtutil\s+cl\b|"
        r"\bClear-(?:EventLog|History)\b|\bgit\s+reflog\s+expire\b[^\n]{0,60}--expire=now|"
        r"os\.(?:remove|unlink)\(\s?__file__|\brm\s+[^\n]{0,12}[\"']?\$0\b|"
        r"\bunset\s+HISTFILE\b|\bset\s+\+o\s+history\b",
        hints=(
            "/var/log _history /var/mail viminfo .log wevtutil clear- reflog __file__ $0 histfile "
            "history"
        ),
        places=_CODE,
    ),
    pattern(
        "AB074",
        "warn",
        r"\b(?:delete|clear|remove|wipe|erase|purge|clean up|scrub)\b[^\n.]{0,30}\b(?:logs?|"
        r"traces?|evidence|(?:shell|command|bash|browser|chat|commit) history|audit (?:trail|logs?"
        r"|entries|records?)|log (?:files?|entries))\b[^\n.]{0,60}\b(?:so (?:that|nobody|no one|"
        r"nothing)|no trace|to (?:avoid|hide|prevent|conceal)|afterwards?|after (?:the|each|"
        r"every)|unnoticed|cannot be (?:seen|traced|found)|when (?:done|finished))\b|"
        r"\bleav(?:e|es|ing) no (?:trace|evidence|record|log)s?\b|\bcover (?:your|its|our|the) "
        r"tracks\b|不留(?:下)?(?:任何)?痕迹|(?:删除|清除|清理|抹去)[^\n。]{0,6}(?:日志|痕迹|历史记录|"
        r"审计记录)[^\n。]{0,12}(?:以免|避免|防止|以便隐藏)",
        hints="trace evidence history audit log tracks 痕迹 日志 历史记录 审计记录",
        is_phrase=True,
        places=_PROSE,
        unless=_REFUSED + r"|branch|rotate|older than|retention|temp|debug log",
    ),
    pattern(
        "AB074",
        "warn",
        r"\b(?:disable|turn off|switch off|suspend|pause|stop|mute)\w{0,3}\b[^\n.]{0,16}"
        r"\b(?:audit(?:ing)?|audit logs?|logging|event log|history|monitoring|alerts?|"
        r"alerting|telemetry collection)\b[^\n.]{0,30}\b(?:before|during|while|for this|until|"
        r"so that|first)\b|(?:关闭|停用|暂停)[^\n。]{0,6}(?:审计|日志|监控|告警)"
        r"[^\n。]{0,12}(?:再|然后|期间|之前)",
        hints="audit logging log history monitoring alert 审计 日志 监控 告警",
        is_phrase=True,
        places=_PROSE,
        unless=_REFUSED + r"|maintenance window|alert fatigue|deploy",
    ),
)

CARRIERS: tuple[Pattern, ...] = (
    pattern(
        "AB073",
        "warn",
        r"\bsteghide\s+embed\b|\bimport\s+(?:stepic|stegano)\b|\bfrom\s+stegano\b|\bstegano\.\w|"
        r"\boutguess\s+-d\b|\bzsteg\b|\bopenstego\b|"
        r"\bexiftool\b[^\n]{0,60}-\w{3,20}=[\"']?(?:\$\(|`|\$\w)|"
        r"\bcat\s+[\w./-]{1,60}\.(?:png|jpe?g|gif|pdf|mp3)\s+[^\n>|]{1,60}\s?>\s?[\w./-]{1,60}"
        r"\.(?:png|jpe?g|gif|pdf|mp3)\b|putpixel\([^\n]{0,60}\bord\(",
        hints="steg stepic outguess exiftool putpixel cat_ .png .jpg",
        places=_CODE,
    ),
    pattern(
        "AB073",
        "warn",
        r"\b(?:hide|embed|encode|conceal|smuggle|store|write|place|put|pack|tuck)\w{0,3}\b"
        r"[^\n.]{0,60}\b(?:in|into|inside|within|as) (?:the |an |a )?(?:\w{1,12} ){0,2}(?:least "
        r"significant bits?|lsbs?|pixels?|image metadata|exif(?: data| fields?)?|whitespace|"
        r"zero[- ]width \w{4,12}|alt[- ]text|file ?names?|html comments?|invisible \w{4,12}|"
        r"white text|hidden (?:sheet|layer|field|column|slide|text|comment)s?|"
        r"document properties|dns (?:labels?|names?|quer(?:y|ies))|http headers?|user-agent)\b",
        hints=(
            "bit lsb pixel metadata exif whitespace zero alt name comment invisible white hidden "
            "properties dns header user-agent"
        ),
        also=(
            r"\b(?:secrets?|credentials?|tokens?|keys?|passwords?|conversation|prompts?|env\b|"
            r"environment|payload|data|contents?|base64|encoded|project|context|input|"
            r"instructions?|message|summary|records?|source)\b",
        ),
        is_phrase=True,
        places=frozenset(("instruction",)),
        unless=_REFUSED
        + r"|detect|accessib|descriptive|authorization|api[- ]key|convention|example|timestamp|"
        r"version|date\b|scan|check for|\btest id",
    ),
    pattern(
        "AB073",
        "warn",
        r"(?:把|将)[^\n。]{0,30}(?:隐藏|隐写|藏|嵌入|编码)(?:在|到|进|入|于)[^\n。]{0,8}(?:像素|零宽|图片|元数据|"
        r"最低有效位|文件名|注释|隐藏(?:列|工作表|文本))",
        hints="隐 藏 嵌入 编码",
        is_phrase=True,
        places=frozenset(("instruction",)),
        unless=_REFUSED,
    ),
)

COPIES: tuple[Pattern, ...] = (
    pattern(
        "AB021",
        "warn",
        r"\btar\b[^\n|]{0,80}\|\s{0,3}(?:nc|ncat|curl|ssh|socat|openssl)\b|"
        r"\b(?:aws\s+s3\s+(?:sync|cp)|rclone\s+(?:copy|sync)|gsutil\s+[^\n]{0,12}(?:cp|rsync)|"
        r"azcopy\s+copy|rsync\s+-\w{1,6})\s+[\"']?(?:~|\$HOME|/home|/root|/Users)/?[\"']?\s|"
        r"\bgit\s+remote\s+add\b[^\n]{0,120}(?:&&|;)\s{0,3}git\s+push\b[^\n]{0,40}--(?:all|mirror)|"
        r"\bkubectl\s+get\s+secrets?\b[^\n]{0,40}(?:-A|--all-namespaces)[^\n]{0,30}-o\s?(?:yaml|"
        r"json)|--post-file[= ][\"']?(?:/etc/|~/\.)|\b(?:curl|wget)\b[^\n]{0,120}(?:@|--post-file"
        r"[= ])[\"']?/etc/(?:passwd|shadow)",
        hints="tar_ aws_s3 rclone gsutil azcopy rsync git_remote kubectl --post-file /etc/",
        places=RUNNABLE_ROLES,
        unless=r"localhost|127\.0\.0\.1|your-|example|backup server",
    ),
    pattern(
        "AB011",
        "warn",
        r"\bexec\(\s?(?:compile\(\s?)?(?:requests|httpx|urllib\.request)\.(?:get|urlopen)\(|"
        r"\bexec\(\s?urlopen\(|\beval\(\s?(?:await\s+)?\(?(?:requests\.get|await fetch|fetch)\(|"
        r"\bimportlib\b[^\n]{0,60}https?://|\bos\.system\(\s?(?:requests|urlopen|input\()|"
        r"\bnew Function\(\s?(?:await\s)?[^\n]{0,20}(?:fetch|response|body|data)\b|"
        r"\bsubprocess\.\w{3,12}\([^\n]{0,20}(?:requests\.get|urlopen)\(",
        hints="exec( eval( importlib os.system new_function subprocess",
        places=_CODE,
        is_firm=True,
    ),
    pattern(
        "AB037",
        "warn",
        r"\bwhile\s+(?:true|:)\s{0,2};\s{0,2}do\s[^\n]{0,30}(?:curl|wget|ab\s|ping\s+-f)|"
        r"\byes\s+>\s{0,2}/dev/null\s{0,2}&|\bstress(?:-ng)?\s+--(?:cpu|vm)\b|"
        r"\bcat\s+/dev/(?:zero|urandom)\s+>\s{0,2}[~/\w]",
        hints="while_true while_: yes_ stress /dev/zero /dev/urandom",
        places=_CODE,
        unless=r"sleep|health|localhost|127\.0",
    ),
)

FOOTHOLDS = (*RIGHTS, *TRACES, *CARRIERS, *COPIES)
