"""Tokens of auth/jwt: HS256 over the raw key, with the user's name in `sun`.

Nothing but the standard library: a token is three base64 words.
"""

import base64
import binascii
import hashlib
import hmac
import uuid
from collections.abc import Callable

import msgspec

from slurm_operator.api.names import SLURM_USER

LONGEST_LIFE = 2147483646
"""Slurm's infinite, in seconds; a longer life overflows in its daemons."""
OPERATOR_LIFE = 900
_RENEW_AT = 0.8
_ISSUER = "slurm-operator"
_HEADER = base64.urlsafe_b64encode(b'{"alg":"HS256","typ":"JWT"}').rstrip(b"=")


class Claims(msgspec.Struct, frozen=True):
    jti: str
    iss: str
    iat: int
    nbf: int
    exp: int
    sun: str


class InvalidTokenError(ValueError):
    """A token that is malformed, not signed with this key, or not valid now."""


def new_claims(user: str, lifetime: int, now: float) -> Claims:
    issued = int(now)
    life = min(max(lifetime, 0), LONGEST_LIFE)
    return Claims(jti=str(uuid.uuid4()), iss=_ISSUER, iat=issued, nbf=issued, exp=issued + life, sun=user)


def sign(key: bytes, claims: Claims) -> str:
    message = _HEADER + b"." + _encode(msgspec.json.encode(claims))
    return (message + b"." + _encode(_signature(key, message))).decode()


def verify(token: str, key: bytes, now: float) -> Claims:
    """The claims of a token that this key signed and that is valid now."""
    try:
        message, _, signature = token.encode().rpartition(b".")
        header, payload = message.split(b".")
        if header != _HEADER or not hmac.compare_digest(_decode(signature), _signature(key, message)):
            raise InvalidTokenError("the token was not signed with this key")
        claims = msgspec.json.decode(_decode(payload), type=Claims)
    except (binascii.Error, msgspec.MsgspecError) as error:
        raise InvalidTokenError("the token is malformed") from error
    except InvalidTokenError:
        raise
    except ValueError as error:
        raise InvalidTokenError("the token is not three words") from error
    if not claims.nbf <= now < claims.exp:
        raise InvalidTokenError("the token has expired or is not valid yet")
    return claims


class TokenSource:
    """A token that is always valid: signed when asked for, kept for 80 % of its life."""

    def __init__(
        self, key: bytes, now: Callable[[], float], *, user: str = SLURM_USER, lifetime: int = OPERATOR_LIFE
    ) -> None:
        self._key = key
        self._now = now
        self._user = user
        self._lifetime = lifetime
        self._token = ""
        self._valid = (0.0, 0.0)

    def token(self) -> str:
        now = self._now()
        since, until = self._valid
        if not self._token or not since <= now < until:
            self._token = sign(self._key, new_claims(self._user, self._lifetime, now))
            self._valid = (int(now), now + self._lifetime * _RENEW_AT)
        return self._token

    def set_key(self, key: bytes) -> bool:
        """Sign with another key from the next request on; says whether it is another."""
        if hmac.compare_digest(key, self._key):
            return False
        self._key = key
        self.forget()
        return True

    def forget(self) -> None:
        """Slurm refused the token: sign afresh, in case a clock had jumped."""
        self._token = ""


def _signature(key: bytes, message: bytes) -> bytes:
    return hmac.new(key, message, hashlib.sha256).digest()


def _encode(data: bytes) -> bytes:
    return base64.urlsafe_b64encode(data).rstrip(b"=")


def _decode(text: bytes) -> bytes:
    return base64.b64decode(text + b"=" * (-len(text) % 4), altchars=b"-_", validate=True)
