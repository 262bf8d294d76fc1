"""The Kubernetes objects that deploy/ uses, strict about every field: an unknown name or a wrong type is refused.

Field by field as in the API's reference (apps/v1, v1, policy/v1, keda.sh/v1alpha1, monitoring.coreos.com/v1), and only what deploy/ sets.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

Name = Annotated[str, Meta(pattern=r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$")]
Label = Annotated[str, Meta(pattern=r"^[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$")]
LabelName = Annotated[
    str, Meta(pattern=r"^([a-z0-9.-]{1,253}/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$")
]
Variable = Annotated[str, Meta(pattern=r"^[A-Z_][A-Z0-9_]*$")]
Quantity = Annotated[str, Meta(pattern=r"^[0-9]+(\.[0-9]+)?(m|k|M|G|Ki|Mi|Gi)?$")]
Percent = Annotated[str, Meta(pattern=r"^[0-9]{1,3}%$")]
Count = Annotated[int, Meta(ge=0)]
Seconds = Annotated[int, Meta(ge=0)]
Port = Annotated[int, Meta(ge=1, le=65535)]
Labels = dict[LabelName, Label]


class Object(msgspec.Struct, forbid_unknown_fields=True, rename="camel", kw_only=True):
    pass


class Metadata(Object):
    name: Name
    labels: Labels = {}
    annotations: dict[LabelName, str] = {}


class PodMetadata(Object):
    labels: Labels
    annotations: dict[LabelName, str] = {}


class Selector(Object):
    match_labels: Labels


class KeyRef(Object):
    name: Name
    key: str
    optional: bool = False


class FieldRef(Object):
    field_path: Literal["metadata.name", "metadata.namespace", "spec.nodeName", "status.podIP"]


class ValueFrom(Object):
    secret_key_ref: KeyRef | None = None
    config_map_key_ref: KeyRef | None = None
    field_ref: FieldRef | None = None


class EnvVar(Object):
    name: Variable
    value: str | None = None
    value_from: ValueFrom | None = None


class MapRef(Object):
    name: Name


class EnvFrom(Object):
    config_map_ref: MapRef | None = None
    secret_ref: MapRef | None = None


class Exec(Object):
    command: list[str]


class HttpGet(Object):
    path: str
    port: str | Port


class Probe(Object):
    exec: Exec | None = None
    http_get: HttpGet | None = None
    initial_delay_seconds: Seconds = 0
    period_seconds: Seconds = 10
    timeout_seconds: Seconds = 1
    failure_threshold: Count = 3


class Resources(Object):
    requests: dict[Literal["cpu", "memory"], Quantity]
    limits: dict[Literal["cpu", "memory"], Quantity]


class Capabilities(Object):
    drop: list[str]


class ContainerSecurity(Object):
    allow_privilege_escalation: bool
    read_only_root_filesystem: bool
    capabilities: Capabilities


class Mount(Object):
    name: Name
    mount_path: Annotated[str, Meta(pattern="^/")]


class ContainerPort(Object):
    name: Name
    container_port: Port


class Container(Object):
    name: Name
    image: str
    image_pull_policy: Literal["Always", "IfNotPresent", "Never"]
    args: list[str]
    resources: Resources
    security_context: ContainerSecurity
    env: list[EnvVar] = []
    env_from: list[EnvFrom] = []
    ports: list[ContainerPort] = []
    readiness_probe: Probe | None = None
    liveness_probe: Probe | None = None
    volume_mounts: list[Mount] = []


class Seccomp(Object):
    type: Literal["RuntimeDefault", "Unconfined", "Localhost"]


class PodSecurity(Object):
    run_as_non_root: bool
    run_as_user: Annotated[int, Meta(ge=1)]
    run_as_group: Annotated[int, Meta(ge=1)]
    seccomp_profile: Seccomp


class EmptyDir(Object):
    size_limit: Quantity
    medium: Literal["", "Memory"] = ""


class Volume(Object):
    name: Name
    empty_dir: EmptyDir


class Spread(Object):
    max_skew: Annotated[int, Meta(ge=1)]
    topology_key: LabelName
    when_unsatisfiable: Literal["DoNotSchedule", "ScheduleAnyway"]
    label_selector: Selector


class PodSpec(Object):
    containers: Annotated[list[Container], Meta(min_length=1)]
    security_context: PodSecurity
    automount_service_account_token: bool
    termination_grace_period_seconds: Seconds = 30
    topology_spread_constraints: list[Spread] = []
    volumes: list[Volume] = []


class Template(Object):
    metadata: PodMetadata
    spec: PodSpec


class UpdateStrategy(Object):
    type: Literal["RollingUpdate", "OnDelete"]


class RollingUpdate(Object):
    max_surge: Count | Percent
    max_unavailable: Count | Percent


class Strategy(Object):
    type: Literal["RollingUpdate", "Recreate"]
    rolling_update: RollingUpdate


class StatefulSetSpec(Object):
    replicas: Count
    service_name: Name
    selector: Selector
    template: Template
    pod_management_policy: Literal["OrderedReady", "Parallel"]
    update_strategy: UpdateStrategy


class DeploymentSpec(Object):
    replicas: Count
    selector: Selector
    template: Template
    strategy: Strategy | None = None


class StatefulSet(Object):
    api_version: Literal["apps/v1"]
    kind: Literal["StatefulSet"]
    metadata: Metadata
    spec: StatefulSetSpec


class Deployment(Object):
    api_version: Literal["apps/v1"]
    kind: Literal["Deployment"]
    metadata: Metadata
    spec: DeploymentSpec


class BudgetSpec(Object):
    max_unavailable: Count | Percent
    selector: Selector


class PodDisruptionBudget(Object):
    api_version: Literal["policy/v1"]
    kind: Literal["PodDisruptionBudget"]
    metadata: Metadata
    spec: BudgetSpec


class ConfigMap(Object):
    api_version: Literal["v1"]
    kind: Literal["ConfigMap"]
    metadata: Metadata
    data: dict[Variable, str]


class ServicePort(Object):
    name: Name
    port: Port
    target_port: str | Port


class ServiceSpec(Object):
    selector: Labels
    ports: list[ServicePort] = []
    cluster_ip: Annotated[str, msgspec.Meta(pattern="^None$")] | None = msgspec.field(
        default=None, name="clusterIP"
    )


class Service(Object):
    api_version: Literal["v1"]
    kind: Literal["Service"]
    metadata: Metadata
    spec: ServiceSpec


class Target(Object):
    name: Name
    kind: Literal["Deployment", "StatefulSet"] = "Deployment"


class Fallback(Object):
    failure_threshold: Count
    replicas: Count


class ScalingPolicy(Object):
    type: Literal["Percent", "Pods"]
    value: Annotated[int, Meta(ge=1)]
    period_seconds: Annotated[int, Meta(ge=1, le=1800)]


class ScalingRules(Object):
    stabilization_window_seconds: Annotated[int, Meta(ge=0, le=3600)]
    policies: list[ScalingPolicy]


class Behavior(Object):
    scale_down: ScalingRules | None = None
    scale_up: ScalingRules | None = None


class HpaConfig(Object):
    behavior: Behavior


class Advanced(Object):
    horizontal_pod_autoscaler_config: HpaConfig


class MetricsApi(Object):
    url: Annotated[str, Meta(pattern="^https?://")]
    format: Literal["json"]
    value_location: str
    target_value: Annotated[str, Meta(pattern=r"^\d+(\.\d+)?$")]
    auth_mode: Literal["bearer", "basic", "apiKey", "tls"]


class Prometheus(Object):
    server_address: Annotated[str, Meta(pattern="^https?://")]
    query: str
    threshold: Annotated[str, Meta(pattern=r"^\d+(\.\d+)?$")]


class Trigger(Object):
    type: Literal["metrics-api", "prometheus"]
    metric_type: Literal["AverageValue", "Value", "Utilization"]
    metadata: dict[str, Any]
    authentication_ref: MapRef | None = None

    def __post_init__(self) -> None:
        msgspec.convert(self.metadata, MetricsApi if self.type == "metrics-api" else Prometheus)


class ScaledObjectSpec(Object):
    scale_target_ref: Target
    min_replica_count: Count
    max_replica_count: Count
    polling_interval: Seconds
    cooldown_period: Seconds
    triggers: Annotated[list[Trigger], Meta(min_length=1)]
    fallback: Fallback | None = None
    advanced: Advanced | None = None


class ScaledObject(Object):
    api_version: Literal["keda.sh/v1alpha1"]
    kind: Literal["ScaledObject"]
    metadata: Metadata
    spec: ScaledObjectSpec


class SecretTarget(Object):
    parameter: Literal["token"]
    name: Name
    key: str


class TriggerAuthenticationSpec(Object):
    secret_target_ref: list[SecretTarget]


class TriggerAuthentication(Object):
    api_version: Literal["keda.sh/v1alpha1"]
    kind: Literal["TriggerAuthentication"]
    metadata: Metadata
    spec: TriggerAuthenticationSpec


Interval = Annotated[str, Meta(pattern=r"^(\d+(ms|s|m|h|d))+$")]


class Authorization(Object):
    type: Literal["Bearer"]
    credentials: KeyRef


class Endpoint(Object):
    port: Name
    path: Annotated[str, Meta(pattern="^/")]
    interval: Interval
    authorization: Authorization


class ServiceMonitorSpec(Object):
    selector: Selector
    endpoints: Annotated[list[Endpoint], Meta(min_length=1)]


class ServiceMonitor(Object):
    api_version: Literal["monitoring.coreos.com/v1"]
    kind: Literal["ServiceMonitor"]
    metadata: Metadata
    spec: ServiceMonitorSpec


class Rule(Object):
    alert: str
    expr: str
    labels: Labels
    annotations: dict[str, str]
    for_: Interval | None = msgspec.field(default=None, name="for")


class RuleGroup(Object):
    name: str
    rules: Annotated[list[Rule], Meta(min_length=1)]


class PrometheusRuleSpec(Object):
    groups: Annotated[list[RuleGroup], Meta(min_length=1)]


class PrometheusRule(Object):
    api_version: Literal["monitoring.coreos.com/v1"]
    kind: Literal["PrometheusRule"]
    metadata: Metadata
    spec: PrometheusRuleSpec


KINDS = {
    kind.__name__: kind
    for kind in (
        StatefulSet,
        Deployment,
        PodDisruptionBudget,
        ConfigMap,
        Service,
        ScaledObject,
        TriggerAuthentication,
        ServiceMonitor,
        PrometheusRule,
    )
}
