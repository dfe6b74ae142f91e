"""The three files of tls_dir: read and checked before the first call; and why a handshake fails."""

from __future__ import annotations

import pathlib
import socket
import ssl

import grpc

from strata.errors import make_error

_FOLDER = "tls_dir (or STRATA_TLS_DIR) is a folder with ca.pem, cert.pem and key.pem"
_ANEW = "make a new one (docs/OPERATIONS.md, TLS)"
_PROBE_S = 1.0
# OpenSSL's X509_V_ERR_...
_NOT_YET_VALID, _EXPIRED, _WRONG_NAME, _WRONG_ADDRESS = 9, 10, 62, 64
# What a client that trusts only ca.pem may say of a certificate that is fine: it is not the end
# of the connection that such a certificate is for.
_OTHER_AUTHORITY = (2, 18, 19, 20, 21)


class TlsFiles:
    """Raises TLS_FILE_MISSING, TLS_FILE_UNREADABLE, TLS_FILE_BAD, TLS_KEY_MISMATCH, TLS_EXPIRED
    and TLS_NOT_YET_VALID, each with the file and what to do."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder
        self._ca, self._cert, self._key = (_read_pem(folder / name)
                                           for name in ("ca.pem", "cert.pem", "key.pem"))
        self._check()

    def credentials(self) -> grpc.ChannelCredentials:
        return grpc.ssl_channel_credentials(root_certificates=self._ca, private_key=self._key,
                                            certificate_chain=self._cert)

    def why_not(self, address: str, cause: str) -> tuple[str, str]:
        """What is wrong with the handshake at `address`, whose certificate it is, and what to do;
        `cause` is all that gRPC says."""
        host, _, port = address.rpartition(":")
        host = host.strip("[]") or "localhost"
        context = self._client()
        context.check_hostname = True
        context.set_alpn_protocols(["h2"])
        try:
            with socket.create_connection((host, int(port)), timeout=_PROBE_S) as plain, \
                    context.wrap_socket(plain, server_hostname=host) as tls:
                # With TLS 1.3 the coordinator looks at our certificate only now.
                tls.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0")
                if tls.recv(9):
                    return cause, "try again"
        except ssl.SSLCertVerificationError as error:
            return _of_certificate(error)
        except ssl.SSLError as error:
            if "WRONG_VERSION_NUMBER" in str(error) or "RECORD_LAYER" in str(error):
                return "it does not speak TLS", "leave tls_dir out, or start it with --tls-dir"
        except OSError:
            pass
        return (f"it does not accept the certificate in {self.folder / 'cert.pem'}",
                "see its log: its ca.pem is of another CA, or a clock is wrong")

    def _client(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        try:
            context.load_verify_locations(cadata=self._ca.decode("ascii", "replace"))
        except (ssl.SSLError, ValueError):
            raise _bad(self.folder / "ca.pem", "has no certificate") from None
        self._load(context)
        return context

    def _load(self, context: ssl.SSLContext) -> None:
        def no_passphrase() -> str:
            raise _bad(self.folder / "key.pem", "is encrypted with a passphrase")

        try:
            context.load_cert_chain(self.folder / "cert.pem", self.folder / "key.pem",
                                    password=no_passphrase)
        except ssl.SSLError as error:
            if "MISMATCH" in str(error).upper():
                raise make_error(
                    grpc.StatusCode.INVALID_ARGUMENT, "TLS_KEY_MISMATCH",
                    f"{self.folder / 'key.pem'} is not the key of the certificate in "
                    f"{self.folder / 'cert.pem'}",
                    hint="put the key there that was made with it, or make both anew (docs/OPERATIONS.md, "
                    "TLS)") from None
            raise _bad(self.folder / "cert.pem",
                       "or key.pem beside it is not what its name says") from None

    def _check(self) -> None:
        """Shakes hands with itself in memory: that is how Python's OpenSSL tells whether a
        certificate is valid now."""
        client = self._client()
        server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._load(server)
        to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
        ends = [client.wrap_bio(to_client, to_server),
                server.wrap_bio(to_server, to_client, server_side=True)]
        try:
            for end in (ends * 4):
                try:
                    end.do_handshake()
                except ssl.SSLWantReadError:
                    pass
        except ssl.SSLCertVerificationError as error:
            path = self.folder / "cert.pem"
            if error.verify_code == _EXPIRED:
                raise make_error(grpc.StatusCode.INVALID_ARGUMENT, "TLS_EXPIRED",
                                 f"the certificate in {path}, or its CA, has expired",
                                 hint=_ANEW) from None
            if error.verify_code == _NOT_YET_VALID:
                raise make_error(grpc.StatusCode.INVALID_ARGUMENT, "TLS_NOT_YET_VALID",
                                 f"the certificate in {path}, or its CA, is not yet valid",
                                 hint="set this machine's clock, or " + _ANEW) from None
            # A client may know coordinators by another authority than its own.
        except ssl.SSLError:
            pass  # Of this end's settings; the first call says more.


def _of_certificate(error: ssl.SSLCertVerificationError) -> tuple[str, str]:
    code = error.verify_code
    if code == _EXPIRED:
        return "its certificate has expired", f"{_ANEW} there and restart it"
    if code == _NOT_YET_VALID:
        return "its certificate is not yet valid", "set the clocks of both machines"
    if code in (_WRONG_NAME, _WRONG_ADDRESS):
        return ("its certificate does not have this address",
                "use an address that it has, or make one that has this address (docs/OPERATIONS.md, TLS)")
    if code in _OTHER_AUTHORITY:
        return ("its certificate is not of the CA in tls_dir",
                "one CA makes the certificates of all machines (docs/OPERATIONS.md, TLS)")
    return f"its certificate cannot be used: {error.verify_message}", _ANEW


def _bad(path: pathlib.Path, what: str) -> Exception:
    return make_error(grpc.StatusCode.INVALID_ARGUMENT, "TLS_FILE_BAD", f"{path} {what}",
                      hint=_FOLDER)


def _read_pem(path: pathlib.Path) -> bytes:
    try:
        data = path.read_bytes()
    except FileNotFoundError as error:
        raise make_error(grpc.StatusCode.NOT_FOUND, "TLS_FILE_MISSING",
                         f"cannot read {path}: {error.strerror}", hint=_FOLDER) from None
    except OSError as error:
        raise make_error(grpc.StatusCode.INVALID_ARGUMENT, "TLS_FILE_UNREADABLE",
                         f"cannot read {path}: {error.strerror}", hint=_FOLDER) from None
    if b"-----BEGIN" not in data:
        raise _bad(path, "is no PEM file")
    return data
