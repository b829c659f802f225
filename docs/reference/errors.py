"""The page of errors: what each means, its numbers in each dialect and binding, and what a caller should do."""

from collections.abc import Mapping

from accord import errors as e

ADVICE: Mapping[type[e.AccordError], str] = {
    e.ParseError: "Send JSON. Nothing was done.",
    e.InvalidRequest: "Mend the request; the message says what is wrong with it. Nothing was done.",
    e.RequestTooLarge: "Send less, or name a file by its URL; the limits are `limits.body` and those beside it.",
    e.HeadersTooLarge: "Send fewer or shorter headers; the limit is `limits.head`.",
    e.RequestTimeout: "Send the whole request at once; the same message may be sent again.",
    e.MethodNotFound: "See that the method, the path and the version are those of one dialect.",
    e.InvalidParams: "Mend the fields that the error names.",
    e.InternalError: "Try again with the same message id, which repeats no work. The server's log has the reason.",
    e.TaskNotFound: "See that the id is right and the task your own; tasks are kept for `keep_days` after their end.",
    e.TaskNotCancelable: "Nothing: the task has ended. Read it to see how.",
    e.PushNotSupported: "Follow the task by a stream, or ask for it now and then.",
    e.UnsupportedOperation: "Do without it; the card says what the agent offers.",
    e.ContentTypeNotSupported: "Send, or ask for, a media type that the card lists.",
    e.UnsupportedMediaType: "Send the body as `application/json`.",
    e.InvalidAgentResponse: "Tell those who run the agent. The same message may be sent again.",
    e.ExtendedCardNotConfigured: "Use the public card.",
    e.ExtensionSupportRequired: "Declare the extension in `A2A-Extensions`, if you support it.",
    e.VersionNotSupported: "Speak a version that the card lists.",
    e.AgentUnavailable: "Try again with the same message id, after `Retry-After` if there is one.",
    e.TaskTimeout: "Read the task: it may have ended since. Allow it more time with the next one.",
    e.AuthenticationFailed: "Bring credentials of a kind that the card and `WWW-Authenticate` name.",
    e.PermissionDenied: "Ask for a role that allows it; other credentials may have one.",
    e.RateLimited: "Try again after `Retry-After`.",
    e.StorageQuotaExceeded: "Wait for retention to delete ended tasks, or have the operator raise the quota.",
    e.RemoteError: "See what the other server says; its code and message are in the error's data.",
}

HEAD = """# Errors

This page is written by [generate.py](generate.py) from the one table that all bindings and dialects use,
[`errors.TABLE`](../../src/accord/errors.py).

Whatever the binding, an error has the same reason, so a program may look at that alone: A2A 1.0 has it in an
`ErrorInfo`, whose domain is `{a2a}` for what A2A defines and `{own}` for the rest, and the other dialects as
`reason` in the error's `data`. What nobody foresaw is always `INTERNAL_ERROR` and shows nothing of what happened; the
server's log has it in full.
"""


def page() -> str:
    """Return the page."""
    lines = [
        "## What they mean",
        "",
        "| reason | what it means | what to do |",
        "| --- | --- | --- |",
        *(f"| `{row.reason}` | {_meaning(kind)} | {ADVICE[kind]} |" for kind, row in e.TABLE.items()),
        "",
        "## Numbers",
        "",
        "The codes are those of JSON-RPC in the dialects `v1`, `v03` and `relay`, in `vault` and in `gen`. Then come",
        "the HTTP status of a JSON-RPC answer, that of HTTP+JSON, and the status of gRPC.",
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
