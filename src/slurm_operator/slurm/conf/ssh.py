"""sshd_config of login and worker pods, and root's authorized_keys."""

_COMMON = ("Include /etc/ssh/sshd_config.d/*.conf", "UsePAM yes")
_SFTP = "Subsystem sftp internal-sftp"


def login_sshd_config(extra: str = "") -> str:
    return _text(*_COMMON, "X11Forwarding yes", _SFTP, extra)


def worker_sshd_config(extra: str = "") -> str:
    return _text(*_COMMON, _SFTP, "AuthenticationMethods publickey password", extra)


def authorized_keys(keys: str = "") -> str:
    return _text("# Root's keys, from rootSshAuthorizedKeys of the LoginSet", keys)


def _text(*parts: str) -> str:
    return "".join(f"{part.rstrip()}\n" for part in parts if part.strip())
