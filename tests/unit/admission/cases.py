"""The table: what is accepted, what is refused and where the refusal points."""

# ruff: noqa: E501 - a row of the table is one line

from typing import Any

from tests.unit.admission.examples import KEYS, Case, Manifest, accepts, manifest, refuses, webhook_refuses

KEY = {"name": "other", "key": "k"}
REFERENCES = (
    "configFileRefs",
    "prologScriptRefs",
    "epilogScriptRefs",
    "prologSlurmctldScriptRefs",
    "epilogSlurmctldScriptRefs",
)
RWX = {"ha": {"enabled": True}, "persistence": {"enabled": True, "existingClaim": "shared"}}
EXTERNAL: Manifest = {
    "external": True,
    "externalConfig": {"host": "slurmctld.example.com", "port": 6817},
    "slurmKeyRef": ...,
    "jwtKeyRef": ...,
}
SCHEDULED: Manifest = {"type": "ScheduledUpdate", "scheduledUpdate": {"startTime": "2030-01-31T22:00:00Z"}}
CLAIM: Manifest = {"metadata": {"name": "scratch"}, "spec": {"resources": {"requests": {"storage": "1Gi"}}}}


EXPRESSION = (
    "spec.template.spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution"
    ".nodeSelectorTerms[0].matchExpressions[0]"
)


def affinity(**expression: Any) -> Manifest:
    """A required affinity to Nodes."""
    terms = {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
    return {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}}


def keys(kind: str) -> list[Case]:
    """Rules that Controller and Accounting share."""
    return [
        accepts(kind, "minimal", {}),
        accepts(kind, "deprecated JWT field", {"jwtKeyRef": ..., "jwtHs256KeyRef": KEY}),
        accepts(kind, "both JWT fields", {"jwtHs256KeyRef": KEY}),
        accepts(kind, "JWKS", {"jwksKeyRef": {"name": "jwks", "key": "jwks.json"}}),
        accepts(kind, "optional selector", {"slurmKeyRef": {"name": "a", "key": "b", "optional": True}}),
        accepts(kind, "external without keys", EXTERNAL),
        accepts(kind, "external with keys", {**EXTERNAL, **KEYS}),
        accepts(kind, "external with an IPv4 address", {**EXTERNAL, "externalConfig": {"host": "10.0.0.1", "port": 1}}),
        accepts(kind, "external with an IPv6 address", {**EXTERNAL, "externalConfig": {"host": "fd00::1", "port": 1}}),
        accepts(kind, "namespace in a selector of old versions", {"slurmKeyRef": {**KEY, "namespace": "x"}}),
        accepts(kind, "null external", {"external": None}),
        refuses(kind, "no slurm key", "spec.slurmKeyRef", {"slurmKeyRef": ...}),
        refuses(kind, "null slurm key", "spec.slurmKeyRef", {"slurmKeyRef": None}),
        refuses(kind, "no JWT key", "spec.jwtKeyRef", {"jwtKeyRef": ...}),
        refuses(kind, "selector without key", "spec.slurmKeyRef.key", {"slurmKeyRef": {"name": "a", "key": ...}}),
        refuses(kind, "selector with a path", "spec.slurmKeyRef.key", {"slurmKeyRef": {"key": "../a"}}),
        refuses(kind, "Secret name with a slash", "spec.slurmKeyRef.name", {"slurmKeyRef": {"name": "a/../b"}}),
        refuses(kind, "selector that is a text", "spec.slurmKeyRef", {"slurmKeyRef": "a"}),
        refuses(kind, "external without config", "spec.externalConfig", {"external": True}),
        refuses(
            kind, "external without port", "spec.externalConfig.port", {**EXTERNAL, "externalConfig": {"host": "a"}}
        ),
        refuses(
            kind,
            "external port null",
            "spec.externalConfig.port",
            {**EXTERNAL, "externalConfig": {"host": "a", "port": None}},
        ),
        refuses(kind, "external without host", "spec.externalConfig.host", {**EXTERNAL, "externalConfig": {"port": 1}}),
        refuses(kind, "port 0", "spec.externalConfig.port", {**EXTERNAL, "externalConfig": {"host": "a", "port": 0}}),
        refuses(
            kind, "port 65536", "spec.externalConfig.port", {**EXTERNAL, "externalConfig": {"host": "a", "port": 65536}}
        ),
        refuses(
            kind,
            "host with a second line",
            "spec.externalConfig.host",
            {**EXTERNAL, "externalConfig": {"host": "a\nSlurmUser=root", "port": 1}},
        ),
        refuses(
            kind, "host with #", "spec.externalConfig.host", {**EXTERNAL, "externalConfig": {"host": "a #", "port": 1}}
        ),
        refuses(kind, "external that is a text", "spec.external", {"external": "yes"}),
        accepts(kind, "JWT key moved to the new field", {}, {"jwtKeyRef": ..., "jwtHs256KeyRef": KEYS["jwtKeyRef"]}),
        accepts(kind, "JWT key added later", {**EXTERNAL, "jwtKeyRef": KEY}, EXTERNAL),
        refuses(kind, "JWT Secret changed", "spec.jwtKeyRef", {"jwtKeyRef": KEY}, {}),
        refuses(kind, "JWT key changed", "spec.jwtKeyRef", {"jwtKeyRef": {"key": "another"}}, {}),
        refuses(kind, "JWT key removed", "spec.jwtKeyRef", EXTERNAL, {**EXTERNAL, "jwtKeyRef": KEY}),
        refuses(
            kind,
            "another JWT key put before the old one",
            "spec.jwtKeyRef",
            {"jwtKeyRef": KEY, "jwtHs256KeyRef": KEYS["jwtKeyRef"]},
            {"jwtKeyRef": ..., "jwtHs256KeyRef": KEYS["jwtKeyRef"]},
        ),
        *service(kind),
        *template(kind),
    ]


