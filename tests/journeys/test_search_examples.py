"""Requests in English and Chinese find their skills with the default embedder and settings."""

import functools
from collections.abc import Mapping, Sequence
from pathlib import Path

import anyio
import pytest

from apexbridge.events import SkillActivated, TurnFinished
from apexbridge.models import intent_rules
from apexbridge.retrieval.embedders.default import DefaultEmbedder
from apexbridge.retrieval.index import SkillIndex
from apexbridge.retrieval.results import Hit
from apexbridge.retrieval.skill_document import SkillText
from apexbridge.retrieval.stores.memory import MemoryStore
from apexbridge.retrieval.sync import IndexItem, sync
from apexbridge.runtime import Runtime
from apexbridge.settings import Config, load
from apexbridge.settings.schema import IndexSettings
from apexbridge.testing import make_skill
from tests.agent.agent_fixture import open_agent, says

pytestmark = [pytest.mark.anyio, pytest.mark.unmeasured]

THRESHOLD = IndexSettings().threshold
PI = {"pi-digits": "计算圆周率π，可以算到任意多位"}
HELLO = {"polite-hello": "Says hello politely to anybody."}
CHINESE = {
    "translator": "把文字翻译成其他语言，保留原来的语气和格式。",
    "weather-forecast": "查询城市的天气预报：气温、降雨、风力和湿度。",
    "net-salary": "计算税后工资：扣除五险一金和个人所得税，列出每一项。",
}
LIBRARY = {**PI, **HELLO, **CHINESE}
TALK = ["hello", "thanks", "你好", "谢谢"]

ONE_WORD = {
    "docx": "Create and edit word-processor files with styles and tables.",
    "xlsx": "Build spreadsheets with formulas and pivot tables.",
    "pptx": "Lay out presentation slides from an outline.",
    "terraform": "Describe cloud infrastructure as code and review changes to it.",
    "kubernetes": "Write manifests and find out why containers do not start.",
    "postgres": "Tune slow queries and design relational tables.",
    "figma": "Turn interface designs into components.",
    "jira": "Open, sort and close tickets of a project.",
    "notion": "Organise pages of a shared workspace.",
    "slack": "Post messages to team channels.",
    "stripe": "Take card payments and refund them.",
    "blender": "Model and render three-dimensional scenes.",
    "latex": "Typeset papers with formulas and bibliographies.",
    "regex": "Explain and build text patterns.",
    "ffmpeg": "Cut, join and convert video and audio.",
    "sudoku": "Solve number puzzles and explain each step.",
    "sommelier": "Suggest a wine that goes with a meal.",
    "gardener": "Plan beds, seeds and watering by season.",
    "barista": "Brew coffee with the right grind and heat.",
    "genealogy": "Trace ancestors and draw a family tree.",
    "origami": "Fold figures out of a sheet of paper.",
    "karaoke": "Find song lyrics and time them.",
    "marathon": "Plan weeks of running until race day.",
    "wardrobe": "Put together outfits for an occasion.",
    "haiku": "Write short poems of three lines.",
    "zettel": "Link short index cards into a web of ideas.",
    "quokka": "Describe cute animals for children.",
    "lumen": "Choose lamps and set the light of a room.",
    "vinyl": "Catalogue records and their sleeves.",
    "tarot": "Lay out cards and tell their symbols.",
}
SHORT_SENTENCE = "could you please do this one with {} today"
LONG_SENTENCE = (
    "Good morning, I have been sitting here since eight and before lunch I would really like to "
    "have this finished, so could {} take care of it for me, many thanks"
)


@functools.cache
def _embedder() -> DefaultEmbedder:
    return DefaultEmbedder()


async def _index(skills: Mapping[str, str]) -> SkillIndex:
    """Index skills by name and description."""

    def item(name: str, summary: str) -> IndexItem:
        async def read() -> SkillText:
            return SkillText(name=name, summary=summary)

        return IndexItem(name=name, fingerprint="1", read=read)

    index = SkillIndex(_embedder(), MemoryStore(_embedder().id))
    await sync(index, [item(name, summary) for name, summary in skills.items()])
    return index


