"""The image that holds a pod's namespaces: one static program, packed as an OCI archive."""

import tempfile
from pathlib import Path

from slurm_local.oci import Entry, Image, write_archive, write_layer

PAUSE_IMAGE = "localhost/slurm-operator/pause:1"


def write_pause_archive(program: Path, target: Path) -> None:
    """Writes the archive beside its name first: a node may be looking for images at the same moment."""
    partial = target.with_suffix(".partial")
    with tempfile.TemporaryDirectory() as folder:
        layer = write_layer([Entry("pause", 0o755, content=program)], Path(folder) / "layer.tar")
        write_archive(partial, [Image(PAUSE_IMAGE, [layer], entrypoint=["/pause"], user="65535:65535")])
    partial.rename(target)
