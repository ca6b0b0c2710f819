"""Vocabulary: the base model's, extended with Chinese words and characters.

Chinese is segmented by greedy longest match before tokenization, so that only the word list is
needed at run time. The words are found in the training texts by the tokenizer library's trainer,
without a dictionary.
"""

import json
import re
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from tokenizers import (
    Tokenizer,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)

WORDS = 8_000
CHARACTERS = 5_500
_LONGEST = 4
_COHESION = 15
"""Minimum ratio of a word's frequency to that of its parts meeting by chance (cohesion)."""
_RUN = re.compile("[\u3400-\u4dbf\u4e00-\u9fff]+")
_FIRST, _LAST, _UNKNOWN = "[CLS]", "[SEP]", "[UNK]"


def chinese_words(texts: Iterable[str], count: int = WORDS) -> list[str]:
    """Select the words of two to four characters that segment the texts best."""
    runs = [run for text in texts for run in _RUN.findall(text)]
    tokenizer = Tokenizer(models.Unigram())
    trainer = trainers.UnigramTrainer(
        vocab_size=4 * count + CHARACTERS,
        max_piece_length=_LONGEST,
        unk_token="<unk>",  # noqa: S106  # a token of text
        special_tokens=["<unk>"],
        show_progress=False,
    )
    tokenizer.train_from_iterator(runs, trainer)
    pieces: list[tuple[str, float]] = json.loads(tokenizer.to_str())["model"]["vocab"]
    seen = Counter(found for run in runs for found in _grams(run))
    total = sum(map(len, runs))
    words = [piece for piece, _ in pieces if is_word(piece) and _holds(piece, seen, total)]
    return sorted(words, key=lambda word: (-seen[word], word))[:count]


def chinese_characters(texts: Iterable[str], count: int = CHARACTERS) -> list[str]:
    """Select the most frequent characters, always with those of everyday Chinese."""
    seen = Counter(found for text in texts for run in _RUN.findall(text) for found in run)
    everyday = {
        bytes((row, cell)).decode("gb2312", "ignore")
        for row in range(0xB0, 0xD8)  # the first level of GB 2312
        for cell in range(0xA1, 0xFF)
    } - {""}
    common = sorted(everyday | seen.keys(), key=lambda one: (one not in everyday, -seen[one], one))
    return common[:count]


def extend(base: Path, added: Iterable[str], out: Path) -> list[str]:
    """Write `tokenizer.json` and `cjk.json`; return the new words in the order of their ids."""
    stored = json.loads((base / "tokenizer.json").read_text(encoding="utf-8"))
    vocabulary: dict[str, int] = dict(stored["model"]["vocab"])
    chinese = list(dict.fromkeys(added))
    new = [word for word in chinese if word not in vocabulary]
    vocabulary |= {word: len(vocabulary) + place for place, word in enumerate(new)}
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token=_UNKNOWN))
    tokenizer.normalizer = normalizers.Sequence(
        [
            normalizers.NFKC(),
            normalizers.BertNormalizer(clean_text=True, handle_chinese_chars=False, lowercase=True),
        ]
    )
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    ends = [(token, vocabulary[token]) for token in (_FIRST, _LAST)]
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{_FIRST} $A {_LAST}", special_tokens=ends
    )
    out.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(out / "tokenizer.json"))
    words = [word for word in chinese if len(word) > 1]
    (out / "cjk.json").write_text(json.dumps(words, ensure_ascii=False), encoding="utf-8")
    return new


def is_word(text: str) -> bool:
    """Say whether a text can be a Chinese word."""
    return 2 <= len(text) <= _LONGEST and bool(_RUN.fullmatch(text))


def _holds(word: str, seen: Counter[str], total: int) -> bool:
    """Say whether the parts of a word co-occur more often than by chance."""
    return all(
        seen[word] * total > _COHESION * seen[word[:cut]] * seen[word[cut:]]
        for cut in range(1, len(word))
    )


def _grams(run: str) -> Iterable[str]:
    for size in range(1, _LONGEST + 1):
        for start in range(len(run) - size + 1):
            yield run[start : start + size]