def service(kind: str) -> list[Case]:
    return [
        accepts(kind, "service as the chart writes it", {"service": {"metadata": {}, "spec": {}}}),
        accepts(kind, "null service", {"service": None}),
        accepts(kind, "service with everything", {"service": {"spec": {"type": "NodePort"}, "port": 7000, "nodePort": 30000}}),
        accepts(kind, "external IPs", {"service": {"spec": {"externalIPs": ["1.2.3.4"]}}}),
        accepts(kind, "null labels", {"service": {"metadata": {"labels": None, "annotations": None}}}),
        refuses(kind, "service port out of range", "spec.service.port", {"service": {"port": 70000}}),
        refuses(kind, "negative node port", "spec.service.nodePort", {"service": {"nodePort": -1}}),
        refuses(kind, "label that is a number", "spec.service.metadata.labels.a", {"service": {"metadata": {"labels": {"a": 1}}}}),
        webhook_refuses(kind, "label with spaces", "spec.service.metadata.labels.a", {"service": {"metadata": {"labels": {"a": "b c"}}}}),
        webhook_refuses(kind, "same port twice", "spec.service.spec.ports[0].port", {"service": {"port": 99, "spec": {"ports": [{"port": 99, "name": "x"}]}}}),
    ]  # fmt: skip


def template(kind: str) -> list[Case]:
    chart: Manifest = {
        "metadata": {"labels": {"app.kubernetes.io/part-of": "slurm"}, "annotations": None},
        "spec": {
            "imagePullSecrets": None,
            "priorityClassName": "",
            "affinity": {},
            "resources": {},
            "initContainers": [],
            "tolerations": [],
            "volumes": [],
            "nodeSelector": {"kubernetes.io/os": "linux"},
        },
    }
    return [
        accepts(kind, "template as the chart writes it", {"template": chart}),
        accepts(kind, "null template", {"template": None}),
        accepts(kind, "fields of Kubernetes to come", {"template": {"spec": {"flyingCarSupport": {"wheels": [4]}}}}),
        accepts(kind, "own sidecar", {"template": {"spec": {"containers": [{"name": "mine", "image": "busybox"}]}}}),
        refuses(kind, "template that is a list", "spec.template", {"template": []}),
        refuses(kind, "pod spec that is a text", "spec.template.spec", {"template": {"spec": "x"}}),
        webhook_refuses(kind, "containers that are a mapping", "spec.template.spec.containers", {"template": {"spec": {"containers": {}}}}),
        webhook_refuses(kind, "container without name", "spec.template.spec.containers[0].name", {"template": {"spec": {"containers": [{"image": "a"}]}}}),
        webhook_refuses(kind, "sidecar without an image", "spec.template.spec.containers[0].image", {"template": {"spec": {"containers": [{"name": "mine"}]}}}),
        accepts(kind, "affinity to Nodes", {"template": {"spec": affinity(key="gpus", operator="Gt", values=["4"])}}),
        accepts(kind, "affinity that says nothing", {"template": {"spec": {"affinity": {}, "nodeSelector": None, "tolerations": []}}}),
        webhook_refuses(kind, "comparison with a word", f"{EXPRESSION}.values", {"template": {"spec": affinity(key="gpus", operator="Gt", values=["many"])}}),
        webhook_refuses(kind, "comparison with two numbers", f"{EXPRESSION}.values", {"template": {"spec": affinity(key="gpus", operator="Lt", values=["1", "2"])}}),
        webhook_refuses(kind, "affinity without values", f"{EXPRESSION}.values", {"template": {"spec": affinity(key="gpus", operator="In")}}),
        webhook_refuses(kind, "affinity without a key", EXPRESSION, {"template": {"spec": affinity(operator="Exists")}}),
        webhook_refuses(kind, "affinity with an unknown operator", f"{EXPRESSION}.operator", {"template": {"spec": affinity(key="gpus", operator="Near")}}),
        webhook_refuses(kind, "toleration that is a text", "spec.template.spec.tolerations[0]", {"template": {"spec": {"tolerations": ["gpu"]}}}),
        webhook_refuses(kind, "two containers of one name", "spec.template.spec.containers[1].name", {"template": {"spec": {"containers": [{"name": "a"}, {"name": "a"}]}}}),
    ]  # fmt: skip


