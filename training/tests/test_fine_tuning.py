"""The fine-tuning stage on a mixture of made-up words: batches, losses, teacher, validation."""

import copy
from dataclasses import replace

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from training.bi_encoder import Encoders, encode_all, validate
from training.cross_encoder import CandidateLists, Teacher
from training.encoder import Encoder, Shape
from training.fine_tuning import Batch, BatchSampler, FineTuningLoss, LossWeights, learn_mixture
from training.mixture_file import FREE, KINDS, NOISY_SHARE, Mixture, Numbers, PairSampler
from training.objectives import Schedule
from training.token_table import TokenTable

pytestmark = pytest.mark.unmeasured

_TOPICS, _TIMES = 48, 2
_REQUESTS = _TOPICS
_VARIANTS = _REQUESTS + _TIMES * _TOPICS
_MESSAGES = _VARIANTS + _TIMES * _TOPICS
_TWIN = _MESSAGES + 8
"""Where texts begin: documents, requests, their noisy variants, messages, the first document."""
_NO_WEIGHT = LossWeights(contrast=0, pull=0, document_pull=0)


@pytest.fixture(scope="module")
def mixture() -> Mixture:
    """Documents of six words each, two requests for each, of three of them, in kinds by turns."""
    words = np.random.default_rng(1).permutation(np.arange(4, 400))
    documents = words[: 6 * _TOPICS].reshape(_TOPICS, 6).tolist()
    requests = [text[at : at + 3] for at in (0, 3) for text in documents]
    variants = [[*text, words[-1]] for text in requests]
    messages = [[text[0], words[-2], words[-3]] for text in documents[:8]]
    texts = [[2, *text, 3] for text in (*documents, *requests, *variants, *messages, documents[0])]
    places = np.arange(_TIMES * _TOPICS)
    topics = places % _TOPICS
    near = np.where(np.arange(8) % 2, np.arange(8), -1)
    return Mixture(
        texts=TokenTable.restored(
            np.concatenate(texts).astype(np.int32), np.array(list(map(len, texts)))
        ),
        pairs=np.stack((_REQUESTS + places, topics, topics, topics % len(KINDS)), axis=1),
        messages=np.stack((_MESSAGES + np.arange(8), near, near), axis=1),
        variants={_REQUESTS + place: [_VARIANTS + place] for place in places.tolist()},
        validation={},
    )


@pytest.fixture
def encoders() -> Encoders:
    """Never trained."""
    torch.manual_seed(1)
    shape = Shape(vocabulary=400, layers=1, width=64, heads=2, inner=96)
    return Encoders(Encoder(shape), Encoder(shape))


@pytest.fixture
def lists(mixture: Mixture) -> CandidateLists:
    """The right document and three others, and a teacher that is sure of it."""
    candidates = (mixture.pairs[:, 1, None] + np.arange(4)) % _TOPICS
    scores = torch.tensor([5.0, 0.0, 0.0, 0.0]).repeat(len(candidates), 1)
    return CandidateLists(pairs=mixture.pairs, candidates=candidates, scores=scores)


@pytest.fixture
def batch(mixture: Mixture, lists: CandidateLists) -> Batch:
    return BatchSampler(mixture, lists).batch(64)


def test_pairs_are_sampled_by_the_shares_of_their_kinds() -> None:
    kinds = np.repeat(np.arange(len(KINDS)), np.arange(1, len(KINDS) + 1) * 10)
    numbers = np.arange(len(kinds))
    pairs = np.stack((numbers, numbers, numbers, kinds), axis=1)
    shares = np.array([share for share, _ in KINDS.values()])

    def found(pairs: Numbers) -> NDArray[np.float64]:
        sampler = PairSampler(pairs, {}, seed=1)
        rows = np.concatenate([sampler(1)[1] for _ in range(5_000)])
        return np.bincount(rows[:, 3], minlength=len(KINDS)) / len(rows)

    assert found(pairs) == pytest.approx(shares / shares.sum(), abs=0.02)
    free = shares[:FREE] / shares[:FREE].sum()
    assert found(pairs[kinds < FREE])[:FREE] == pytest.approx(free, abs=0.02)


def test_a_sample_has_no_pair_twice_and_noise_in_some_requests(mixture: Mixture) -> None:
    half = {request: mixture.variants[request] for request in range(_REQUESTS, _VARIANTS, 2)}
    sampler = PairSampler(mixture.pairs, half, seed=1)
    noisy = 0
    for _ in range(100):
        asked, rows = sampler(40)
        assert len(np.unique(rows[:, 0])) == len(rows) <= 40
        for said, request in zip(asked.tolist(), rows[:, 0].tolist(), strict=True):
            assert said in {request, *half.get(request, ())}
            noisy += said != request
    assert noisy / 100 / 40 == pytest.approx(NOISY_SHARE / 2, abs=0.05)


