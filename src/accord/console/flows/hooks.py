"""`POST /hooks/NAME/PATH`: webhooks by which runs of served workflows begin.

It reads one bounded body, finds out who sends it and answers 202 with the run's id. A hook with a secret is for whoever
can sign with it, any other for those whom the server lets in anyway. What a call asks for is `workflows.hooks`.
"""

import logging
from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

from accord.bindings.bodies import read_request, stranger
from accord.bindings.http import (
    JSON,
    Admit,
    Receive,
    Scope,
    Send,
    check_head,
    error_headers,
    header,
    presented,
    respond,
)
from accord.bindings.outgoing import ClientGone
from accord.console.paths import HOOKS
from accord.core.interface import A2A, Caller
from accord.core.quotas import Bucket, Quotas
from accord.errors import AccordError, AuthenticationFailed, InternalError, PermissionDenied, RateLimited, TaskNotFound
from accord.model import Message, SendConfiguration, SendRequest, Task
from accord.workflows import hooks
from accord.workflows.document import Document, Hook

RATE, BURST = 50.0, 200
"""Calls a second of one address, with or without a good signature: looking costs a digest of a whole body."""

SCHEME = "hook"
"""How the audit log calls the way in of those who can sign."""

log = logging.getLogger("accord.hooks")

Headers = Mapping[str, str]


class Flow(NamedTuple):
    """A served workflow with webhooks: its document, how it is asked, and the secrets that hooks name.

    `fixed` are the values that settings give to all of its runs.
    """

    document: Document
    agent: A2A
    secrets: Mapping[str, str]
    fixed: Mapping[str, Any]


class Hooks:
    """An ASGI application for all webhooks of a server."""

    def __init__(self, flows: Mapping[str, Flow], *, admit: Admit, quotas: Quotas) -> None:
        """Begin runs of `flows`, by the name in their path."""
        self._flows = flows
        self._admit = admit
        self._quotas = quotas
        self._bucket = Bucket(RATE, BURST)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["method"] != "POST":
            await respond(send, 405, b"", [(b"allow", b"POST")])
            return
        try:
            name, run = await self._begin(scope, receive)
            said = [(b"cache-control", b"no-store")]
            await respond(send, 202, msgspec.json.encode({"run": run, "agent": name}), [*JSON, *said])
        except ClientGone:
            return
        except Exception as error:
            if not isinstance(error, AccordError):
                log.error("a webhook failed", exc_info=error, extra={"path": scope["path"]})
            known = error if isinstance(error, AccordError) else InternalError()
            body = msgspec.json.encode({"detail": known.message})
            await respond(send, known.row.http, body, [*JSON, *error_headers(known)])

    async def _begin(self, scope: Scope, receive: Receive) -> tuple[str, str]:
        check_head(scope, self._quotas)
        peer = scope.get("client")
        if wait := self._bucket.take(peer[0] if peer else ""):
            raise RateLimited("Too many calls from one address", retry_after=max(1, round(wait)))
        path = scope["path"].removeprefix(scope.get("root_path", "")).removeprefix(HOOKS)
        name, _, rest = path.partition("/")
        flow = self._flows.get(name)
        hook = None if flow is None else hooks.hook_at(flow.document, rest)
        if flow is None or hook is None:
            raise TaskNotFound("There is no such webhook")
        if hook.secret is None and header(scope, b"origin") is not None:
            # A page of any origin can make its reader's browser send this (CSRF); senders of webhooks are not pages.
            raise PermissionDenied("Webhooks are not for pages")
        identify = self._admit if hook.secret is None else stranger
        caller, body = await read_request(scope, receive, identify, self._quotas)
        caller = caller or await self._who(flow, hook, scope, body)
        asked = hooks.message(flow.document, hook, body, _headers(scope), flow.fixed)
        return name, await self._sent(flow, asked, caller)

    async def _who(self, flow: Flow, hook: Hook, scope: Scope, body: bytes) -> Caller:
        if hook.secret is None:
            return await self._admit(presented(scope, body))
        if not hooks.is_signed(flow.secrets[hook.secret], body, header(scope, hooks.SIGNATURE.encode())):
            raise AuthenticationFailed("The signature is missing or wrong")
        peer = scope.get("client")
        return Caller(scheme=SCHEME, peer=peer[0] if peer else None)

    async def _sent(self, flow: Flow, asked: Message, caller: Caller) -> str:
        request = SendRequest(message=asked, configuration=SendConfiguration(return_immediately=True))
        task = await flow.agent.send(request, caller)
        assert isinstance(task, Task)  # a workflow never answers with a message alone
        return task.id


def _headers(scope: Scope) -> Headers:
    """Return the headers of a request; those by which somebody says who they are are nobody else's business."""
    found = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
    return {name: value for name, value in found.items() if name not in _SECRET}


_SECRET = frozenset({"authorization", "cookie", "proxy-authorization", "x-api-key"})
