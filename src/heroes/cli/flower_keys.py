"""Keys of a deployed federation: a certificate authority, a server certificate and a key pair for every node.

The server shows its certificate, which nodes check against the authority's (TLS). A node signs what it sends
with its own key, whose public half is registered with the server. Node keys are OpenSSH files on the curve
P-384, as Flower reads them.
"""

from __future__ import annotations

import ipaddress
import os
import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from heroes.errors import ConfigError

LOOPBACK = ("localhost", "127.0.0.1")
PRIVATE, PUBLIC = 0o600, 0o644
_CLOCKS_DIFFER = timedelta(days=1)  # a board whose clock is behind must not find the certificate too young
_LABEL = re.compile(r"(?!-)[A-Za-z0-9-]{1,63}(?<!-)")


@dataclass(frozen=True)
class KeyFolder:
    """Where each file lies."""

    path: Path

    @property
    def ca_key(self) -> Path:
        return self.path / "ca.key"

    @property
    def ca_certificate(self) -> Path:
        return self.path / "ca.crt"

    @property
    def server_key(self) -> Path:
        return self.path / "server.key"

    @property
    def server_certificate(self) -> Path:
        return self.path / "server.crt"

    def node_key(self, name: str) -> Path:
        return self.path / f"{name}.key"

    def node_public(self, name: str) -> Path:
        return self.path / f"{name}.pub"


def make_all(folder: Path, nodes: list[str], hosts: list[str], days: int, overwrite: bool) -> list[Path]:
    """Make the authority, the server's certificate and the nodes' keys; the files that were written."""
    names, files = alternative_names(hosts), KeyFolder(folder)
    server = [files.ca_key, files.ca_certificate, files.server_key, files.server_certificate]
    _refuse_existing(folder, [*server, *_node_files(files, nodes)], overwrite)
    key = ec.generate_private_key(ec.SECP384R1())
    authority = _authority(key, days)
    _write(files.ca_key, _pem(key), PRIVATE)
    _write(files.ca_certificate, authority.public_bytes(Encoding.PEM), PUBLIC)
    _write_server(files, key, authority, names, days)
    return [*server, *_write_nodes(files, nodes)]


def make_nodes(folder: Path, nodes: list[str], overwrite: bool) -> list[Path]:
    """Make keys of further nodes; the authority and the server's certificate stay as they are."""
    files = KeyFolder(folder)
    _refuse_existing(folder, _node_files(files, nodes), overwrite)
    return _write_nodes(files, nodes)


def renew_server(folder: Path, hosts: list[str], days: int) -> list[Path]:
    """Make a new server certificate, signed by the authority that is there: nodes need nothing new."""
    files, names = KeyFolder(folder), alternative_names(hosts)
    key, authority = _read_authority(files)
    _write_server(files, key, authority, names, days)
    return [files.server_key, files.server_certificate]


def alternative_names(hosts: list[str]) -> list[x509.GeneralName]:
    """The names and addresses a server goes by, loopback always among them.

    >>> [name.value for name in alternative_names(["fl.example.org", "192.0.2.7", "localhost"])]
    ['localhost', IPv4Address('127.0.0.1'), 'fl.example.org', IPv4Address('192.0.2.7')]
    """
    return [_alternative_name(host) for host in dict.fromkeys([*LOOPBACK, *hosts])]


def _alternative_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        pass
    labels = host.split(".")
    if len(host) > 253 or labels[-1].isdigit() or not all(_LABEL.fullmatch(label) for label in labels):
        raise ConfigError(
            f"--host {host!r} is neither a host name nor an address; say for example fl.example.org or "
            "192.0.2.7"
        )
    return x509.DNSName(host)


def _refuse_existing(folder: Path, wanted: list[Path], overwrite: bool) -> None:
    there = [path.name for path in wanted if path.exists()]
    if there and not overwrite:
        more = f" and {len(there) - 1} more" if len(there) > 1 else ""
        raise ConfigError(
            f"{str(folder)!r} already holds {there[0]}{more}; choose another folder, make keys of further "
            "nodes only (--first), renew the server's certificate only (--renew), or replace all of them "
            "(--overwrite)"
        )
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)


def _node_files(files: KeyFolder, nodes: list[str]) -> list[Path]:
    return [path for name in nodes for path in (files.node_key(name), files.node_public(name))]


def _authority(key: ec.EllipticCurvePrivateKey, days: int) -> x509.Certificate:
    """A certificate that the authority signs for itself."""
    name = _name("heroes federation authority")
    public = key.public_key()
    return (
        _unsigned(name, name, public, days)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(public), critical=False)
        .sign(key, hashes.SHA384())
    )


def _write_server(
    files: KeyFolder,
    ca_key: ec.EllipticCurvePrivateKey,
    authority: x509.Certificate,
    names: list[x509.GeneralName],
    days: int,
) -> None:
    key = ec.generate_private_key(ec.SECP384R1())
    certificate = (
        _unsigned(_name("heroes federation server"), authority.subject, key.public_key(), days)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_key.public_key()), critical=False
        )
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .sign(ca_key, hashes.SHA384())
    )
    _write(files.server_key, _pem(key), PRIVATE)
    _write(files.server_certificate, certificate.public_bytes(Encoding.PEM), PUBLIC)


def _unsigned(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, days: int
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _CLOCKS_DIFFER)
        .not_valid_after(now + timedelta(days=days))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    )


def _usage(signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])


def _write_nodes(files: KeyFolder, nodes: list[str]) -> list[Path]:
    for name in nodes:
        key = ec.generate_private_key(ec.SECP384R1())
        _write(
            files.node_key(name),
            key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption()),
            PRIVATE,
        )
        public = key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
        _write(files.node_public(name), public + f" {name}\n".encode(), PUBLIC)
    return _node_files(files, nodes)


def _read_authority(files: KeyFolder) -> tuple[ec.EllipticCurvePrivateKey, x509.Certificate]:
    for path in (files.ca_key, files.ca_certificate):
        if not path.is_file():
            raise ConfigError(
                f"{str(files.path)!r} holds no {path.name}: there is no authority that could sign a new "
                "certificate"
            )
    try:
        key = load_pem_private_key(files.ca_key.read_bytes(), None)
        authority = x509.load_pem_x509_certificate(files.ca_certificate.read_bytes())
    except (ValueError, TypeError) as error:
        raise ConfigError(f"ca.key or ca.crt in {str(files.path)!r} cannot be read: {error}") from error
    if not isinstance(key, ec.EllipticCurvePrivateKey) or key.public_key() != authority.public_key():
        raise ConfigError(f"ca.key in {str(files.path)!r} is not the key of ca.crt")
    return key, authority


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def _write(path: Path, content: bytes, mode: int) -> None:
    """Write a file that nobody can read half-written or, if it is private, read at all."""
    draft = path.with_name(path.name + ".new")
    draft.unlink(missing_ok=True)
    with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, PRIVATE), "wb") as file:
        os.fchmod(file.fileno(), mode)
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)
