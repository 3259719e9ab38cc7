"""Token: a JSON Web Token in a Secret, renewed before it expires and whenever its key changes."""

from dataclasses import dataclass

from slurm_operator.api import Token
from slurm_operator.desired.token import token_secret
from slurm_operator.kube.custom import TOKENS
from slurm_operator.kube.kinds import SECRETS, Secret
from slurm_operator.kube.resource import Key
from slurm_operator.runtime.actions import Apply, HasKube
from slurm_operator.runtime.caches import Caches
from slurm_operator.runtime.children import KubeAction, delete, reported, unread
from slurm_operator.runtime.clock import Clock
from slurm_operator.runtime.conditions import summed_up
from slurm_operator.runtime.plan import Plan
from slurm_operator.runtime.reconcile import Refusals
from slurm_operator.runtime.references import References, Refs
from slurm_operator.runtime.times import rfc3339
from slurm_operator.runtime.trouble import Trouble
from slurm_operator.slurm.jwt import Claims, InvalidTokenError, new_claims, sign, verify

RENEW_AT = 0.8
"""Part of its life after which a token is renewed."""
SHORTEST_WAIT = 1.0


@dataclass(frozen=True, slots=True)
class Seen:
    token: Token
    refs: Refs
    """The signing key."""
    written: Secret | None
    refusals: Refusals
    now: float


class Observer:
    def __init__(self, caches: Caches, references: References, clock: Clock) -> None:
        self._caches = caches
        self._references = references
        self._clock = clock

    def __call__(self, key: Key, refusals: Refusals) -> Seen | None:
        token = self._caches.store(TOKENS).get(*key)
        if token is None:
            self._references.drop(("Token", key))
            return None
        secrets = {token.spec.jwt_key.name} if token.spec.jwt_key is not None else set()
        return Seen(
            token=token,
            refs=self._references.read(("Token", key), key[0], secrets=secrets),
            written=self._caches.store(SECRETS).get(key[0], token.target.name),
            refusals=refusals,
            now=self._clock.now(),
        )


def decide(seen: Seen) -> Plan[HasKube]:
    token = seen.token
    if token.metadata.terminating:
        return Plan()
    if seen.refs.loading:
        return unread(TOKENS, token, seen.refs, seen.now)
    ref = token.spec.jwt_key
    trouble = seen.refs.missing_secret(token.metadata.namespace, ref, "jwtKeyRef")
    if ref is None or trouble is not None:
        return Plan(_report(seen, None, trouble))
    key = seen.refs.secret(ref.name)[ref.key]
    claims = current(seen, key)
    if not must_sign(seen, claims):
        return Plan(_report(seen, claims, _expired(seen, claims)), after=_wait(seen, claims))
    if seen.written is not None and seen.written.immutable and _ours(seen.written, token):
        return Plan((delete(SECRETS, seen.written),))
    claims = new_claims(token.spec.slurm_user, int(token.spec.lifetime_seconds), seen.now)
    write = Apply(SECRETS, token_secret(token, sign(key, claims)))
    # What is written is reported once it is seen; what was refused, at once.
    return Plan((write, *(_report(seen, None, None) if seen.refusals else ())))


def _ours(secret: Secret, token: Token) -> bool:
    owner = secret.metadata.controller
    return owner is not None and owner.uid == token.metadata.uid


def current(seen: Seen, key: bytes) -> Claims | None:
    """What the written token says, if this key signed it and it has not expired."""
    stored = seen.written.data.get(seen.token.target.key, b"") if seen.written is not None else b""
    try:
        return verify(stored.decode(), key, seen.now)
    except (InvalidTokenError, UnicodeDecodeError):
        return None


def must_sign(seen: Seen, claims: Claims | None) -> bool:
    """There is none yet; or it may be renewed, and it is invalid, old, or not the one that is asked for."""
    spec = seen.token.spec
    if seen.written is None:
        return True
    if not spec.refresh:
        return False
    if claims is None or (claims.sun, claims.exp - claims.iat) != (spec.slurm_user, int(spec.lifetime_seconds)):
        return True
    return seen.now >= renewal(claims)


def renewal(claims: Claims) -> float:
    return claims.iat + RENEW_AT * (claims.exp - claims.iat)


def _wait(seen: Seen, claims: Claims | None) -> float | None:
    """When the token is due, or when one that is never renewed expires: that too is to be told."""
    if claims is None:
        return None
    due = renewal(claims) if seen.token.spec.refresh else claims.exp
    return max(SHORTEST_WAIT, due - seen.now)


def _expired(seen: Seen, claims: Claims | None) -> Trouble | None:
    if claims is not None:
        return None
    cure = "delete the Secret to have a new one, or set refresh: true"
    return Trouble("Expired", f"the token in Secret {seen.token.target.name} is no longer valid: {cure}")


def _report(seen: Seen, claims: Claims | None, trouble: Trouble | None) -> tuple[KubeAction, ...]:
    verdicts = summed_up(
        waiting="" if claims is not None else "waiting for the Secret to be written",
        done=f"Secret {seen.token.target.name} holds a valid token",
        blocked=trouble,
        refusals=seen.refusals,
    )
    issued = {"issuedAt": rfc3339(claims.iat)} if claims is not None else {}
    return tuple(reported(TOKENS, seen.token, verdicts, seen.now, **issued))
