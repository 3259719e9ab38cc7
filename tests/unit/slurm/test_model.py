"""The projections hold what a real answer carries, and survive what they do not know."""

import msgspec
import pytest

from slurm_operator.slurm.model import Node, Number

FULL = b"""{
  "architecture": "x86_64", "boot_time": {"set": true, "infinite": false, "number": 1794802203},
  "cpu_load": 12, "cpus": 4, "energy": {"average_watts": 0}, "extra": "{\\"rack\\":\\"r1\\"}",
  "features": ["small", "gpu"], "active_features": ["small"], "partitions": ["all", "small"],
  "last_busy": {"set": true, "infinite": false, "number": 1794802237},
  "name": "small-0", "next_state_after_reboot": ["INVALID"], "address": "10.77.0.21", "hostname": "small-0",
  "state": ["IDLE", "DRAIN", "A_STATE_OF_TOMORROW"], "real_memory": 2000, "comment": "pod=ns/name",
  "reason": "bad disk", "reason_changed_at": {"set": true, "infinite": false, "number": 1794802239},
  "reason_set_by_user": "root", "reservation": "maint", "alloc_cpus": 2,
  "slurmd_start_time": {"set": true, "infinite": false, "number": 1794802204},
  "topology": "topo-block:b1", "version": "26.05.5", "a_field_of_tomorrow": {"x": [1]}
}"""


def test_every_field_is_read() -> None:
    node = msgspec.json.decode(FULL, type=Node)
    empty = Node(name="")
    unread = [name for name in Node.__struct_fields__ if getattr(node, name) == getattr(empty, name)]
    assert unread == []
    assert node.state[-1] == "A_STATE_OF_TOMORROW"


@pytest.mark.parametrize(
    ("number", "value"),
    [
        (Number(set=True, number=7), 7),
        (Number(set=True, number=0), 0),
        (Number(set=False, number=7), None),
        (Number(set=False, infinite=True), None),
        (Number(set=True, infinite=True, number=7), None),
    ],
)
def test_a_number_may_be_unset_or_infinite(number: Number, value: int | None) -> None:
    assert number.value == value
