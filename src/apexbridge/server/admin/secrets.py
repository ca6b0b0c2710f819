"""Secrets of skills over HTTP: names and grants can be read, values only written."""

from functools import partial

import anyio.to_thread
from starlette.responses import Response

from apexbridge.errors import RequestError
from apexbridge.runtime import Runtime
from apexbridge.server.admin.schemas import (
    SecretGrantSchema,
    SecretInput,
    SecretList,
    SecretResult,
    SecretSchema,
)
from apexbridge.server.routing import RequestContext, Router, json_response

router = Router("/v1/secrets", scope="admin")


@router.get("", response=SecretList)
async def list_secrets(ctx: RequestContext) -> Response:
    """List the secrets and their grants, without values."""
    return json_response(await anyio.to_thread.run_sync(_list, ctx.runtime))


@router.post("/{name}", body=SecretInput, response=SecretResult, errors=(422,))
async def set_secret(ctx: RequestContext) -> Response:
    """Store the value of a secret."""
    name, body = ctx.path_param("name"), await ctx.body(SecretInput)
    work = partial(_set, ctx.runtime, name, body.value.get_secret_value(), ctx.caller.id)
    await anyio.to_thread.run_sync(work)
    return json_response(SecretResult(name=name, is_set=True))


@router.delete("/{name}", response=SecretResult, errors=(404,))
async def remove_secret(ctx: RequestContext) -> Response:
    """Remove a secret and its grants."""
    name = ctx.path_param("name")
    if not await anyio.to_thread.run_sync(_remove, ctx.runtime, name, ctx.caller.id):
        raise RequestError(code="secret_unknown", name=name)
    return json_response(SecretResult(name=name, is_set=False))


def _list(runtime: Runtime) -> SecretList:
    state = runtime.secret_store.read()
    names = sorted({*state.values, *(grant.secret for grant in state.grants)})
    secrets = [
        SecretSchema(
            name=name,
            is_set=name in state.values,
            grants=[
                SecretGrantSchema.model_validate(grant)
                for grant in state.grants
                if grant.secret == name
            ],
        )
        for name in names
    ]
    return SecretList(data=secrets)


def _set(runtime: Runtime, name: str, value: str, key: str) -> None:
    store = runtime.secret_store
    store.check(name, value)
    # Audited first: a change that cannot be recorded must not happen.
    runtime.audit.record("secret_set", secret=name, key=key)
    store.set(name, value)


def _remove(runtime: Runtime, name: str, key: str) -> bool:
    store = runtime.secret_store
    state = store.read()
    if name not in state.values and all(grant.secret != name for grant in state.grants):
        return False
    runtime.audit.record("secret_removed", secret=name, key=key)
    return store.remove(name)
