"""The English words of the server, by code."""

from apexbridge.locales.phrase import LocalizedText

SERVER: dict[str, LocalizedText] = {
    "request_invalid": LocalizedText("The request makes no sense: {detail}"),
    "key_missing": LocalizedText(
        "A key is needed",
        "Send it as 'Authorization: Bearer KEY'; 'apexbridge keys make' makes one.",
    ),
    "key_invalid": LocalizedText(
        "The key is unknown, expired or revoked", "'apexbridge keys make' makes a new one."
    ),
    "scope_missing": LocalizedText(
        "The key may not do this: it lacks the scope '{scope}'",
        "Make one that may: apexbridge keys make NAME --scope {scope}",
    ),
    "host_unknown": LocalizedText(
        "This server does not answer for the host '{host}'", "Add it to server.allowed_hosts."
    ),
    "origin_refused": LocalizedText(
        "Pages of {origin} may not call this server", "Add it to server.allowed_origins."
    ),
    "content_type_unsupported": LocalizedText(
        "A body of the type '{kind}' is not taken here", "Send {wanted}."
    ),
    "body_too_large": LocalizedText("The request is larger than {limit} bytes"),
    "request_slow": LocalizedText("The request did not arrive in time"),
    "address_too_long": LocalizedText("The address is longer than {limit} bytes"),
    "route_unknown": LocalizedText(
        "There is nothing at {path}", "See /openapi.json for what there is."
    ),
    "record_unknown": LocalizedText(
        "There is no {kind} '{id}'", "The oldest ones are not kept for ever."
    ),
    "approval_settled": LocalizedText("The question '{id}' waits for no answer any more"),
    "method_not_allowed": LocalizedText("{method} is not possible at {path}"),
    "rate_limited": LocalizedText(
        "Too many requests for this key", "Try again in {retry_after} seconds."
    ),
    "server_busy": LocalizedText(
        "The server has all it can do", "Try again in {retry_after} seconds."
    ),
    "server_stopping": LocalizedText(
        "The server is being stopped", "Try again in {retry_after} seconds."
    ),
    "server_failed": LocalizedText("The server failed; its log says why"),
    "model_unknown": LocalizedText("There is no model named '{name}'", "See /v1/models."),
    "websocket_refused": LocalizedText("There are no web sockets here", "Use plain requests."),
    "token_invalid": LocalizedText(
        "The token is unknown, used or older than ten minutes",
        "Start the server again for a new one, or sign in with a key.",
    ),
    "bind_failed": LocalizedText(
        "The server cannot listen at {address}: {detail}",
        "Choose another port (--port), or 0 for any free one.",
    ),
    "key_ambiguous": LocalizedText("Several keys are named '{name}'", "Use the id: {ids}"),
    "key_unknown": LocalizedText(
        "There is no good key of the id or name '{name}'", "'apexbridge keys ls' lists them."
    ),
    "bind_needs_key": LocalizedText(
        "Listening at {host} lets others in, and there is no key yet",
        "Make one first: apexbridge keys make NAME",
    ),
    "prompt_arguments": LocalizedText("What the skill is to work on, in words"),
    "client_asks": LocalizedText("Allow {tool}: {argument}"),
}
