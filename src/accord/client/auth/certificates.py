"""Client certificates: a way to authenticate that is not in the request but in the connection.

The request stays as it is. Whoever makes the transport asks `tls_of` what its connections are to be made with.
"""

import ssl
from pathlib import Path

from accord.client.auth.stated import Stated


class Mtls(Stated):
    """A certificate of the client's own, for the TLS connection; the files are PEM."""

    def __init__(
        self,
        certificate: str | Path,
        key: str | Path | None = None,
        *,
        password: str | None = None,
        ca: str | Path | None = None,
    ) -> None:
        """Use the certificate with its key, which may be in the same file and may be locked with a password.

        `ca` is the authority of servers that the system does not know.
        """
        self.certificate, self.key, self.ca = certificate, key, ca
        self._password = password

    def __repr__(self) -> str:
        return f"Mtls(certificate={str(self.certificate)!r})"

    def load(self, context: ssl.SSLContext) -> None:
        """Have connections of `context` made with the certificate; what is wrong with the files is a ValueError."""
        try:
            # Without a password the library would ask on the terminal for that of a key that is locked.
            context.load_cert_chain(self.certificate, self.key, password=self._password or "")
            if self.ca is not None:
                context.load_verify_locations(self.ca)
        except (OSError, ssl.SSLError) as error:  # the former says nothing about which file
            files = ", ".join(str(file) for file in (self.certificate, self.key, self.ca) if file)
            is_missing = isinstance(error, FileNotFoundError | PermissionError)
            reason = error.strerror if is_missing else "not certificates and the key of the first, or a wrong password"
            raise ValueError(f"{files}: {reason}") from None

    def pem(self) -> tuple[bytes, bytes]:
        """Return the key, unlocked, and the certificate, for what cannot use a context; as `load`, for wrong files."""
        self.load(ssl.create_default_context())
        certificate = Path(self.certificate).read_bytes()
        key = certificate if self.key is None else Path(self.key).read_bytes()
        if self._password is None:
            return key, certificate
        from cryptography.hazmat.primitives.serialization import (  # late: few keys are locked
            Encoding,
            NoEncryption,
            PrivateFormat,
            load_pem_private_key,
        )

        unlocked = load_pem_private_key(key, self._password.encode())
        return unlocked.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()), certificate