CONTROLLER = [
    *keys("Controller"),
    accepts("Controller", "null lists as the chart writes them", dict.fromkeys(REFERENCES)),
    accepts("Controller", "cluster name", {"clusterName": "prod_cluster-1"}),
    accepts("Controller", "cluster name of 40 characters", {"clusterName": "a" * 40}),
    accepts("Controller", "empty cluster name", {"clusterName": ""}),
    accepts("Controller", "null cluster name", {"clusterName": None}),
    refuses("Controller", "cluster name of 41 characters", "spec.clusterName", {"clusterName": "a" * 41}),
    refuses("Controller", "cluster name with a line break", "spec.clusterName", {"clusterName": "a\nSlurmUser=root"}),
    refuses("Controller", "cluster name ending in a line break", "spec.clusterName", {"clusterName": "a\n"}),
    refuses("Controller", "cluster name with #", "spec.clusterName", {"clusterName": "a#b"}),
    refuses("Controller", "cluster name with a path", "spec.clusterName", {"clusterName": "../../etc"}),
    refuses("Controller", "cluster name that is a number", "spec.clusterName", {"clusterName": 7}),
    accepts("Controller", "accounting", {"accountingRef": {"name": "slurm"}}),
    accepts("Controller", "accounting with namespace of old versions", {"accountingRef": {"name": "slurm", "namespace": "x"}}),
    accepts("Controller", "accounting without name", {"accountingRef": {}}),
    accepts("Controller", "accounting added and changed", {"accountingRef": {"name": "b"}}, {"accountingRef": {"name": "a"}}),
    refuses("Controller", "accounting with a path", "spec.accountingRef.name", {"accountingRef": {"name": "../x"}}),
    accepts("Controller", "containers", {"slurmctld": {"image": "a", "args": [], "env": [], "resources": {}}, "logfile": {"image": "b"}}),
    accepts("Controller", "in-place reconfigure", {"inplaceReconfigure": True, "reconfigure": {"image": "a"}}),
    accepts("Controller", "extra lines", {"extraConf": "MinJobAge=2\n# a comment\nSlurmctldParameters=enable_stepmgr\n"}),
    accepts("Controller", "null extra lines", {"extraConf": None}),
    accepts("Controller", "high availability", RWX),
    accepts("Controller", "high availability switched off", {"ha": {"enabled": False}}),
    accepts("Controller", "high availability with 2 backups", {**RWX, "ha": {"enabled": True, "backups": 2}}),
    accepts("Controller", "empty ha", {"ha": {}}),
    refuses("Controller", "ha without persistence", "spec.persistence", {"ha": {"enabled": True}}),
    refuses("Controller", "ha with persistence off", "spec.persistence", {**RWX, "persistence": {"enabled": False, "existingClaim": "a"}}),
    refuses("Controller", "ha without claim", "spec.persistence", {**RWX, "persistence": {"enabled": True}}),
    refuses("Controller", "ha with an empty claim", "spec.persistence", {**RWX, "persistence": {"existingClaim": ""}}),
    refuses("Controller", "no backups", "spec.ha.backups", {**RWX, "ha": {"enabled": True, "backups": 0}}),
    refuses("Controller", "absurdly many backups", "spec.ha.backups", {**RWX, "ha": {"enabled": True, "backups": 2**31 - 1}}),
    accepts("Controller", "persistence as the chart writes it", {"persistence": {
        "enabled": True, "existingClaim": "", "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "4Gi"}},
    }}),
    accepts("Controller", "persistence with all fields", {"persistence": {
        "accessModes": ["ReadWriteOnce"], "storageClassName": "", "volumeMode": "Filesystem", "volumeName": "v",
        "volumeAttributesClassName": "x", "selector": {"matchLabels": {"a": "b"}, "matchExpressions": [{"key": "a", "operator": "Exists"}]},
        "dataSource": {"kind": "PersistentVolumeClaim", "name": "a"}, "dataSourceRef": {"kind": "A", "name": "a", "apiGroup": "g", "namespace": "n"},
        "resources": {"requests": {"storage": 4096}, "limits": {"storage": "1.5Ti"}},
    }}),
    refuses("Controller", "storage that is no quantity", "spec.persistence.resources.requests.storage", {"persistence": {"resources": {"requests": {"storage": "four"}}}}),
    refuses("Controller", "claim with a path", "spec.persistence.existingClaim", {"persistence": {"existingClaim": "a/b"}}),
    accepts("Controller", "metrics", {"metrics": {"enabled": True, "serviceMonitor": {"enabled": True, "interval": "30s", "scrapeTimeout": "25s", "endpoints": [{"path": "/metrics/jobs", "interval": "1m30s"}]}}}),
    accepts("Controller", "null monitor", {"metrics": {"enabled": True, "serviceMonitor": None}}),
    accepts("Controller", "null endpoints", {"metrics": {"serviceMonitor": {"labels": None, "endpoints": None}}}),
    refuses("Controller", "interval of a Go duration", "spec.metrics.serviceMonitor.interval", {"metrics": {"serviceMonitor": {"interval": "1.5h"}}}),
    refuses("Controller", "endpoint without path", "spec.metrics.serviceMonitor.endpoints[0].path", {"metrics": {"serviceMonitor": {"endpoints": [{}]}}}),
    accepts("Controller", "script references", {"prologScriptRefs": [{"name": "a"}], "epilogSlurmctldScriptRefs": [{"name": "b"}]}),
    refuses("Controller", "references that are texts", "spec.configFileRefs[0]", {"configFileRefs": ["a"]}),
    refuses("Controller", "reference with a path", "spec.configFileRefs[0].name", {"configFileRefs": [{"name": "a/b"}]}),
    webhook_refuses("Controller", "reference without name", "spec.configFileRefs[0].name", {"configFileRefs": [{}]}),
    webhook_refuses("Controller", "sidecar called like ours", "spec.template.spec.containers[0].name", {"template": {"spec": {"containers": [{"name": "slurmctld"}]}}}),
    webhook_refuses("Controller", "arguments that are a text", "spec.slurmctld.args", {"slurmctld": {"args": "-v"}}),
    webhook_refuses("Controller", "limits that are no quantities", "spec.slurmctld.resources.limits.memory", {"slurmctld": {"resources": {"limits": {"memory": "lots"}}}}),
    refuses("Controller", "container that is a list", "spec.slurmctld", {"slurmctld": []}),
    # updates
    accepts("Controller", "nothing changed", {}, {}),
    accepts("Controller", "key within the same Secret changed", {"slurmKeyRef": {"key": "new.key"}}, {}),
    refuses("Controller", "slurm Secret changed", "spec.slurmKeyRef", {"slurmKeyRef": KEY}, {}),
    refuses("Controller", "slurm Secret removed", "spec.slurmKeyRef", EXTERNAL, {**EXTERNAL, "slurmKeyRef": KEY}),
    accepts("Controller", "default cluster name spelt out", {"clusterName": "default_slurm"}, {}),
    accepts("Controller", "default cluster name left out again", {}, {"clusterName": "default_slurm"}),
    accepts("Controller", "empty cluster name left out", {}, {"clusterName": ""}),
    refuses("Controller", "cluster name changed", "spec", {"clusterName": "b"}, {"clusterName": "a"}),
    refuses("Controller", "cluster name given later", "spec", {"clusterName": "a"}, {}),
    refuses("Controller", "cluster name removed", "spec", {}, {"clusterName": "a"}),
    webhook_refuses("Controller", "cluster name of another namespace", "spec", {"clusterName": "prod_slurm"}, {}),
    accepts("Controller", "empty persistence added", {"persistence": {}}, {}),
    accepts("Controller", "persistence spelt out", {"persistence": {"enabled": True}}, {}),
    accepts("Controller", "persistence left out again", {}, {"persistence": {"enabled": True}}),
    refuses("Controller", "persistence switched off", "spec.persistence", {"persistence": {"enabled": False}}, {}),
    refuses("Controller", "persistence switched on", "spec.persistence", {}, {"persistence": {"enabled": False}}),
    refuses("Controller", "claim changed", "spec.persistence", {"persistence": {"existingClaim": "b"}}, {"persistence": {"existingClaim": "a"}}),
    refuses("Controller", "claim given later", "spec.persistence", {"persistence": {"existingClaim": "b"}}, {}),
    accepts("Controller", "claim changed while off", {"persistence": {"enabled": False, "existingClaim": "b"}}, {"persistence": {"enabled": False, "existingClaim": "a"}}),
    accepts("Controller", "empty claim left out", {"persistence": {"enabled": True}}, {"persistence": {"existingClaim": ""}}),
    accepts("Controller", "size changed", {"persistence": {"resources": {"requests": {"storage": "8Gi"}}}}, {"persistence": {"resources": {"requests": {"storage": "4Gi"}}}}),
]  # fmt: skip


