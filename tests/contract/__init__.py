"""What a Kubernetes API server does, as far as our code relies on it.

The classes here are run twice: against the fake (tests/simulation/test_contract_fake.py) and against a real
kube-apiserver (tests/kube/test_contract_real.py). A difference between the two is a bug of the fake.
"""

import pytest

pytest.register_assert_rewrite(
    "tests.contract.applying",
    "tests.contract.controlling",
    "tests.contract.deleting",
    "tests.contract.reading",
    "tests.contract.subresources",
    "tests.contract.watching",
    "tests.contract.writing",
)