def test_a_batch_has_lists_free_pairs_and_messages(batch: Batch, lists: CandidateLists) -> None:
    assert 0 < len(batch.rows) <= 0.4 * 64
    assert np.array_equal(batch.candidates[:, 0], batch.rows[:, 1])
    assert batch.candidates.shape == tuple(batch.scores.shape) == (len(batch.rows), 4)
    assert (batch.free_rows[:, 3] < FREE).all()
    assert len(batch.free_asked) == len(batch.free_rows) > 0
    assert len(batch.messages) == 16


def _contrast(encoders: Encoders, mixture: Mixture, batch: Batch, rows: list[list[int]]) -> float:
    """InfoNCE of some pairs: what it adds to the loss."""
    given = replace(batch, free_asked=np.array(rows)[:, 0], free_rows=np.array(rows))
    losses = (
        FineTuningLoss(encoders, mixture, weights)(given)
        for weights in (replace(_NO_WEIGHT, contrast=1), _NO_WEIGHT)
    )
    with torch.no_grad():
        return float(next(losses) - next(losses))


@pytest.mark.parametrize(
    ("other", "is_negative"),
    [
        ([_REQUESTS + 1, 1, 1, 0], True),
        ([_REQUESTS + 1, 1, 0, 0], False),  # of the same group
        ([_REQUESTS, 1, 1, 0], False),  # for the same request
        ([_REQUESTS + 1, 0, 1, 0], False),  # the same document
        ([_REQUESTS + 1, _TWIN, 1, 0], False),  # a document that says the same
    ],
)
def test_what_may_answer_as_well_is_no_negative(
    encoders: Encoders, mixture: Mixture, batch: Batch, other: list[int], *, is_negative: bool
) -> None:
    lost = _contrast(encoders, mixture, batch, [[_REQUESTS, 0, 0, 0], other])
    assert lost > 0.01 if is_negative else lost == pytest.approx(0, abs=1e-5)


def test_the_distance_to_the_shipped_vectors_is_zero_at_the_start(
    encoders: Encoders, mixture: Mixture, batch: Batch
) -> None:
    clean = replace(batch, asked=batch.rows[:, 0])
    near = FineTuningLoss(encoders, mixture, replace(_NO_WEIGHT, pull=1, document_pull=1))
    free = FineTuningLoss(encoders, mixture, _NO_WEIGHT)

    def distance(batch: Batch) -> float:
        with torch.no_grad():
            return float(near(batch) - free(batch))

    assert distance(clean) == pytest.approx(0, abs=1e-3)
    assert distance(batch) > 0.005  # a noisy request shall be where the clean one is
    torch.nn.init.normal_(encoders.documents.places.weight)
    assert distance(clean) > 0.05
    free_rows = clean.rows.copy()
    free_rows[:, 3] = 0
    assert distance(replace(clean, rows=free_rows)) == 0


def _learn(encoders: Encoders, mixture: Mixture, lists: CandidateLists, pull: float) -> Encoders:
    weights = LossWeights(pull=pull, document_pull=pull)
    plan = Schedule(steps=30, batch=48, rate=2e-3)
    return learn_mixture(encoders, mixture, BatchSampler(mixture, lists), plan, 2e-3, weights)


def test_the_loss_falls_and_the_word_table_stays(
    encoders: Encoders, mixture: Mixture, lists: CandidateLists, batch: Batch
) -> None:
    loss, begun = FineTuningLoss(encoders, mixture, LossWeights()), copy.deepcopy(encoders)
    with torch.no_grad():
        before = float(loss(batch))
    average = _learn(encoders, mixture, lists, pull=2)
    with torch.no_grad():
        after = float(loss(batch))
    assert np.isfinite(before)
    assert after < 0.8 * before
    for side in ("queries", "documents"):
        old, new, mean = (
            one.get_submodule(side).state_dict() for one in (begun, encoders, average)
        )
        assert torch.equal(old["words.weight"], new["words.weight"])
        assert torch.equal(old["words.weight"], mean["words.weight"])
        name = "layers.0.wide.weight"
        moved, averaged = (float((one[name] - old[name]).norm()) for one in (new, mean))
        assert 0 < averaged < moved  # the average begins at the start


def test_bound_kinds_stay_nearer_to_their_shipped_vectors_than_without_the_distance(
    encoders: Encoders, mixture: Mixture, lists: CandidateLists
) -> None:
    bound = np.unique(mixture.pairs[mixture.pairs[:, 3] >= FREE, 1])
    goal = encode_all(encoders.find, mixture.texts, bound).float()
    nearness = list[float]()
    for pull in (0, 50):
        learner = copy.deepcopy(encoders)
        _learn(learner, mixture, lists, pull)
        own = encode_all(learner.find, mixture.texts, bound).float()
        nearness.append(float((own * goal).sum(1).mean()))
    assert nearness[0] < nearness[1] - 0.02


