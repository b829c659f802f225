"""A certificate authority for tests: it issues certificates to servers on loopback and to clients with a name."""

from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat


class Issued(NamedTuple):
    """The files of a certificate and of its key."""

    certificate: Path
    key: Path

    @property
    def der(self) -> bytes:
        return x509.load_pem_x509_certificate(self.certificate.read_bytes()).public_bytes(Encoding.DER)


class Authority:
    """Issues certificates into a folder; its own is `certificate` there."""

    def __init__(self, folder: Path, name: str = "authority") -> None:
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
        basic = x509.BasicConstraints(ca=True, path_length=None)
        made = self._builder(self._name, self._key).add_extension(basic, critical=True).sign(self._key, SHA256())
        self.certificate = folder / f"{name}.pem"
        self.certificate.write_bytes(made.public_bytes(Encoding.PEM))

    def server(self, name: str = "server") -> Issued:
        """A certificate for localhost, by name and by address."""
        addresses = [x509.IPAddress(ip_address(text)) for text in ("127.0.0.1", "::1")]
        return self._issued(name, x509.SubjectAlternativeName([x509.DNSName("localhost"), *addresses]))

    def client(self, name: str) -> Issued:
        """A certificate for somebody whose common name it is."""
        return self._issued(name, None)

    def _issued(self, name: str, names: x509.SubjectAlternativeName | None) -> Issued:
        key = ec.generate_private_key(ec.SECP256R1())
        builder = self._builder(x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)]), key)
        if names is not None:
            builder = builder.add_extension(names, critical=False)
        found = Issued(self._folder / f"{name}.pem", self._folder / f"{name}.key")
        found.certificate.write_bytes(builder.sign(self._key, SHA256()).public_bytes(Encoding.PEM))
        found.key.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
        return found

    def _builder(self, subject: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
        now = datetime.now(UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(days=1))
            .not_valid_after(now + timedelta(days=1))
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False)
        )
