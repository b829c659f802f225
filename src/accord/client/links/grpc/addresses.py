"""Where a gRPC agent is: the forms in which cards say it, and addresses that were checked before anybody connects.

It connects to nothing; `link` does. What may be connected to is `outbound`.
"""

from urllib.parse import urlsplit

from accord.outbound import Policy
from accord.outbound.checked import CheckedNames
from accord.outbound.names import SystemNames
from accord.protocol import hosts

Options = tuple[tuple[str, int | str], ...]
"""Settings of a channel."""


def address(url: str) -> tuple[str, bool]:
    """Return the `host:port` of an agent, and whether it speaks TLS.

    Cards say `host:port`, for which nothing else tells: then only this machine is spoken to in the clear.
    """
    scheme, separator, rest = url.partition("://")
    parts = urlsplit(f"//{rest if separator else url}")
    is_secure = scheme.lower() in ("https", "grpcs") if separator else not hosts.is_loopback(parts.hostname or "")
    port = "" if parts.port else ":443" if is_secure else ":80"
    return parts.netloc.rpartition("@")[2] + port, is_secure


async def checked(policy: Policy, target: str, *, is_secure: bool) -> tuple[str, Options]:
    """Return the addresses of `host:port` as a target of gRPC's, and the settings that keep the host's name.

    Raises Refused for what the policy does not allow: there is no second look at the name, whose answer could be
    another.
    """
    found = policy.target(f"{'https' if is_secure else 'http'}://{target}/")
    host, port = found.url.raw_host or "", found.url.port or 0
    names = SystemNames()
    try:
        addresses = await CheckedNames(names, is_trusted=found.is_trusted).resolve(host, port)
    finally:
        names.close()
    named = [one["host"] for one in addresses]
    family = "ipv6" if ":" in named[0] else "ipv4"
    places = [
        f"[{one}]:{port}" if ":" in one else f"{one}:{port}" for one in named if (":" in one) == (":" in named[0])
    ]
    settings: Options = (("grpc.default_authority", target), ("grpc.ssl_target_name_override", host))
    return f"{family}:{','.join(places)}", settings if is_secure else settings[:1]
