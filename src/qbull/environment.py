"""The environment: the one place where variables are read, and what they say as a frozen value."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from typing import Literal

import msgspec

from qbull.config import check_database, check_durability, check_prefix
from qbull.core.access import Access
from qbull.core.alerts import Alerts
from qbull.core.cron import zone_of
from qbull.core.demand import WorkerOffer, read_labels, read_resources
from qbull.core.digits import whole_number
from qbull.core.durability import Durability
from qbull.core.sharing import Sharing, make_sharing
from qbull.core.single_sign_on import SingleSignOn
from qbull.errors import ConfigError

PASSWORD_VARIABLES = ("QBULL_PASSWORD", "QUEUES_UI_PASS", "ADMIN_PASSWORD")
SLACK_VARIABLES = ("QBULL_SLACK_WEBHOOK_URL", "SLACK_WEBHOOK_URL")
TIMEZONE_VARIABLES = ("QBULL_TIMEZONE", "TZ")
PARTITIONS_PER_POD_VARIABLES = ("QBULL_PARTITIONS_PER_POD", "PARTITIONS_PER_POD")
INSTANCE_ID_VARIABLES = ("QBULL_INSTANCE_ID", "INSTANCE_ID")
INSTANCE_COUNT_VARIABLES = ("QBULL_INSTANCE_COUNT", "INSTANCE_COUNT")
"""Names of one setting, the strongest first."""
TAKE_OVER_VARIABLE = "QBULL_TAKE_OVER"


class Environment(msgspec.Struct, frozen=True):
    """The settings from the environment. Empty variables count as not set, but for the server's address."""

    url: str | None = None
    empty_url: str | None = None
    """The variable that should have the server's address and is empty, if no other one has it."""
    database: str | None = None
    prefix: str | None = None
    partitions: int | None = None
    durability: Durability | None = None
    sharing: Sharing = msgspec.field(default_factory=Sharing)
    sharing_error: str | None = None
    """The error in the variables about sharing partitions. It concerns only workers."""
    offer: WorkerOffer = msgspec.field(default_factory=WorkerOffer)
    """The labels and resources of workers."""
    min_idle: float = 30.0
    timezone: str = "UTC"
    log_format: Literal["text", "json"] = "text"
    log_level: str = "INFO"
    job_log: bool = True
    """Whether `qbull worker` logs each job."""
    access: Access = msgspec.field(default_factory=Access)
    trace: bool = False
    write_only: bool = False
    alerts: Alerts = msgspec.field(default_factory=Alerts)
    borrowed_password: str | None = None
    """The variable without a QBULL_ name that the password of the dashboard comes from."""
    borrowed_slack: str | None = None
    """The same for the webhook of Slack."""
    borrowed_database: str | None = None
    """The same for the database of the outbox."""

    def server_url(self) -> str | None:
        """The server's address, if the environment has one.

        Raises:
            ConfigError: A variable for the address is there, but empty.
        """
        if self.empty_url is not None:
            raise ConfigError(
                f"{self.empty_url} is empty; "
                "set it to the server's address, such as redis://HOST:PORT/DB, or unset it"
            )
        return self.url

    def worker_sharing(self) -> Sharing:
        """How a worker shares the partitions.

        Raises:
            ConfigError: The variables for that contradict each other.
        """
        if self.sharing_error is not None:
            raise ConfigError(self.sharing_error)
        return self.sharing


def read_environment(environ: Mapping[str, str] | None = None) -> Environment:
    given = os.environ if environ is None else environ
    env = _set_variables(environ)
    database = _database(env)
    url = env.get("QBULL_URL") or env.get("REDIS_URL")
    sharing, sharing_error = _sharing(env)
    return Environment(
        url=url,
        empty_url=None if url else next((name for name in ("QBULL_URL", "REDIS_URL") if name in given), None),
        database=database,
        prefix=_prefix(env, "QBULL_PREFIX", "REDIS_PREFIX"),
        partitions=_number(env, "QBULL_PARTITIONS", "TOTAL_PARTITIONS", "PARTITIONS", least=1),
        durability=check_durability(env.get("QBULL_DURABILITY"), "QBULL_DURABILITY"),
        sharing=sharing,
        sharing_error=sharing_error,
        offer=WorkerOffer(
            read_labels(_list(env, "QBULL_LABELS"), "QBULL_LABELS"),
            read_resources(_list(env, "QBULL_RESOURCES"), "QBULL_RESOURCES"),
        ),
        min_idle=(_number(env, "QBULL_MIN_IDLE_TIME_MS", "MIN_IDLE_TIME_MS", least=500) or 30_000) / 1000,
        timezone=_timezone(env),
        log_format="json" if _choice(env, "QBULL_LOG_FORMAT", "text", "json") == "json" else "text",
        log_level=_choice(env, "QBULL_LOG_LEVEL", "INFO", "DEBUG", "WARNING", "ERROR"),
        job_log=_choice(env, "QBULL_JOB_LOG", "yes", "no") == "yes",
        access=_access(env),
        trace=_choice(env, "QBULL_TRACE", "no", "yes") == "yes",
        write_only=_choice(env, "QBULL_WRITE_ONLY", "no", "yes") == "yes",
        alerts=_alerts(env),
        borrowed_password=_borrowed(env, "QBULL_PASSWORD", "ADMIN_PASSWORD"),
        borrowed_slack=_borrowed(env, *SLACK_VARIABLES),
        borrowed_database=None if database is None else _borrowed(env, "QBULL_DATABASE_URL", "DATABASE_URL"),
    )


