"""Content parts (images) in both wire formats."""

import json
from typing import Any

from apexbridge.messages import Message, UserMessage
from apexbridge.models import anthropic, openai
from apexbridge.models.base import ModelRequest
from apexbridge.models.message_history import normalize_messages
from apexbridge.tools.base import ToolSpec

_TEXT = {"type": "text", "text": "What is it?"}
_PICTURE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
_FAR = {"type": "image_url", "image_url": {"url": "https://example.org/cat.png"}}
_SOUND = {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}}


def _said(*parts: dict[str, Any], text: str = "") -> UserMessage:
    return UserMessage(text=text, parts=json.dumps(parts))


def _openai(*messages: Message) -> Any:
    asked = ModelRequest(model="m", messages=messages)
    return openai.chat_completion_body(asked, normalize_messages(messages))["messages"]


def _anthropic(*messages: Message) -> Any:
    asked, whole = ModelRequest(model="m", messages=messages), normalize_messages(messages)
    return anthropic.messages_body(asked, whole, [""] * len(whole), 100)["messages"]


def test_parts_go_to_openais_kind_of_server_as_they_came() -> None:
    (message,) = _openai(_said(_TEXT, _PICTURE, _SOUND, text="What is it?"))
    assert message == {"role": "user", "content": [_TEXT, _PICTURE, _SOUND]}


def test_an_image_without_text_is_a_message() -> None:
    assert _openai(_said(_PICTURE)) == [{"role": "user", "content": [_PICTURE]}]


def test_parts_and_words_beside_them_become_one_message() -> None:
    (message,) = _openai(UserMessage(text="Look:"), _said(_PICTURE), UserMessage(text="Well?"))
    assert message["content"] == [
        {"type": "text", "text": "Look:"},
        _PICTURE,
        {"type": "text", "text": "Well?"},
    ]


def test_images_are_serialized_for_the_messages_api() -> None:
    (turn,) = _anthropic(_said(_TEXT, _PICTURE, _FAR, _SOUND, text="What is it?"))
    assert turn["content"] == [
        _TEXT,
        {
            "type": "image",
            "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"},
        },
        {"type": "image", "source": {"type": "url", "url": "https://example.org/cat.png"}},
        _SOUND,
    ]


def test_a_strict_tool_stays_strict() -> None:
    tools = tuple(
        ToolSpec(name=f"t{strict}", description="", input_schema={}, strict=strict)
        for strict in (None, True, False)
    )
    asked = ModelRequest(model="m", messages=(), tools=tools)
    for _ in range(2):
        wired = openai.chat_completion_body(asked, ())["tools"]
        assert [tool["function"].get("strict") for tool in wired] == [None, True, False]
