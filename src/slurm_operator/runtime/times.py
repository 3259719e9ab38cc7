"""Times as Kubernetes writes them, and back."""

from datetime import UTC, datetime


def rfc3339(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def seconds_of(text: str | None, *, absent: float) -> float:
    """Seconds since 1970 of an RFC 3339 time; what is no such time counts as absent."""
    if not text:
        return absent
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return absent
    return moment.timestamp() if moment.tzinfo else absent