def _borrowed(env: Mapping[str, str], own: str, other: str) -> str | None:
    """The other variable, if its value is used: it may belong to another program."""
    is_used = other in env and own not in env and (own != "QBULL_PASSWORD" or "QUEUES_UI_PASS" not in env)
    return other if is_used else None


def password_variable(environ: Mapping[str, str] | None = None) -> str:
    """The variable that the password of the dashboard comes from."""
    return _name_of(_set_variables(environ), PASSWORD_VARIABLES)


def unknown_server_allowed(environ: Mapping[str, str] | None = None) -> bool:
    """Whether the embedded server may be a binary whose digest qbull does not know."""
    return _choice(_set_variables(environ), "QBULL_ALLOW_UNKNOWN_SERVER", "no", "yes") == "yes"


class SystemdSettings(msgspec.Struct, frozen=True):
    """The variables with which systemd starts a service of Type=notify."""

    notify_socket: str | None = None
    watchdog_seconds: float | None = None


def systemd_settings(environ: Mapping[str, str] | None = None) -> SystemdSettings:
    """The socket that systemd listens at, and the time within which it wants to hear from this process."""
    env = _set_variables(environ)
    watchdog = whole_number(env.get("WATCHDOG_USEC", ""))
    is_ours = env.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
    seconds = watchdog / 1_000_000 if watchdog and is_ours else None
    return SystemdSettings(env.get("NOTIFY_SOCKET"), seconds)


def resource_directory(environ: Mapping[str, str] | None = None) -> str | None:
    """The directory of the resource tokens, if the environment names one."""
    return _set_variables(environ).get("QBULL_RESOURCE_DIR")


def valkey_server(environ: Mapping[str, str] | None = None) -> str | None:
    """The binary of the embedded server, if the environment names one."""
    return (os.environ if environ is None else environ).get("QBULL_VALKEY_SERVER") or None


def _set_variables(environ: Mapping[str, str] | None) -> dict[str, str]:
    """The variables without the empty ones."""
    return {name: value for name, value in (os.environ if environ is None else environ).items() if value}


def _database(env: Mapping[str, str]) -> str | None:
    """DATABASE_URL may belong to something else and is ignored then; QBULL_DATABASE_URL must be valid."""
    if "QBULL_DATABASE_URL" in env:
        return check_database(env["QBULL_DATABASE_URL"], "QBULL_DATABASE_URL")
    other = env.get("DATABASE_URL", "")
    return check_database(other) if other.startswith("postgres") else None


def _access(env: Mapping[str, str]) -> Access:
    try:
        return Access(
            password=_first(env, *PASSWORD_VARIABLES),
            admin_token=env.get("QBULL_ADMIN_TOKEN"),
            operator_token=env.get("QBULL_OPERATOR_TOKEN"),
            viewer_token=env.get("QBULL_VIEWER_TOKEN"),
            hosts=_list(env, "QBULL_ALLOWED_HOSTS"),
            hide_payloads=_choice(env, "QBULL_HIDE_PAYLOADS", "no", "yes") == "yes",
            redact=_list(env, "QBULL_REDACT"),
            public_metrics=_choice(env, "QBULL_PUBLIC_METRICS", "no", "yes") == "yes",
            single_sign_on=_single_sign_on(env),
            environment=env.get("QBULL_ENVIRONMENT", ""),
        )
    except ConfigError as error:
        raise ConfigError(f"in the environment: {error}") from None