def storage(**fields: Any) -> Manifest:
    return {"storageConfig": fields}


ACCOUNTING = [
    *keys("Accounting"),
    accepts("Accounting", "storage as the chart writes it", storage(host="mariadb", port=3306, database="slurm_acct_db", username="slurm")),
    accepts("Accounting", "no storage", {"storageConfig": ...}),
    accepts("Accounting", "port 0 means the default", storage(port=0)),
    accepts("Accounting", "empty database means the default", storage(database="")),
    accepts("Accounting", "slurm key changed", {"slurmKeyRef": KEY}, {}),
    accepts("Accounting", "extra lines", {"extraConf": "PurgeJobAfter=12months\n"}),
    refuses("Accounting", "storage without host", "spec.storageConfig.host", storage(host=...)),
    refuses("Accounting", "storage without password", "spec.storageConfig.passwordKeyRef", storage(passwordKeyRef=...)),
    refuses("Accounting", "database host with a second line", "spec.storageConfig.host", storage(host="a\nStoragePass=x")),
    refuses("Accounting", "database with a second line", "spec.storageConfig.database", storage(database="a\nb")),
    refuses("Accounting", "database with #", "spec.storageConfig.database", storage(database="a#b")),
    refuses("Accounting", "user with a line break at the end", "spec.storageConfig.username", storage(username="a\n")),
    refuses("Accounting", "user with a space", "spec.storageConfig.username", storage(username="a b")),
    refuses("Accounting", "database port out of range", "spec.storageConfig.port", storage(port=65536)),
    refuses("Accounting", "database port that is a text", "spec.storageConfig.port", storage(port="3306")),
    webhook_refuses("Accounting", "sidecar called like ours", "spec.template.spec.initContainers[0].name", {"template": {"spec": {"initContainers": [{"name": "slurmdbd"}]}}}),
]  # fmt: skip