async def _first(skills: Mapping[str, str], request: str) -> Hit:
    found = await (await _index(skills)).search(request)
    assert found.problem is None
    return found.hits[0]


def _install(home: Path, skills: Mapping[str, str]) -> Config:
    """Install skills beside the bundled ones; the settings are the default ones."""
    project = home / "project"
    project.mkdir()
    for name, description in skills.items():
        make_skill(home / ".claude/skills", name, description=description)
    return load(project=project, environment={"HOME": str(home)})


def test_the_default_threshold_is_one_half() -> None:
    assert THRESHOLD == 0.5


@pytest.mark.parametrize("library", [PI, LIBRARY, ONE_WORD | PI], ids=["alone", "few", "many"])
@pytest.mark.parametrize("request_", ["计算圆周率", "帮我计算圆周率", "圆周率"])
async def test_a_skill_that_computes_pi_is_found(library: Mapping[str, str], request_: str) -> None:
    hit = await _first(library, request_)
    assert hit.name == "pi-digits"
    assert hit.score >= THRESHOLD


async def test_the_runtime_finds_the_skill_that_computes_pi(home: Path) -> None:
    async with Runtime.open(_install(home, PI)) as runtime:
        found = await runtime.search("计算圆周率")
    assert found.hits[0].name == "pi-digits"
    assert found.confidence >= THRESHOLD
    assert found.hits[0].match(THRESHOLD) == "good"


@pytest.mark.parametrize("library", [HELLO, LIBRARY], ids=["alone", "few"])
async def test_a_skill_that_says_hello_politely_is_found(library: Mapping[str, str]) -> None:
    hit = await _first(library, "say hello politely")
    assert hit.name == "polite-hello"
    assert hit.score >= THRESHOLD


@pytest.mark.parametrize("name", LIBRARY)
async def test_the_description_of_a_skill_finds_it(name: str) -> None:
    for library in ({name: LIBRARY[name]}, LIBRARY):
        hit = await _first(library, LIBRARY[name])
        assert hit.name == name
        assert hit.score >= THRESHOLD


async def test_a_question_that_shares_no_word_with_its_skill_is_offered_it() -> None:
    for library in (CHINESE, LIBRARY):
        hit = await _first(library, "北京明天会下雨吗")  # the skill says 降雨, the request 下雨
        assert hit.name == "weather-forecast"
        assert hit.score >= THRESHOLD


@pytest.mark.parametrize(
    ("request_", "name"),
    [
        ("把这句话翻译成英文", "translator"),
        ("税后工资是多少", "net-salary"),
    ],
)
async def test_everyday_requests_in_chinese_find_their_skills(
    home: Path, request_: str, name: str
) -> None:
    for library in (CHINESE, LIBRARY):
        hit = await _first(library, request_)
        assert hit.name == name
        assert hit.score >= THRESHOLD
    async with Runtime.open(_install(home, CHINESE)) as runtime:
        found = await runtime.search(request_)
    assert found.hits[0].name == name
    assert found.confidence >= THRESHOLD


@pytest.mark.parametrize("request_", ["会议纪要", "meeting minutes", "整理一下会议纪要"])
async def test_a_bundled_skill_is_found_by_its_subject(home: Path, request_: str) -> None:
    async with Runtime.open(_install(home, {})) as runtime:
        found = await runtime.search(request_)
    assert found.hits[0].name == "meeting-minutes"
    assert found.confidence >= THRESHOLD


@pytest.mark.parametrize("request_", ["pdf", "PDF", "/pdf", "the pdf skill"])
async def test_a_name_is_found_before_a_longer_one(request_: str) -> None:
    skills = {
        "pdf-creator": "Creates PDF files from documents and pictures, pdf by pdf.",
        "pdf": "Reads, splits and merges files.",
    }
    for library in (skills, dict(reversed(skills.items())), ONE_WORD | skills):
        hit = await _first(library, request_)
        assert hit.name == "pdf"
        assert hit.score >= THRESHOLD


