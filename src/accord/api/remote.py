"""Tasks that remote agents do: contacts, links, reports and cancels."""

from accord.api.storage import writes
from accord.remote.flow_reports import PATH, flow_report_url
from accord.remote.reports import Report, leaves_out
from accord.remote.tasks import (
    ContactPort,
    RemoteAgentPort,
    RemoteContact,
    RemoteTasks,
    ReportCredentials,
    ReportSender,
    WebhookKeys,
    patiently,
    poll_signal,
    unauthenticated,
    unsent_message,
)
from accord.storage.commands import remote_tasks
from accord.storage.commands.remote_tasks import NewRemoteLink, RemoteCancel, RemoteLink

# fmt: off
__all__ = [
    "PATH", "ContactPort", "NewRemoteLink", "RemoteAgentPort", "RemoteCancel", "RemoteContact", "RemoteLink",
    "RemoteTasks", "Report", "ReportCredentials", "ReportSender", "WebhookKeys", "claim_cancels", "clear_cancel",
    "create_link", "flow_report_url", "leaves_out", "patiently", "poll_signal", "unauthenticated", "unsent_message",
]
# fmt: on

create_link = writes(remote_tasks.create_link)
claim_cancels = writes(remote_tasks.claim_cancels)
clear_cancel = writes(remote_tasks.clear_cancel)
