"""A new certificate with its key, for one TLS connection; both ends know it beforehand."""

from __future__ import annotations

import datetime
from dataclasses import dataclass, field

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

#: The peer compares the certificate itself, so no expiry is needed; hosts' clocks may differ.
_FROM, _UNTIL = datetime.datetime(2000, 1, 1), datetime.datetime(2099, 1, 1)


@dataclass(frozen=True)
class Certificate:
    """A certificate and its private key, both as PEM."""

    certificate: str
    key: str = field(repr=False)


def make_certificate() -> Certificate:
    """Make a self-signed certificate; an elliptic-curve key takes only milliseconds."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "tunnelkit")])
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(_FROM)
        .not_valid_after(_UNTIL)
        .sign(key, hashes.SHA256())
    )
    plain = serialization.NoEncryption()
    encoding, form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    return Certificate(
        made.public_bytes(encoding).decode(), key.private_bytes(encoding, form, plain).decode()
    )
