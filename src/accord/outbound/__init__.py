"""HTTP requests to addresses that strangers name, which cannot be talked into the network behind this server.

`addresses` says which addresses are public, `policy` which URLs may be asked, `session` asks. It is no A2A client and
knows nothing of tasks; webhooks, key sets and cards of others are fetched through it by the layers above.
"""

from accord.outbound.policy import Policy, Refused
from accord.outbound.session import Answer, Outbound, Unreachable

__all__ = ["Answer", "Outbound", "Policy", "Refused", "Unreachable"]
