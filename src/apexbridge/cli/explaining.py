"""`explain`: why a turn went as it did."""

from typing import Any

import anyio

from apexbridge.cli.output import Exit, Out
from apexbridge.runtime import Runtime


def explain(out: Out, turn: str) -> None:
    """Show the record of a turn; without an id, of the last one."""

    async def record() -> dict[str, Any] | None:
        async with Runtime.open(out.loaded) as runtime:
            return await anyio.to_thread.run_sync(runtime.chatting.store.turn, turn)

    found = anyio.run(record)
    if found is None:
        line = out.word("turn_unknown", id=turn) if turn else out.word("turn_none")
        out.finish({"turn": None}, lambda: out.line(line), Exit.NOT_FOUND)
        return
    out.finish({"turn": found}, lambda: _draw(out, found))


def _draw(out: Out, turn: dict[str, Any]) -> None:
    usage = turn["usage"]
    out.line(
        out.word(
            "turn_turn",
            id=turn["id"],
            rounds=turn["rounds"],
            calls=len(turn["calls"]),
            tokens=usage["input_tokens"] + usage["output_tokens"],
            seconds=f"{turn['seconds']:.2f}",
            finish=turn["finish"],
        )
    )
    out.line(
        out.word(
            "turn_time",
            model=f"{turn['model_seconds']:.2f}",
            tools=f"{turn['tool_seconds']:.2f}",
            search=f"{turn['search_seconds']:.3f}",
        )
    )
    out.line(out.word("turn_confidence", confidence=f"{turn['confidence']:.2f}"))
    _candidates(out, turn["candidates"])
    for key in ("listed", "shortened", "dropped", "woken"):
        if turn[key]:
            out.line(out.word(f"turn_{key}", names=", ".join(turn[key])))
    if turn["asleep"]:
        out.line(out.word("turn_asleep", count=turn["asleep"]))
    _calls(out, turn["calls"])


def _candidates(out: Out, found: list[dict[str, Any]]) -> None:
    if not found:
        return
    out.line(out.word("turn_candidates") + ":")
    keys = (
        "name",
        "turn_score",
        "turn_meaning",
        "turn_lexical",
        "turn_usage",
        "turn_fate",
    )
    rows = [
        (
            one["name"],
            f"{one['score']:.2f}",
            f"{one['parts'].get('meaning', 0):.2f}",
            f"{one['parts'].get('lexical', 0):.2f}",
            f"{one['parts'].get('usage', 0):.2f}",
            out.word(f"fate_{one['fate']}"),
        )
        for one in found
    ]
    out.table([out.word(key) for key in keys], rows)


def _calls(out: Out, calls: list[dict[str, Any]]) -> None:
    if not calls:
        return
    heads = [out.word(key) for key in ("turn_tool", "turn_seconds", "turn_code")]
    out.table(heads, [(c["tool"], f"{c['seconds']:.2f}", c["code"]) for c in calls])
