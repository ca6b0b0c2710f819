"""Readers of public tool-retrieval sets: tools to index, and requests with the tools they need.

Each reader takes a checkout of the set's repository. Name and description of a tool are its main
text, which is embedded; parameters and category are its body, which only BM25 reads.
"""

import csv
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, Field, TypeAdapter

from apexbridge.evals.corpus import CorpusSkill

ULTRATOOL = {
    "en": Path("data/English-dataset/test.json"),
    "zh": Path("data/Chinese-dataset/test.json"),
}
ULTRATOOL_MODES = {
    "EN": (("en",), "en"),
    "ZH": (("zh",), "zh"),
    "ZH→EN": (("zh",), "en"),
    "EN→ZH": (("en",), "zh"),
    "both→EN": (("en", "zh"), "en"),
    "both→ZH": (("en", "zh"), "zh"),
}
"""Languages of the request, and of the tools' descriptions."""
TOOLE_TOOLS = Path("dataset/plugin_des.json")
TOOLE_REQUESTS = Path("dataset/data/all_clean_data.csv")
TOOLE_PAIRS = Path("dataset/data/multi_tool_query_golden.json")
TOOLLENS = Path("datasets/ToolLens")
SEAL_TOOLS = Path("Seal-Tools_Dataset")
SEAL_TOOLS_MODES = {
    "in domain": "test_in_domain.jsonl",
    "out of domain": "test_out_domain.jsonl",
}
LIVEMCPBENCH_SERVERS = Path("tools/LiveMCPTool/tools.json")
LIVEMCPBENCH_TASKS = Path("annotated_data/all_annotations.json")

_TOOLLENS_TEXT = re.compile(
    r"category_name:(?P<category>.*?), tool_name:(?P<tool>.*?), api_name:(?P<name>.*?), "
    r"api_description:(?P<description>.*?), required_params: (?P<required>.*), "
    r"optional_params: (?P<optional>.*), return_schema: ",
    re.DOTALL,
)
_NUMBERED = re.compile(r"^\s*\d+\.\s*")


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolRequest:
    """Request in English, in Chinese or in both, with all the tools it needs."""

    texts: tuple[str, ...]
    """If there are two, the second is in Chinese."""
    needed: tuple[frozenset[str], ...]
    """For each tool that is needed, the ids that stand for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolSet:
    """Tools, and requests for them, as one row of the table."""

    name: str
    tools: Sequence[CorpusSkill]
    requests: Sequence[ToolRequest]


class _Described(BaseModel):
    description: str | None = None


class _NamedParameter(_Described):
    name: str


class _Schema(BaseModel):
    properties: Mapping[str, _Described] = {}


class _UltraTool(BaseModel):
    name: str
    description: str
    arguments: _Schema


class _UltraToolTask(BaseModel):
    question: str
    tools: Sequence[_UltraTool]


class _ToolEPair(BaseModel):
    query: str
    tool: Sequence[str]


class _BeirText(BaseModel):
    id: str = Field(alias="_id")
    text: str


class _SealTool(BaseModel):
    api_name: str
    api_description: str
    field: str
    parameters: Mapping[str, _Described]


class _SealCall(BaseModel):
    api: str


class _SealTask(BaseModel):
    query: str
    calling: Sequence[_SealCall]


class _McpTool(_Described):
    name: str
    input_schema: _Schema = Field(alias="inputSchema")


class _McpTools(BaseModel):
    tools: Sequence[_McpTool]


class _McpServer(BaseModel):
    name: str
    tools: Mapping[str, _McpTools]


class _Annotation(BaseModel):
    tools: str = Field(alias="Tools")


class _McpTask(BaseModel):
    question: str = Field(alias="Question")
    annotation: _Annotation = Field(alias="Annotator Metadata")


Line = TypeVar("Line", bound=BaseModel)


def read_ultratool(folder: Path) -> Iterator[ToolSet]:
    """Read UltraTool's test data: the same requests and tools in English and in Chinese."""
    tasks = {
        language: _lines(folder / path, _UltraToolTask) for language, path in ULTRATOOL.items()
    }
    tools = {language: _ultratools(listed) for language, listed in tasks.items()}
    parallel = list(zip(tasks["en"], tasks["zh"], strict=True))
    for mode, (asked, described) in ULTRATOOL_MODES.items():
        requests = [
            ToolRequest(
                texts=tuple({"en": english, "zh": chinese}[way].question.strip() for way in asked),
                needed=_each(tool.name for tool in english.tools),
            )
            for english, chinese in parallel
        ]
        yield ToolSet(name=f"UltraTool {mode}", tools=tools[described], requests=requests)


def _ultratools(tasks: Sequence[_UltraToolTask]) -> list[CorpusSkill]:
    found = {
        tool.name: CorpusSkill(
            id=tool.name,
            name=tool.name,
            description=tool.description,
            body=_parameters(tool.arguments.properties),
        )
        for task in tasks
        for tool in task.tools
    }
    return list(found.values())