def update(**strategy: Any) -> Manifest:
    return {"updateStrategy": strategy}


def unavailable(value: Any) -> Manifest:
    return update(rollingUpdate={"maxUnavailable": value})


NODESET = [
    accepts("NodeSet", "minimal", {}),
    accepts("NodeSet", "as the chart writes it", {
        "replicas": 1, "scalingMode": "StatefulSet", "pinToNode": False, "workloadDisruptionProtection": True, "pruneSlurmNodeRecords": "Never",
        "ordinalPadding": 0, "oversubscribeNode": False, "slurmd": {"image": "a", "args": [], "env": [], "resources": {}, "volumeMounts": []},
        "logfile": {"image": "b"}, "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "25%"}, "scheduledUpdate": {}},
        "template": {"spec": {"hostname": "slinky-", "imagePullSecrets": None, "priorityClassName": "", "tolerations": []}},
    }),
    accepts("NodeSet", "no replicas", {"replicas": 0}),
    accepts("NodeSet", "null replicas", {"replicas": None}),
    accepts("NodeSet", "field of old versions", {"taintKubeNodes": True}),
    accepts("NodeSet", "namespace of old versions", {"controllerRef": {"namespace": "other"}}),
    refuses("NodeSet", "negative replicas", "spec.replicas", {"replicas": -1}),
    refuses("NodeSet", "replicas that are a text", "spec.replicas", {"replicas": "3"}),
    refuses("NodeSet", "half a replica", "spec.replicas", {"replicas": 1.5}),
    refuses("NodeSet", "more replicas than an int32 holds", "spec.replicas", {"replicas": 2**31}),
    refuses("NodeSet", "no controller", "spec.controllerRef", {"controllerRef": ...}),
    refuses("NodeSet", "empty controller", "spec.controllerRef", {"controllerRef": {"name": ""}}),
    refuses("NodeSet", "controller without name", "spec.controllerRef", {"controllerRef": {"name": ...}}),
    refuses("NodeSet", "controller in another namespace by path", "spec.controllerRef.name", {"controllerRef": {"name": "../b/c"}}),
    accepts("NodeSet", "DaemonSet mode", {"scalingMode": "DaemonSet", "pruneSlurmNodeRecords": "NodeNotFound"}),
    refuses("NodeSet", "unknown scaling mode", "spec.scalingMode", {"scalingMode": "Deployment"}),
    refuses("NodeSet", "unknown pruning", "spec.pruneSlurmNodeRecords", {"pruneSlurmNodeRecords": "Always"}),
    accepts("NodeSet", "ssh", {"ssh": {"enabled": True, "sssdConfRef": {"name": "a", "key": "b"}, "extraSshdConfig": "X11Forwarding no\n"}}),
    accepts("NodeSet", "ssh off", {"ssh": {"enabled": False, "sssdConfRef": {"key": "b"}}}),
    refuses("NodeSet", "ssh without sssd", "spec.ssh.sssdConfRef", {"ssh": {"enabled": True}}),
    refuses("NodeSet", "ssh with a nameless sssd", "spec.ssh.sssdConfRef", {"ssh": {"enabled": True, "sssdConfRef": {"key": "b"}}}),
    accepts("NodeSet", "hostname prefix", {"template": {"spec": {"hostname": "foo-"}}}),
    accepts("NodeSet", "hostname without dash", {"template": {"spec": {"hostname": "gpu"}}}),
    accepts("NodeSet", "hostname with a dot", {"template": {"spec": {"hostname": "a.b-"}}}),
    accepts("NodeSet", "empty hostname", {"template": {"spec": {"hostname": ""}}}),
    accepts("NodeSet", "null hostname", {"template": {"spec": {"hostname": None}}}),
    refuses("NodeSet", "hostname with a line break", "spec.template.spec", {"template": {"spec": {"hostname": "a\nb"}}}),
    refuses("NodeSet", "hostname ending in a line break", "spec.template.spec", {"template": {"spec": {"hostname": "a-\n"}}}),
    refuses("NodeSet", "hostname in capitals", "spec.template.spec", {"template": {"spec": {"hostname": "GPU-"}}}),
    refuses("NodeSet", "hostname with an underscore", "spec.template.spec", {"template": {"spec": {"hostname": "a_b"}}}),
    refuses("NodeSet", "hostname that begins with a dash", "spec.template.spec", {"template": {"spec": {"hostname": "-a"}}}),
    refuses("NodeSet", "hostname that is a number", "spec.template.spec.hostname", {"template": {"spec": {"hostname": 3}}}),
    webhook_refuses("NodeSet", "hostname too long with its ordinal", "spec.template.spec.hostname", {"template": {"spec": {"hostname": "a" * 62}}, "replicas": 11}),
    accepts("NodeSet", "node options", {"extraConf": "Features=a,b Gres=gpu:8 RealMemory=64000"}),
    accepts("NodeSet", "node options on several lines", {"extraConf": "Features=a\n  Gres=gpu:8\n"}),
    accepts("NodeSet", "node option without value", {"extraConf": "Weight="}),
    accepts("NodeSet", "no node options", {"extraConf": ""}),
    accepts("NodeSet", "empty feature", {"extraConf": "feature=a Features=b,c"}),
    refuses("NodeSet", "node option that is a word", "spec.extraConf", {"extraConf": "Weight=3 gpu"}),
    refuses("NodeSet", "node option without key", "spec.extraConf", {"extraConf": "=3"}),
    refuses("NodeSet", "node option that leaves the quotes", "spec.extraConf", {"extraConf": "Weight=3' -N evil '"}),
    refuses("NodeSet", "node options with a comment", "spec.extraConf", {"extraConf": "Weight=3 #x=y"}),
    accepts("NodeSet", "partition", {"partition": {"enabled": True, "config": "State=UP MaxTime=UNLIMITED"}}),
    accepts("NodeSet", "partition without options", {"partition": {"enabled": True}}),
    accepts("NodeSet", "partition with null options", {"partition": {"enabled": False, "config": None}}),
    accepts("NodeSet", "empty partition", {"partition": {}}),
    refuses("NodeSet", "partition of two lines", "spec.partition.config", {"partition": {"enabled": True, "config": "State=UP\nPrologSlurmctld=/bin/sh"}}),
    refuses("NodeSet", "partition ending in a line break", "spec.partition.config", {"partition": {"enabled": True, "config": "State=UP\n"}}),
    refuses("NodeSet", "partition with a carriage return", "spec.partition.config", {"partition": {"enabled": True, "config": "State=UP\rA=B"}}),
    refuses("NodeSet", "partition with a comment", "spec.partition.config", {"partition": {"enabled": True, "config": "State=UP # no"}}),
    refuses("NodeSet", "partition that continues on the next line", "spec.partition.config", {"partition": {"enabled": True, "config": "State=UP \\"}}),
    refuses("NodeSet", "partition with empty options", "spec.partition.config", {"partition": {"enabled": True, "config": ""}}),
    accepts("NodeSet", "claims", {"volumeClaimTemplates": [CLAIM]}),
    accepts("NodeSet", "null claims", {"volumeClaimTemplates": None}),
    refuses("NodeSet", "claims that are a mapping", "spec.volumeClaimTemplates", {"volumeClaimTemplates": {}}),
    webhook_refuses("NodeSet", "claim without name", "spec.volumeClaimTemplates[0].metadata.name", {"volumeClaimTemplates": [{"spec": {}}]}),
    webhook_refuses("NodeSet", "claim twice", "spec.volumeClaimTemplates[1].metadata.name", {"volumeClaimTemplates": [CLAIM, CLAIM]}),
    accepts("NodeSet", "on delete", update(type="OnDelete")),
    accepts("NodeSet", "empty strategy", update()),
    refuses("NodeSet", "unknown strategy", "spec.updateStrategy.type", update(type="Recreate")),
    *[accepts("NodeSet", f"maxUnavailable {value!r}", unavailable(value)) for value in (1, 1000, "1%", "25%", "100%", "025%", None)],
    *[
        refuses("NodeSet", f"maxUnavailable {value!r}", "spec.updateStrategy.rollingUpdate.maxUnavailable", unavailable(value))
        for value in (0, -1, "0%", "00%", "000%", "", "%", "three", "3", "-5%", "5 %", "25%\n")
    ],
    refuses("NodeSet", "maxUnavailable that is a list", "spec.updateStrategy.rollingUpdate.maxUnavailable", unavailable([])),
    accepts("NodeSet", "scheduled", update(**SCHEDULED)),
    accepts("NodeSet", "scheduled with flags", update(type="ScheduledUpdate", scheduledUpdate={"startTime": "2030-01-31T22:00:00+02:00", "duration": "1h15m", "flags": ["daily", "PURGE_COMP=00:05:00"]})),
    accepts("NodeSet", "null flags", update(**{**SCHEDULED, "scheduledUpdate": {**SCHEDULED["scheduledUpdate"], "flags": None}})),
    accepts("NodeSet", "a schedule for another strategy", update(type="OnDelete", scheduledUpdate={})),
    refuses("NodeSet", "scheduled without schedule", "spec.updateStrategy.scheduledUpdate", update(type="ScheduledUpdate")),
    refuses("NodeSet", "scheduled without start", "spec.updateStrategy.scheduledUpdate", update(type="ScheduledUpdate", scheduledUpdate={"duration": "1h"})),
    refuses("NodeSet", "start that is no time", "spec.updateStrategy.scheduledUpdate.startTime", update(scheduledUpdate={"startTime": "tomorrow"})),
    refuses("NodeSet", "start without zone", "spec.updateStrategy.scheduledUpdate.startTime", update(scheduledUpdate={"startTime": "2030-01-31T22:00:00"})),
    *[accepts("NodeSet", f"duration {value!r}", update(scheduledUpdate={"duration": value})) for value in ("1m", "60s", "1h30m", "90.5s", "0s", "60000ms")],
    *[
        refuses("NodeSet", f"duration {value!r}", "spec.updateStrategy.scheduledUpdate.duration", update(scheduledUpdate={"duration": value}))
        for value in ("59s", "1s", "-1h", "30", "1 hour", "", "1d")
    ],
    refuses("NodeSet", "flag with a comma", "spec.updateStrategy.scheduledUpdate.flags[0]", update(scheduledUpdate={"flags": ["A,B"]})),
    refuses("NodeSet", "flag with a line break", "spec.updateStrategy.scheduledUpdate.flags[1]", update(scheduledUpdate={"flags": ["A", "B\n"]})),
    accepts("NodeSet", "retention", {"persistentVolumeClaimRetentionPolicy": {"whenDeleted": "Delete", "whenScaled": "Retain"}}),
    refuses("NodeSet", "unknown retention", "spec.persistentVolumeClaimRetentionPolicy.whenScaled", {"persistentVolumeClaimRetentionPolicy": {"whenScaled": "Keep"}}),
    accepts("NodeSet", "numbers", {"revisionHistoryLimit": 5, "minReadySeconds": 10, "ordinalPadding": 3}),
    refuses("NodeSet", "negative history", "spec.revisionHistoryLimit", {"revisionHistoryLimit": -1}),
    refuses("NodeSet", "negative readiness", "spec.minReadySeconds", {"minReadySeconds": -1}),
    refuses("NodeSet", "absurdly wide padding", "spec.ordinalPadding", {"ordinalPadding": 2**31}),
    refuses("NodeSet", "negative padding", "spec.ordinalPadding", {"ordinalPadding": -1}),
    *template("NodeSet"),
    webhook_refuses("NodeSet", "sidecar called like ours", "spec.template.spec.containers[0].name", {"template": {"spec": {"containers": [{"name": "slurmd"}]}}}),
    accepts("NodeSet", "scaled", {"replicas": 5}, {}),
    accepts("NodeSet", "mode changed", {"scalingMode": "DaemonSet"}, {}),
    refuses("NodeSet", "controller changed", "spec.controllerRef", {"controllerRef": {"name": "b"}}, {}),
    accepts("NodeSet", "claims kept", {"volumeClaimTemplates": [CLAIM], "replicas": 3}, {"volumeClaimTemplates": [CLAIM]}),
    accepts("NodeSet", "null claims left out", {}, {"volumeClaimTemplates": None}),
    accepts("NodeSet", "no claims spelt out", {"volumeClaimTemplates": []}, {}),
    accepts("NodeSet", "no claims in two spellings", {"volumeClaimTemplates": []}, {"volumeClaimTemplates": None}),
    refuses("NodeSet", "claims added", "spec.volumeClaimTemplates", {"volumeClaimTemplates": [CLAIM]}, {}),
    refuses("NodeSet", "claims added to null", "spec.volumeClaimTemplates", {"volumeClaimTemplates": [CLAIM]}, {"volumeClaimTemplates": None}),
    refuses("NodeSet", "claims removed", "spec.volumeClaimTemplates", {}, {"volumeClaimTemplates": [CLAIM]}),
    refuses("NodeSet", "claims nulled", "spec.volumeClaimTemplates", {"volumeClaimTemplates": None}, {"volumeClaimTemplates": [CLAIM]}),
    refuses("NodeSet", "claim made bigger", "spec.volumeClaimTemplates", {"volumeClaimTemplates": [{**CLAIM, "spec": {"resources": {"requests": {"storage": "2Gi"}}}}]}, {"volumeClaimTemplates": [CLAIM]}),
]  # fmt: skip

