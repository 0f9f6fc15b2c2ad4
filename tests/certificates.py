"""Certificates for 127.0.0.1 and gate.example.com, made when they are needed."""

from __future__ import annotations

import datetime
import ipaddress
import ssl
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


def make(folder: Path, name: str = "gate", days: float = 90, passphrase: str = "") -> tuple[Path, Path]:
    """The files of a certificate that is its own authority, and of its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.UTC)
    hosts = x509.IPAddress(ipaddress.ip_address("127.0.0.1")), x509.DNSName("gate.example.com")
    built = (
        x509.CertificateBuilder(subject, subject, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=400))
        .not_valid_after(now + datetime.timedelta(days=days))
        .add_extension(x509.SubjectAlternativeName(hosts), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    sealed = serialization.BestAvailableEncryption(passphrase.encode()) if passphrase else serialization.NoEncryption()
    form = serialization.PrivateFormat.PKCS8
    certificate, private = folder / f"{name}.pem", folder / f"{name}.key"
    certificate.write_bytes(built.public_bytes(serialization.Encoding.PEM))
    private.write_bytes(key.private_bytes(serialization.Encoding.PEM, form, sealed))
    private.chmod(0o600)
    return certificate, private


def trusting(*certificates: Path) -> ssl.SSLContext:
    """A client that trusts these alone."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    for each in certificates:
        context.load_verify_locations(each)
    return context
