"""Accounting: slurmdbd and its database connection."""

from typing import Annotated, ClassVar

from slurm_operator.api.common import (
    JWT_KEY_STAYS,
    NEEDS_EXTERNAL_CONFIG,
    NEEDS_JWT_KEY,
    NEEDS_SLURM_KEY,
    Container,
    KeyReferences,
    PodTemplate,
    SecretKeySelector,
    ServiceSpec,
    Status,
    Text,
)
from slurm_operator.api.kind import AGE, READY, STATUS, WAITING, Kind, Object
from slurm_operator.api.meta import Defaulted, OrDefault, Required, Spec
from slurm_operator.api.rules import Rule, checked
from slurm_operator.api.syntax import HOST, PORT_OR_AUTOMATIC, USER, WORD

DATABASE_PORT = 3306
DATABASE = "slurm_acct_db"


class StorageConfig(Spec):
    """The MariaDB or MySQL database that slurmdbd writes to."""

    host: Required[Annotated[str, checked(HOST, maxLength=253)]] = ""
    """Host name or IP address of the database."""
    port: Defaulted[Annotated[int, checked(PORT_OR_AUTOMATIC)]] = DATABASE_PORT
    """TCP port of the database."""
    database: Defaulted[Annotated[str, checked(WORD, maxLength=64)]] = DATABASE
    """Name of the database."""
    username: OrDefault[Annotated[str, checked(USER, maxLength=256)]] = ""
    """User to log in as."""
    password_key_ref: Required[SecretKeySelector] = SecretKeySelector()
    """Secret with the password of that user."""

    @property
    def effective_port(self) -> int:
        return self.port or DATABASE_PORT

    @property
    def effective_database(self) -> str:
        return self.database or DATABASE


class AccountingSpec(KeyReferences):
    """What the accounting daemon should look like."""

    rules: ClassVar[tuple[Rule, ...]] = (NEEDS_SLURM_KEY, NEEDS_JWT_KEY, NEEDS_EXTERNAL_CONFIG, JWT_KEY_STAYS)

    slurmdbd: OrDefault[Container] = {}
    """A core/v1 Container that is merged over the generated slurmdbd container; must give the image."""
    template: OrDefault[PodTemplate] = PodTemplate()
    """What to add to the slurmdbd pod."""
    storage_config: StorageConfig | None = None
    """The database; needed unless external."""
    extra_conf: OrDefault[Text] = ""
    """Lines to add to slurmdbd.conf."""
    service: OrDefault[ServiceSpec] = ServiceSpec()
    """What to change in the Service of slurmdbd."""


class AccountingStatus(Status):
    """What the operator last observed of slurmdbd."""


class Accounting(Object):
    """The accounting of one or several clusters: slurmdbd."""

    spec: OrDefault[AccountingSpec] = AccountingSpec()
    """What the accounting daemon should look like."""
    status: OrDefault[AccountingStatus] = AccountingStatus()
    """What the operator last observed."""


ACCOUNTING: Kind[Accounting] = Kind(
    type=Accounting,
    plural="accountings",
    short_names=("slurmdbd",),
    columns=(READY, STATUS, AGE, WAITING),
)
