"""The certificate that the server shows, replaced while it serves: connections stay, new ones see the new one."""

import os
import ssl
import tempfile
from pathlib import Path
from typing import Final

from slurm_operator.admission.certs import Pair
from slurm_operator.errors import UserError

CERTIFICATE: Final = "tls.crt"
KEY: Final = "tls.key"


class ServingContext:
    """One SSLContext for the life of the server."""

    def __init__(self) -> None:
        self.context = _context()
        self._shown: Pair | None = None

    def use(self, pair: Pair) -> bool:
        """Show this one from now on; whether it differs from the one before. A bad one is a UserError, no more."""
        if pair == self._shown:
            return False
        with tempfile.TemporaryDirectory(prefix="slurm-operator-") as folder:
            certificate, key = Path(folder, CERTIFICATE), Path(folder, KEY)
            certificate.write_bytes(pair.certificate)
            _write_private(key, pair.key)
            try:
                # A pair that does not fit would leave the context without any key: try it on another one first.
                _context().load_cert_chain(certificate, key)
            except ssl.SSLError as error:
                raise UserError(f"the certificate and its key cannot be used: {error.reason or error}") from None
            self.context.load_cert_chain(certificate, key)
        self._shown = pair
        return True


def read_pair(folder: Path) -> Pair:
    """The files that cert-manager keeps."""
    try:
        return Pair((folder / CERTIFICATE).read_bytes(), (folder / KEY).read_bytes())
    except OSError as error:
        hint = f"mount the Secret of the certificate there, with the keys {CERTIFICATE} and {KEY}"
        raise UserError(f"cannot read {error.filename}: {error.strerror}", hint) from None


def has_pair(folder: Path) -> bool:
    return (folder / CERTIFICATE).exists() and (folder / KEY).exists()


def _context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context


def _write_private(file: Path, content: bytes) -> None:
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as stream:
        stream.write(content)
