"""Provider presets."""

from urllib.parse import urlsplit

import pytest

from apexbridge.errors import ConfigError
from apexbridge.models.presets import PRESETS, preset


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_has_an_address_that_can_be_used_as_it_is(name: str) -> None:
    found = preset(name)
    parts = urlsplit(found.base_url)
    assert found.name == name
    assert parts.hostname
    assert not found.base_url.endswith("/")
    is_local = parts.hostname == "localhost"
    assert parts.scheme == ("http" if is_local else "https")
    assert is_local or found.key_names
    assert all(key.isupper() and key.endswith("_API_KEY") for key in found.key_names)


def test_the_promised_providers_are_there() -> None:
    promised = "openai deepseek dashscope zhipu moonshot siliconflow ollama vllm lmstudio anthropic"
    assert set(promised.split()) <= PRESETS.keys()
    assert [found.name for found in PRESETS.values() if found.protocol == "anthropic"] == [
        "anthropic"
    ]


@pytest.mark.parametrize(
    ("written", "name"),
    [
        ("OpenAI", "openai"),
        (" LM Studio ", "lmstudio"),
        ("lm_studio", "lmstudio"),
        ("Qwen", "dashscope"),
        ("kimi", "moonshot"),
        ("GLM", "zhipu"),
        ("claude", "anthropic"),
    ],
)
def test_a_preset_is_found_by_its_aliases(written: str, name: str) -> None:
    assert preset(written).name == name


def test_an_unknown_name_gets_suggestions() -> None:
    with pytest.raises(ConfigError, match="no provider is named 'deepseak'; try deepseek"):
        preset("deepseak")
    with pytest.raises(ConfigError, match="try anthropic, dashscope, "):
        preset("")
