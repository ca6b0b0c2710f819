"""Context compaction: summary of old messages, restored skills."""

import pytest

from apexbridge.agent.compaction import (
    ALL_SKILLS_TOKENS,
    SKILL_TOKENS,
    compact,
    fits_budget,
    message_tokens,
    total_tokens,
    transcript,
)
from apexbridge.agent.session import Session
from apexbridge.errors import ModelUnavailableError
from apexbridge.messages import (
    AssistantMessage,
    Message,
    SystemMessage,
    ToolCall,
    ToolMessage,
    UserMessage,
    estimate_tokens,
)
from tests.agent.session_factory import new_session

pytestmark = pytest.mark.anyio


def _session(messages: list[Message]) -> Session:
    session = new_session()
    session.messages = messages
    return session


async def _summary(text: str) -> str:
    return f"In short: {len(text)} characters."


async def _no_model(text: str) -> str:
    raise ModelUnavailableError("down", name="m")


def _rounds(count: int) -> list[Message]:
    messages: list[Message] = [UserMessage(text="Count the files.")]
    for number in range(count):
        call = ToolCall(id=str(number), name="Glob", arguments="{}")
        messages.append(AssistantMessage(text=f"Round {number}", tool_calls=(call,)))
        messages.append(ToolMessage(call_id=str(number), text="x" * 400))
    return messages


async def test_all_but_the_latest_messages_become_a_summary() -> None:
    session = _session(_rounds(40))
    session.announced = {"pdf"}
    last = session.messages[-1]
    assert await compact(session, 4_000, _summary)
    first, *rest = session.messages
    assert isinstance(first, UserMessage)
    assert first.text.startswith("<reminder>\nEarlier, in short:\nIn short: ")
    assert rest[-1] == last
    assert isinstance(rest[0], AssistantMessage)  # no result without its call
    assert total_tokens(rest) <= 1_000
    assert session.announced == set()  # the model is told again of skills


async def test_without_a_summary_the_beginning_and_the_end_are_kept() -> None:
    session = _session([UserMessage(text="Begin." + "y" * 30_000), *_rounds(40)])
    assert await compact(session, 4_000, _no_model)
    assert isinstance(session.messages[0], UserMessage)
    assert "USER: Begin." in session.messages[0].text
    assert "[…]" in session.messages[0].text


async def test_a_short_conversation_stays_as_it_is() -> None:
    session = _session([UserMessage(text="Hello")])
    assert not await compact(session, 4_000, _summary)
    assert session.messages == [UserMessage(text="Hello")]


async def test_invoked_skills_come_back_the_latest_first_within_their_budget() -> None:
    session = _session(_rounds(400))
    for number in range(9):
        session.mark_applied(f"skill-{number}", f"Skill {number}. " + "z" * 60_000, str(number))
    session.mark_applied("skill-3", "Skill 3 again.", "3")  # used last now
    assert await compact(session, 100_000, _summary)
    back = [m for m in session.messages if isinstance(m, UserMessage) and m.kind == "skill"]
    assert [message.skill for message in back][-2:] == ["skill-8", "skill-3"]
    assert "applied already" in back[0].text
    assert all(estimate_tokens(message.text) <= SKILL_TOKENS + 30 for message in back)
    assert sum(estimate_tokens(m.text) for m in back) <= ALL_SKILLS_TOKENS + 30 * len(back)
    assert len(back) == 6  # the short one and five long ones


async def test_in_a_small_window_skills_take_a_third_at_most() -> None:
    session = _session(_rounds(40))
    for number in range(3):
        session.mark_applied(f"skill-{number}", "z" * 60_000, str(number))
    assert await compact(session, 6_000, _summary)
    back = [m for m in session.messages if isinstance(m, UserMessage) and m.kind == "skill"]
    assert [message.skill for message in back] == ["skill-2"]
    assert total_tokens(session.messages) < 6_000 * 0.8


async def test_a_skill_that_is_still_there_is_not_put_back() -> None:
    kept = UserMessage(text="Skill x.", kind="skill", skill="x")
    session = _session([*_rounds(40), kept])
    session.mark_applied("x", "Skill x.", "d")
    assert await compact(session, 4_000, _summary)
    assert [m for m in session.messages if isinstance(m, UserMessage) and m.skill == "x"] == [kept]


def test_a_transcript_tells_who_said_what_and_leaves_reminders_out() -> None:
    messages: list[Message] = [
        SystemMessage(text="secret system"),
        UserMessage(text="a reminder", kind="reminder"),
        UserMessage(text="Hello"),
        UserMessage(text="long text", kind="skill", skill="pdf"),
        *_rounds(1)[1:],
    ]
    text = transcript(messages)
    assert "USER: Hello" in text
    assert "(skill pdf was invoked)" in text
    assert "(called Glob)" in text
    assert "RESULT: xxx" in text
    assert "secret" not in text
    assert "a reminder" not in text


def test_calls_count_as_well_as_words() -> None:
    call = ToolCall(id="1", name="Write", arguments="x" * 4_000)
    assert message_tokens(AssistantMessage(tool_calls=(call,))) > 1_000


@pytest.mark.parametrize(
    ("message", "tokens"),
    [
        (UserMessage(text="a" * 400), 104),
        (UserMessage(text="长" * 100), 104),
        (AssistantMessage(tool_calls=(ToolCall(id="1", name="Grep", arguments="x" * 96),)), 29),
    ],
    ids=["english", "chinese", "call"],
)
def test_a_conversation_fits_to_the_last_token(message: Message, tokens: int) -> None:
    messages = [message] * 3
    assert total_tokens(messages) == 3 * tokens
    assert fits_budget(messages, 3 * tokens)
    assert not fits_budget(messages, 3 * tokens - 1)
    assert fits_budget(messages, 10_000)
