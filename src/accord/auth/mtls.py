"""Authentication with client certificates (mTLS), verified by this server or by a trusted proxy."""

import base64
import re
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from urllib.parse import unquote

from cryptography import x509
from msgspec.structs import replace

from accord.a2a import Admission
from accord.auth.authentication import Identity, Presented, challenge, refusal
from accord.auth.scheme_settings import Grant, Mtls, NameOf
from accord.auth.schemes import SchemeType
from accord.model import MutualTlsScheme, SecurityScheme
from accord.protocol.urls import is_in_networks, parse_networks

MAX_HEADER = 32 * 1024

_QUOTED = re.compile(r'"(?:[^"\\]|\\.)*"')
_IS_ENVOY = re.compile(r"\s*(By|Hash|Cert|Chain|Subject|URI|DNS)=", re.IGNORECASE)
_PAIR = re.compile(r'\s*(?P<name>\w+)=(?P<value>"(?:[^"\\]|\\.)*"|[^;"]*)(?:;|$)')


class MtlsAccess:
    """Authentication with a client certificate."""

    name = "mtls"
    # HTTP has no registered scheme for certificates. The name is from an IETF draft.
    challenge = challenge("ClientCertificate")

    def __init__(self, settings: Mtls, now: Callable[[], float] = time.time) -> None:
        self._settings = settings
        self._now = now
        self._proxies = parse_networks(settings.trusted_proxies)
        self._everybody = Grant(tenant=settings.tenant, roles=settings.roles)

    @property
    def security(self) -> Mapping[str, SecurityScheme]:
        """The A2A scheme for mutual TLS."""
        return {"mtls": SecurityScheme(mtls_security_scheme=MutualTlsScheme())}

    async def identify(self, presented: Presented) -> Identity | None:
        """Return the owner of the request's certificate, or None without one."""
        try:
            certificate = self._certificate(presented)
            return None if certificate is None else self._identity(certificate)
        except (ValueError, x509.DuplicateExtension, x509.InvalidVersion, x509.UnsupportedGeneralNameType) as error:
            raise refusal(self.name, str(error)[:200]) from None

    def _certificate(self, presented: Presented) -> x509.Certificate | None:
        """Return the caller's certificate. A trusted proxy's own certificate does not count."""
        settings = self._settings
        if settings.header is None or not is_in_networks(presented.proxy or presented.peer, self._proxies):
            der = presented.certificate
            return None if der is None else x509.load_der_x509_certificate(der)
        stated = presented.header(settings.header)
        if not stated:
            return None
        if settings.verified_header and presented.header(settings.verified_header) != "SUCCESS":
            raise ValueError("the proxy could not verify the certificate")
        return _read(stated)

    def _identity(self, certificate: x509.Certificate) -> Identity:
        now = datetime.fromtimestamp(self._now(), UTC)
        if not certificate.not_valid_before_utc <= now <= certificate.not_valid_after_utc:
            raise ValueError("the certificate is not valid now")
        owner = next((name for kind in self._settings.names if (name := _name(certificate, kind))), "")
        clients = self._settings.clients
        if clients and owner not in clients:
            raise ValueError("the owner of the certificate is not a known client")
        until = int(certificate.not_valid_after_utc.timestamp() * 1000)
        found = clients.get(owner, self._everybody).identity(owner)
        return replace(found, ticket=Admission(kind=self.name, until=until))


def _name(certificate: x509.Certificate, kind: NameOf) -> str:
    """Return the first name of a type in a certificate, or ""."""
    if kind == "common-name":
        attributes = certificate.subject.get_attributes_for_oid(x509.NameOID.COMMON_NAME)
        return str(attributes[0].value) if attributes else ""
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return ""
    values = {
        "uri": names.get_values_for_type(x509.UniformResourceIdentifier),
        "dns": names.get_values_for_type(x509.DNSName),
        "email": names.get_values_for_type(x509.RFC822Name),
    }[kind]
    return str(values[0]) if values else ""


def _read(stated: str) -> x509.Certificate:
    """Parse a certificate from a proxy header: Envoy's list, RFC 9440 bytes, or PEM or base64, escaped or not."""
    if len(stated) > MAX_HEADER:
        raise ValueError("the header is too large")
    if "," in _QUOTED.sub("", stated):
        raise ValueError("several certificates, and nothing says which one is the caller's")
    text = unquote(_envoy(stated) if _IS_ENVOY.match(stated) else stated)
    for frame in ("-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----", ":"):
        text = text.replace(frame, "", 2)
    # Headers have no line breaks. Some proxies replace them with spaces or tabs.
    return x509.load_der_x509_certificate(base64.b64decode("".join(text.split()), validate=True))


def _envoy(stated: str) -> str:
    """Return the certificate in `By=...;Hash=...;Cert="..."`. Quoted text may contain separators."""
    certificates: list[str] = []
    position = 0
    while position < len(stated):
        pair = _PAIR.match(stated, position)
        if pair is None:
            raise ValueError("not a list of names and values")
        if pair["name"].lower() == "cert":
            certificates.append(pair["value"].strip('"'))
        position = pair.end()
    if len(certificates) != 1:
        raise ValueError("no certificate in it, or more than one")
    return certificates[0]


SCHEME = SchemeType(settings=Mtls, build=lambda settings, ports: MtlsAccess(settings, ports.now))
