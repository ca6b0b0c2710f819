"""Providers by name: where they are, which key they want, and what they speak."""

from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from types import MappingProxyType
from typing import Literal

from apexbridge.errors import ConfigError

Protocol = Literal["openai", "anthropic"]
Tools = Literal["native", "text", "auto"]
"""Whether a model takes tools, is told of them in words, or is tried."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Preset:
    """What is known of a provider."""

    name: str
    title: str
    base_url: str
    key_names: tuple[str, ...] = ()
    """Variables of the environment that may hold its key, the usual one first."""
    protocol: Protocol = "openai"
    tools: Tools = "native"
    model: str = ""
    """A model to begin with; empty where it depends on what was installed or bought."""
    has_schema: bool = False
    """Whether a `json_schema` is enforced for every model."""


_KNOWN = (
    Preset(
        name="openai",
        title="OpenAI",
        base_url="https://api.openai.com/v1",
        key_names=("OPENAI_API_KEY",),
    ),
    Preset(
        name="deepseek",
        title="DeepSeek",
        base_url="https://api.deepseek.com",
        key_names=("DEEPSEEK_API_KEY",),
        model="deepseek-flash",
    ),
    Preset(
        name="dashscope",
        title="DashScope (Qwen)",
        base_url="https://dashscope.aliyuncs.com/compatible-mode/v1",
        key_names=("DASHSCOPE_API_KEY", "QWEN_API_KEY"),
        model="qwen-plus",
    ),
    Preset(
        name="dashscope-intl",
        title="DashScope (Qwen), international",
        base_url="https://dashscope-intl.aliyuncs.com/compatible-mode/v1",
        key_names=("DASHSCOPE_API_KEY", "QWEN_API_KEY"),
        model="qwen-plus",
    ),
    Preset(
        name="zhipu",
        title="Zhipu (GLM)",
        base_url="https://open.bigmodel.cn/api/paas/v4",
        key_names=("ZHIPUAI_API_KEY", "ZHIPU_API_KEY", "ZAI_API_KEY"),
    ),
    Preset(
        name="zhipu-intl",
        title="Z.ai (GLM), international",
        base_url="https://api.z.ai/api/paas/v4",
        key_names=("ZAI_API_KEY", "ZHIPUAI_API_KEY", "ZHIPU_API_KEY"),
    ),
    Preset(
        name="moonshot",
        title="Moonshot (Kimi)",
        base_url="https://api.moonshot.cn/v1",
        key_names=("MOONSHOT_API_KEY",),
        model="kimi-k2.6",
    ),
    Preset(
        name="moonshot-intl",
        title="Moonshot (Kimi), international",
        base_url="https://api.moonshot.ai/v1",
        key_names=("MOONSHOT_API_KEY",),
        model="kimi-k2.6",
    ),
    Preset(
        name="siliconflow",
        title="SiliconFlow",
        base_url="https://api.siliconflow.cn/v1",
        key_names=("SILICONFLOW_API_KEY",),
        tools="auto",
    ),
    Preset(
        name="siliconflow-intl",
        title="SiliconFlow, international",
        base_url="https://api.siliconflow.com/v1",
        key_names=("SILICONFLOW_API_KEY",),
        tools="auto",
    ),
    Preset(
        name="ollama",
        title="Ollama",
        base_url="http://localhost:11434/v1",
        tools="auto",
        has_schema=True,
    ),
    Preset(
        name="vllm",
        title="vLLM",
        base_url="http://localhost:8000/v1",
        key_names=("VLLM_API_KEY",),
        tools="auto",
        has_schema=True,
    ),
    Preset(
        name="lmstudio",
        title="LM Studio",
        base_url="http://localhost:1234/v1",
        tools="auto",
        has_schema=True,
    ),
    Preset(
        name="anthropic",
        title="Anthropic",
        base_url="https://api.anthropic.com/v1",
        key_names=("ANTHROPIC_API_KEY",),
        protocol="anthropic",
        model="claude-sonnet-5",
    ),
)
PRESETS: Mapping[str, Preset] = MappingProxyType({preset.name: preset for preset in _KNOWN})
_OTHER_NAMES = {
    "qwen": "dashscope",
    "kimi": "moonshot",
    "glm": "zhipu",
    "bigmodel": "zhipu",
    "zai": "zhipu-intl",
    "claude": "anthropic",
}


def preset(name: str) -> Preset:
    """A provider by its name, or one of its other names.

    >>> preset("LM Studio").base_url, preset("Qwen").name
    ('http://localhost:1234/v1', 'dashscope')

    Raises:
        ConfigError: If there is none.
    """
    plain = name.strip().lower().replace("_", "-").replace(" ", "")
    plain = plain.replace("lm-studio", "lmstudio")
    found = PRESETS.get(_OTHER_NAMES.get(plain, plain))
    if found is None:
        known = (*PRESETS, *_OTHER_NAMES)
        near = get_close_matches(plain, known, n=1) or sorted(PRESETS)
        raise ConfigError(f"no provider is named {name!r}; try {', '.join(near)}")
    return found
