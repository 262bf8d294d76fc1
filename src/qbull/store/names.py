"""Every Redis name that qbull uses, with its type, meaning and lifetime.

All names of one partition share one hash tag, so that each script works on one slot. The scripts append the
short names below to `base`, and list the ones they use in their NAMES lines.

    {<prefix>:<queue>:<partition's number>}:
      ready:<level>        stream   runnable jobs of a priority level (1-9, a); level 0 has returned jobs,
                                   level b deliveries of jobs that were parked; group `workers`
      index               hash     job id → its position; the record of a job that is delayed or waits in its
                                   lane; and the state of the partition (lua/lib/index.lua), which stays when
                                   it is empty
      delayed             zset     due time in ms → job id; parked jobs are due at a time of their own
      parked              set      what parked jobs need of a worker's code (core/parking.py)
      limited             set      the shared limits that parked jobs wait for (core/limits.py)
      parked:<need>       zset     since when they are parked, in ms → job id; deleted when empty. Those that
                                   wait for a shared limit: priority level and time
      lanes               hash     lane → unsettled jobs admitted to it
      lane:<digest>       list     ids that wait in the lane; deleted when empty. If the lane has no order,
                                   jobs of a priority other than 5 wait in lane:<digest>:<level>
      ranked              hash     lane → the levels of which it has such a list
      trains              hash     lane → the entry that delivers several of its jobs, and how many are
                                   settled
      completed, failed, cancelled
                          stream   finished records, up to 16 per entry, trimmed by count and by age
      kept                hash     number of jobs in these streams; `lanes`: number of jobs that wait in lanes
      bands               set      the priority levels other than 5 and 0 that have been used
      job:<id>            hash     data of a job outside its record: progress, a mark while it runs alone, its
                                   dependencies in a flow and its followers (lua/lib/flow.lua), the recorded
                                   steps of a durable job (core/durable.py), the jobs that it has called
                                   (core/calls.py), the signals that wait for it (lua/lib/signals.lua) and
                                   the values that it has published (core/published.py); deleted with the
                                   job
      log:<id>            list     the newest log lines of the job; deleted with the job
      stream:<id>         stream   the newest values that the job has emitted (lua/emit.lua); deleted with the
                                   job, and expires some time after the last value
      stacks              hash     job id → token, for running jobs whose stack somebody wants to see; expires
                                   after 30 seconds
      stack:<token>       string   the answer of the worker; expires after 30 seconds
      cancelling          hash     job id → position and ending, for jobs that a worker has and must stop
      followed            set      the jobs that others have started to wait for after they were enqueued
                                   (lua/lib/flow.lua)
      extras              set      the jobs that have any of these five
      schedules           zset     schedule → the next time in ms to check it; inf: never
      schedule:<name>     hash     definition, next run and newest runs of a schedule
                                   (lua/lib/schedule_runs.lua); deleted with the schedule
      stats               hash     totals
      stats:<minute>      hash     counts of one minute; expires after 25 hours
      errors              hash     kind of error → number of failures, first and last time, newest job, error
                                   (lua/lib/errors.lua), up to 200 kinds; expires after 30 days without one
      errors:<hour>       hash     minute and kind of error → failures, up to 5,000; expires after 25 hours
      unique:<name>       string   the job that has won within a unique window; expires with the window
      expiring            zset     the time in ms by which a job must have started → job id; deleted at that
                                   time
      rate:<digest>       string   the starts of a lane in the last window of its rate; expires with the
                                   window
      rated               string   exists while these starts count in the next partitions of the lanes;
                                   expires with the window
      lease               hash     owner, epoch, since: the only reader of the partition; only with sharing
                                   "leased"
      reports             stream   job events for PostgreSQL, up to a million entries; emptied by the
                                   maintenance
      outgoing            stream   messages of flows to other partitions; deleted when delivered
      alerts              hash     for the queue "qbull.alerts": known problems, sent notifications
                                   (core/problems.py), and the process that checks next
      courier             string   the worker that dispatches these messages; expires after a second
      waiters             string   exists while somebody waits for a result; expires after a minute
      mark                string   written with each enqueue that waits for replicas; expires after a minute
      leaving             zset     number → job id, for delayed jobs that move to another partition; deleted
                                   on arrival
      arrivals            hash     old partition → the last number that came from it; deleted with that
                                   partition
      arriving            hash     token and mark, while the jobs of another server are copied to here
                                   (lua/move_arrive.lua); deleted when all have come
      ahead               set      lanes that have jobs in older partitions; deleted when none has
      held                set      lanes that wait for those here; deleted likewise
      once:<token>        string   the answer to a call, in case it is sent again; expires after a minute
    {<prefix>:<queue>}:
      settings            hash     declared settings, tasks and schedules of the queue; `described:<task>`,
                                   the descriptions that workers have published (lua/publish.lua);
                                   `arguments`, the token of its arguments that are stored elsewhere;
                                   `layout`, if its number of partitions has changed (core/layout.py)
      versions            hash     version of the declared schedules → first and last seen; expires after two
                                   hours
      live                hash     live setting → its value, author and time; stays until reset
      changes             list     the last 100 of these changes
      failing             hash     minute and task → failed attempts; task → the newest one; expires after 15
                                   minutes
      hold                string   the reason why no job of the queue starts; expires when jobs may start
                                   again
      moving              hash     token and address, while the queue moves to another server; stays there
      mark                string   as in a partition, for the settings
      places              hash     worker → slots of max_active in use, and since when it waits; deleted with
                                   the worker
      starts              string   the starts in the last window of the rate; expires with the window
      acknowledged        hash     kind of error → when it was acknowledged, how often it failed then, by whom
                                   and a note; the last 200; expires after 30 days
      figures             hash     histograms of wait and run times (core/histograms.py), over all workers,
                                   permanent
      latency:minutes:<hour>, latency:hours:<day>
                          hash     the same by minute and by hour, without sums; expire after 26 hours and
                                   after 32 days
      once:<token>        string   proof that these were added; expires after a minute
    {<prefix>}:
      mark                string   as in a partition, for the list of queues
      queues              set      the names of all queues
      workers             zset     worker → the server time from which it counts as dead
      roster              hash     worker → host, process and queues of the worker; "usage <worker>" → memory
                                   and CPU of its process; deleted with the worker
      schedules           hash     schedule → its queue and partition; deleted with the schedule
      losses              hash     number of lost workers, and the last one
      lost                list     the last 100 lost workers, each with its time and its entry of the roster;
                                   expires after a day
      truce               string   exists after an outage, while no worker is declared dead; expires
      tokens              hash     token id → digest, role and data of an API token (store/verbs/tokens.py);
                                   until revoked
      tokens:used         hash     token id → time of the last use; deleted with the token
      session:<digest>    string   a dashboard login; expires
      sessions            zset     end of the session in ms → session; expires with the last one
      tries, tries:<…>    string   failed logins, in total and per address; expires after five minutes
      trail               stream   audit log: the API and the command line; the last 10,000 entries of 90 days
      programs            stream   the same of calls from Python
      strangers           stream   refused calls of unknown callers; the last 1,000 entries of 90 days
      trail:chain, programs:chain, strangers:chain
                          hash     number and hash of the last entry, number of the oldest one
                                   (core/audit_chain.py), and how many an earlier version wrote before
                                   them; expires with the stream
      once:<token>        string   the answer to a call, in case it is sent again; expires after a minute
      operation:<id>      string   a bulk operation and its progress; expires after a week
      operation:<id>:stop string   a request to stop it; expires after a minute
      operations          zset     start time in ms → operation id, the last 200; expires after a week
      limits              set      the names of all shared limits
      group:<name>        hash     job id → its queue, for the jobs of a group (compat/rq/group.py); expires
                                   30 days after the last change
      groups              set      the names of all groups; expires likewise
    {<prefix>:~<limit>}:  a limit that several queues share
      settings            hash     its declared values, as JSON; permanent
      live, changes       as of a queue
      log:<key>           string   the starts of the last window with their weights; expires with the window
      spent:<day>         zset     the weight that started on that day → key, if the limit has a daily
                                   budget; expires after two days
      totals              hash     weight ever granted and ever given back, the present day and its weight
      active              hash     key → slots in use over all workers
      holders             hash     worker → its slots by key; deleted with the worker
      line:<key>          hash     worker → since when it waits, for which weight; expires after seconds
      gone                hash     workers that were freed a moment ago: they wait in no line; expires
                                   after seconds
      once:<token>        string   the answer to a call, in case it is sent again; expires after a minute
    <prefix>:bell         channel  "<base>\\n" and one word: "due" (a job is due earlier than expected),
                                   "tick" (a schedule is), "bands" (a new priority level is in use),
                                   "cancel" (a worker must stop a job), "stack" (show where a job is),
                                   "flow" (`outgoing` has messages),
                                   "task <name>" (a job of it is parked),
                                   "move" (jobs can move to another partition, or lanes can be freed);
                                   with the base of a queue "settings" or "layout" (they have changed), or
                                   "room" (a slot is free for the worker that it names); with the base of a
                                   shared limit "room" (it has room again) or "settings"
    <prefix>:done         channel  "<base>\\n" and the ids of finished jobs, if somebody waits for one
"""

