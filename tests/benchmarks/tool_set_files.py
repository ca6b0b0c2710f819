"""Made-up files in the formats of the public tool-retrieval sets."""

import json
from pathlib import Path

from benchmarks import public_sets


def write_ultratool(folder: Path) -> Path:
    """Write two parallel requests: one needs two tools, the other one of these."""
    texts = {
        "en": (
            "Book a table and set an alarm\n",
            "Wake me\n",
            "Books a table",
            "Sets an alarm",
            "Hour",
        ),
        "zh": ("订餐桌并设闹钟\n", "叫醒我\n", "预订餐桌", "设置闹钟", "钟点"),
    }
    for language, (both, one, table, alarm, hour) in texts.items():
        arguments = {"type": "object", "properties": {"hour": {"description": hour}}}
        set_alarm = {"name": "set_alarm", "description": alarm, "arguments": arguments}
        book = {"name": "book_table", "description": table, "arguments": {"type": "object"}}
        tasks = [
            {"question": both, "tools": [book, set_alarm]},
            {"question": one, "tools": [set_alarm]},
        ]
        _write_lines(folder / public_sets.ULTRATOOL[language], *tasks)
    return folder


def write_toole(folder: Path) -> Path:
    """Write two tools, two requests for one of them and one for both."""
    _write_json(folder / public_sets.TOOLE_TOOLS, {"Maps": "Draws maps", "Tides": "Knows tides"})
    table = 'Query,Tool\n"When is high tide, and low?",Tides\nDraw the coast,Maps\n'
    _write(folder / public_sets.TOOLE_REQUESTS, table)
    pair = {"query": "Draw the tides", "tool": ["Maps", "Tides"]}
    _write_json(folder / public_sets.TOOLE_PAIRS, [pair])
    return folder


def write_toollens(folder: Path) -> Path:
    """Write two tools, and a request of the test part that needs both."""
    parameters = json.dumps([{"name": "q", "type": "STRING", "description": "Food, to look up"}])
    texts = (
        "category_name:Food, tool_name:Eats, api_name:Find, api_description:Find meals, or drinks, "
        f"required_params: {parameters}, optional_params: [], return_schema: {{}}",
        "category_name:Food, tool_name:Eats, api_name:Shop, api_description:, "
        f"required_params: [], optional_params: {parameters}, return_schema: {{}}",
    )
    tools = [{"_id": str(at), "title": "", "text": text} for at, text in enumerate(texts)]
    _write_lines(folder / public_sets.TOOLLENS / "corpus.jsonl", *tools)
    queries = ({"_id": "7", "text": "Cook soup"}, {"_id": "8", "text": "Only trained on"})
    _write_lines(folder / public_sets.TOOLLENS / "queries.jsonl", *queries)
    rows = "query-id\tcorpus-id\tscore\n7\t0\t1\n7\t1\t1\n"
    _write(folder / public_sets.TOOLLENS / "qrels/test.tsv", rows)
    return folder


def write_seal_tools(folder: Path) -> Path:
    """Write one tool, and in each domain a request that calls it twice."""
    parameters = {"sample": {"type": "str", "description": "What to weigh"}}
    tool = {"api_name": "weighSample", "api_description": "Weigh", "field": "Chemistry/Lab"}
    _write_lines(folder / public_sets.SEAL_TOOLS / "tool.jsonl", tool | {"parameters": parameters})
    for mode, name in public_sets.SEAL_TOOLS_MODES.items():
        calls = [{"api": "weighSample", "parameters": {"sample": rock}} for rock in "ab"]
        task = {"id": name, "query": f"Weigh a and b {mode}", "calling": calls}
        _write_lines(folder / public_sets.SEAL_TOOLS / name, task)
    return folder


def write_livemcpbench(folder: Path) -> Path:
    """Write two servers that share a tool's name, and a task whose only tool no server has."""
    schema = {"type": "object", "properties": {"path": {"type": "string"}}}
    save = {"name": "save", "description": "Save a file", "inputSchema": schema}
    draw = {"name": "draw", "description": None, "inputSchema": {"type": "object"}}
    servers = [
        {"name": "Disk Server", "tools": {"disk": {"tools": [save]}}},
        {"name": "Art Server", "tools": {"art": {"tools": [save, draw]}}},
    ]
    _write_json(folder / public_sets.LIVEMCPBENCH_SERVERS, servers)
    wanted = {"Draw and save a cat": "1. draw\n2.save\n3. gone\n4. save\n", "Compile it": "1. gone"}
    tasks = [
        {"Question": question, "Annotator Metadata": {"Tools": tools}}
        for question, tools in wanted.items()
    ]
    _write_json(folder / public_sets.LIVEMCPBENCH_TASKS, tasks)
    return folder


def _write_lines(path: Path, *lines: object) -> None:
    _write(path, "".join(f"{json.dumps(line, ensure_ascii=False)}\n" for line in lines))


def _write_json(path: Path, value: object) -> None:
    _write(path, json.dumps(value))


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
