"""Every Redis name that qbull uses: what it is, its type, how long it lives.

All names of one partition share one hash tag, so each script works on one slot. The scripts append the
short names below to `base`; the names are spelled out there once more, in their NAMES lines.

    {<prefix>:<queue>:<partition's number>}:
      ready:<band>        stream   runnable jobs of a priority band (1-9, a); band 0 is what came back; group `workers`
      index               hash     job id → where it is; for a delayed job or one behind others of its lane, its record; and
                                   what the partition says of itself (lua/lib/index.lua), which stays when all else has gone
      delayed             zset     due time in ms → job id
      lanes               hash     lane → unsettled jobs admitted to it
      lane:<digest>       list     ids that wait in the lane; gone when empty
      trains              hash     lane → the entry in which several of its jobs are handed over, how many are settled
      completed, failed, cancelled
                          stream   finished records, up to 16 an entry, trimmed by count and by age
      kept                hash     how many jobs are in these; `lanes`: how many are behind others of their lane
      bands               set      the priority bands besides 5 and 0 that have been used
      job:<id>            hash     what a job has besides its record: progress, a mark while it runs alone, what it waits for in its
                                   flow (lua/lib/flow.lua); gone with the job
      log:<id>            list     what its task has logged, the newest so many lines; gone with the job
      cancelling          hash     job id → place and ending, for jobs that a worker has and that are to stop; gone then
      extras              set      the jobs that have any of these three
      schedules           zset     schedule → when it is to be looked at next, in ms; inf: never
      schedule:<name>     hash     what the schedule says, its next tick, what became of the last; gone with the schedule
      stats               hash     totals
      stats:<minute>      hash     counts of one minute; expires after 25 hours
      unique:<name>       string   the job that counts within a window; expires with it
      expiring            zset     the moment in ms by which a job must have begun → job id; gone with that moment
      rate:<digest>       string   the starts of a lane within the last window of its rate; expires with it
      lease               hash     owner, epoch, since: who reads the partition alone; only with sharing "leased"
      reports             stream   what PostgreSQL is to be told of jobs that ask for it, up to a million entries; emptied by the maintenance
      outgoing            stream   what is to be brought to other partitions for flows; gone when it is there
      alerts              hash     of qbull's own queue "qbull.alerts": what is known of problems and was said of them
                                   (core/problems.py), whose turn it is to look
      courier             string   the worker that brings it; expires after a second
      waiters             string   there while somebody waits for a result; expires after a minute
      mark                string   written with each enqueue whose replicas are waited for; expires after a minute
      leaving             zset     number → job id, for delayed jobs on their way to another partition; gone when they are there
      arrivals            hash     old partition → the last number that came from there; gone with that partition
      ahead               set      lanes that older partitions have jobs of; gone when none has
      held                set      lanes that wait for these here; gone likewise
      once:<token>        string   what a call was answered with, should it be sent again; expires after a minute
    {<prefix>:<queue>}:
      settings            hash     what the queue was declared with, its tasks, the schedules of its code; `layout`, where its
                                   partitions were changed (core/layout.py)
      versions            hash     version of the code's schedules → first and last seen; expires after two hours
      live                hash     setting → when, by whom and what an operator has changed it to; stays until reset
      changes             list     the last 100 of these changes
      failing             hash     minute and task → attempts that failed; task → the newest; expires after a quarter of an hour
      hold                string   why nothing begins for now; expires when it may
      mark                string   the same, for the settings
      places              hash     worker → places of max_active in use, since when it waits in line; gone with the worker
      starts              string   the starts of the last window of the rate; expires with it
      figures             hash     how long jobs waited and ran, in buckets (core/histograms.py), over all workers and for ever
      once:<token>        string   these were added; expires after a minute
    {<prefix>}:
      mark                string   the same, for the list of queues
      queues              set      the names of all queues
      workers             zset     worker → the server time at which it counts as dead
      roster              hash     worker → what it is and what it reads; gone with the worker
      schedules           hash     schedule → its queue and partition; gone with the schedule
      losses              hash     how many workers were lost, and which was the last
      truce               string   there while no worker is called dead, after the server was away; expires
      tokens              hash     token's id → its digest, role and what else is known of it (store/verbs/tokens.py); until revoked
      tokens:used         hash     token's id → when it was used last; gone with the token
      session:<digest>    string   somebody who has logged in to the page; expires
      sessions            zset     the last moment in ms → session; expires with the last of them
      tries, tries:<…>    string   passwords tried, by all and from one address; expires after five minutes
      trail               stream   who did what through the API; the last 10,000 of 90 days
      strangers           stream   what was refused to callers who were not known; the last 1,000 of 90 days
      operation:<id>      string   work on many jobs, and how far it is; expires after a week
      operation:<id>:stop string   somebody wants it to stop; expires after a minute
      operations          zset     when it began in ms → its id, the last 200; expires after a week
    <prefix>:bell         channel  "<base>\\n" and "due" (something is due sooner than thought), "tick" (the same of a schedule),
                                   "bands" (a new one is in use), "cancel" (a job that a worker has is to stop),
                                   "flow" (there is something in `outgoing`),
                                   "move" (something is to be brought to another partition, or let go here), "settings" or "layout" (of a
                                   queue, whose base it has; these were changed) or "room" (of a queue; a place is free, for the
                                   worker it names)
    <prefix>:done         channel  "<base>\\n" and the ids of jobs that finished, where somebody waits
"""

from __future__ import annotations

from dataclasses import dataclass

PRIORITY_LEVELS = "0123456789a"
RETURNED_LEVEL = "0"
DEFAULT_LEVEL = "5"
CONSUMER_GROUP = "workers"
CONFIRM_MARK = "mark"
CONFIRM_MARK_SECONDS = 60


@dataclass(frozen=True)
class Names:
    prefix: str

    def partition(self, queue: str, partition: int) -> str:
        """The start of every name of one partition."""
        return f"{{{self.prefix}:{queue}:{partition}}}:"

    def queue(self, queue: str) -> str:
        """The start of every name of a queue as a whole."""
        return f"{{{self.prefix}:{queue}}}:"

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
    def bell(self) -> str:
        return f"{self.prefix}:bell"

    @property
    def done(self) -> str:
        return f"{self.prefix}:done"


def ready_stream(base: str, level: str) -> str:
    return f"{base}ready:{level}"


KEY_TYPES = {
    "hash": ("index", "lanes", "trains", "kept", "cancelling", "stats", "lease", "arrivals"),
    "zset": ("delayed", "schedules", "expiring", "leaving"),
    "set": ("bands", "extras", "ahead", "held"),
    "stream": (
        "completed",
        "failed",
        "cancelled",
        "reports",
        "outgoing",
        *(f"ready:{level}" for level in PRIORITY_LEVELS),
    ),
}
"""The names that every partition may have, by their type on the server."""
