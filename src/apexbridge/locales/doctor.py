"""The words of the doctor, in English and Chinese: every door tells the same."""

from collections.abc import Mapping

DOCTOR: Mapping[str, tuple[str, str]] = {
    "check_python": ("Python", "Python"),
    "check_platform": ("Platform", "平台"),
    "check_terminal": ("Terminal", "终端"),
    "check_parser": ("YAML parser", "YAML 解析器"),
    "check_data": ("Data folder", "数据文件夹"),
    "check_source": ("Skills: {origin}", "技能：{origin}"),
    "check_extensions": ("Extensions", "扩展"),
    "check_variables": ("Environment", "环境变量"),
    "parser_fast": ("compiled", "编译版"),
    "parser_slow": (
        "pure Python: scans are several times slower; install PyYAML with libyaml",
        "纯 Python：扫描会慢数倍；请安装带 libyaml 的 PyYAML",
    ),
    "terminal_odd": (
        "{encoding}: Chinese text may not show; set PYTHONUTF8=1",
        "{encoding}：中文可能无法显示；请设置 PYTHONUTF8=1",
    ),
    "data_works": ("{path}: writable, moves are atomic", "{path}：可写，移动是原子的"),
    "data_later": ("{path}: will be made when needed", "{path}：需要时会创建"),
    "data_broken": ("{path}: cannot be written: {detail}", "{path}：无法写入：{detail}"),
    "source_counts": (
        "{place}: skills: {skills}, problems: {problems}",
        "{place} 中有 {skills} 个技能、{problems} 个问题",
    ),
    "check_sandbox": ("Sandbox: {name}", "沙箱：{name}"),
    "sandbox_works": ("works, by trying", "经试验可用"),
    "sandbox_chosen": ("works, by trying; scripts run in it", "经试验可用；脚本在其中运行"),
    "sandbox_broken": ("does not: {reason}", "不可用：{reason}"),
    "sandbox_get_bwrap": (
        "does not: {reason}. Install the package 'bubblewrap'",
        "不可用：{reason}。请安装 bubblewrap 软件包",
    ),
    "sandbox_allow_namespaces": (
        "does not: {reason}. Allow bwrap to make user namespaces: by an AppArmor profile, by "
        "sysctl kernel.unprivileged_userns_clone=1, or by the container's seccomp profile",
        "不可用：{reason}。请允许 bwrap 创建用户命名空间：AppArmor 配置、"
        "sysctl kernel.unprivileged_userns_clone=1，或容器的 seccomp 配置",
    ),
    "sandbox_get_landlock": (
        "does not: {reason}. It needs Linux 6.12 or newer, with landlock in the boot option lsm=",
        "不可用：{reason}。需要 Linux 6.12 或更新版本，且启动选项 lsm= 中包含 landlock",
    ),
    "check_bounds": ("Limits of scripts", "脚本限制"),
    "bounds_groups": ("a control group for each run", "每次运行有独立的控制组"),
    "bounds_no_groups": (
        "no control groups: memory is bounded for each process alone",
        "没有控制组：内存只能按单个进程限制",
    ),
    "bounds_users": ("a user of its own where files allow it", "在文件权限允许时使用独立用户"),
    "bounds_no_users": ("as this user", "以当前用户运行"),
    "sandbox_none": (
        "nothing works, so no script will be run",
        "没有可用的沙箱，因此不会运行任何脚本",
    ),
    "none": ("none", "无"),
    "variables_unknown": ("not settings: {names}", "不是设置项：{names}"),
    "variables_ok": ("settings from the environment: {count}", "{count} 项设置来自环境变量"),
}
