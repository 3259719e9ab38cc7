"""Names under which Services are reached."""

import re

DEFAULT_DOMAIN = "cluster.local"

_SEARCHED = re.compile(r"^search[ \t].*?(?<![^ \t.])svc\.([^ \t\n]+)", re.MULTILINE)


def cluster_domain(resolv_conf: str) -> str:
    """The domain after `svc.` in the search line of a pod's resolver file; every cluster has the default else."""
    found = _SEARCHED.search(resolv_conf)
    return found[1].rstrip(".") or DEFAULT_DOMAIN if found else DEFAULT_DOMAIN


def short_name(service: str, namespace: str) -> str:
    return f"{service}.{namespace}"


def full_name(service: str, namespace: str, domain: str) -> str:
    return f"{service}.{namespace}.svc.{domain}"
