"""The Secret that a Token writes; it goes when the Token goes."""

from base64 import b64encode

from slurm_operator.api import Token, names
from slurm_operator.desired import metadata
from slurm_operator.kube.resource import Manifest


def token_secret(token: Token, jwt: str) -> Manifest:
    target = token.target
    labels = names.selector(names.APP_TOKEN, token.metadata.name)
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "Opaque",
        "metadata": metadata.child(token, target.name, labels),
        "data": {target.key: b64encode(jwt.encode()).decode()},
    }
    return secret if token.spec.refresh else {**secret, "immutable": True}
