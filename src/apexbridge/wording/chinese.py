"""The Chinese words, by code; the same codes and the same fields as the English ones."""

from apexbridge.wording.phrase import Phrase

PHRASES = {
    # errors
    "error": Phrase("{detail}"),
    "config_invalid": Phrase(
        "来自 {origin} 的设置“{key}”无效：{detail}",
        "运行 apexbridge config 可查看每项设置及其来源。",
    ),
    "config_unreadable": Phrase("无法读取设置文件 {path}：{detail}"),
    "setting_not_found": Phrase("没有名为“{name}”的设置"),
    "extension_failed": Phrase("无法加载扩展“{name}”：{detail}", "请更新或卸载该扩展。"),
    "path_unsafe": Phrase(
        "路径“{path}”越出了它所属的文件夹", "请使用不含 .. 且不经过链接的相对路径。"
    ),
    "path_exists": Phrase("{path} 已存在", "请换一个名称，或先将其移除。"),
    "path_missing": Phrase("{path} 不存在"),
    "storage_failed": Phrase("无法写入 {path}：{detail}"),
    "audit_broken": Phrase(
        "审计日志 {path} 被改动过：第 {line} 行与前一行不相接",
        "请保留该文件作为证据，将其移走后会新建日志。",
    ),
    "skill_error": Phrase("{detail}"),
    "skill_not_found": Phrase("没有名为“{name}”的技能"),
    "skill_invalid": Phrase("{where}：{detail}"),
    "skill_exists": Phrase("名为“{name}”的技能已存在", "请先卸载，或改用更新。"),
    "skill_changed": Phrase(
        "技能“{name}”在此期间已有改动：现在是 {now}，不是 {seen}",
        "请重新查看，然后再修改。",
    ),
    "skill_asleep": Phrase(
        "技能“{name}”在休眠，要等到触及它所关注的文件：{paths}",
        "先读取或修改这样的文件；用户随时可以按名称调用它。",
    ),
    "skill_for_users_only": Phrase("技能“{name}”只能由用户调用", "请用户来调用它。"),
    "skill_untrusted": Phrase(
        "技能“{name}”来自 {source}，它现在的内容还没有人批准",
        "请先查看，然后运行：apexbridge trust {name}",
    ),
    "skill_unhashed": Phrase(
        "无法计算来自 {source} 的“{name}”的文件哈希，因此无法批准",
        "“apexbridge ls --problems”会说明原因。",
    ),
    "skill_not_invocable": Phrase("不能以这种方式调用技能“{name}”：{detail}"),
    "skill_read_only": Phrase(
        "技能“{name}”来自 {origin}，该来源不允许修改", "请复制到自己的文件夹后再修改。"
    ),
    "zip_error": Phrase("{detail}"),
    "zip_invalid": Phrase("无法读取压缩包：{detail}", "请重新打包：apexbridge pack"),
    "zip_no_root_folder": Phrase(
        "压缩包的文件直接位于根目录，而不是在一个文件夹内",
        "请把所有文件放进一个与技能同名的文件夹：my-skill/SKILL.md。apexbridge pack 会自动这样做。",
    ),
    "zip_multiple_roots": Phrase("压缩包内有多个顶层文件夹：{names}", "一个压缩包只放一个技能。"),
    "zip_no_skill_md": Phrase("压缩包的文件夹“{name}”中没有 SKILL.md"),
    "zip_path_traversal": Phrase("压缩包条目“{name}”指向文件夹之外"),
    "zip_absolute_path": Phrase("压缩包条目“{name}”使用了绝对路径"),
    "zip_link_entry": Phrase("压缩包条目“{name}”是链接"),
    "zip_special_entry": Phrase("压缩包条目“{name}”既不是文件也不是文件夹"),
    "zip_reserved_name": Phrase(
        "压缩包条目“{name}”的名称会被某些系统拒绝或改动：{detail}", "请重命名。"
    ),
    "zip_name_invalid": Phrase("压缩包条目“{name}”的名称无法使用：{detail}", "请重命名。"),
    "zip_name_encoding": Phrase(
        "压缩包条目“{name}”的名称既不是 UTF-8 也不是 GB18030",
        "请用 UTF-8 名称重新打包：apexbridge pack",
    ),
    "zip_path_too_long": Phrase("压缩包条目“{name}”的路径过长：{detail}"),
    "zip_duplicate_entry": Phrase("压缩包中“{name}”出现了两次"),
    "zip_name_collision": Phrase(
        "压缩包条目“{name}”与“{other}”互相冲突", "请重命名其中一个：在某些系统上它们是同一个名称。"
    ),
    "zip_ambiguous": Phrase(
        "不同程序会从该压缩包中读出不同内容：{detail}", "请重新打包：apexbridge pack"
    ),
    "zip_unsupported": Phrase("此处不支持这种压缩包：{detail}", "请重新打包：apexbridge pack"),
    "zip_encrypted": Phrase("压缩包已加密", "请不设密码重新打包。"),
    "zip_too_large": Phrase("压缩包过大：{detail}"),
    "source_unreadable": Phrase("无法读取技能来源 {source}：{detail}"),
    "remote_refused": Phrase(
        "不能访问 {url}：{detail}",
        "技能须经 https 从公网主机获取；内网可用 remote.allow_networks 放行。",
    ),
    "remote_unreachable": Phrase("无法获取 {url}：{detail}"),
    "remote_unusable": Phrase("{url} 返回的内容无法使用：{detail}"),
    "remote_digest": Phrase(
        "{url} 与其索引不符：索引列出的 sha256 为 {expected}，实际为 {found}",
        "请告知发布者；该文件不会被使用。",
    ),
    "pins_unreadable": Phrase(
        "无法读取远程技能的记录 {path}：{detail}",
        "请修复或移走该文件；移走后，每个地址都以下次所见为准。",
    ),
    "digest_mismatch": Phrase(
        "{source} 的“{path}”与公布的内容不符，未被使用：{detail}", "请刷新技能并查看有何变化。"
    ),
    "argument_missing": Phrase("技能“{name}”缺少参数“{argument}”", "请写 /{name} {hint}"),
    "tool_error": Phrase("{detail}"),
    "tool_not_found": Phrase("没有名为“{name}”的工具"),
    "tool_input_invalid": Phrase("工具“{name}”的参数不符合要求：{detail}"),
    "tool_failed": Phrase("工具“{name}”执行失败：{detail}"),
    "skill_dangerous": Phrase(
        "技能“{name}”看起来有危险（{level}：{rules}），没有安装",
        "请用 apexbridge scan 查看；--despite-findings 可强制安装。",
    ),
    "not_agreed": Phrase("没有得到同意", "请回答 y，或使用 --yes。"),
    "permission_denied": Phrase("不允许：{detail}"),
    "isolation_unavailable": Phrase(
        "没有可用的沙箱，因此未运行任何内容：{detail}", "运行 apexbridge doctor 查看缺少什么。"
    ),
    "retrieval_error": Phrase("{detail}"),
    "embedder_unavailable": Phrase("向量模型 {name} 没有响应：{detail}"),
    "extra_missing": Phrase("未安装软件包 {name}", "请安装：pip install 'apexbridge[{extra}]'"),
    "embedder_output": Phrase(
        "向量模型 {name} 返回的向量有误：{detail}", "请检查模型与其设置是否匹配"
    ),
    "index_mismatch": Phrase(
        "索引由 {found} 生成，而当前配置为 {expected}", "请重建索引：apexbridge index rebuild"
    ),
    "eval_input_invalid": Phrase("{where}：{detail}"),
    "eval_input_empty": Phrase("{path} 中没有可评估的内容"),
    "eval_queries_missing": Phrase(
        "技能“{path}”没有可用于检查的查询：{detail}",
        "请在 evals/eval_queries.json 中写入一个列表，每项含 query 与 should_trigger。",
    ),
    "model_error": Phrase("{detail}"),
    "model_unavailable": Phrase("模型 {name} 没有响应：{detail}", "请稍后再试。"),
    "model_rejected": Phrase("模型 {name} 拒绝了请求：{detail}"),
    "model_output_invalid": Phrase("无法理解 {name} 的回复：{detail}"),
    "loop_error": Phrase("{detail}"),
    "step_limit": Phrase("已进行 {limit} 轮仍未结束，已停止"),
    "budget_spent": Phrase("已停止：{detail} 已用完"),
    # hints that several errors share
    "did_you_mean": Phrase("是否想用 {names}？"),
    # problems in a skill
    "skill_md_missing": Phrase("缺少 SKILL.md", "技能是一个含有 SKILL.md 文件的文件夹。"),
    "skill_md_case": Phrase("文件名为“{name}”", "请改名为 SKILL.md。"),
    "zip_names_decoded": Phrase(
        "名称未标记为 UTF-8，已按 {encoding} 读取：{names}",
        "如果名称不对，请重新打包：apexbridge pack",
    ),
    "zip_entries_dropped": Phrase("已忽略不属于技能的内容：{names}"),
    "zip_built_files": Phrase(
        "压缩包内含安装或编译产生的文件：{names}", "请将其去掉：没有人能看出它们做什么。"
    ),
    "skill_md_not_a_file": Phrase("SKILL.md 是 {kind}，不是普通文件"),
    "skill_md_too_large": Phrase(
        "SKILL.md 超过 {limit} 字节", "请把细节移到 references/ 下的文件中。"
    ),
    "skill_md_unreadable": Phrase("无法读取 SKILL.md：{detail}"),
    "encoding_utf16": Phrase("SKILL.md 是 UTF-16 编码", "请另存为 UTF-8。"),
    "encoding_nul": Phrase("SKILL.md 第 {line} 行含有 NUL 字节", "请将其删除。"),
    "encoding_not_utf8": Phrase(
        "SKILL.md 不是 UTF-8 编码（第 {line} 行）", "看起来是 {guess}：请转换为 UTF-8。"
    ),
    "frontmatter_missing": Phrase(
        "SKILL.md 必须以 YAML 头部开始：第一行不是 ---",
        "请在文件开头写 ---、name 和 description，再写一行 ---。",
    ),
    "frontmatter_unclosed": Phrase("YAML 头部没有结束", "请用单独一行 --- 结束它。"),
    "frontmatter_too_large": Phrase("YAML 头部超过 {limit} 字节"),
    "frontmatter_too_deep": Phrase("YAML 头部嵌套超过 {limit} 层"),
    "frontmatter_too_many_nodes": Phrase("YAML 头部的值超过 {limit} 个"),
    "frontmatter_alias": Phrase(
        "不允许使用 YAML 别名与合并键（{name}）", "请写出完整的值；若本意是文字，请加引号。"
    ),
    "frontmatter_tag": Phrase("不允许使用 YAML 标签 {name}", "若本意是文字，请给值加引号。"),
    "frontmatter_not_mapping": Phrase("YAML 头部必须是映射", "请按“键: 值”的形式逐行书写。"),
    "frontmatter_repaired": Phrase(
        "“{key}”的值需要加引号；已按加了引号读取", "请写成 {key}: {quoted}"
    ),
    "yaml_invalid": Phrase("头部不是有效的 YAML：{detail}"),
    "duplicate_key": Phrase("键“{key}”出现了两次", "请只保留一个。"),
    "key_not_text": Phrase("头部中有一个键不是普通文字"),
    "unknown_key": Phrase("未知的键“{key}”", "它会被保留，但这里没有任何功能读取它。"),
    "unknown_key_near": Phrase("未知的键“{key}”", "是否想写“{near}”？"),
    "key_not_in_spec": Phrase(
        "键“{key}”不属于 Agent Skills 格式",
        "其他客户端可能拒绝它。写成 metadata 中的 apexbridge.{key} 可保持通用。",
    ),
    "alias_shadowed": Phrase("“{key}”与“{other}”含义相同；采用“{other}”"),
    "field_invalid": Phrase("“{key}”无效：{detail}"),
    "name_missing": Phrase("缺少必填字段 name", "请写 name: {suggestion}"),
    "name_empty": Phrase("name 不能为空"),
    "name_too_long": Phrase("名称有 {length} 个字符；最多允许 {limit} 个"),
    "name_not_lowercase": Phrase("名称“{name}”必须为小写", "请写 {suggestion}"),
    "name_edge_hyphen": Phrase("名称“{name}”不能以连字符开头或结尾"),
    "name_double_hyphen": Phrase("名称“{name}”不能有连续两个连字符"),
    "name_characters": Phrase("名称“{name}”含有字母、数字和连字符以外的字符", "请写 {suggestion}"),
    "name_reserved": Phrase("名称“{name}”是保留名称", "请换一个名称。"),
    "name_mismatch": Phrase("文件夹名为“{folder}”，而技能名为“{name}”", "请让两者同名。"),
    "name_replaced": Phrase("名称“{name}”不可用；该技能以“{used}”为名"),
    "description_missing": Phrase("缺少必填字段 description", "请说明技能做什么、何时使用。"),
    "description_empty": Phrase("description 不能为空", "请说明技能做什么、何时使用。"),
    "description_too_long": Phrase("描述有 {length} 个字符；最多允许 {limit} 个"),
    "description_derived": Phrase("没有描述；采用“{text}”", "请添加描述：技能能否被找到取决于它。"),
    "description_placeholder": Phrase("描述仍是脚手架的原文", "请说明技能做什么、何时使用。"),
    "compatibility_too_long": Phrase("compatibility 有 {length} 个字符；最多允许 {limit} 个"),
    "field_not_text": Phrase("“{key}”必须是文字"),
    "metadata_not_map": Phrase("metadata 必须是文字到文字的映射"),
    "tools_not_text": Phrase(
        "allowed-tools 必须是一段以空格分隔的文字", "请写 allowed-tools: {suggestion}"
    ),
    "tool_pattern_invalid": Phrase("“{pattern}”不是工具模式：{detail}"),
    "path_pattern_invalid": Phrase("“{pattern}”不是路径模式：{detail}"),
    "path_pattern_too_wide": Phrase("“{pattern}”的花括号展开后超过 {limit} 个模式"),
    "hook_invalid": Phrase("“{event}”的钩子无效：{detail}"),
    "reference_missing": Phrase("正文指向“{path}”，但它不存在"),
    "reference_outside": Phrase("正文指向技能之外的“{path}”", "技能只能读取自己的文件。"),
    "body_empty": Phrase("SKILL.md 的头部之后没有任何说明"),
    "tree_too_large": Phrase("文件夹中的文件超过 {limit} 个"),
    "tree_odd_file": Phrase("“{path}”是 {kind}：只能打包文件和文件夹"),
    "skill_shadowed": Phrase("来自 {source} 的“{name}”被来自 {winner} 的同名技能遮盖"),
    "last_good_kept": Phrase("在修好之前继续使用上一个可用版本"),
    "source_twice": Phrase(
        "有两个技能来源都自称 {id}：只使用第一个", "请给每个来源一个自己的标识。"
    ),
    "source_stale": Phrase("未能获取 {url}，使用上一个可用版本：{detail}"),
    "remote_changed": Phrase(
        "{url} 已改变：其 sha256 原为 {old}，现为 {new}",
        "新版本未被使用。请先查看，确认需要后再接受更改。",
    ),
    "remote_entry_invalid": Phrase("索引条目“{name}”无法使用：{detail}"),
    "remote_name_taken": Phrase("名称“{name}”已被 {other} 占用", "请移除其中一个。"),
    "remote_limit": Phrase("只读取了索引的前 {limit} 个条目"),
    "skill_entry_invalid": Phrase("服务器的条目“{name}”无效：{detail}"),
    "digests_missing": Phrase("“{name}”没有附带摘要，内容无法核对，因此未列出"),
    "listing_limit": Phrase("只列出了服务器的前 {limit} 个条目"),
    "folder_limit": Phrase("只扫描了前 {limit} 个文件夹"),
    "folder_unreadable": Phrase("无法读取文件夹：{detail}"),
    "path_external": Phrase(
        "{path} 位于项目之外，未被扫描", "可用 skills.allow_external_paths = true 允许。"
    ),
    "plugin_missing": Phrase("{path} 不是插件：没有 .claude-plugin/plugin.json，也没有列出插件"),
    "plugin_manifest_missing": Phrase(
        "插件“{name}”没有 .claude-plugin/plugin.json",
        '请添加，或在插件市场中写 "strict": false。',
    ),
    "plugin_manifest_invalid": Phrase("清单无法使用：{detail}"),
    "plugin_name_missing": Phrase("插件没有名称；使用“{used}”", '请写 "name": "{used}"。'),
    "plugin_name_replaced": Phrase("插件名称“{name}”不可用；改称“{used}”"),
    "plugin_source_unsupported": Phrase(
        "插件“{name}”不在插件市场之内的路径：{source}",
        "请自行获取，并把它的文件夹加入 plugins.paths。",
    ),
    "plugin_shadowed": Phrase("{path} 中的插件“{name}”被 {winner} 中的同名插件遮盖"),
    "plugin_config_missing": Phrase(
        "正文用到 ${{user_config.{key}}}，但它没有设置",
        "请在 plugins.config 中为 {plugin} 设置 {key}。",
    ),
    "plugin_config_secret": Phrase("正文用到 ${{user_config.{key}}}，但插件声明它是机密：不会填入"),
    "command_unreadable": Phrase("无法读取命令：{detail}"),
    "command_not_text": Phrase("命令不是 UTF-8 文本（第 {line} 行）", "请存为 UTF-8。"),
    "frontmatter_line_breaks": Phrase(
        "YAML 头部含有特殊的行分隔符；已按空格读取", "请删除 U+0085、U+2028 和 U+2029。"
    ),
    "tree_odd_name": Phrase("文件名“{path}”不是 UTF-8", "请改名。"),
    "config_not_here": Phrase(
        "项目不能设置“{key}”（{origin}）：它决定信任什么",
        "请在自己的 config.toml 或环境变量中设置。",
    ),
    "usage": Phrase("命令行有误", "参见 apexbridge --help。"),
    "path_unreadable": Phrase("{path} 无法使用：{detail}"),
    "script_unusable": Phrase("无法运行技能“{name}”：{detail}"),
}
