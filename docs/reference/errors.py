"""The page of errors: meaning, codes in each dialect and binding, and advice for callers."""

from collections.abc import Mapping

from accord import errors as e

ADVICE: Mapping[type[e.AccordError], str] = {
    e.ParseError: "Send JSON. Nothing was done.",
    e.InvalidRequest: "Correct the request as the message says. Nothing was done.",
    e.RequestTooLarge: "Send less, or refer to a file by its URL. `limits.body` and its neighbors are the limits.",
    e.HeadersTooLarge: "Send fewer or shorter headers; the limit is `limits.head`.",
    e.RequestTimeout: "Send the whole request at once; you may send the same message again.",
    e.MethodNotFound: "Check that method, path and version belong to one dialect.",
    e.InvalidParams: "Correct the fields that the error names.",
    e.InternalError: "Retry with the same message ID, which repeats no work. The server's log has the reason.",
    e.TaskNotFound: "Check the ID and the owner of the task. Tasks are kept for `keep_days` after their end.",
    e.TaskNotCancelable: "Nothing: the task has ended. Read the task for its result.",
    e.PushNotSupported: "Subscribe to the task, or poll it.",
    e.UnsupportedOperation: "Use an operation that the card lists.",
    e.ContentTypeNotSupported: "Send or accept a media type that the card lists.",
    e.UnsupportedMediaType: "Send the body as `application/json`.",
    e.InvalidAgentResponse: "Report it to the operator of the agent. You may send the same message again.",
    e.ExtendedCardNotConfigured: "Use the public card.",
    e.ExtensionSupportRequired: "Declare the extension in `A2A-Extensions`, if you support it.",
    e.VersionNotSupported: "Use a version that the card lists.",
    e.AgentUnavailable: "Retry with the same message ID, after `Retry-After` if there is one.",
    e.TaskTimeout: "Read the task: it may have ended since. Set a longer timeout for the next request.",
    e.AuthenticationFailed: "Send credentials of a scheme that the card and `WWW-Authenticate` name.",
    e.PermissionDenied: "Request a role that allows it, or use other credentials.",
    e.RateLimited: "Retry after `Retry-After`.",
    e.StorageQuotaExceeded: "Wait for retention to delete ended tasks, or have the operator raise the quota.",
    e.RemoteError: "Read the other server's code and message in the error's data.",
}

HEAD = """# Errors

This page is written by [generate.py](generate.py) from the one table that all bindings and dialects use,
[`errors.TABLE`](../../src/accord/errors.py).

An error has the same reason in every binding, so a program needs only the reason. A2A 1.0 has it in an `ErrorInfo`,
whose domain is `{a2a}` for errors of A2A and `{own}` for others. The other dialects have it as `reason` in
the error's `data`. Unexpected errors are `INTERNAL_ERROR` without details, which are in the server's log.
"""


def page() -> str:
    """Return the page."""
    lines = [
        "## Meanings",
        "",
        "| reason | meaning | advice |",
        "| --- | --- | --- |",
        *(f"| `{row.reason}` | {_meaning(kind)} | {ADVICE[kind]} |" for kind, row in e.TABLE.items()),
        "",
        "## Codes",
        "",
        "The first three codes are those of JSON-RPC, by dialect. The HTTP status of a JSON-RPC response, the HTTP",
        "status of HTTP+JSON and the status of gRPC follow.",
        "",
        "| error | reason | v1, v03, relay | vault | gen | HTTP of JSON-RPC | HTTP+JSON | gRPC | domain |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- |",
        *(_numbers(kind, row) for kind, row in e.TABLE.items()),
    ]
    return HEAD.format(a2a=e.A2A_DOMAIN, own=e.OWN_DOMAIN) + "\n" + "\n".join(lines) + "\n"


def _meaning(kind: type[e.AccordError]) -> str:
    return " ".join((kind.__doc__ or "").split())


def _numbers(kind: type[e.AccordError], row: e.Row) -> str:
    numbers = (row.code, row.vault, row.gen, row.rpc_http, row.http, f"`{row.grpc}`", f"`{row.domain}`")
    return f"| `{kind.__name__}` | `{row.reason}` | {' | '.join(map(str, numbers))} |"
