"""The mixture in small: what `mix` writes, read again and spelt out."""

from dataclasses import dataclass
from difflib import SequenceMatcher
from pathlib import Path

import numpy as np
import pytest
from tokenizers import Tokenizer

from training.corpus import prepare
from training.held_out import letters
from training.mixture import TOKENS, MixtureSources, mix
from training.mixture_file import KINDS, VALIDATION, Mixture, Numbers
from training.tests import small
from training.token_table import TokenTable

pytestmark = pytest.mark.unmeasured

_TOKENIZER = Path(__file__).parents[2] / "retriever/src/apexbridge_retriever"


@dataclass(frozen=True, slots=True, kw_only=True)
class Mixed:
    """A mixture with its texts, of which only the letters are left."""

    mixture: Mixture
    texts: list[str]
    counts: dict[str, int]
    sources: MixtureSources
    path: Path

    def pairs(self, kind: str) -> set[tuple[str, str]]:
        """Requests of a kind with their documents."""
        return {(self.texts[row[0]], self.texts[row[1]]) for row in self.rows(kind)}

    def rows(self, kind: str) -> Numbers:
        """The same by number, with group and kind."""
        return self.mixture.pairs[self.mixture.pairs[:, 3] == list(KINDS).index(kind)]

    def validation(self, name: str, part: str) -> list[str]:
        """Texts of a validation set."""
        return [self.texts[number] for number in self.mixture.validation[name][part]]


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> Mixed:
    place = tmp_path_factory.mktemp("mixture")
    prepared = small.sources(place)
    prepare(prepared, place / "data")
    sources = small.mixture_sources(place, prepared)
    counts = mix(sources, _TOKENIZER, place / "mixture.npz")
    mixture = Mixture.read(place / "mixture.npz")
    texts = _spelt(mixture.texts)
    path = place / "mixture.npz"
    return Mixed(mixture=mixture, texts=texts, counts=counts, sources=sources, path=path)


def _spelt(table: TokenTable) -> list[str]:
    tokenizer = Tokenizer.from_file(str(_TOKENIZER / "tokenizer.json"))
    rows = np.split(table.flat, table.starts[1:-1])

    def piece(number: int) -> str:
        return (tokenizer.id_to_token(number) or "").removeprefix("##")

    return [letters("".join(map(piece, row[1:-1].tolist()))) for row in rows]


def test_each_request_stands_beside_the_documents_that_answer_it(mixed: Mixed) -> None:
    english, chinese = "teatimercounttheminutesthatateaneeds", "teatimer给泡茶计时"
    asked = {one for one in mixed.pairs("everyday") if one[1] in {english, chinese}}
    assert asked == {
        (request, document)
        for request in ("threeminutesforthepot", "请给泡茶计时")
        for document in (english, chinese)
    }
    assert mixed.pairs("tools") >= {
        ("whatwasthepriceonmonday", "getpricereadthepriceofaday"),
        ("copythepriceofmondaytofriday", "getpricereadthepriceofaday"),
        ("copythepriceofmondaytofriday", "setpricewritedowntheprice"),
    }
    document = "mergepdfmergeseveralpdffilesintoonedocument"
    assert mixed.pairs("styles") == {
        ("mergepdfquickly", document),
        ("快点把多个pdf文件合并成一个文档", document),
    }
    assert mixed.pairs("written") == {("onefileofthese", document), ("合成一个", document)}


def test_kinds_of_prepared_pairs_and_pasted_errors_are_there(mixed: Mixed) -> None:
    prepared = {"thing", "framed", "mined A", "mined B", "mined across", "segment across", "name"}
    assert all(mixed.pairs(kind) for kind in prepared)
    errors = {one for one in mixed.pairs("thing") if one[1] in {"readpdffiles", "读取pdf"}}
    assert len(errors) == 4
    assert all("pdfreaderror" in request for request, _ in errors)


def test_a_group_is_all_that_answers_the_same_requests(mixed: Mixed) -> None:
    groups = dict[str, set[int]]()
    for kind in ("everyday", "tools"):
        rows: list[list[int]] = mixed.rows(kind).tolist()
        for _, document, group, _ in rows:
            groups.setdefault(mixed.texts[document], set()).add(group)
    english, chinese = "teatimercounttheminutesthatateaneeds", "teatimer给泡茶计时"
    assert groups[english] == groups[chinese]
    assert len(groups[english]) == 1
    assert groups[english].isdisjoint(groups["songfinder听歌识曲"])
    assert groups["getpricereadthepriceofaday"].isdisjoint(groups["setpricewritedowntheprice"])


def test_noisy_variants_are_of_the_right_requests(mixed: Mixed) -> None:
    noisy = ("everyday", "tools", "written", "styles", "thing", "framed")
    requests = {int(row[0]) for kind in noisy for row in mixed.rows(kind)}
    assert mixed.mixture.variants.keys() == requests

    def kept(request: int, variant: int) -> float:
        said = mixed.texts[request]
        matcher = SequenceMatcher(None, said, mixed.texts[variant], autojunk=False)
        return sum(block.size for block in matcher.get_matching_blocks()) / len(said)

    found = [(one, other) for one, pair in mixed.mixture.variants.items() for other in pair]
    assert len(found) == 2 * len(requests)
    assert min(kept(*one) for one in found) > 0.7
    texts = [(mixed.texts[one], mixed.texts[other]) for one, other in found]
    assert any("asked" in noise and said in noise for said, noise in texts)  # background
    assert any("error" in noise and "error" not in said for said, noise in texts)  # a log
    assert any(said not in noise and len(noise) < len(said) + 3 for said, noise in texts)  # typos