LOGINSET = [
    accepts("LoginSet", "minimal", {}),
    accepts("LoginSet", "as the chart writes it", {
        "replicas": 1, "strategy": {}, "login": {"image": "a", "env": [], "securityContext": {"privileged": False}, "resources": {}, "volumeMounts": []},
        "initconf": {"image": "b", "resources": {}}, "rootSshAuthorizedKeys": None, "extraSshdConfig": None, "service": {"metadata": {}, "spec": {"type": "LoadBalancer"}},
    }),
    accepts("LoginSet", "root keys", {"rootSshAuthorizedKeys": "ssh-ed25519 AAAA a@b\nssh-rsa BBBB c@d\n"}),
    accepts("LoginSet", "rolling strategy", {"strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": "25%"}}}),
    accepts("LoginSet", "recreate strategy", {"strategy": {"type": "Recreate"}}),
    refuses("LoginSet", "unknown strategy", "spec.strategy.type", {"strategy": {"type": "OnDelete"}}),
    refuses("LoginSet", "no controller", "spec.controllerRef", {"controllerRef": ...}),
    refuses("LoginSet", "empty controller", "spec.controllerRef", {"controllerRef": {"name": ""}}),
    refuses("LoginSet", "no sssd", "spec.sssdConfRef", {"sssdConfRef": ...}),
    refuses("LoginSet", "nameless sssd", "spec.sssdConfRef", {"sssdConfRef": {"name": ""}}),
    refuses("LoginSet", "sssd without key", "spec.sssdConfRef.key", {"sssdConfRef": {"key": ...}}),
    refuses("LoginSet", "negative replicas", "spec.replicas", {"replicas": -1}),
    refuses("LoginSet", "keys that are a list", "spec.rootSshAuthorizedKeys", {"rootSshAuthorizedKeys": ["a"]}),
    accepts("LoginSet", "sssd changed", {"sssdConfRef": {"name": "b"}}, {}),
    refuses("LoginSet", "controller changed", "spec.controllerRef", {"controllerRef": {"name": "b"}}, {}),
    webhook_refuses("LoginSet", "init container called like ours", "spec.template.spec.initContainers[0].name", {"template": {"spec": {"initContainers": [{"name": "initconf"}]}}}),
    *service("LoginSet"),
    *template("LoginSet"),
]  # fmt: skip