def read_toole(folder: Path) -> Iterator[ToolSet]:
    """Read MetaTool's ToolE: requests for one tool, and for two."""
    described: Mapping[str, str] = json.loads((folder / TOOLE_TOOLS).read_bytes())
    tools = [CorpusSkill(id=name, name=name, description=text) for name, text in described.items()]
    with (folder / TOOLE_REQUESTS).open(encoding="utf-8", newline="") as file:
        requests = [
            ToolRequest(texts=(row["Query"],), needed=_each([row["Tool"]]))
            for row in csv.DictReader(file)
        ]
    yield ToolSet(name="ToolE", tools=tools, requests=requests)
    pairs = TypeAdapter(list[_ToolEPair]).validate_json((folder / TOOLE_PAIRS).read_bytes())
    requests = [ToolRequest(texts=(pair.query,), needed=_each(pair.tool)) for pair in pairs]
    yield ToolSet(name="ToolE, two tools", tools=tools, requests=requests)


def read_toollens(folder: Path) -> Iterator[ToolSet]:
    """Read the test requests of ToolLens, of the repository COLT."""
    tools = [_toollens_tool(line) for line in _lines(folder / TOOLLENS / "corpus.jsonl", _BeirText)]
    texts = {line.id: line.text for line in _lines(folder / TOOLLENS / "queries.jsonl", _BeirText)}
    needed = dict[str, list[str]]()
    with (folder / TOOLLENS / "qrels/test.tsv").open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file, delimiter="\t"):
            needed.setdefault(row["query-id"], []).append(row["corpus-id"])
    requests = [ToolRequest(texts=(texts[id_],), needed=_each(ids)) for id_, ids in needed.items()]
    yield ToolSet(name="ToolLens", tools=tools, requests=requests)


def _toollens_tool(line: _BeirText) -> CorpusSkill:
    part = _TOOLLENS_TEXT.match(line.text)
    if part is None:
        raise ValueError(f"ToolLens: tool {line.id} has no name")
    read = TypeAdapter(list[_NamedParameter]).validate_json
    parameters = {each.name: each for each in (*read(part["required"]), *read(part["optional"]))}
    return CorpusSkill(
        id=line.id,
        name=f"{part['tool']}: {part['name']}",
        description=part["description"],
        body=f"{part['category']}\n{_parameters(parameters)}",
    )


def read_seal_tools(folder: Path) -> Iterator[ToolSet]:
    """Read the test requests of Seal-Tools, whose domains its training data has or lacks."""
    tools = [
        CorpusSkill(
            id=tool.api_name,
            name=tool.api_name,
            description=tool.api_description,
            body=f"{tool.field}\n{_parameters(tool.parameters)}",
        )
        for tool in _lines(folder / SEAL_TOOLS / "tool.jsonl", _SealTool)
    ]
    for mode, file in SEAL_TOOLS_MODES.items():
        tasks = _lines(folder / SEAL_TOOLS / file, _SealTask)
        requests = [
            ToolRequest(texts=(task.query,), needed=_each(call.api for call in task.calling))
            for task in tasks
        ]
        yield ToolSet(name=f"Seal-Tools {mode}", tools=tools, requests=requests)


def read_livemcpbench(folder: Path) -> Iterator[ToolSet]:
    """Read LiveMCPBench: tasks annotated with the tools of MCP servers.

    Annotations name the tool and not the server: where servers share the name, either counts.
    Names that no server has are left out, and tasks without any other.
    """
    servers = TypeAdapter(list[_McpServer]).validate_json(
        (folder / LIVEMCPBENCH_SERVERS).read_bytes()
    )
    tools, ids = list[CorpusSkill](), dict[str, set[str]]()
    for server, key, tool in _mcp_tools(servers):
        id_ = f"{key}:{tool.name}"
        ids.setdefault(tool.name, set()).add(id_)
        tools.append(
            CorpusSkill(
                id=id_,
                name=f"{server.name}: {tool.name}",
                description=tool.description or "",
                body=_parameters(tool.input_schema.properties),
            )
        )
    tasks = TypeAdapter(list[_McpTask]).validate_json((folder / LIVEMCPBENCH_TASKS).read_bytes())
    requests = [
        ToolRequest(texts=(task.question,), needed=tuple(frozenset(ids[name]) for name in names))
        for task in tasks
        if (names := [name for name in _annotated(task) if name in ids])
    ]
    yield ToolSet(name="LiveMCPBench", tools=tools, requests=requests)


def _mcp_tools(servers: Sequence[_McpServer]) -> Iterator[tuple[_McpServer, str, _McpTool]]:
    for server in servers:
        for key, listed in server.tools.items():
            yield from ((server, key, tool) for tool in listed.tools)


def _annotated(task: _McpTask) -> list[str]:
    lines = (_NUMBERED.sub("", line).strip() for line in task.annotation.tools.splitlines())
    return list(dict.fromkeys(line for line in lines if line))


def _lines(path: Path, kind: type[Line]) -> list[Line]:
    with path.open(encoding="utf-8") as file:
        return [kind.model_validate_json(line) for line in file if line.strip()]


def _each(names: Iterable[str]) -> tuple[frozenset[str], ...]:
    return tuple(frozenset({name}) for name in dict.fromkeys(names))


def _parameters(described: Mapping[str, _Described]) -> str:
    return "\n".join(f"{name}: {each.description or ''}" for name, each in described.items())
