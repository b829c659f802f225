"""Static credentials of a client: API key, token, password, headers, signature, certificate.

They are not requested, cached or refreshed, so a 401 is final. A signature (4-30) covers the body and target as they
are sent, so it is added last. A certificate belongs to the connection, not to the request (`tls_of`).
"""

import base64
import secrets
import ssl
import time
from collections.abc import Callable, Iterable, Mapping
from http.cookies import SimpleCookie
from pathlib import Path
from urllib.parse import quote, urlsplit

from accord.client.exchange import AuthFlow, ClientAuth, with_cookie, with_header, with_query
from accord.outbound import HttpReply, HttpRequest
from accord.protocol import http_headers


class StaticAuth:
    """Base of authentication that only adds to a request. Its `repr` has no secrets."""

    def prepare(self, request: HttpRequest) -> AuthFlow:
        """Return the request with the credentials added."""
        return self.added(request)
        yield  # pragma: no cover  # makes it a generator: nothing is requested

    def retry(self, request: HttpRequest, refused: HttpReply) -> AuthFlow | None:
        """Return None: a retry would send the same credentials."""
        return None

    def added(self, request: HttpRequest) -> HttpRequest:
        """Return the request with credentials."""
        return request

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


class Anonymous(StaticAuth):
    """No credentials."""


class ApiKey(StaticAuth):
    """A key in a header, a query parameter or a cookie."""

    def __init__(self, key: str, *, location: str = "header", name: str = "X-Api-Key") -> None:
        """Send `key` at the location that a card names."""
        try:
            self._add = _PLACES[location.lower()]
        except KeyError:
            raise ValueError(f"A key goes into a {', '.join(_PLACES)}, not into {location!r}") from None
        self._name = name
        self._key = _printable(key)
        self.location = location

    def added(self, request: HttpRequest) -> HttpRequest:
        """Add the key."""
        return self._add(request, self._name, self._key)

    def __repr__(self) -> str:
        return f"ApiKey(location={self.location!r}, name={self._name!r})"


def _in_query(request: HttpRequest, name: str, key: str) -> HttpRequest:
    return with_query(request, quote(name, safe=""), quote(key, safe=""))


def _in_cookie(request: HttpRequest, name: str, key: str) -> HttpRequest:
    """Add a cookie. A value with special characters is quoted, as server libraries expect."""
    coded = SimpleCookie({name: key})[name].coded_value
    return with_cookie(request, name, coded)


_PLACES = {"header": with_header, "query": _in_query, "cookie": _in_cookie}


class CustomHeader(StaticAuth):
    """Headers of any name."""

    def __init__(self, headers: Mapping[str, str]) -> None:
        self._headers = {name: _printable(value) for name, value in headers.items()}

    def added(self, request: HttpRequest) -> HttpRequest:
        """Add the headers, each replacing an existing header of its name."""
        for name, value in self._headers.items():
            request = with_header(request, name, value)
        return request

    def __repr__(self) -> str:
        return f"{type(self).__name__}(names={sorted(self._headers)})"


class Bearer(CustomHeader):
    """A token in `Authorization`, after the name of an HTTP authentication scheme."""

    def __init__(self, token: str, *, scheme: str = "Bearer") -> None:
        super().__init__({"Authorization": f"{scheme} {_printable(token)}"})


class BasicAuth(CustomHeader):
    """A user name and a password (RFC 7617), in UTF-8."""

    def __init__(self, username: str, password: str) -> None:
        if ":" in username:
            raise ValueError("A user name must not contain a colon")
        super().__init__({"Authorization": "Basic " + base64.b64encode(f"{username}:{password}".encode()).decode()})


def _printable(secret: str) -> str:
    """Refuse a value that no header can hold, such as a trailing line break, without repeating it."""
    if not secret or not secret.isprintable() or not secret.isascii() or secret != secret.strip():
        raise ValueError("A credential is printable ASCII, without spaces around it; this one is not")
    return secret


NONCE_BYTES = 12
"""Bytes of a nonce: enough that no two requests within a second have the same nonce."""


