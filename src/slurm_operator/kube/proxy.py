"""Which HTTP proxy leads to the API server, by the variables that kubectl reads too."""

import ipaddress
from collections.abc import Mapping
from urllib.parse import urlsplit

_PORTS = {"http": 80, "https": 443}


def proxy_for(server: str, env: Mapping[str, str]) -> str:
    """Return the proxy that HTTPS_PROXY or HTTP_PROXY name for this server, "" if NO_PROXY exempts it."""
    url = urlsplit(server)
    variable = f"{url.scheme}_proxy"
    found = env.get(variable.upper()) or env.get(variable, "")
    exempt = env.get("NO_PROXY") or env.get("no_proxy", "")
    if not found or _is_exempt(url.hostname or "", url.port or _PORTS.get(url.scheme, 0), exempt):
        return ""
    return found if "://" in found else f"http://{found}"


def without_password(url: str) -> str:
    """Return the URL of a proxy as it may be shown: without the user and the password in it."""
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()


def _is_exempt(host: str, port: int, exempt: str) -> bool:
    address = _address(host)
    if host == "localhost" or (address is not None and address.is_loopback):
        return True
    return any(_matches(host, address, port, entry.strip().lower()) for entry in exempt.split(",") if entry.strip())


def _matches(host: str, address: ipaddress.IPv4Address | ipaddress.IPv6Address | None, port: int, entry: str) -> bool:
    if entry == "*":
        return True
    if "/" in entry:
        try:
            return address is not None and address in ipaddress.ip_network(entry, strict=False)
        except ValueError:
            return False
    if _address(entry) is None:
        name, _, only = entry.rpartition(":") if entry.rpartition(":")[2].isdecimal() else (entry, "", "")
        if only and int(only) != port:
            return False
        entry = name.strip("[]")
    if address is not None:
        return address == _address(entry)
    domain = entry.removeprefix("*").removeprefix(".")
    return host.endswith(f".{domain}") or (host == domain and not entry.startswith((".", "*")))


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None
