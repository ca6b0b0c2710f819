"""Secrets over HTTP: values go in and never come out; only for administrators."""

from collections.abc import Generator

import pytest

from apexbridge.secrets.store import SecretGrant
from apexbridge.server.routes import ROUTES
from tests.server.skills_server import SkillsServer, error_code, make_config, skills_server

VALUE = "sk-live-0123456789abcdef"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Generator[SkillsServer]:
    with skills_server(make_config(tmp_path_factory.mktemp("http")), ROUTES) as running:
        yield running


def test_a_secret_is_set_listed_and_removed(server: SkillsServer) -> None:
    assert server.get("/v1/secrets").json()["data"] == []
    reply = server.post("/v1/secrets/API_KEY", {"value": VALUE})
    assert (reply.status_code, reply.json()) == (200, {"name": "API_KEY", "is_set": True})
    name = "API_KEY"
    server.runtime.secret_store.grant(
        [SecretGrant(secret=name, skill="s", sha256="0" * 64, hosts=("api.example",))]
    )
    listed = server.get("/v1/secrets")
    assert listed.json()["data"] == [
        {
            "name": "API_KEY",
            "is_set": True,
            "grants": [
                {"skill": "s", "sha256": "0" * 64, "hosts": ["api.example"], "places": ["header"]}
            ],
        }
    ]
    assert VALUE not in listed.text
    assert server.runtime.secret_store.read().values["API_KEY"].value == VALUE
    assert server.client.delete("/v1/secrets/API_KEY").json() == {"name": name, "is_set": False}
    missing = server.client.delete("/v1/secrets/API_KEY")
    assert error_code(missing) == (404, "secret_unknown")
    actions = [record.action for record in server.runtime.audit.latest(10)]
    assert actions == ["secret_set", "secret_removed"]
    stored = b"".join(path.read_bytes() for path in server.data.rglob("*") if path.is_file())
    assert VALUE.encode() not in stored


@pytest.mark.parametrize(
    ("name", "body", "code"),
    [
        ("PATH", {"value": VALUE}, "secret_name_invalid"),
        ("A", {"value": "short"}, "secret_value_invalid"),
        ("A", {"value": VALUE + "\n"}, "secret_value_invalid"),
        ("A", {"value": [VALUE]}, "request_invalid"),
        ("A", {"valeu": VALUE}, "request_invalid"),
    ],
)
def test_what_cannot_be_stored_is_refused_and_not_repeated(
    server: SkillsServer, name: str, body: dict[str, object], code: str
) -> None:
    reply = server.post(f"/v1/secrets/{name}", body)
    assert error_code(reply)[1] == code
    assert VALUE not in reply.text
    assert server.get("/v1/secrets").json()["data"] == []


def test_another_scope_than_admin_is_refused(server: SkillsServer) -> None:
    key = server.serving.key_for("exec", "skills:write")
    for method, path in (
        ("GET", "/v1/secrets"), ("POST", "/v1/secrets/A"), ("DELETE", "/v1/secrets/A")
    ):  # fmt: skip
        reply = server.client.request(method, path, headers={"Authorization": f"Bearer {key}"})
        assert reply.status_code == 403
