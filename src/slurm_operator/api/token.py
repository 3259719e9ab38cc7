"""Token: a JSON Web Token for one Slurm user, kept fresh in a Secret."""

import re
from typing import Annotated, ClassVar

from slurm_operator.api import names
from slurm_operator.api.common import JWT_KEY_STAYS, SecretKeySelector, Status
from slurm_operator.api.kind import AGE, READY, STATUS, WAITING, Column, Kind, Object
from slurm_operator.api.meta import Defaulted, OrDefault, Required, Spec
from slurm_operator.api.rules import Rule, checked
from slurm_operator.api.syntax import SUBDOMAIN, USER
from slurm_operator.api.values import DURATION_PATTERN, duration_or

DEFAULT_LIFETIME = "15m"
LONGEST_LIFETIME = 2**31 - 2
"""Seconds that Slurm takes for ever."""
NOBODY = "nobody"
"""Slurm user of a Token that names none."""

NEEDS_KEY = Rule(
    cel="has(self.jwtKeyRef) || has(self.jwtHs256KeyRef)",
    holds=lambda spec: spec.jwt_key is not None,
    message="jwtKeyRef is missing",
    hint="name the Secret and key that sign the token",
    path=".jwtKeyRef",
    reason="FieldValueRequired",
)
NAMES_SECRET = Rule(
    cel=f"has(self.secretRef) || self.username == '' || self.username.matches(r'^{SUBDOMAIN}$')",
    holds=lambda spec: (
        spec.secret_ref is not None or spec.username == "" or re.fullmatch(SUBDOMAIN, spec.username) is not None
    ),
    message="the user name cannot be part of a Secret's name",
    hint="say with secretRef which Secret to write",
    path=".secretRef",
    reason="FieldValueRequired",
)


class TokenSpec(Spec):
    """Which token, and where to put it."""

    rules: ClassVar[tuple[Rule, ...]] = (NEEDS_KEY, NAMES_SECRET, JWT_KEY_STAYS)

    username: Required[Annotated[str, checked(USER, maxLength=256)]] = ""
    """Slurm user that the token speaks for; empty means nobody."""
    jwt_key_ref: SecretKeySelector | None = None
    """Secret with the key that signs the token. Cannot be changed later."""
    jwt_hs256_key_ref: SecretKeySelector | None = None
    """Deprecated spelling of jwtKeyRef, used only if that is absent."""
    lifetime: OrDefault[Annotated[str, checked(pattern=DURATION_PATTERN, maxLength=64)]] = DEFAULT_LIFETIME
    """How long a token is valid, such as 1h30m; absent means 15m."""
    refresh: Defaulted[bool] = True
    """Renew the token before it expires; false writes it once and never again."""
    secret_ref: SecretKeySelector | None = None
    """Where to write the token; absent means key SLURM_JWT of Secret <name>-jwt-<username>."""

    @property
    def jwt_key(self) -> SecretKeySelector | None:
        """The reference in force, whichever field holds it."""
        return self.jwt_key_ref or self.jwt_hs256_key_ref

    @property
    def lifetime_seconds(self) -> float:
        """Lifetime within what Slurm can express."""
        return min(max(duration_or(self.lifetime, DEFAULT_LIFETIME), 0.0), float(LONGEST_LIFETIME))

    @property
    def slurm_user(self) -> str:
        return self.username or NOBODY


class TokenStatus(Status):
    """What the operator last observed of the token."""

    issued_at: Annotated[str, checked(format="date-time")] | None = None
    """When the current token was issued."""


class Token(Object):
    """A JSON Web Token for one Slurm user."""

    spec: OrDefault[TokenSpec] = TokenSpec()
    """Which token, and where to put it."""
    status: OrDefault[TokenStatus] = TokenStatus()
    """What the operator last observed."""

    @property
    def target(self) -> SecretKeySelector:
        """Secret and key that the token is written to."""
        if self.spec.secret_ref is not None and self.spec.secret_ref.name:
            return self.spec.secret_ref
        key = self.spec.secret_ref.key if self.spec.secret_ref is not None else names.TOKEN_KEY
        return SecretKeySelector(name=names.token_secret(self.metadata.name, self.spec.slurm_user), key=key)


TOKEN: Kind[Token] = Kind(
    type=Token,
    plural="tokens",
    short_names=("tokens", "jwt"),
    columns=(
        Column("USER", ".spec.username", "string"),
        Column("IAT", ".status.issuedAt", "date"),
        READY,
        STATUS,
        AGE,
        WAITING,
    ),
)