class HmacAuth(StaticAuth):
    """A signature with a shared secret. Every request gets its own, including retries."""

    def __init__(self, secret: str, *, key_id: str = "", now: Callable[[], float] = time.time) -> None:
        """Sign with `secret`, which the agent identifies by `key_id`."""
        self._secret = secret.encode()
        self._key_id = key_id
        self._now = now

    def __repr__(self) -> str:
        return f"HmacAuth(key_id={self._key_id!r})"

    def added(self, request: HttpRequest) -> HttpRequest:
        """Add a signature."""
        parts = urlsplit(request.url)
        target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        signed = http_headers.SignedRequest(
            method=request.method, target=target, nonce=secrets.token_urlsafe(NONCE_BYTES)
        )
        value = http_headers.sign_body(
            request.body or b"", int(self._now()), (self._secret,), request=signed, key_id=self._key_id
        )
        return with_header(request, http_headers.SIGNATURE_HEADER, value)


class MtlsAuth(StaticAuth):
    """A client certificate for the TLS connection, in PEM files."""

    def __init__(
        self,
        certificate: str | Path,
        key: str | Path | None = None,
        *,
        password: str | None = None,
        ca: str | Path | None = None,
    ) -> None:
        """Use the certificate with its key, which may be in the same file and may be locked with a password.

        `ca` is the certificate authority of servers that the system does not trust.
        """
        self.certificate, self.key, self.ca = certificate, key, ca
        self._password = password

    def __repr__(self) -> str:
        return f"MtlsAuth(certificate={str(self.certificate)!r})"

    def load(self, context: ssl.SSLContext) -> None:
        """Load the certificate into `context`. Raises ValueError if the files are not valid."""
        try:
            # Without a password the library would prompt on the terminal for a locked key's password.
            context.load_cert_chain(self.certificate, self.key, password=self._password or "")
            if self.ca is not None:
                context.load_verify_locations(self.ca)
        except (OSError, ssl.SSLError) as error:  # OSError does not name the file
            files = ", ".join(str(file) for file in (self.certificate, self.key, self.ca) if file)
            is_missing = isinstance(error, FileNotFoundError | PermissionError)
            reason = error.strerror if is_missing else "not certificates and the key of the first, or a wrong password"
            raise ValueError(f"{files}: {reason}") from None

    def pem(self) -> tuple[bytes, bytes]:
        """Return the unlocked key and the certificate, for a library without contexts.

        Raises ValueError like `load`.
        """
        self.load(ssl.create_default_context())
        certificate = Path(self.certificate).read_bytes()
        key = certificate if self.key is None else Path(self.key).read_bytes()
        if self._password is None:
            return key, certificate
        from cryptography.hazmat.primitives.serialization import (  # imported here: few keys are locked
            Encoding,
            NoEncryption,
            PrivateFormat,
            load_pem_private_key,
        )

        unlocked = load_pem_private_key(key, self._password.encode())
        return unlocked.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()), certificate


class CombinedAuth:
    """Several credentials together. A signature comes last, because it covers the others."""

    def __init__(self, auths: Iterable[ClientAuth]) -> None:
        self.auths = tuple(sorted(auths, key=lambda auth: isinstance(auth, HmacAuth)))

    def __repr__(self) -> str:
        return f"CombinedAuth({list(self.auths)!r})"

    def prepare(self, request: HttpRequest) -> AuthFlow:
        """Return the request with all credentials added."""
        for auth in self.auths:
            request = yield from auth.prepare(request)
        return request

    def retry(self, request: HttpRequest, refused: HttpReply) -> AuthFlow | None:
        """Return the request with renewed credentials where possible, and the others as before."""
        if all(auth.retry(request, refused) is None for auth in self.auths):
            return None
        return self._again(request, refused)

    def _again(self, request: HttpRequest, refused: HttpReply) -> AuthFlow:
        for auth in self.auths:
            request = yield from auth.retry(request, refused) or auth.prepare(request)
        return request


def certificates_of(auth: ClientAuth) -> list[MtlsAuth]:
    """Return the client certificates for connections."""
    return [one for one in (auth.auths if isinstance(auth, CombinedAuth) else (auth,)) if isinstance(one, MtlsAuth)]


def tls_of(auth: ClientAuth, context: ssl.SSLContext | None = None) -> ssl.SSLContext | None:
    """Return the TLS context for connections, or None if any will do.

    It is `context` with the certificates added, or a default context that verifies servers against the system's
    authorities. Raises ValueError if the files are not valid.
    """
    certificates = certificates_of(auth)
    if not certificates:
        return context
    context = context or ssl.create_default_context()
    for certificate in certificates:
        certificate.load(context)
    return context
