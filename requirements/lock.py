"""Pin the dependencies of pyproject.toml in runtime.txt and dev.txt: hashes, and no registry address."""

import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

HERE = Path(__file__).parent
OPTIONS = [
    "--universal",
    "--python-version=3.11",
    "--generate-hashes",
    "--no-emit-index-url",
    "--no-header",
    "--no-annotate",
]


def main() -> None:
    project = tomllib.loads((HERE.parent / "pyproject.toml").read_text())
    runtime = project["project"]["dependencies"]
    with tempfile.TemporaryDirectory() as scratch:
        tools = Path(scratch, "tools")
        subprocess.run([sys.executable, "-m", "venv", tools], check=True)
        subprocess.run([tools / "bin/pip", "install", "--quiet", "uv"], check=True)
        compile_lock = [tools / "bin/uv", "pip", "compile", "--quiet", "--upgrade", *OPTIONS, "-"]
        for name, wanted in {"runtime": runtime, "dev": runtime + project["dependency-groups"]["dev"]}.items():
            pins = ["-c", HERE / "runtime.txt"] if name == "dev" else []
            subprocess.run(
                [*compile_lock, *pins, "-o", HERE / f"{name}.txt"], input="\n".join(wanted), text=True, check=True
            )


if __name__ == "__main__":
    main()
