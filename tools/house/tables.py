"""The exceptions of the lints. Each entry gives its reason in a few words."""

from __future__ import annotations

# Names that are defined in several modules and mean the same thing in each.
SAME_MEANING = {
    "ENDPOINTS": "the rows that a group of the API adds to its table",
    "QUEUE_PATH": "the path of a queue in the API",
    "NO_RETRIES": "Celery, RQ and Django run a task once unless told otherwise",
}

# Names of Celery and RQ, which compat/ must spell as they do.
IMITATED_NAMES = {"Dependency", "Group", "Job", "Queue", "Retry", "Signature", "Worker"}

# Numbers that are fixed by a protocol or a format. They measure nothing, so they need no unit.
PROTOCOL_NUMBERS = {
    "SLOTS": "slots of a Redis cluster",
    "PR_SET_PDEATHSIG": "an option of Linux's prctl",
}

# Protocols that code outside of qbull, or one of several implementations inside it, really implements.
EXTENSION_POINTS = {
    "ArgumentStore": "users store large arguments",
    "ResultStore": "users store large results",
    "EnqueuedJob": "the next step of a user's middleware",
    "DeclareChunk": "type of a decorator",
    "DeclareTask": "type of a decorator",
    "Calendar": "cron expressions and intervals",
    "JobSource": "Celery and RQ, to be drained",
    "ShipRows": "the app that a relay ships rows into",
    "ProgressSink": "a running job's log: server or testing kit",
    "DurableServices": "where the steps of a durable job are recorded: server or testing kit",
    "StepRunner": "the steps of a running job, below the module that runs them",
    "SupportsCall": "a connection to one server: single, Sentinel, cluster",
}

# Rooms whose functions users call directly, besides the names in qbull.__all__ and the commands of the CLI.
PUBLIC_ROOMS = ("compat", "contrib", "testing")

# Folders that have a retired word as their name because another library's module path has it.
IMITATED_FOLDERS = {"compat/celery/utils": "programs import celery.utils.log"}

# Words that were replaced, with the words to use: no file may be named after them.
RETIRED_WORDS = {
    "hand": "prefetch",
    "line": "queue_runner",
    "band": "priority level",
    "beat": "heartbeat, reclaimer",
    "gate": "limiter",
    "permits": "tokens, slots",
    "permit": "tokens, slots",
    "grant": "tokens, slots",
    "courier": "flow_dispatcher",
    "letters": "dead_letters, search",
    "seals": "codecs",
    "envelope": "codecs",
    "veil": "redaction",
    "roam": "move_*",
    "raze": "move_*",
    "depart": "move_*",
    "departed": "move_*",
    "land": "move_*",
    "learn": "move_*",
    "unhold": "move_*",
    "roster": "worker registry",
    "enroll": "register",
    "bury": "forget",
    "trail": "audit_log",
    "tally": "drain_status",
    "survey": "partition_report",
    "news": "finished_since",
    "figures": "histograms",
    "steer": "live_settings",
    "conclude": "outcome",
    "complain": "config_warnings",
    "misfits": "config_warnings",
    "wanted": "job_filter",
    "people": "auth_endpoints",
    "site": "context",
    "fleet": "workers",
    "wire": "views",
    "awaited": "dependencies",
    "utils": "a word that says what is in it",
    "common": "a word that says what is in it",
    "helpers": "a word that says what is in it",
    "base": "a word that says what is in it",
    "manager": "a word that says what is in it",
    "types": "a word that says what is in it",
}

# House words that the glossary must explain, above all those of worker/ and store/. A module that is named
# with a new house word brings an entry here and one in the glossary.
GLOSSARY_WORDS = (
    "actor", "app", "assignment", "attempt", "audit log", "brake", "chunk", "confirm", "control channel",
    "crash board", "dead letters", "delivery", "drain", "durability", "fence", "flow", "flow dispatcher",
    "generation", "grace period", "heartbeat", "inbox", "integrity check", "isolation", "job", "key", "lane",
    "layout", "lease", "lifeline", "limiter", "live settings", "outage", "outbox", "outcome", "parked",
    "partition", "place", "prefetch buffer", "priority level", "promote", "quarantine process", "queue",
    "queue runner", "reclaim", "redaction", "redrive", "relay", "release", "repartition", "retire",
    "saboteur", "schedule", "settle", "sharing", "slot", "start token", "supervisor", "suspect", "task",
    "train", "verb", "wakeup", "wiring", "worker", "worker registry",
)  # fmt: skip
