"""Authentication, roles, rate limits and the audit log, for the console and the CLI."""

from typing import TYPE_CHECKING

from accord.lazy import lazily

if TYPE_CHECKING:
    from accord.auth.api_keys import PREFIX, new_key
    from accord.auth.audit import AUTHENTICATE, OK, REGISTRY, Audit, entry
    from accord.auth.authentication import Access, ExpiringCache, OpenStreams
    from accord.auth.jwt import MAX_TOKEN, JwtAccess, discovery_url
    from accord.auth.passwords import hash_password
    from accord.auth.rate_limits import Bucket, CallerUsage, Quotas
    from accord.auth.roles import BUILT_IN, SKILL_KEYS, Roles
    from accord.auth.scheme_settings import AnyScheme, ApiKeys, Basic, Header, Hmac, Jwt, Mtls, Plugin, SignIn
    from accord.auth.schemes import Fetch, FetchError

# fmt: off
__all__ = [
    "AUTHENTICATE", "BUILT_IN", "MAX_TOKEN", "OK", "PREFIX", "REGISTRY", "SKILL_KEYS", "Access", "AnyScheme",
    "ApiKeys", "Audit", "Basic", "Bucket", "CallerUsage", "ExpiringCache", "Fetch", "FetchError", "Header", "Hmac",
    "Jwt", "JwtAccess", "Mtls", "OpenStreams", "Plugin", "Quotas", "Roles", "SignIn", "discovery_url", "entry",
    "hash_password", "new_key",
]
# fmt: on

_HOMES = {
    "accord.auth.api_keys": ("PREFIX", "new_key"),
    "accord.auth.audit": ("AUTHENTICATE", "OK", "REGISTRY", "Audit", "entry"),
    "accord.auth.authentication": ("Access", "ExpiringCache", "OpenStreams"),
    "accord.auth.jwt": ("MAX_TOKEN", "JwtAccess", "discovery_url"),
    "accord.auth.passwords": ("hash_password",),
    "accord.auth.rate_limits": ("Bucket", "CallerUsage", "Quotas"),
    "accord.auth.roles": ("BUILT_IN", "SKILL_KEYS", "Roles"),
    "accord.auth.scheme_settings": (
        "AnyScheme",
        "ApiKeys",
        "Basic",
        "Header",
        "Hmac",
        "Jwt",
        "Mtls",
        "Plugin",
        "SignIn",
    ),
    "accord.auth.schemes": ("Fetch", "FetchError"),
}
"""Module -> the public names that it defines."""

__getattr__ = lazily(__name__, _HOMES)
"""Lazy, so that a command that shows schemes does not import cryptography."""