RESTAPI = [
    accepts("RestApi", "minimal", {}),
    accepts("RestApi", "as the chart writes it", {"replicas": 1, "slurmrestd": {"image": "a", "env": [], "args": [], "resources": {}}}),
    accepts("RestApi", "empty controller", {"controllerRef": {}}),
    accepts("RestApi", "controller changed", {"controllerRef": {"name": "b"}}, {}),
    refuses("RestApi", "no controller", "spec.controllerRef", {"controllerRef": ...}),
    refuses("RestApi", "negative replicas", "spec.replicas", {"replicas": -1}),
    webhook_refuses("RestApi", "environment that is a mapping", "spec.slurmrestd.env", {"slurmrestd": {"env": {"A": "b"}}}),
    webhook_refuses("RestApi", "environment without name", "spec.slurmrestd.env[0].name", {"slurmrestd": {"env": [{"value": "b"}]}}),
    *service("RestApi"),
    *template("RestApi"),
]  # fmt: skip

TOKEN = [
    accepts("Token", "minimal", {}),
    accepts("Token", "deprecated JWT field", {"jwtKeyRef": ..., "jwtHs256KeyRef": KEY}),
    accepts("Token", "namespace of old versions", {"jwtKeyRef": ..., "jwtHs256KeyRef": {**KEY, "namespace": "x"}}),
    accepts("Token", "nobody", {"username": ""}),
    accepts("Token", "user with capitals and a Secret", {"username": "Alice_B", "secretRef": {"name": "a", "key": "b"}}),
    accepts("Token", "domain user", {"username": "CORP\\alice", "secretRef": {"name": "a", "key": "b"}}),
    accepts("Token", "lifetime", {"lifetime": "1h30m", "refresh": False}),
    accepts("Token", "null lifetime", {"lifetime": None}),
    accepts("Token", "lifetime below zero is clamped", {"lifetime": "-5m"}),
    refuses("Token", "no user", "spec.username", {"username": ...}),
    refuses("Token", "no key", "spec.jwtKeyRef", {"jwtKeyRef": ...}),
    refuses("Token", "user with a line break", "spec.username", {"username": "alice\n"}),
    refuses("Token", "user with a space", "spec.username", {"username": "alice bob"}),
    refuses("Token", "user that cannot name a Secret", "spec.secretRef", {"username": "Alice_B"}),
    refuses("Token", "secret without key", "spec.secretRef.key", {"secretRef": {"name": "a"}}),
    refuses("Token", "lifetime that is no duration", "spec.lifetime", {"lifetime": "1 day"}),
    refuses("Token", "lifetime that is a number", "spec.lifetime", {"lifetime": 900}),
    accepts("Token", "JWT key moved to the new field", {}, {"jwtKeyRef": ..., "jwtHs256KeyRef": KEYS["jwtKeyRef"]}),
    accepts("Token", "lifetime changed", {"lifetime": "1h"}, {}),
    refuses("Token", "JWT key changed", "spec.jwtKeyRef", {"jwtKeyRef": KEY}, {}),
]  # fmt: skip

WITHOUT_SPEC = [
    Case(
        "without spec",
        kind,
        {key: value for key, value in manifest(kind).items() if key != "spec"},
        "refused",
        "spec",
    )
    for kind in ("Controller", "Accounting", "NodeSet", "LoginSet", "RestApi", "Token")
]
CASES = [*CONTROLLER, *ACCOUNTING, *NODESET, *LOGINSET, *RESTAPI, *TOKEN, *WITHOUT_SPEC]
