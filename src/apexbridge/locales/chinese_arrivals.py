"""The Chinese words about archives and sources beyond folders, by code."""

from apexbridge.locales.phrase import LocalizedText

ARRIVALS = {
    "zip_error": LocalizedText("{detail}"),
    "zip_invalid": LocalizedText("无法读取压缩包：{detail}", "请重新打包：apexbridge pack"),
    "zip_no_root_folder": LocalizedText(
        "压缩包的文件直接位于根目录，而不是在一个文件夹内",
        "请把所有文件放进一个与技能同名的文件夹：my-skill/SKILL.md。apexbridge pack 会自动这样做。",
    ),
    "zip_multiple_roots": LocalizedText(
        "压缩包内有多个顶层文件夹：{names}", "一个压缩包只放一个技能。"
    ),
    "zip_no_skill_md": LocalizedText("压缩包的文件夹“{name}”中没有 SKILL.md"),
    "zip_path_traversal": LocalizedText("压缩包条目“{name}”指向文件夹之外"),
    "zip_absolute_path": LocalizedText("压缩包条目“{name}”使用了绝对路径"),
    "zip_link_entry": LocalizedText("压缩包条目“{name}”是链接"),
    "zip_special_entry": LocalizedText("压缩包条目“{name}”既不是文件也不是文件夹"),
    "zip_reserved_name": LocalizedText(
        "压缩包条目“{name}”的名称会被某些系统拒绝或改动：{detail}", "请重命名。"
    ),
    "zip_name_invalid": LocalizedText("压缩包条目“{name}”的名称无法使用：{detail}", "请重命名。"),
    "zip_name_encoding": LocalizedText(
        "压缩包条目“{name}”的名称既不是 UTF-8 也不是 GB18030",
        "请用 UTF-8 名称重新打包：apexbridge pack",
    ),
    "zip_path_too_long": LocalizedText("压缩包条目“{name}”的路径过长：{detail}"),
    "zip_duplicate_entry": LocalizedText("压缩包中“{name}”出现了两次"),
    "zip_name_collision": LocalizedText(
        "压缩包条目“{name}”与“{other}”互相冲突", "请重命名其中一个：在某些系统上它们是同一个名称。"
    ),
    "zip_ambiguous": LocalizedText(
        "不同程序会从该压缩包中读出不同内容：{detail}", "请重新打包：apexbridge pack"
    ),
    "zip_unsupported": LocalizedText(
        "此处不支持这种压缩包：{detail}", "请重新打包：apexbridge pack"
    ),
    "zip_encrypted": LocalizedText("压缩包已加密", "请不设密码重新打包。"),
    "zip_too_large": LocalizedText("压缩包过大：{detail}"),
    "remote_refused": LocalizedText(
        "不能访问 {url}：{detail}",
        "技能须经 https 从公网主机获取；内网可用 remote.allow_networks 放行。",
    ),
    "remote_unreachable": LocalizedText("无法获取 {url}：{detail}"),
    "remote_unusable": LocalizedText("{url} 返回的内容无法使用：{detail}"),
    "remote_digest": LocalizedText(
        "{url} 与其索引不符：索引列出的 sha256 为 {expected}，实际为 {found}",
        "请告知发布者；该文件不会被使用。",
    ),
    "zip_names_decoded": LocalizedText(
        "名称未标记为 UTF-8，已按 {encoding} 读取：{names}",
        "如果名称不对，请重新打包：apexbridge pack",
    ),
    "zip_entries_dropped": LocalizedText("已忽略不属于技能的内容：{names}"),
    "zip_built_files": LocalizedText(
        "压缩包内含安装或编译产生的文件：{names}", "请将其去掉：没有人能看出它们做什么。"
    ),
    "remote_changed": LocalizedText(
        "{url} 已改变：其 sha256 原为 {old}，现为 {new}",
        "新版本未被使用。请先查看，确认需要后再接受更改。",
    ),
    "remote_entry_invalid": LocalizedText("索引条目“{name}”无法使用：{detail}"),
    "remote_name_taken": LocalizedText("名称“{name}”已被 {other} 占用", "请移除其中一个。"),
    "remote_limit": LocalizedText("只读取了索引的前 {limit} 个条目"),
    "plugin_missing": LocalizedText(
        "{path} 不是插件：没有 .claude-plugin/plugin.json，也没有列出插件"
    ),
    "plugin_manifest_missing": LocalizedText(
        "插件“{name}”没有 .claude-plugin/plugin.json",
        '请添加，或在插件市场中写 "strict": false。',
    ),
    "plugin_manifest_invalid": LocalizedText("清单无法使用：{detail}"),
    "plugin_name_missing": LocalizedText("插件没有名称；使用“{used}”", '请写 "name": "{used}"。'),
    "plugin_name_replaced": LocalizedText("插件名称“{name}”不可用；改称“{used}”"),
    "plugin_source_unsupported": LocalizedText(
        "插件“{name}”不在插件市场之内的路径：{source}",
        "请自行获取，并把它的文件夹加入 plugins.paths。",
    ),
    "plugin_shadowed": LocalizedText("{path} 中的插件“{name}”被 {winner} 中的同名插件遮盖"),
    "plugin_config_missing": LocalizedText(
        "正文用到 ${{user_config.{key}}}，但它没有设置",
        "请在 plugins.config 中为 {plugin} 设置 {key}。",
    ),
    "plugin_config_secret": LocalizedText(
        "正文用到 ${{user_config.{key}}}，但插件声明它是机密：不会填入"
    ),
}
