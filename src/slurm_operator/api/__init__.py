"""The six kinds of slinky.slurm.net/v1beta1: what users write, and the names that others rely on."""

from slurm_operator.api.accounting import ACCOUNTING, Accounting
from slurm_operator.api.controller import CONTROLLER, Controller
from slurm_operator.api.kind import Kind, Object
from slurm_operator.api.loginset import LOGINSET, LoginSet
from slurm_operator.api.nodeset import NODESET, NodeSet
from slurm_operator.api.restapi import RESTAPI, RestApi
from slurm_operator.api.token import TOKEN, Token

KINDS: tuple[Kind[Object], ...] = (CONTROLLER, ACCOUNTING, NODESET, LOGINSET, RESTAPI, TOKEN)
"""All kinds, in the order in which a cluster is built."""

__all__ = [
    "ACCOUNTING",
    "CONTROLLER",
    "KINDS",
    "LOGINSET",
    "NODESET",
    "RESTAPI",
    "TOKEN",
    "Accounting",
    "Controller",
    "Kind",
    "LoginSet",
    "NodeSet",
    "Object",
    "RestApi",
    "Token",
]
