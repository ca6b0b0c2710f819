"""The Chinese words of the server, by code."""

from apexbridge.locales.phrase import LocalizedText

SERVER: dict[str, LocalizedText] = {
    "request_invalid": LocalizedText("请求无法理解:{detail}"),
    "key_missing": LocalizedText(
        "需要密钥", "以 'Authorization: Bearer KEY' 发送;用 'apexbridge keys make' 创建。"
    ),
    "key_invalid": LocalizedText(
        "密钥未知、已过期或已吊销", "用 'apexbridge keys make' 创建新的密钥。"
    ),
    "scope_missing": LocalizedText(
        "该密钥无权这样做:缺少权限范围 '{scope}'",
        "创建有此权限的密钥:apexbridge keys make NAME --scope {scope}",
    ),
    "host_unknown": LocalizedText(
        "本服务器不以主机名 '{host}' 应答", "把它加入 server.allowed_hosts。"
    ),
    "origin_refused": LocalizedText(
        "{origin} 的网页不能调用本服务器", "把它加入 server.allowed_origins。"
    ),
    "content_type_unsupported": LocalizedText(
        "这里不接受类型为 '{kind}' 的内容", "请发送 {wanted}。"
    ),
    "body_too_large": LocalizedText("请求超过 {limit} 字节"),
    "request_slow": LocalizedText("请求未及时到达"),
    "address_too_long": LocalizedText("地址超过 {limit} 字节"),
    "route_unknown": LocalizedText("{path} 处什么也没有", "可用的地址见 /openapi.json。"),
    "record_unknown": LocalizedText("没有 {kind} “{id}”", "最旧的记录不会一直保留。"),
    "approval_settled": LocalizedText("问题“{id}”已不再等待回答"),
    "method_not_allowed": LocalizedText("{path} 不支持 {method}"),
    "rate_limited": LocalizedText("该密钥的请求过多", "请在 {retry_after} 秒后重试。"),
    "server_busy": LocalizedText("服务器已满负荷", "请在 {retry_after} 秒后重试。"),
    "server_stopping": LocalizedText("服务器正在停止", "请在 {retry_after} 秒后重试。"),
    "server_failed": LocalizedText("服务器出错;原因见其日志"),
    "model_unknown": LocalizedText("没有名为 '{name}' 的模型", "可用模型见 /v1/models。"),
    "websocket_refused": LocalizedText("这里没有 WebSocket", "请使用普通请求。"),
    "token_invalid": LocalizedText(
        "令牌未知、已使用或已超过十分钟", "重新启动服务器以获得新令牌,或用密钥登录。"
    ),
    "bind_failed": LocalizedText(
        "服务器无法在 {address} 监听:{detail}", "请换一个端口(--port),或用 0 表示任意空闲端口。"
    ),
    "key_ambiguous": LocalizedText("有多个名为 '{name}' 的密钥", "请使用 id:{ids}"),
    "key_unknown": LocalizedText(
        "没有 id 或名称为 '{name}' 的有效密钥", "用 'apexbridge keys ls' 查看。"
    ),
    "bind_needs_key": LocalizedText(
        "在 {host} 监听会让他人进入,而目前还没有密钥", "请先创建:apexbridge keys make NAME"
    ),
    "prompt_arguments": LocalizedText("要技能处理的内容,用文字说明"),
    "client_asks": LocalizedText("是否允许 {tool}:{argument}"),
}
