"""The OpenAPI document matches the routes: every response validates against it."""

import functools
import json
import warnings
from collections.abc import Generator, Iterator
from typing import Any

import jsonschema_rs
import pytest
import requests
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from apexbridge.server.openapi import build_document
from apexbridge.server.routes import ROUTES
from apexbridge.server.routing import Route
from tests.server.skills_server import SkillsServer, make_config, skills_server

with warnings.catch_warnings():  # it opens its file without an encoding
    warnings.simplefilter("ignore", EncodingWarning)
    import schemathesis
    from schemathesis import GenerationMode
    from schemathesis import checks as common
    from schemathesis.specs.openapi import checks

_ENDLESS = "text/event-stream"
_TRIED = [route for route in ROUTES if route.media_type != _ENDLESS]
_EXAMPLES = 5
_CHECKS: list[Any] = [
    getattr(common, "not_a_server_error"),  # noqa: B009  # its type is not known in full
    *(
        getattr(checks, f"{what}_conformance")
        for what in ("status_code", "content_type", "response_schema")
    ),
]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Generator[SkillsServer]:
    with skills_server(make_config(tmp_path_factory.mktemp("openapi")), ROUTES) as running:
        running.install("garden")
        yield running


@pytest.fixture(scope="module")
def session(server: SkillsServer) -> Generator[requests.Session]:
    with requests.Session() as client:
        client.headers.update(server.serving.headers)
        client.trust_env = False
        yield client


def _path(route: Route) -> str:
    return route.path.replace(":path}", "}")


def test_the_document_is_open_and_tells_every_route(server: SkillsServer) -> None:
    reply = requests.get(f"{server.url}/openapi.json", timeout=30)
    assert reply.headers["content-type"] == "application/json"
    document = reply.json()
    assert document["openapi"] == "3.1.0"
    operations = {(path, method) for path, each in document["paths"].items() for method in each}
    assert operations == {(_path(route), route.method.lower()) for route in ROUTES}
    names = [each["operationId"] for path in document["paths"].values() for each in path.values()]
    assert len(set(names)) == len(names)


def test_every_reference_of_the_document_leads_somewhere() -> None:
    document = build_document(ROUTES)
    written = json.dumps(document)
    schemas = document["components"]["schemas"]
    for name in {each.split('"')[0] for each in written.split("#/components/schemas/")[1:]}:
        assert name in schemas
    for schema in schemas.values():
        jsonschema_rs.Draft202012Validator({**schema, "components": document["components"]})


@functools.cache
def _schema() -> Any:
    return schemathesis.openapi.from_dict(build_document(ROUTES))


def _tries() -> Iterator[Any]:
    """What can be asked wrongly is asked wrongly, too."""
    for route in _TRIED:
        for mode in ("positive", "negative"):
            if mode == "positive" or route.body or route.query:
                yield pytest.param(route, mode, id=f"{route.method} {route.path} {mode}")


@pytest.mark.unmeasured
@pytest.mark.parametrize(("route", "mode"), list(_tries()))
def test_a_route_answers_as_the_document_says(
    server: SkillsServer, session: requests.Session, route: Route, mode: str
) -> None:
    chosen = GenerationMode(mode)
    operation = _schema()[_path(route)][route.method]

    @given(case=operation.as_strategy(generation_mode=chosen), is_known=st.booleans())
    @settings(
        max_examples=_EXAMPLES,
        derandomize=True,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
    )
    def hold(case: Any, *, is_known: bool) -> None:
        if is_known and "id" in (case.path_parameters or {}) and route.method != "DELETE":
            case.path_parameters["id"] = "garden"
        reply = case.call(base_url=server.url, session=session, timeout=30, allow_redirects=False)
        case.validate_response(reply, checks=_CHECKS)

    hold()
