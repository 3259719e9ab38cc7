"""From nothing to a cluster that answers, on the real stage."""

import pytest

from slurm_operator.cli.keys import key_secret
from tests.e2e.job import run_job
from tests.e2e.slurm import Slurm
from tests.e2e.small import answers, example, stopwatch
from tests.e2e.stage import Cluster, eventually

pytestmark = pytest.mark.timeout(180)


def test_sinfo_answers_on_the_login_pod_within_a_minute_of_apply(operator: Cluster, namespace: str) -> None:
    slurm = Slurm(operator, namespace)
    slurm.apply(key_secret("slurm-keys", namespace), *example())
    with stopwatch("sinfo answers on the login pod"):
        eventually("sinfo answers", lambda: answers(slurm, "sinfo"), timeout=60)
    for kind in ("accounting/slurm", "nodeset/small", "nodeset/big"):
        slurm.wait_ready(kind)
    run_job(slurm, wrap="true")
