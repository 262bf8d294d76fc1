"""Builds that are broken on purpose, and the tests that must catch each of them.

A suite that cannot fail proves nothing. `make saboteurs` makes a copy of the package for each of these, breaks it and
runs the tests it names: at least one of them must fail. test_catalogue.py sees to it that every change still fits the code.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Saboteur:
    """`old` occurs once in `file`, a path in the package, and becomes `new`."""

    name: str
    what: str
    file: str
    old: str
    new: str
    caught_by: tuple[str, ...]


SABOTEURS = (
    Saboteur(
        "a zombie settles a train",
        "a worker that lost its delivery may still write down outcomes of a train",
        "store/lua/settle.lua",
        "if train_state(lane) ~= state then",
        "if false then",
        ("tests/store/test_settle.py",),
    ),
    Saboteur(
        "a zombie settles a job",
        "the same for a job that was alone in its entry",
        "store/lua/settle.lua",
        "if redis.call('XACK', stream, 'workers', unpack(ARGV, first, last)) ~= many then",
        "redis.call('XACK', stream, 'workers', unpack(ARGV, first, last))\n  if false then",
        ("tests/store/test_settle.py",),
    ),
    Saboteur(
        "the rest of a train is lost",
        "of what a dead worker held, only the first job of a train comes back",
        "store/lua/reclaim.lua",
        "add_train('0', lane, ids, entry)",
        "add_train('0', lane, {ids[1]}, entry)",
        ("tests/store/test_reclaim.py",),
    ),
    Saboteur(
        "a lane stays full",
        "jobs that are done are still counted in their lane, so it stands still one day",
        "store/lua/settle.lua",
        "counts[lane] = lane_count(lane) - many",
        "counts[lane] = lane_count(lane)",
        ("tests/store/test_settle.py",),
    ),
    Saboteur(
        "two of a key at a time",
        "a lane lets one job more pass than its limit says",
        "store/lua/lib/lane.lua",
        "if most > 0 and (count > most or",
        "if most > 0 and (count > most + 1 or",
        ("tests/guide/test_order.py",),
    ),
    Saboteur(
        "a retry loses its place",
        "those behind a job that waits for its next attempt overtake it",
        "store/lua/settle.lua",
        "local held = lane and (delays or (word == 'dead' and halt == 1))",
        "local held = lane and (word == 'dead' and halt == 1)",
        ("tests/guide/test_order.py",),
    ),
    Saboteur(
        "the next begins too early",
        "the next job of a key begins before the outcome of the one before is written down",
        "worker/settle.py",
        "return now - began > QUICK or now - self._sent > BEHIND",
        "return False",
        ("tests/guide/test_order.py",),
    ),
    Saboteur(
        "a train runs on",
        "a worker whose outcome was refused goes on with the rest of the train beside its new owner",
        "worker/run.py",
        "if not doubtful or await self._still_ours(delivery):",
        "if True:",
        ("tests/guide/test_order.py",),
    ),
    Saboteur(
        "a halted lane goes on",
        "the jobs behind a dead letter run although its queue says halt",
        "worker/settle.py",
        "if position.last or self._halts:",
        "if position.last:",
        ("tests/guide/test_order.py",),
    ),
    Saboteur(
        "crashes are not counted",
        "a job that takes its worker down is begun for ever",
        "store/lua/reclaim.lua",
        "crashes = crashes + 1",
        "crashes = crashes + 0",
        ("tests/store/test_reclaim.py",),
    ),
    Saboteur(
        "neighbours are blamed",
        "everything that a dead worker held is suspected, not only what was running",
        "store/lua/reclaim.lua",
        "local guilty = running[band .. entry]",
        "local guilty = true",
        ("tests/store/test_reclaim.py",),
    ),
    Saboteur(
        "suspect does not wait",
        "a job that is to be marked before it runs is failed where the server is away just then",
        "worker/attempt.py",
        "await self._outage.survive(partial(delivery.partition.mark_alone, id, delivery.place))",
        "await delivery.partition.mark_alone(id, delivery.place)",
        ("tests/worker/test_suspects.py",),
    ),
    Saboteur(
        "the ready stream is capped",
        "old jobs fall out when many wait",
        "store/lua/put.lua",
        "entry = redis.call('XADD', stream, '*', ARGV[i], ARGV[i + 1])",
        "entry = redis.call('XADD', stream, 'MAXLEN', 20, '*', ARGV[i], ARGV[i + 1])",
        ("tests/store/test_enqueue.py",),
    ),
    Saboteur(
        "an id is accepted twice",
        "an enqueue that is sent again adds a second job",
        "store/lua/enqueue.lua",
        "  if place_of(id) then\n    known",
        "  if false then\n    known",
        ("tests/store/test_enqueue.py",),
    ),
    Saboteur(
        "a batch is accepted twice",
        "a batch of plain jobs whose answer was lost is added again",
        "store/lua/put.lua",
        "  if known[i] then return 0 end",
        "  if false then return 0 end",
        ("tests/store/test_enqueue.py",),
    ),
    Saboteur(
        "jobs begin early",
        "a delayed job is due half a second before its time",
        "store/lua/lib/arrive.lua",
        "local due = when ~= '0' and moment_of(when)",
        "local due = when ~= '0' and moment_of(when) - 500",
        ("tests/store/test_promote.py", "tests/guide/test_enqueueing.py"),
    ),
    Saboteur(
        "a lost reply is forgotten",
        "deliveries that came with a reply that was lost are run by nobody",
        "worker/fetch.py",
        "lost, look_again = True, time.monotonic() + LATE",
        "lost, look_again = False, inf",
        ("tests/worker/test_outage.py",),
    ),
    Saboteur(
        "a parent says nothing",
        "nobody speaks for worker processes whose event loop is blocked",
        "worker/supervisor.py",
        "Beat(store, queues, lambda: list(self._children), min_idle, self._outage)",
        "Beat(store, queues, lambda: [], min_idle, self._outage)",
        ("tests/worker/test_crash.py",),
    ),
    Saboteur(
        "an undertaker falls silent",
        "whoever takes back what the dead held does not beat meanwhile, and is taken for dead itself",
        "worker/beat.py",
        "                self._due.set()\n",
        "                await self._outage.survive(self.bury_the_dead)\n",
        ("tests/worker/test_beat.py",),
    ),
    Saboteur(
        "confirmations are not counted",
        "an enqueue counts as replicated however many replicas have it",
        "store/confirm.py",
        "if count >= len(links) and connected == links:",
        "if connected == links:",
        ("tests/store/test_confirm.py",),
    ),
    Saboteur(
        "strict without flushing",
        "a profile is not held to what the weaker ones ask for",
        "core/durability.py",
        "for profile in PROFILES[: PROFILES.index(durability) + 1]:",
        "for profile in PROFILES[:1]:",
        ("tests/store/test_confirm.py", "tests/guide/test_durability.py"),
    ),
    Saboteur(
        "a tick from an old plan",
        "a proposal counts although the schedule was changed or has fired meanwhile",
        "store/lua/tick.lua",
        "if plan[1] == rev and due > 0 and",
        "if due > 0 and",
        ("tests/store/test_tick.py",),
    ),
    Saboteur(
        "a tick before its time",
        "the worker's clock decides whether a tick is due",
        "store/lua/tick.lua",
        "while due < many and tonumber(ARGV[first + 3 * due + 1]) <= now_ms do",
        "while due < many do",
        ("tests/store/test_tick.py",),
    ),
    Saboteur(
        "a mark without a fence",
        "a run that was thought dead may still have its effect in PostgreSQL",
        "postgres/inbox.py",
        "WHERE NOT i.done AND i.fence <= excluded.fence",
        "WHERE NOT i.done",
        ("tests/postgres/test_inbox.py",),
    ),
    Saboteur(
        "the outbox skips late rows",
        "rows of a key overtake an earlier one that another relay holds",
        "postgres/relay.py",
        "b.seq IS NOT NULL AND b.seq < c.seq",
        "false",
        ("tests/postgres/test_relay.py",),
    ),
    Saboteur(
        "a token lives for ever",
        "the moment at which a token ends is not looked at",
        "store/tokens.py",
        "if token.expires_ms > now_ms else None",
        "if token.expires_ms else None",
        ("tests/api/test_auth.py",),
    ),
    Saboteur(
        "everybody is an admin",
        "the role of who asks is not compared with what the route asks for",
        "api/auth.py",
        '{"open": 0, "viewer": 1, "admin": 2}',
        '{"open": 0, "viewer": 1, "admin": 1}',
        ("tests/api/test_matrix.py",),
    ),
    Saboteur(
        "one replica is enough",
        "an enqueue counts as replicated when the first of several replicas has it",
        "store/confirm.py",
        "if count >= len(links) and connected == links:",
        "if count >= min(1, len(links)) and connected == links:",
        ("tests/store/test_confirm.py",),
    ),
    Saboteur(
        "a known id is confirmed unwritten",
        "an enqueue that finds its job there waits for nothing, so nothing is known of the replicas",
        "store/confirm.py",
        'await talk.send(command, ("EVAL", script("mark").source, 1, key + MARK, MARK_FOR))',
        'await talk.send(command, ("PING",))',
        ("tests/store/test_confirm.py",),
    ),
    Saboteur(
        "a token is guessed by the clock",
        "the digest of a token is compared byte by byte until the first that differs",
        "store/tokens.py",
        "return hmac.compare_digest(self.digest, digest_of(text))",
        "return self.digest == digest_of(text)",
        ("tests/test_sources.py",),
    ),
    Saboteur(
        "any binary is the server",
        "a server binary that was altered is started",
        "pinned.py",
        "if found != expected:",
        "if False:",
        ("tests/test_pinned.py",),
    ),
    Saboteur(
        "garbage is dropped",
        "what another program wrote into a stream leaves no dead letter",
        "store/lua/settle.lua",
        "if foreign and (word == 'dead' or not place_of(id)) then",
        "if false then",
        ("tests/store/test_settle.py",),
    ),
    Saboteur(
        "any proxy is believed",
        "whoever says so counts as another address, and may guess passwords for ever",
        "api/server.py",
        "proxy_headers=bool(proxies),",
        "proxy_headers=True,",
        ("tests/api/test_http.py",),
    ),
    Saboteur(
        "a full server refuses workers",
        "who starts on a server without memory cannot register, so nobody empties it",
        "store/lua/register.lua",
        "-- FLAGS allow-oom\n",
        "",
        ("tests/worker/test_full.py",),
    ),
)