def _single_sign_on(env: Mapping[str, str]) -> SingleSignOn | None:
    """The provider, if the environment names one."""
    if "QBULL_OIDC_ISSUER" not in env:
        return None
    for name in ("QBULL_OIDC_CLIENT_ID", "QBULL_PUBLIC_URL"):
        if name not in env:
            raise ConfigError(f"QBULL_OIDC_ISSUER is set, and {name} is not; single sign-on needs both")
    return SingleSignOn(
        issuer=env["QBULL_OIDC_ISSUER"],
        client_id=env["QBULL_OIDC_CLIENT_ID"],
        public_url=env["QBULL_PUBLIC_URL"],
        client_secret=env.get("QBULL_OIDC_CLIENT_SECRET"),
        role_claim=env.get("QBULL_OIDC_ROLE_CLAIM", SingleSignOn.role_claim),
        admins=_list(env, "QBULL_OIDC_ADMINS"),
        operators=_list(env, "QBULL_OIDC_OPERATORS"),
        viewers=_list(env, "QBULL_OIDC_VIEWERS"),
        name_claim=env.get("QBULL_OIDC_NAME_CLAIM", SingleSignOn.name_claim),
        scopes=_list(env, "QBULL_OIDC_SCOPES") or SingleSignOn.scopes,
        label=env.get("QBULL_OIDC_LABEL", SingleSignOn.label),
    )


def _alerts(env: Mapping[str, str]) -> Alerts:
    try:
        return Alerts(
            slack=_first(env, *SLACK_VARIABLES),
            urls=_list(env, "QBULL_ALERT_URLS"),
            secret=env.get("QBULL_ALERT_SECRET"),
            link=env.get("QBULL_PUBLIC_URL"),
            allow=_list(env, "QBULL_ALERT_ALLOW"),
        )
    except ConfigError as error:
        text = str(error).removeprefix("Alerts: ")
        for name, variable in (_ALERT_VARIABLES | {"slack": _name_of(env, SLACK_VARIABLES)}).items():
            text = f"{variable}{text.removeprefix(name)}" if text.startswith(name) else text
        raise ConfigError(text) from None


_ALERT_VARIABLES = {
    "urls": "QBULL_ALERT_URLS",
    "secret": "QBULL_ALERT_SECRET",
    "link": "QBULL_PUBLIC_URL",
    "allow": "QBULL_ALERT_ALLOW",
}


def _list(env: Mapping[str, str], name: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in env.get(name, "").split(",") if part.strip())


def _sharing(env: Mapping[str, str]) -> tuple[Sharing, str | None]:
    """The sharing that workers use, or the error in its variables.

    Producers may have the same environment, and do not care.
    """
    try:
        sharing = make_sharing(
            env.get("QBULL_SHARING"),
            _number(env, *PARTITIONS_PER_POD_VARIABLES, least=1),
            _first(env, *INSTANCE_ID_VARIABLES),
            _number(env, *INSTANCE_COUNT_VARIABLES, least=1),
            _number(env, TAKE_OVER_VARIABLE, least=1),
        )
    except ConfigError as error:
        return Sharing(), str(error)
    return sharing, None


def _first(env: Mapping[str, str], *names: str) -> str | None:
    """The value of the first of these variables that is set."""
    return next((env[name] for name in names if name in env), None)


def _name_of(env: Mapping[str, str], names: Sequence[str]) -> str:
    """The first of these variables that is set, or the first of all."""
    return next((name for name in names if name in env), names[0])


def _prefix(env: Mapping[str, str], *names: str) -> str | None:
    for name in names:
        if name in env:
            return check_prefix(env[name], name)
    return None


def _number(env: Mapping[str, str], *names: str, least: int) -> int | None:
    for name in names:
        if name in env:
            try:
                value = int(env[name])
            except ValueError:
                value = least - 1
            if value < least:
                raise ConfigError(f"{name}={env[name]!r}: give a whole number from {least}")
            return value
    return None


def _timezone(env: Mapping[str, str]) -> str:
    """TZ may hold a text that only the C library understands ("CET-1CEST"); schedules refuse it."""
    variable = _name_of(env, TIMEZONE_VARIABLES)
    name = env.get(variable, "UTC").removeprefix(":")
    if variable != "TZ" or re.fullmatch(r"[A-Za-z_]+(/[A-Za-z_+-]+)*", name):
        try:
            return zone_of(name).key
        except ValueError:
            raise ConfigError(
                f"{variable}={json.dumps(name)}: there is no such time zone; use an IANA name such as "
                "Europe/Berlin"
            ) from None
    return name


def _choice(env: Mapping[str, str], name: str, *words: str) -> str:
    value = env.get(name, words[0])
    for word in words:
        if value.lower() == word.lower():
            return word
    raise ConfigError(f"{name}={value!r}: use one of {', '.join(words)}")
