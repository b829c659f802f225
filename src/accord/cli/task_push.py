"""`accord task push`: where an agent reports what becomes of a task.

These are the caller's own webhooks at any agent; how a server of ours delivers them is `accord push`.
"""

from typing import TYPE_CHECKING, Annotated

import typer

from accord.cli.asking import ask
from accord.cli.reaching import Reach, reaching

if TYPE_CHECKING:
    from accord.cli.progress import Progress
    from accord.client import Client
    from accord.model import PushConfig

webhooks_app = typer.Typer(no_args_is_help=True, help="Have changes of a task reported to a webhook.")


@reaching("TASK", "URL")
def set_(
    reach: Reach,
    task: str,
    url: str,
    id: Annotated[str | None, typer.Option(help="The webhook's id: one with the same id is replaced.")] = None,
    token: Annotated[
        str | None, typer.Option(envvar="ACCORD_PUSH_TOKEN", help="What the agent shows with every report.")
    ] = None,
    auth: Annotated[
        str | None,
        typer.Option(
            metavar="SCHEME CREDENTIALS",
            envvar="ACCORD_PUSH_AUTH",
            help="The Authorization header that the webhook wants, such as 'Bearer xyz'.",
        ),
    ] = None,
) -> None:
    """Report changes of a task to a URL."""
    from accord.model import Authentication, PushConfig

    scheme, _, credentials = (auth or "").strip().partition(" ")
    config = PushConfig(
        task_id=task,
        url=url,
        id=id,
        token=token,
        authentication=Authentication(scheme=scheme, credentials=credentials or None) if scheme else None,
    )

    async def work(client: "Client", progress: "Progress") -> None:
        made = await client.push_set(config)
        progress.stop()
        _show(reach, made)

    ask(reach, work)


webhooks_app.command("set")(set_)
webhooks_app.command("create", hidden=True)(set_)  # what the operation is called in A2A


@webhooks_app.command("get")
@reaching("TASK", "ID")
def get(reach: Reach, task: str, id: str) -> None:
    """Show a webhook, without its secrets; -o json shows all that the agent tells."""

    async def work(client: "Client", progress: "Progress") -> None:
        from accord.model import PushGetRequest

        found = await client.push_get(PushGetRequest(task_id=task, id=id))
        progress.stop()
        _show(reach, found)

    ask(reach, work)


@webhooks_app.command("list")
@reaching("TASK")
def list_(
    reach: Reach,
    task: str,
    page_size: Annotated[int | None, typer.Option(min=1, help="How many at most.")] = None,
    page_token: Annotated[str | None, typer.Option(metavar="TOKEN", help="The page that the last one named.")] = None,
) -> None:
    """List the webhooks of a task."""

    async def work(client: "Client", progress: "Progress") -> None:
        from accord.cli import output
        from accord.model import PushListRequest
        from accord.protocol.operations import Operation

        page = await client.push_list(PushListRequest(task_id=task, page_size=page_size, page_token=page_token))
        progress.stop()
        if reach.is_json:
            output.document(Operation.PUSH_LIST, page)
            return
        for config in page.configs:
            output.lines([*output.of_push(config), ""])
        if page.next_page_token:
            output.tell(f"There are more: --page-token {output.line(page.next_page_token)}")

    ask(reach, work)


@webhooks_app.command()
@reaching("TASK", "ID")
def delete(reach: Reach, task: str, id: str) -> None:
    """Report to a webhook no longer."""

    async def work(client: "Client", progress: "Progress") -> None:
        from accord.cli import output
        from accord.model import PushDeleteRequest
        from accord.protocol.operations import Operation

        count = await client.push_delete(PushDeleteRequest(task_id=task, id=id))
        progress.stop()
        if reach.is_json:
            output.document(Operation.PUSH_DELETE, count)
        else:
            output.lines([output.field("Webhook", id), output.field("Deleted", "yes")])

    ask(reach, work)


def _show(reach: Reach, config: "PushConfig") -> None:
    from accord.cli import output
    from accord.protocol.operations import Operation

    if reach.is_json:
        output.document(Operation.PUSH_GET, config)
    else:
        output.lines(output.of_push(config))
