"""The Chinese words, by code; the same codes and the same fields as the English ones."""

from apexbridge.locales.chinese_arrivals import ARRIVALS
from apexbridge.locales.chinese_checks import CHECKS
from apexbridge.locales.chinese_permissions import PERMISSIONS
from apexbridge.locales.chinese_server import SERVER
from apexbridge.locales.phrase import LocalizedText

PHRASES = {
    # errors
    "error": LocalizedText("{detail}"),
    "config_invalid": LocalizedText(
        "来自 {origin} 的设置“{key}”无效：{detail}",
        "运行 apexbridge config 可查看每项设置及其来源。",
    ),
    "config_unreadable": LocalizedText("无法读取设置文件 {path}：{detail}"),
    "setting_not_found": LocalizedText("没有名为“{name}”的设置"),
    "extension_failed": LocalizedText("无法加载扩展“{name}”：{detail}", "请更新或卸载该扩展。"),
    "path_unsafe": LocalizedText(
        "路径“{path}”越出了它所属的文件夹", "请使用不含 .. 且不经过链接的相对路径。"
    ),
    "path_exists": LocalizedText("{path} 已存在", "请换一个名称，或先将其移除。"),
    "path_missing": LocalizedText("{path} 不存在"),
    "storage_failed": LocalizedText("无法写入 {path}：{detail}"),
    "audit_broken": LocalizedText(
        "审计日志 {path} 被改动过：第 {line} 行与前一行不相接",
        "请保留该文件作为证据，将其移走后会新建日志。",
    ),
    "skill_error": LocalizedText("{detail}"),
    "skill_not_found": LocalizedText("没有名为“{name}”的技能"),
    "data_in_use": LocalizedText(
        "另一个服务器正在使用 {path}（进程 {process}）",
        "请先停止它，或用 data_dir 指定另一个数据目录。",
    ),
    "skill_invalid": LocalizedText("{where}：{detail}"),
    "skill_exists": LocalizedText("名为“{name}”的技能已存在", "请先卸载，或改用更新。"),
    "skill_changed": LocalizedText(
        "技能“{name}”在此期间已有改动：现在是 {now}，不是 {seen}",
        "请重新查看，然后再修改。",
    ),
    "version_unknown": LocalizedText(
        "技能“{name}”没有“{version}”所指的版本", "保留的版本：{known}"
    ),
    "version_damaged": LocalizedText(
        "技能“{name}”的版本 {version} 已损坏，没有恢复",
        "请用 apexbridge versions {name} 查看其他版本。",
    ),
    "version_older": LocalizedText(
        "技能“{name}”的版本 {version} 比现有的 {now} 旧",
        "请用 apexbridge rollback 回退，或加 --allow-older。",
    ),
    "version_in_use": LocalizedText(
        "技能“{name}”的版本 {version} 正在使用，不能删除",
        "请先改用其他版本，或卸载整个技能。",
    ),
    "version_of_another": LocalizedText(
        "这是技能“{other}”，不是“{name}”的版本", "请把它作为单独的技能安装。"
    ),
    "skill_pinned": LocalizedText(
        "技能“{name}”已固定在版本 {version}", "用 apexbridge pin {name} --off 解除固定。"
    ),
    "skill_asleep": LocalizedText(
        "技能“{name}”在休眠，要等到触及它所关注的文件：{paths}",
        "先读取或修改这样的文件；用户随时可以按名称调用它。",
    ),
    "skill_for_users_only": LocalizedText("技能“{name}”只能由用户调用", "请用户来调用它。"),
    "skill_name_missing": LocalizedText("没有指明技能", "请写明：/名称 参数。"),
    "skill_for_models_only": LocalizedText("技能“{name}”只能由模型调用"),
    "skill_no_prompt": LocalizedText("技能“{name}”没有可执行的说明"),
    "skill_out_of_reach": LocalizedText("现在无法取得技能“{name}”：{detail}", "请稍后再试。"),
    "inline_command_failed": LocalizedText(
        "技能“{name}”正文中的命令失败：{detail}", "命令：{command}"
    ),
    "fork_recursion": LocalizedText("技能“{name}”已在这一串子会话中运行", "请不用它来完成任务。"),
    "fork_too_deep": LocalizedText(
        "技能“{name}”所需的子会话超过 {limit} 层", "请不用它来完成任务。"
    ),
    "fork_too_many": LocalizedText(
        "本轮的子会话已达 {limit} 个，不能再运行技能“{name}”", "请根据已有的结果继续。"
    ),
    "call_repeated": LocalizedText("已经用相同的参数调用过", "结果在上文，请继续。"),
    "hook_blocked": LocalizedText("钩子不允许 {name}：{detail}"),
    "skill_untrusted": LocalizedText(
        "技能“{name}”来自 {source}，它现在的内容还没有人批准",
        "请先查看，然后运行：apexbridge trust {name}",
    ),
    "skill_unhashed": LocalizedText(
        "无法计算来自 {source} 的“{name}”的文件哈希，因此无法批准",
        "“apexbridge ls --problems”会说明原因。",
    ),
    "skill_not_invocable": LocalizedText("不能以这种方式调用技能“{name}”：{detail}"),
    "skill_read_only": LocalizedText(
        "技能“{name}”来自 {origin}，该来源不允许修改", "请复制到自己的文件夹后再修改。"
    ),
    "field_not_editable": LocalizedText(
        "只能修改描述，不能修改：{fields}", "其他内容请在技能本身中修改，然后安装。"
    ),
    "source_unreadable": LocalizedText("无法读取技能来源 {source}：{detail}"),
    "pins_unreadable": LocalizedText(
        "无法读取远程技能的记录 {path}：{detail}",
        "请修复或移走该文件；移走后，每个地址都以下次所见为准。",
    ),
    "digest_mismatch": LocalizedText(
        "{source} 的“{path}”与公布的内容不符，未被使用：{detail}", "请刷新技能并查看有何变化。"
    ),
    "argument_missing": LocalizedText("技能“{name}”缺少参数“{argument}”", "请写 /{name} {hint}"),
    "tool_error": LocalizedText("{detail}"),
    "tool_not_found": LocalizedText("没有名为“{name}”的工具"),
    "tool_input_invalid": LocalizedText("工具“{name}”的参数不符合要求：{detail}"),
    "tool_failed": LocalizedText("工具“{name}”执行失败：{detail}"),
    "path_outside": LocalizedText(
        "工具“{name}”不能访问 {path}：它只能在 {folders} 中工作",
        "请给出这些文件夹之内的路径；路径以链接真正指向的位置为准。",
    ),
    "skill_dangerous": LocalizedText(
        "技能“{name}”看起来有危险（{level}：{rules}），没有安装",
        "请用 apexbridge scan 查看；--despite-findings 可强制安装。",
    ),
    "not_agreed": LocalizedText("没有得到同意", "请回答 y，或使用 --yes。"),
    **PERMISSIONS,
    "isolation_unavailable": LocalizedText(
        "没有可用的沙箱，因此未运行任何内容：{detail}", "运行 apexbridge doctor 查看缺少什么。"
    ),
    "retrieval_error": LocalizedText("{detail}"),
    "embedder_unavailable": LocalizedText("向量模型 {name} 没有响应：{detail}"),
    "extra_missing": LocalizedText(
        "未安装软件包 {name}", "请安装：pip install 'apexbridge[{extra}]'"
    ),
    "embedder_output": LocalizedText(
        "向量模型 {name} 返回的向量有误：{detail}", "请检查模型与其设置是否匹配"
    ),
    "index_mismatch": LocalizedText(
        "索引由 {found} 生成，而当前配置为 {expected}", "请重建索引：apexbridge index rebuild"
    ),
    "eval_input_invalid": LocalizedText("{where}：{detail}"),
    "eval_input_empty": LocalizedText("{path} 中没有可评估的内容"),
    "eval_queries_missing": LocalizedText(
        "技能“{path}”没有可用于检查的查询：{detail}",
        "请在 evals/eval_queries.json 中写入一个列表，每项含 query 与 should_trigger。",
    ),
    "model_error": LocalizedText("{detail}"),
    "model_unavailable": LocalizedText("模型 {name} 没有响应：{detail}", "请稍后再试。"),
    "model_rejected": LocalizedText("模型 {name} 拒绝了请求：{detail}"),
    "model_output_invalid": LocalizedText("无法理解 {name} 的回复：{detail}"),
    "loop_error": LocalizedText("{detail}"),
    "step_limit": LocalizedText("已进行 {limit} 轮仍未结束，已停止"),
    "budget_spent": LocalizedText("已停止：{detail} 已用完"),
    # hints that several errors share
    "did_you_mean": LocalizedText("是否想用 {names}？"),
    # problems in a skill
    "skill_md_missing": LocalizedText("缺少 SKILL.md", "技能是一个含有 SKILL.md 文件的文件夹。"),
    "skill_md_case": LocalizedText("文件名为“{name}”", "请改名为 SKILL.md。"),
    "skill_md_not_a_file": LocalizedText("SKILL.md 是 {kind}，不是普通文件"),
    "skill_md_too_large": LocalizedText(
        "SKILL.md 超过 {limit} 字节", "请把细节移到 references/ 下的文件中。"
    ),
    "skill_md_unreadable": LocalizedText("无法读取 SKILL.md：{detail}"),
    "encoding_utf16": LocalizedText("SKILL.md 是 UTF-16 编码", "请另存为 UTF-8。"),
    "encoding_nul": LocalizedText("SKILL.md 第 {line} 行含有 NUL 字节", "请将其删除。"),
    "encoding_not_utf8": LocalizedText(
        "SKILL.md 不是 UTF-8 编码（第 {line} 行）", "看起来是 {guess}：请转换为 UTF-8。"
    ),
    "frontmatter_missing": LocalizedText(
        "SKILL.md 必须以 YAML 头部开始：第一行不是 ---",
        "请在文件开头写 ---、name 和 description，再写一行 ---。",
    ),
    "frontmatter_unclosed": LocalizedText("YAML 头部没有结束", "请用单独一行 --- 结束它。"),
    "frontmatter_too_large": LocalizedText("YAML 头部超过 {limit} 字节"),
    "frontmatter_too_deep": LocalizedText("YAML 头部嵌套超过 {limit} 层"),
    "frontmatter_too_many_nodes": LocalizedText("YAML 头部的值超过 {limit} 个"),
    "frontmatter_alias": LocalizedText(
        "不允许使用 YAML 别名与合并键（{name}）", "请写出完整的值；若本意是文字，请加引号。"
    ),
    "frontmatter_tag": LocalizedText("不允许使用 YAML 标签 {name}", "若本意是文字，请给值加引号。"),
    "frontmatter_not_mapping": LocalizedText("YAML 头部必须是映射", "请按“键: 值”的形式逐行书写。"),
    "frontmatter_repaired": LocalizedText(
        "“{key}”的值需要加引号；已按加了引号读取", "请写成 {key}: {quoted}"
    ),
    "yaml_invalid": LocalizedText("头部不是有效的 YAML：{detail}"),
    "duplicate_key": LocalizedText("键“{key}”出现了两次", "请只保留一个。"),
    "key_not_text": LocalizedText("头部中有一个键不是普通文字"),
    "unknown_key": LocalizedText("未知的键“{key}”", "它会被保留，但这里没有任何功能读取它。"),
    "unknown_key_near": LocalizedText("未知的键“{key}”", "是否想写“{near}”？"),
    "key_not_in_spec": LocalizedText(
        "键“{key}”不属于 Agent Skills 格式",
        "其他客户端可能拒绝它。写成 metadata 中的 apexbridge.{key} 可保持通用。",
    ),
    "alias_shadowed": LocalizedText("“{key}”与“{other}”含义相同；采用“{other}”"),
    "field_invalid": LocalizedText("“{key}”无效：{detail}"),
    "name_missing": LocalizedText("缺少必填字段 name", "请写 name: {suggestion}"),
    "name_empty": LocalizedText("name 不能为空"),
    "name_too_long": LocalizedText("名称有 {length} 个字符；最多允许 {limit} 个"),
    "name_not_lowercase": LocalizedText("名称“{name}”必须为小写", "请写 {suggestion}"),
    "name_edge_hyphen": LocalizedText("名称“{name}”不能以连字符开头或结尾"),
    "name_double_hyphen": LocalizedText("名称“{name}”不能有连续两个连字符"),
    "name_characters": LocalizedText(
        "名称“{name}”含有字母、数字和连字符以外的字符", "请写 {suggestion}"
    ),
    "name_reserved": LocalizedText("名称“{name}”是保留名称", "请换一个名称。"),
    "name_mismatch": LocalizedText("文件夹名为“{folder}”，而技能名为“{name}”", "请让两者同名。"),
    "name_replaced": LocalizedText("名称“{name}”不可用；该技能以“{used}”为名"),
    "description_missing": LocalizedText(
        "缺少必填字段 description", "请说明技能做什么、何时使用。"
    ),
    "description_empty": LocalizedText("description 不能为空", "请说明技能做什么、何时使用。"),
    "description_too_long": LocalizedText("描述有 {length} 个字符；最多允许 {limit} 个"),
    "description_derived": LocalizedText(
        "没有描述；采用“{text}”", "请添加描述：技能能否被找到取决于它。"
    ),
    "description_placeholder": LocalizedText(
        "描述仍是脚手架的原文", "请说明技能做什么、何时使用。"
    ),
    "compatibility_too_long": LocalizedText(
        "compatibility 有 {length} 个字符；最多允许 {limit} 个"
    ),
    "field_not_text": LocalizedText("“{key}”必须是文字"),
    "metadata_not_map": LocalizedText("metadata 必须是文字到文字的映射"),
    "tools_not_text": LocalizedText(
        "allowed-tools 必须是一段以空格分隔的文字", "请写 allowed-tools: {suggestion}"
    ),
    "path_pattern_invalid": LocalizedText("“{pattern}”不是路径模式：{detail}"),
    "path_pattern_too_wide": LocalizedText("“{pattern}”的花括号展开后超过 {limit} 个模式"),
    "reference_missing": LocalizedText("正文指向“{path}”，但它不存在"),
    "reference_outside": LocalizedText("正文指向技能之外的“{path}”", "技能只能读取自己的文件。"),
    "body_empty": LocalizedText("SKILL.md 的头部之后没有任何说明"),
    "tree_too_large": LocalizedText("文件夹中的文件超过 {limit} 个"),
    "tree_odd_file": LocalizedText("“{path}”是 {kind}：只能打包文件和文件夹"),
    "skill_shadowed": LocalizedText("来自 {source} 的“{name}”被来自 {winner} 的同名技能遮盖"),
    "last_good_kept": LocalizedText("在修好之前继续使用上一个可用版本"),
    "source_twice": LocalizedText(
        "有两个技能来源都自称 {id}：只使用第一个", "请给每个来源一个自己的标识。"
    ),
    "source_stale": LocalizedText("未能获取 {url}，使用上一个可用版本：{detail}"),
    "skill_entry_invalid": LocalizedText("服务器的条目“{name}”无效：{detail}"),
    "digests_missing": LocalizedText("“{name}”没有附带摘要，内容无法核对，因此未列出"),
    "listing_limit": LocalizedText("只列出了服务器的前 {limit} 个条目"),
    "folder_limit": LocalizedText("只扫描了前 {limit} 个文件夹"),
    "folder_unreadable": LocalizedText("无法读取文件夹：{detail}"),
    "link_leads_out": LocalizedText(
        "{path} 是指向外部（{target}）的链接，未跟随",
        "请直接给出它指向的位置；对已安装的技能可用 skills.allow_external_paths 允许。",
    ),
    **CHECKS,
    **ARRIVALS,
    **SERVER,
    "path_external": LocalizedText(
        "{path} 位于项目之外，未被扫描", "可用 skills.allow_external_paths = true 允许。"
    ),
    "command_unreadable": LocalizedText("无法读取命令：{detail}"),
    "command_not_text": LocalizedText("命令不是 UTF-8 文本（第 {line} 行）", "请存为 UTF-8。"),
    "frontmatter_line_breaks": LocalizedText(
        "YAML 头部含有特殊的行分隔符；已按空格读取", "请删除 U+0085、U+2028 和 U+2029。"
    ),
    "tree_odd_name": LocalizedText("文件名“{path}”不是 UTF-8", "请改名。"),
    "config_not_here": LocalizedText(
        "项目不能设置“{key}”（{origin}）：它决定信任什么",
        "请在自己的 config.toml 或环境变量中设置。",
    ),
    "usage": LocalizedText("命令行有误", "参见 apexbridge --help。"),
    "path_unreadable": LocalizedText("{path} 无法使用：{detail}"),
    "script_unusable": LocalizedText("无法运行技能“{name}”：{detail}"),
}