async def test_the_name_of_a_skill_is_enough() -> None:
    index, missed = await _index(ONE_WORD), dict[str, tuple[str, float]]()
    for name in ONE_WORD:
        hit = (await index.search(name)).hits[0]
        if hit.name != name or hit.score < THRESHOLD:
            missed[name] = (hit.name, round(hit.score, 3))
    assert missed == {}


@pytest.mark.parametrize("sentence", [SHORT_SENTENCE, LONG_SENTENCE], ids=["short", "long"])
async def test_the_name_of_a_skill_inside_a_sentence_finds_it(sentence: str) -> None:
    index, missed = await _index(ONE_WORD), dict[str, str]()
    for name in ONE_WORD:
        hit = (await index.search(sentence.format(name))).hits[0]
        if hit.name != name:
            missed[name] = hit.name
    assert missed == {}


@pytest.mark.parametrize(
    ("written", "asked", "word"),
    [
        ("youtube", "YouTube", "youtub"),
        ("YouTube", "youtube", "youtub"),
        ("github", "GitHub", "github"),
        ("GitHub", "github", "github"),
    ],
)
async def test_brands_in_camel_case_match_their_lower_case(
    written: str, asked: str, word: str
) -> None:
    skills = {
        "helper": f"Looks things up on {written} and lists them.",
        "bread": "Bakes bread from flour and water.",
    }
    hit = await _first(skills, f"list what is new on {asked}")
    assert hit.name == "helper"
    assert word in hit.parts.words


async def _chat(runtime: Runtime, text: str) -> tuple[str, list[str]]:
    """Return the answer of a turn, and the skills that were activated."""
    said, activated = "", list[str]()
    with anyio.fail_after(120):
        async for event in runtime.chat(text, session="s"):
            if isinstance(event, SkillActivated):
                activated.append(event.skill)
            elif isinstance(event, TurnFinished):
                said = event.text
    return said, activated


async def test_the_embedded_model_uses_the_skill_that_computes_pi(home: Path) -> None:
    async with Runtime.open(_install(home, PI)) as runtime:
        said, activated = await _chat(runtime, "计算圆周率")
    assert "没有匹配的技能" not in said
    assert "pi-digits" in said
    assert activated == ["pi-digits"]


@pytest.mark.parametrize("request_", ["计算圆周率", "请把圆周率算到小数点后一百位"])
async def test_the_reminder_names_the_skill_that_computes_pi(home: Path, request_: str) -> None:
    for name, description in PI.items():
        make_skill(home / ".claude/skills", name, description=description)
    async with open_agent(home, index__embedder="default") as at:
        await at.ask(request_, says("."))
        (reminder,) = await at.said("reminder")
    assert "These skills fit the request best:\n- pi-digits (fit " in reminder


async def _offered(skills: Mapping[str, str], requests: Sequence[str]) -> dict[str, str]:
    """Return the skill that is offered for each request, if one is."""
    index, offered = await _index(skills), dict[str, str]()
    for request in requests:
        hit = (await index.search(request)).hits[0]
        if hit.score >= THRESHOLD:
            offered[request] = f"{hit.name} {hit.score:.2f}"
    return offered


@pytest.mark.parametrize(
    "library",
    [PI, CHINESE, PI | CHINESE, ONE_WORD, ONE_WORD | PI | CHINESE],
    ids=["pi", "chinese", "few", "names", "many"],
)
async def test_small_talk_is_offered_no_skill(library: Mapping[str, str]) -> None:
    assert all(map(intent_rules.is_small_talk, TALK))
    assert await _offered(library, TALK) == {}


@pytest.mark.parametrize("library", [HELLO, LIBRARY], ids=["alone", "few"])
async def test_polite_words_are_offered_a_skill_for_greetings_at_most(
    library: Mapping[str, str],
) -> None:
    offered = await _offered(library, TALK)
    assert all(name.startswith("polite-hello ") for name in offered.values())


async def test_small_talk_is_offered_no_bundled_skill(home: Path) -> None:
    async with Runtime.open(_install(home, {})) as runtime:
        sure = {text: (await runtime.search(text)).confidence for text in TALK}
    assert {text: score for text, score in sure.items() if score >= THRESHOLD} == {}
