"""The node line that a worker registers with: slurmd's `--conf`, as arguments that an image evaluates in a shell."""

TOPOLOGY_VARIABLE = "SLINKY_TOPOLOGY"


def parse_node_conf(text: str) -> dict[str, tuple[str, ...]]:
    """`Key=Value` tokens as the user spelt them; a key given again, in any case, adds to the first one's values.

    A key without a value says nothing, and is left out: slurmd would take the next word for its value.
    """
    values: dict[str, list[str]] = {}
    spelling: dict[str, str] = {}
    for token in text.split():
        key, separator, value = token.partition("=")
        if not (separator and key):
            raise ValueError(f"extraConf: {token!r} is not of the form Key=Value")
        if not value:
            continue
        name = "features" if key.lower() == "feature" else key.lower()
        values.setdefault(spelling.setdefault(name, key), []).extend(filter(None, value.split(",")))
    return {key: tuple(found) for key, found in values.items()}


def node_conf_arguments(group: str, extra: str = "") -> list[str]:
    """`--conf` and its value in single quotes, plus a topology that vanishes when the pod carries none.

    slurmd takes the last `--conf`. So the topology is a second, complete one which the shell only expands when the
    variable is set: an empty `Topology=` would swallow the option after it, and images that rewrite the first `--conf`
    find no shell syntax in it.
    """
    try:
        items = parse_node_conf(extra)
    except ValueError:
        items = {}
    features = {group} | {value for key in items if key.lower() in ("feature", "features") for value in items[key]}
    others = {key: values for key, values in items.items() if key.lower() not in ("feature", "features")}
    pairs = sorted(f"{key}={','.join(values)}" for key, values in {"Features": sorted(features), **others}.items())
    conf = _single_quoted(" ".join(pairs))
    arguments = ["--conf", conf]
    if not any(key.lower() == "topology" for key in others):
        topology = f'" Topology=${TOPOLOGY_VARIABLE}"'
        arguments.append(f"${{{TOPOLOGY_VARIABLE}:+--conf {conf}{topology}}}")
    return arguments


def _single_quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"
