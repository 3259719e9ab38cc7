"""How tests read the API server's audit log while it is being written."""

import json
from pathlib import Path

from tests.kube.audit import Audit


def entry(number: int) -> bytes:
    times = dict.fromkeys(("requestReceivedTimestamp", "stageTimestamp"), "2026-01-01T00:00:00Z")
    about = {"auditID": f"id-{number}", "verb": "create", "user": {"username": "operator"}, "requestURI": "/"}
    return json.dumps({**about, **times}).encode()


def test_a_line_that_is_being_written_is_read_once_it_is_whole(tmp_path: Path) -> None:
    log = tmp_path / "audit.log"
    first, second = entry(1) + b"\n", entry(2) + b"\n"
    log.write_bytes(first + second[:20])
    audit = Audit(log, "operator")
    assert [found.audit_id for found in audit.writes()] == ["id-1"]
    audit.mark()
    assert audit.writes() == []
    log.write_bytes(first + second)
    assert [found.audit_id for found in audit.writes()] == ["id-2"]
