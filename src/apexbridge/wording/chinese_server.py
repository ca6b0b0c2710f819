"""The Chinese words of the server, by code."""

from apexbridge.wording.phrase import Phrase

SERVER: dict[str, Phrase] = {
    "request_invalid": Phrase("请求无法理解:{detail}"),
    "key_missing": Phrase(
        "需要密钥", "以 'Authorization: Bearer KEY' 发送;用 'apexbridge keys make' 创建。"
    ),
    "key_invalid": Phrase("密钥未知、已过期或已吊销", "用 'apexbridge keys make' 创建新的密钥。"),
    "scope_missing": Phrase(
        "该密钥无权这样做:缺少权限范围 '{scope}'",
        "创建有此权限的密钥:apexbridge keys make NAME --scope {scope}",
    ),
    "host_unknown": Phrase("本服务器不以主机名 '{host}' 应答", "把它加入 server.allowed_hosts。"),
    "origin_refused": Phrase(
        "{origin} 的网页不能调用本服务器", "把它加入 server.allowed_origins。"
    ),
    "content_type_unsupported": Phrase("这里不接受类型为 '{kind}' 的内容", "请发送 {wanted}。"),
    "body_too_large": Phrase("请求超过 {limit} 字节"),
    "request_slow": Phrase("请求未及时到达"),
    "address_too_long": Phrase("地址超过 {limit} 字节"),
    "route_unknown": Phrase("{path} 处什么也没有", "可用的地址见 /openapi.json。"),
    "record_unknown": Phrase("没有 {kind} “{id}”", "最旧的记录不会一直保留。"),
    "approval_settled": Phrase("问题“{id}”已不再等待回答"),
    "method_not_allowed": Phrase("{path} 不支持 {method}"),
    "rate_limited": Phrase("该密钥的请求过多", "请在 {retry_after} 秒后重试。"),
    "server_busy": Phrase("服务器已满负荷", "请在 {retry_after} 秒后重试。"),
    "server_stopping": Phrase("服务器正在停止", "请在 {retry_after} 秒后重试。"),
    "server_failed": Phrase("服务器出错;原因见其日志"),
    "model_unknown": Phrase("没有名为 '{name}' 的模型", "可用模型见 /v1/models。"),
    "websocket_refused": Phrase("这里没有 WebSocket", "请使用普通请求。"),
    "token_invalid": Phrase(
        "令牌未知、已使用或已超过十分钟", "重新启动服务器以获得新令牌,或用密钥登录。"
    ),
    "bind_failed": Phrase(
        "服务器无法在 {address} 监听:{detail}", "请换一个端口(--port),或用 0 表示任意空闲端口。"
    ),
    "key_ambiguous": Phrase("有多个名为 '{name}' 的密钥", "请使用 id:{ids}"),
    "key_unknown": Phrase("没有 id 或名称为 '{name}' 的有效密钥", "用 'apexbridge keys ls' 查看。"),
    "bind_needs_key": Phrase(
        "在 {host} 监听会让他人进入,而目前还没有密钥", "请先创建:apexbridge keys make NAME"
    ),
    "prompt_arguments": Phrase("要技能处理的内容,用文字说明"),
    "client_asks": Phrase("是否允许 {tool}:{argument}"),
}
