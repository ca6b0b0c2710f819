"""The English words of the server, by code."""

from apexbridge.wording.phrase import Phrase

SERVER: dict[str, Phrase] = {
    "request_invalid": Phrase("The request makes no sense: {detail}"),
    "key_missing": Phrase(
        "A key is needed",
        "Send it as 'Authorization: Bearer KEY'; 'apexbridge keys make' makes one.",
    ),
    "key_invalid": Phrase(
        "The key is unknown, expired or revoked", "'apexbridge keys make' makes a new one."
    ),
    "scope_missing": Phrase(
        "The key may not do this: it lacks the scope '{scope}'",
        "Make one that may: apexbridge keys make NAME --scope {scope}",
    ),
    "host_unknown": Phrase(
        "This server does not answer for the host '{host}'", "Add it to server.allowed_hosts."
    ),
    "origin_refused": Phrase(
        "Pages of {origin} may not call this server", "Add it to server.allowed_origins."
    ),
    "content_type_unsupported": Phrase(
        "A body of the type '{kind}' is not taken here", "Send {wanted}."
    ),
    "body_too_large": Phrase("The request is larger than {limit} bytes"),
    "request_slow": Phrase("The request did not arrive in time"),
    "address_too_long": Phrase("The address is longer than {limit} bytes"),
    "route_unknown": Phrase("There is nothing at {path}", "See /openapi.json for what there is."),
    "record_unknown": Phrase("There is no {kind} '{id}'", "The oldest ones are not kept for ever."),
    "approval_settled": Phrase("The question '{id}' waits for no answer any more"),
    "method_not_allowed": Phrase("{method} is not possible at {path}"),
    "rate_limited": Phrase("Too many requests for this key", "Try again in {retry_after} seconds."),
    "server_busy": Phrase("The server has all it can do", "Try again in {retry_after} seconds."),
    "server_stopping": Phrase("The server is being stopped", "Try again in {retry_after} seconds."),
    "server_failed": Phrase("The server failed; its log says why"),
    "model_unknown": Phrase("There is no model named '{name}'", "See /v1/models."),
    "websocket_refused": Phrase("There are no web sockets here", "Use plain requests."),
    "token_invalid": Phrase(
        "The token is unknown, used or older than ten minutes",
        "Start the server again for a new one, or sign in with a key.",
    ),
    "bind_failed": Phrase(
        "The server cannot listen at {address}: {detail}",
        "Choose another port (--port), or 0 for any free one.",
    ),
    "key_ambiguous": Phrase("Several keys are named '{name}'", "Use the id: {ids}"),
    "key_unknown": Phrase(
        "There is no good key of the id or name '{name}'", "'apexbridge keys ls' lists them."
    ),
    "bind_needs_key": Phrase(
        "Listening at {host} lets others in, and there is no key yet",
        "Make one first: apexbridge keys make NAME",
    ),
    "prompt_arguments": Phrase("What the skill is to work on, in words"),
    "client_asks": Phrase("Allow {tool}: {argument}"),
}
