"""What the commands about the server and its keys say: English, Chinese."""

from collections.abc import Mapping

SERVING: Mapping[str, tuple[str, str]] = {
    "serve_first_key": (
        "A first key was made, which may do everything; it lies in {path}",
        "已创建第一个密钥，可做一切；保存在 {path}",
    ),
    "serve_first_key_text": ("It is shown this once: {text}", "只显示这一次：{text}"),
    "serve_listens": ("Listening at {url} (Ctrl-C stops it)", "正在监听 {url}（按 Ctrl-C 停止）"),
    "serve_console": (
        "Console, for the first who opens it within ten minutes:",
        "控制台（十分钟内首次打开有效）：",
    ),
    "serve_stopped": ("Stopped.", "已停止。"),
    "key_made": (
        "Made the key {name} ({id}). It is shown this once:",
        "已创建密钥 {name}（{id}）。只显示这一次：",
    ),
    "key_revoked": (
        "{name} ({id}) opens nothing any more, also at a server that runs",
        "{name}（{id}）已失效，对正在运行的服务器立即生效",
    ),
    "keys_none": (
        "There are no keys. Make one: apexbridge keys make NAME",
        "没有密钥。创建：apexbridge keys make NAME",
    ),
    "key_id": ("Id", "Id"),
    "key_scopes": ("Scopes", "权限范围"),
    "key_expires": ("Ends", "到期"),
    "key_never": ("never", "永不"),
    "key_state": ("State", "状态"),
    "key_good": ("good", "有效"),
    "key_expired": ("expired", "已过期"),
    "key_ended": ("revoked", "已吊销"),
}