@pytest.mark.parametrize(
    ("left_out", "stays"),
    [
        ("secretrecipe做点好吃的", "songfinder听歌识曲"),  # by name
        ("valleysoup做一锅汤", "teatimer给泡茶计时"),  # by description
        ("deployquickly", "mergepdfquickly"),
        ("secretrecipequickly", "weatherquickly"),
        ("remindmewhenmyteaisready", "threeminutesforthepot"),  # by request
        ("whatwasthescoreonmonday", "whatwasthepriceonmonday"),
        ("今天的茶真香", "茶又凉了"),
        ("thebuswaslate", "thetrainwasontime"),
        ("hello2", "hello3"),
    ],
)
def test_every_text_of_a_test_set_is_left_out(mixed: Mixed, left_out: str, stays: str) -> None:
    assert stays in mixed.texts
    assert left_out not in mixed.texts


def test_what_is_kept_back_is_in_a_validation_set_and_in_no_pair(mixed: Mixed) -> None:
    assert mixed.validation("everyday en", "documents") == ["starmapshowthestarsoveraplacetonight"]
    assert mixed.validation("everyday zh", "documents") == ["starmap显示今晚的星空"]
    for name in ("everyday en", "everyday zh"):
        assert mixed.validation(name, "queries") == [
            "pleaseshowthestarsoveraplacetonight",
            "ineedthestarmap",
            "请显示今晚的星空",
        ]
        assert mixed.validation(name, "messages") == ["somanystarslastnight", "昨晚星星真多"]
    assert mixed.validation("styles", "queries")[0] == "weatherquickly"
    assert mixed.validation("styles", "documents")[2] == "weather查询城市未来几天的天气预报"
    assert mixed.validation("library", "queries") == ["billher", "要开票"]
    trained_on = set(mixed.mixture.pairs[:, :2].ravel().tolist())
    for rows in mixed.mixture.validation.values():
        assert trained_on.isdisjoint(rows["documents"].tolist())
        assert trained_on.isdisjoint(rows["queries"].tolist())


def test_validation_with_typing_errors_has_the_same_answers(mixed: Mixed) -> None:
    clean, typos = (mixed.mixture.validation[name] for name in ("library", "typos"))
    assert np.array_equal(clean["documents"], typos["documents"])
    assert np.array_equal(clean["targets"], typos["targets"])
    assert set(clean["queries"].tolist()).isdisjoint(typos["queries"].tolist())


def test_messages_stand_with_the_documents_that_they_must_not_be_near(mixed: Mixed) -> None:
    rows: list[list[int]] = mixed.mixture.messages.tolist()
    found = {mixed.texts[message]: documents for message, *documents in rows}
    english, chinese = "teatimercounttheminutesthatateaneeds", "teatimer给泡茶计时"
    assert [mixed.texts[number] for number in found["myteawentcoldagain"]] == [english, chinese]
    assert found["hello3"] == found["thetrainwasontime"] == [-1, -1]
    assert "bookmeatrain" not in found  # it needs a skill
    assert "somanystarslastnight" not in found  # kept back


def test_the_file_gives_back_what_was_written(mixed: Mixed) -> None:
    assert mixed.counts["texts"] == len(mixed.texts)
    assert mixed.counts["messages"] == len(mixed.mixture.messages)
    for kind in KINDS:
        assert mixed.counts[kind] == len(mixed.rows(kind)) == len(mixed.pairs(kind))
    assert tuple(mixed.mixture.validation) == VALIDATION
    assert "unk" not in "".join(mixed.texts)


def test_a_restored_table_reads_like_the_one_that_was_cut() -> None:
    table = TokenTable()
    for text in ("merge two files", "merge " * 300):
        table.add(text)
    table.cut(_TOKENIZER / "tokenizer.json", small.words_of(_TOKENIZER), limit=TOKENS)
    again = TokenTable.restored(table.flat, np.diff(table.starts))
    assert np.diff(again.starts).tolist() == [5, TOKENS]
    for limit in (4, TOKENS):
        for one, other in zip(table.rows([0, 1], limit), again.rows([0, 1], limit), strict=True):
            assert np.array_equal(one, other)


def test_targets_are_rows_of_the_documents_padded_with_minus_one(mixed: Mixed) -> None:
    tools = mixed.mixture.validation["tools"]
    assert mixed.validation("tools", "documents") == [
        "getrainreadtherainofaday",
        "setrainwritedowntherain",
    ]
    assert tools["targets"].tolist() == [[0, -1], [0, 1]]
    assert mixed.mixture.validation["styles"]["targets"].tolist() == [[2], [2]]


def test_the_same_sources_give_the_same_file(mixed: Mixed, tmp_path: Path) -> None:
    mix(mixed.sources, _TOKENIZER, tmp_path / "again.npz")
    with np.load(mixed.path) as one, np.load(tmp_path / "again.npz") as other:
        assert one.files == other.files
        assert all(np.array_equal(one[name], other[name]) for name in one.files)