@pytest.fixture
def teacher(encoders: Encoders, mixture: Mixture) -> Teacher:
    return Teacher(encoders, mixture, encoders.queries.state_dict())


def test_a_list_has_the_right_document_first_and_none_twice(
    teacher: Teacher, mixture: Mixture
) -> None:
    lists = teacher.lists(batch=40)
    assert np.array_equal(np.sort(lists.pairs[:, 0]), np.sort(mixture.pairs[:, 0]))
    assert np.array_equal(lists.candidates[:, 0], lists.pairs[:, 1])
    assert lists.candidates.shape == tuple(lists.scores.shape) == (len(mixture.pairs), 24)
    assert all(len(set(row)) == 24 for row in lists.candidates.tolist())
    assert set(lists.candidates.ravel().tolist()) <= set(range(_TOPICS))
    assert bool(lists.scores.isfinite().all())


def test_scores_do_not_depend_on_what_else_is_scored(teacher: Teacher) -> None:
    requests = np.arange(_REQUESTS, _REQUESTS + 12)
    # Requests as documents too: of other lengths, so that they come into other parts.
    candidates = np.concatenate((np.arange(12), np.arange(_VARIANTS, _VARIANTS + 12)))
    every = np.tile(candidates, (len(requests), 1))
    with torch.no_grad():
        goal = teacher.scores(requests, every)
        turned = teacher.scores(requests[::-1], every[:, ::-1]).flip(0, 1)
        alone = torch.cat([teacher.scores(requests[at : at + 1], every[:1]) for at in range(12)])
    spread = min(float(goal.std(0).mean()), float(goal.std(1).mean()))
    assert float((turned - goal).abs().max()) < spread / 4
    assert float((alone - goal).abs().max()) < spread / 4


def test_the_teacher_learns_which_document_answers(encoders: Encoders, mixture: Mixture) -> None:
    few = replace(mixture, pairs=mixture.pairs[: len(KINDS) : 2] * [1, 1, 1, 0])
    teacher = Teacher(encoders, few, encoders.queries.state_dict())
    every = np.tile(few.pairs[:, 1], (len(few.pairs), 1))

    def lost() -> float:
        with torch.no_grad():
            scores = teacher.scores(few.pairs[:, 0], every)
        return float(torch.nn.functional.cross_entropy(scores, torch.arange(len(scores))))

    begun, before = [part.clone() for part in encoders.parameters()], lost()
    sampler = PairSampler(few.pairs, mixture.variants, seed=1)
    teacher.learn(sampler, Schedule(steps=60, batch=32, rate=4e-3), negatives=5)
    assert lost() < 0.5 * before
    assert all(map(torch.equal, begun, encoders.parameters()))


def test_validation_finds_each_document_by_itself(encoders: Encoders, mixture: Mixture) -> None:
    both = Encoders(encoders.queries, encoders.queries)
    # Of two lengths, by turns, and asked for in another order.
    numbers = np.stack((np.arange(8), _REQUESTS + 20 + np.arange(8)), axis=1).ravel()
    order = np.random.default_rng(1).permutation(16)
    right = {
        "documents": numbers,
        "queries": numbers[order],
        "targets": order[:, None],
        "messages": np.arange(0),
    }
    sets = {
        "library": right,
        "typos": right | {"targets": (order[:, None] + 1) % 16},
        "everyday en": right | {"messages": np.arange(_MESSAGES, _TWIN)},
    }
    found = validate(both, replace(mixture, validation=sets))
    assert found["library @1"] == found["library @5"] == 1
    assert found["typos @1"] == 0
    assert found["everyday en AUROC"] == 1
    assert "library AUROC" not in found


def test_recall_of_several_tools_is_the_share_that_is_found(
    encoders: Encoders, mixture: Mixture
) -> None:
    both = Encoders(encoders.queries, encoders.queries)
    # Five times the first document before the others, so that it is all of the first five.
    rows = {
        "documents": np.array([0, 0, 0, 0, *range(8)]),
        "queries": np.array([0, 0, 1]),
        "targets": np.array([[2, 9, -1], [9, 10, -1], [5, -1, -1]]),
        "messages": np.arange(0),
    }
    found = validate(both, replace(mixture, validation={"tools": rows}))
    assert found == {"tools R@5": pytest.approx((1 / 2 + 0 + 1) / 3)}


def test_fewer_than_five_documents_are_enough(encoders: Encoders, mixture: Mixture) -> None:
    rows = {
        "documents": np.arange(3),
        "queries": np.arange(3),
        "targets": np.arange(3)[:, None],
        "messages": np.arange(0),
    }
    found = validate(encoders, replace(mixture, validation={"styles": rows, "tools": rows}))
    assert found["styles @5"] == found["tools R@5"] == 1
