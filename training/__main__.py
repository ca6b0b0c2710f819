"""Command line of the training pipeline, one subcommand a step, from `prepare` to `export`."""

import argparse
import sys
from pathlib import Path

from training.corpus import Sources, prepare


def main() -> None:
    """Run one step."""
    parser = argparse.ArgumentParser(prog="python -m training", description=__doc__)
    steps = parser.add_subparsers(dest="step", required=True)
    _add_prepare(steps.add_parser("prepare", help="data files to clean training texts"))
    _add_begin(steps.add_parser("begin", help="vocabulary and where its new words start"))
    _add_chinese(steps.add_parser("chinese", help="the base learns Chinese"))
    _add_answers(steps.add_parser("answers", help="what knows Chinese learns what answers what"))
    _add_mean(steps.add_parser("mean", help="the mean of weights from the same beginning"))
    _add_thin(steps.add_parser("thin", help="one with fewer layers, taught by the whole one"))
    _add_mix(steps.add_parser("mix", help="texts of the fine-tuning stage, as token ids"))
    _add_fine_tune(steps.add_parser("fine-tune", help="both encoders learn the mixture"))
    _add_export(steps.add_parser("export", help="weights to the files that ship"))
    given = parser.parse_args()
    given.run(given)


def _add_prepare(parser: argparse.ArgumentParser) -> None:
    for name in ("skills", "phrases", "segments", "descriptions", "held-out"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    parser.add_argument("--requests", type=Path, default=Path(__file__).parent / "requests")
    parser.add_argument("--out", type=Path, required=True)
    parser.set_defaults(run=_prepare)


def _prepare(given: argparse.Namespace) -> None:
    names = ("skills", "phrases", "segments", "descriptions", "held_out", "requests")
    sources = Sources(**{name: getattr(given, name) for name in names})
    for what, count in prepare(sources, given.out).items():
        _say(f"{what}: {count:,}")


def _add_begin(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--base", type=Path, required=True, help="folder with tokenizer.json")
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--requests", type=Path, default=Path(__file__).parent / "requests")
    parser.add_argument("--out", type=Path, required=True)
    parser.set_defaults(run=_begin)


def _begin(given: argparse.Namespace) -> None:
    from training.colloquial import Products
    from training.initialization import begin

    products = Products.read(given.requests / "products.jsonl")
    _say(f"{begin(given.base, given.data, products, given.out):,} new words")


def _add_chinese(parser: argparse.ArgumentParser) -> None:
    _add_common(parser)
    _add_stage(parser, steps=300, rate=4e-4)
    parser.set_defaults(run=_course, course="chinese")


def _add_answers(parser: argparse.ArgumentParser) -> None:
    _add_common(parser)
    _add_stage(parser, steps=200, rate=1e-4)
    parser.add_argument("--whole", type=Path, required=True, help="weights that `chinese` wrote")
    parser.set_defaults(run=_course, course="answers")


def _add_stage(parser: argparse.ArgumentParser, *, steps: int, rate: float) -> None:
    parser.add_argument("--base", type=Path, required=True, help="model.onnx, or weights.npz")
    parser.add_argument("--steps", type=int, default=steps)
    parser.add_argument("--rate", type=float, default=rate)


def _add_mean(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--weights", type=Path, nargs="+", required=True)
    parser.add_argument("--out", type=Path, required=True, help="weights, as .npz")
    parser.set_defaults(run=_course, course="mean")


def _add_thin(parser: argparse.ArgumentParser) -> None:
    _add_common(parser)
    parser.add_argument("--whole", type=Path, required=True, help="weights of the whole encoder")
    for name, reads in (("--layers", "requests"), ("--document-layers", "documents")):
        parser.add_argument(name, type=int, nargs="+", required=True, help=f"kept for {reads}")
    parser.add_argument(
        "--documents-only", action="store_true", help="requests were handed down before"
    )
    parser.add_argument("--documents-from", type=Path, help="weights to go on from")
    parser.add_argument("--rate", type=float, default=4e-4)
    parser.add_argument("--documents-out", type=Path, required=True, help="weights, as .npz")
    parser.add_argument("--steps", type=int, default=2_000)
    parser.set_defaults(run=_course, course="thin")


def _add_mix(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--skills", type=Path, required=True)
    parser.add_argument("--tokenizer", type=Path, required=True, help="folder of the encoders")
    parser.add_argument("--requests", type=Path, default=Path(__file__).parent / "requests")
    parser.add_argument("--held-out", type=Path, nargs="+", required=True, help="of test sets")
    parser.add_argument("--out", type=Path, required=True, help="token ids, as .npz")
    parser.set_defaults(run=_mix)


def _mix(given: argparse.Namespace) -> None:
    from training.mixture import MixtureSources, mix

    sources = MixtureSources(
        data=given.data, skills=given.skills, requests=given.requests, held_out=given.held_out
    )
    for what, count in mix(sources, given.tokenizer, given.out).items():
        _say(f"{what}: {count:,}")


def _add_fine_tune(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--mixture", type=Path, required=True)
    parser.add_argument("--shipped", type=Path, required=True, help="folder of both encoders")
    for name in ("--out-queries", "--out-documents"):
        parser.add_argument(name, type=Path, required=True, help="weights, as .npz")
    parser.add_argument("--teacher-steps", type=int, default=400)
    parser.add_argument("--teacher-batch", type=int, default=192)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--batch", type=int, default=1_024)
    parser.add_argument("--rate", type=float, default=1e-4)
    parser.add_argument("--document-rate", type=float, default=5e-5)
    parser.add_argument("--contrast", type=float, default=0.5, help="weight of InfoNCE")
    for name, default in (("", 2.0), ("document-", 4.0)):
        about = "weight of the distance to the shipped vectors"
        parser.add_argument(f"--{name}pull", type=float, default=default, help=about)
    parser.add_argument("--seed", type=int, default=1)
    parser.set_defaults(run=_course, course="fine-tune")


def _add_export(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--weights", type=Path, required=True)
    parser.add_argument("--tokenizer", type=Path, required=True, help="folder that `begin` wrote")
    parser.add_argument("--out", type=Path, required=True, help="folder for the files")
    parser.add_argument("--model", default="model_int8.onnx", help="the model's file in it")
    parser.add_argument("--takes-many", action="store_true", help="many texts in one call")
    parser.set_defaults(run=_export)


def _export(given: argparse.Namespace) -> None:
    from training.release import release

    hashes = release(
        given.weights, given.tokenizer, given.out, given.model, takes_many=given.takes_many
    )
    for name, digest in hashes.items():
        _say(f"{name}: {digest}")


def _add_common(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--tokenizer", type=Path, required=True, help="folder that `begin` wrote")
    parser.add_argument("--out", type=Path, required=True, help="weights, as .npz")
    parser.add_argument("--batch", type=int, default=4_096)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--seed", type=int, default=1)


def _course(given: argparse.Namespace) -> None:
    from training import runs

    commands = {
        "chinese": runs.chinese,
        "answers": runs.answers,
        "mean": runs.mean,
        "thin": runs.thin,
        "fine-tune": runs.fine_tune,
    }
    commands[given.course](given)


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
