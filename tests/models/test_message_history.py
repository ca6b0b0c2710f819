"""Message normalization and the reasoning cache."""

from hypothesis import given
from hypothesis import strategies as st

from apexbridge.messages import (
    AssistantMessage,
    Message,
    SystemMessage,
    ToolCall,
    ToolMessage,
    UserMessage,
)
from apexbridge.models.message_history import MISSING_RESULT, ReasoningCache, normalize_messages

A = ToolCall(id="a", name="Read", arguments="{}")
B = ToolCall(id="b", name="Read", arguments="{}")

_texts = st.sampled_from(["", " ", "x", "猫"])
_calls = st.lists(st.sampled_from([A, B]), max_size=2, unique=True).map(tuple)
_messages = st.lists(
    st.one_of(
        st.builds(SystemMessage, text=_texts),
        st.builds(UserMessage, text=_texts),
        st.builds(AssistantMessage, text=_texts, tool_calls=_calls),
        st.builds(ToolMessage, call_id=st.sampled_from(["a", "b", "c"]), text=_texts),
    ),
    max_size=12,
)


@given(_messages)
def test_a_normalized_conversation_is_in_order(messages: list[Message]) -> None:
    ordered = normalize_messages(messages)
    assert normalize_messages(ordered) == ordered
    assert not any(isinstance(message, SystemMessage) for message in ordered[1:])
    waiting: list[str] = []
    for before, message in zip((None, *ordered), ordered, strict=False):
        if isinstance(message, ToolMessage):
            assert waiting.pop(0) == message.call_id
            continue
        assert not waiting
        assert type(message) is not type(before)
        assert message.text.strip() or isinstance(message, AssistantMessage)
        if isinstance(message, AssistantMessage):
            waiting = [call.id for call in message.tool_calls]
            assert waiting or message.text.strip()
    assert not waiting


@given(_messages)
def test_no_word_of_people_or_models_is_lost(messages: list[Message]) -> None:
    def words(these: list[Message]) -> list[str]:
        spoken = [one.text for one in these if isinstance(one, UserMessage | SystemMessage)]
        return sorted("".join("".join(spoken).split()))

    assert words(list(normalize_messages(messages))) == words(messages)


def test_results_follow_their_calls_and_missing_ones_are_filled_in() -> None:
    assert normalize_messages(
        [
            UserMessage(text="go"),
            AssistantMessage(text="well", tool_calls=(A, B)),
            UserMessage(text="quick"),
            ToolMessage(call_id="b", text="2"),
            ToolMessage(call_id="b", text="twice"),
            UserMessage(text="please"),
        ]
    ) == (
        UserMessage(text="go"),
        AssistantMessage(text="well", tool_calls=(A, B)),
        ToolMessage(call_id="a", text=MISSING_RESULT, is_error=True),
        ToolMessage(call_id="b", text="2"),
        UserMessage(text="quick\n\nplease"),
    )


def test_an_id_that_comes_again_in_a_later_reply_has_its_own_result() -> None:
    turn = (AssistantMessage(tool_calls=(A,)), ToolMessage(call_id="a", text="1"))
    later = (AssistantMessage(tool_calls=(A,)), ToolMessage(call_id="a", text="2"))
    assert normalize_messages((*turn, *later)) == (*turn, *later)


HI = (UserMessage(text="hi"),)
CALLED = (*HI, AssistantMessage(tool_calls=(A,)), ToolMessage(call_id="a", text="1"))


def test_reasoning_is_recalled_in_its_own_conversation_only() -> None:
    cache = ReasoningCache()
    cache.store((SystemMessage(text="x"), *HI), (A,), "hm")
    cache.store(HI, (), "no call")
    assert list(cache.recall(CALLED)) == ["", "hm", ""]
    other = (UserMessage(text="ho"), *CALLED[1:])
    assert list(cache.recall(other)) == ["", "", ""]


def test_the_oldest_reasoning_is_evicted_first() -> None:
    cache = ReasoningCache(max_chars=10)
    talks = [(UserMessage(text=str(number)), *CALLED[1:]) for number in range(4)]
    for talk in talks[:3]:
        cache.store(talk[:1], (A,), "1234")
    cache.store(talks[3][:1], (A,), "far too long for it")
    assert [list(cache.recall(talk))[1] for talk in talks] == ["", "1234", "1234", ""]
    cache.store(talks[2][:1], (A,), "12")
    cache.store(talks[3][:1], (A,), "1234")
    assert [list(cache.recall(talk))[1] for talk in talks] == ["", "1234", "12", "1234"]
