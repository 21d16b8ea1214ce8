"""Makes the certificates of a cluster on this machine: one authority that every client checks, and those it signs."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

LOOPBACK = "127.0.0.1"
_VALID_FOR = timedelta(days=365)
_CLOCKS_DIFFER = timedelta(minutes=5)


@dataclass(frozen=True)
class Pair:
    """A certificate and its private key, both in PEM."""

    certificate: str
    key: str

    def __repr__(self) -> str:
        return "Pair(...)"


@dataclass(frozen=True)
class Authority:
    """Signs certificates; clients trust its own certificate."""

    pair: Pair

    @classmethod
    def create(cls, name: str) -> Authority:
        """A new authority with a key of its own."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        usage = x509.KeyUsage(
            digital_signature=True,
            key_cert_sign=True,
            crl_sign=True,
            content_commitment=False,
            key_encipherment=False,
            data_encipherment=False,
            key_agreement=False,
            encipher_only=False,
            decipher_only=False,
        )
        certificate = (
            _builder(subject, subject, key.public_key())
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(usage, critical=True)
            .sign(key, hashes.SHA256())
        )
        return cls(Pair(_certificate_text(certificate), _key_text(key)))

    def server(self, name: str, hosts: Sequence[str] = ("localhost", LOOPBACK)) -> Pair:
        """A server's certificate for some host names and addresses."""
        names = x509.SubjectAlternativeName([_host(host) for host in hosts])
        return self._issue(name, (), ExtendedKeyUsageOID.SERVER_AUTH, names)

    def client(self, user: str, groups: Sequence[str] = ()) -> Pair:
        """A client's certificate, which Kubernetes reads as a user in groups."""
        return self._issue(user, groups, ExtendedKeyUsageOID.CLIENT_AUTH, None)

    def _issue(
        self,
        name: str,
        organizations: Sequence[str],
        purpose: x509.ObjectIdentifier,
        names: x509.SubjectAlternativeName | None,
    ) -> Pair:
        issuer = x509.load_pem_x509_certificate(self.pair.certificate.encode())
        signer = serialization.load_pem_private_key(self.pair.key.encode(), None)
        if not isinstance(signer, ec.EllipticCurvePrivateKey):
            raise TypeError("an authority's key is an elliptic curve's")
        key = ec.generate_private_key(ec.SECP256R1())
        attributes = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, one) for one in organizations]
        subject = x509.Name([*attributes, x509.NameAttribute(NameOID.COMMON_NAME, name)])
        builder = (
            _builder(subject, issuer.subject, key.public_key())
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(x509.ExtendedKeyUsage([purpose]), critical=False)
        )
        if names is not None:
            builder = builder.add_extension(names, critical=False)
        return Pair(_certificate_text(builder.sign(signer, hashes.SHA256())), _key_text(key))


def signing_key() -> Pair:
    """A key pair that signs service accounts' tokens, with the public key in place of a certificate."""
    key = ec.generate_private_key(ec.SECP256R1())
    public = key.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    return Pair(public.decode(), _key_text(key))


def _builder(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _CLOCKS_DIFFER)
        .not_valid_after(now + _VALID_FOR)
    )


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _certificate_text(certificate: x509.Certificate) -> str:
    return certificate.public_bytes(serialization.Encoding.PEM).decode()


def _key_text(key: ec.EllipticCurvePrivateKey) -> str:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    ).decode()