from __future__ import annotations

import msgspec

from qbull.core.parking import UNPARKED_LEVEL

PRIORITY_LEVELS = "0123456789a"
RETURNED_LEVEL = "0"
DEFAULT_LEVEL = "5"
CONSUMER_GROUP = "workers"
CONFIRM_MARK = "mark"
SHARED_LIMIT_MARK = "~"
CONFIRM_MARK_SECONDS = 60


class Names(msgspec.Struct, frozen=True):
    prefix: str

    def partition(self, queue: str, partition: int) -> str:
        """The start of every name of one partition."""
        return f"{{{self.prefix}:{queue}:{partition}}}:"

    def queue(self, queue: str) -> str:
        """The start of every name of a queue as a whole."""
        return f"{{{self.prefix}:{queue}}}:"

    def limit(self, limit: str) -> str:
        """The start of every name of a shared limit. No queue has a name with a tilde."""
        return f"{{{self.prefix}:{SHARED_LIMIT_MARK}{limit}}}:"

    @property
    def limits(self) -> str:
        return self.app + "limits"

    def settings(self, queue: str) -> str:
        return self.queue(queue) + "settings"

    @property
    def app(self) -> str:
        return f"{{{self.prefix}}}:"

    @property
    def queues(self) -> str:
        return self.app + "queues"

    @property
    def workers(self) -> str:
        return self.app + "workers"

    @property
    def schedules(self) -> str:
        return self.app + "schedules"

    @property
    def roster(self) -> str:
        return self.app + "roster"

    @property
    def losses(self) -> str:
        return self.app + "losses"

    @property
    def tokens(self) -> str:
        return self.app + "tokens"

    @property
    def tokens_used(self) -> str:
        return self.app + "tokens:used"

    @property
    def sessions(self) -> str:
        return self.app + "sessions"

    def session(self, digest: str) -> str:
        return f"{self.app}session:{digest}"

    @property
    def trail(self) -> str:
        return self.app + "trail"

    @property
    def strangers(self) -> str:
        return self.app + "strangers"

    @property
    def operations(self) -> str:
        return self.app + "operations"

    def operation(self, id: str) -> str:
        return f"{self.app}operation:{id}"

    @property
    def groups(self) -> str:
        return self.app + "groups"

    def group(self, name: str) -> str:
        return f"{self.app}group:{name}"

    @property
    def bell(self) -> str:
        return f"{self.prefix}:bell"

    @property
    def done(self) -> str:
        return f"{self.prefix}:done"


def ready_stream(base: str, level: str) -> str:
    return f"{base}ready:{level}"


KEY_TYPES = {
    "hash": (
        "index",
        "lanes",
        "trains",
        "kept",
        "cancelling",
        "stats",
        "errors",
        "lease",
        "arrivals",
        "ranked",
        "arriving",
    ),
    "zset": ("delayed", "schedules", "expiring", "leaving"),
    "set": ("bands", "extras", "followed", "ahead", "held", "parked", "limited"),
    "stream": (
        "completed",
        "failed",
        "cancelled",
        "reports",
        "outgoing",
        *(f"ready:{level}" for level in (*PRIORITY_LEVELS, UNPARKED_LEVEL)),
    ),
}
"""The names that every partition may have, by their type on the server."""
