// Written by ui/wire.py from the API's shapes: change those, not this.

export interface Accepted {
  success?: boolean;
  jobId: string;
  status: "active" | "cancelled" | "cancelling" | "completed" | "delayed" | "failed" | "removed" | "sent" | "waiting";
  timestamp: string;
  created?: boolean | null;
}

export interface Acknowledge {
  note: string;
}

export interface Acknowledged {
  by: string;
  at: string;
  note: string;
  returned: "rate" | "reappeared" | null;
}

export interface AlertDestination {
  kind: "other" | "slack" | "webhook";
  host: string;
}

export interface AlertMessage {
  id: string;
  at: string;
  to: AlertDestination;
  text: string;
  state: "active" | "cancelled" | "completed" | "delayed" | "failed" | "waiting";
  error: string | null;
}

export interface AlertProblem {
  kind: "away" | "blocked" | "conflicting" | "failed" | "failing" | "halted" | "limited" | "lost" | "missed" | "overdue" | "paused" | "repeated" | "retention" | "stale" | "unknown" | "unread" | "unreadable" | "unserved";
  text: string;
  queue: string | null;
  task: string | null;
  schedule: string | null;
  job: string | null;
  reason: string | null;
  count: number;
  since: string;
  said: number;
  saidAt: string | null;
  over: boolean;
}

export interface Alerts {
  success?: boolean;
  timestamp: string;
  to: AlertDestination[];
  asking: string[];
  silenced: boolean;
  problems: AlertProblem[];
  messages: AlertMessage[];
}

export interface Alive {
  status: "away" | "ok";
  message: string;
}

export interface AllLatency {
  success?: boolean;
  timestamp: string;
  span: "1h" | "24h" | "30d" | "7d";
  queues: QueueTotal[];
}

export interface AllStats {
  success?: boolean;
  timestamp: string;
  queues: Record<string, Stats>;
}

export interface Attempt {
  attempt: number;
  at: string | null;
  durationMs: number;
  error: string | null;
  worker: string;
  stacktrace?: string | null;
}

export interface AuditChain {
  stream: "programs" | "strangers" | "trail";
  entries: number;
  unchained: number;
  last: string;
  faults: string[];
}

export interface AuditCheck {
  success?: boolean;
  timestamp: string;
  complete: boolean;
  streams: AuditChain[];
}

export interface AuditEntry {
  id: string;
  at: string;
  who: string;
  role: string;
  how: string;
  action: string;
  target: string;
  status: number;
  detail: Record<string, unknown>;
  address: string;
  count: number;
  reason: string;
  stream: "programs" | "strangers" | "trail";
  number: number;
  hash: string;
}

export interface AuditPage {
  success?: boolean;
  timestamp: string;
  entries: AuditEntry[];
  next: string | null;
}

export interface BlockedLoop {
  since: string;
  tasks: string[];
}

export interface CalledJob {
  queue: string;
  id: string;
}

export interface Cancelling {
  reason?: string;
}

export interface ChangedLimit {
  success?: boolean;
  timestamp: string;
  limit: Limit;
}

export interface ChangedSetting {
  value: unknown;
  by: string;
  at: string;
}

export interface Clean {
  task?: string | null;
  key?: string | null;
  errorContains?: string | null;
  fingerprint?: string | null;
  payload?: string | null;
  after?: string | null;
  before?: string | null;
  q?: string | null;
  gracePeriod?: number;
  limit?: number | null;
}

export interface ConfigWarning {
  kind: string;
  serious: boolean;
  fact: string;
  next: string;
  partitions: number[];
  workers: string[];
}

export interface CreatedToken {
  success?: boolean;
  timestamp: string;
  token: string;
  details: Token;
}

export interface Done {
  success?: boolean;
  message: string;
  timestamp: string;
}

export interface ErrorHistory {
  success?: boolean;
  timestamp: string;
  kind: ErrorKind;
  history: ErrorMinute[];
}

export interface ErrorKind {
  queue: string;
  fingerprint: string;
  error: string;
  lastError: string;
  task: string | null;
  count: number;
  total: number;
  firstAt: string;
  lastAt: string;
  lastId: string;
  acknowledged?: Acknowledged | null;
}

export interface ErrorMinute {
  at: string;
  count: number;
}

export interface Errors {
  success?: boolean;
  timestamp: string;
  minutes: number;
  kinds: ErrorKind[];
  others: number;
}

export interface Facet {
  field: string;
  exact: boolean;
  values: FacetValue[];
}

export interface FacetValue {
  value: string;
  count: number;
  label: string | null;
}

export interface Facets {
  success?: boolean;
  timestamp: string;
  facets: Facet[];
  matched: number;
  scanned: number;
  total: number;
}

export interface Failing {
  queue: string;
  group: FailureGroup;
  cascades: number;
  acknowledged?: Acknowledged | null;
}

export interface FailureGroup {
  fingerprint: string;
  error: string;
  count: number;
  tasks: string[];
  firstAt: string;
  lastAt: string;
  lastId: string;
  lastError: string;
  cascade?: boolean;
}

export interface Failures {
  success?: boolean;
  timestamp: string;
  queue: string;
  groups: FailureGroup[];
  leftOut?: number;
}

export interface Flow {
  success?: boolean;
  timestamp: string;
  flow: string | null;
  steps: FlowStep[];
  more: boolean;
}

export interface FlowChange {
  success?: boolean;
  timestamp: string;
  message: string;
  flow: string;
  jobs: number;
}

export interface FlowStep {
  queue: string;
  id: string;
  task: string;
  state: "active" | "cancelled" | "completed" | "delayed" | "failed" | "removed" | "waiting";
  level: number;
  waitsFor: number[];
  kept: boolean;
  blocked: boolean;
  fallback: boolean;
  error: string | null;
  startedAt: string | null;
  finishedAt: string | null;
  durationMs: number | null;
}

export interface Flows {
  success?: boolean;
  timestamp: string;
  flows: ShownFlow[];
  scanned?: number;
  total?: number;
  next?: string | null;
}

export interface Fork {
  step?: number | string | null;
  payload?: Record<string, unknown> | null;
  results?: Record<string, unknown>;
  id?: string | null;
}

export interface FoundJobs {
  success?: boolean;
  timestamp: string;
  jobs: Job[];
  scanned: number;
  total: number;
  next: string | null;
}

export interface HaltedLane {
  partition: number;
  key: string | null;
  waiting: number;
  jobId: string;
  since: string | null;
}

export interface Health {
  status: "degraded" | "healthy" | "unhealthy";
  message: string;
  problems: HealthProblem[];
  details: Record<string, Stats>;
  timestamp: string;
}

export interface HealthProblem {
  code: "away" | "blocked" | "conflicting" | "failed" | "failing" | "halted" | "limited" | "lost" | "missed" | "overdue" | "paused" | "repeated" | "retention" | "stale" | "unknown" | "unread" | "unreadable" | "unserved";
  severity: "critical" | "info" | "warning";
  serious: boolean;
  queue: string | null;
  partitions: number[];
  schedule: string | null;
  task: string | null;
  worker: string | null;
  workers: string[];
  by: string | null;
  limit: string | null;
  since: string | null;
  text: string;
  fact: string;
  remedy: string;
  values: Record<string, number>;
}

export interface History {
  success?: boolean;
  timestamp: string;
  queue: string;
  jobId: string;
  attempts: Attempt[];
  worker: string | null;
  crashes: number;
}

export interface InvalidField {
  field: string;
  reason: string;
}

export interface Job {
  id: string;
  queue: string;
  task: string;
  state: "active" | "cancelled" | "completed" | "delayed" | "failed" | "waiting";
  key: string | null;
  priority: number;
  payload: unknown;
  result: unknown;
  error: string | null;
  stacktrace: string | null;
  failedReason: string | null;
  attempt: number;
  maxAttempts: number | null;
  progress: number | null;
  progressDone: number | null;
  progressTotal: number | null;
  progressNote: string | null;
  createdAt: string;
  dueAt: string | null;
  expiresAt: string | null;
  startedAt: string | null;
  finishedAt: string | null;
  durationMs: number | null;
  timeout: number | null;
  partition: number;
  worker: string | null;
  crashes: number;
  history: Attempt[];
  schedule: string | null;
  flow: string | null;
  suspended: string | null;
  waitsFor: string[];
  forkedFrom: string | null;
  continued: number;
}

export interface JobOptions {
  delay?: number | null;
  at?: string | null;
  priority?: number | null;
  key?: string | null;
  id?: string | null;
  timeout?: number | null;
  expires?: number | string | null;
  unique?: number | Unique | null;
  durability?: "durable" | "fast" | "replicated" | "strict" | null;
  weight?: number | null;
}

export interface Jobs {
  success?: boolean;
  timestamp: string;
  queue: string;
  state: "active" | "cancelled" | "completed" | "delayed" | "failed" | "waiting";
  jobs: Job[];
  next?: string | null;
  cut?: boolean;
}

export interface Keep {
  completed?: number | null;
  failed?: number | null;
  completedFor?: number | null;
  failedFor?: number | null;
}

export interface Key {
  success?: boolean;
  timestamp: string;
  queue: string;
  key: string;
  partition: number;
  holder: Job | null;
  halted: boolean;
  waiting: number;
  jobs: Job[];
}

export interface LastRun {
  jobId: string;
  plannedAt: string | null;
  firedAt: string | null;
  state: "active" | "cancelled" | "completed" | "delayed" | "failed" | "waiting" | null;
  error: string | null;
}

export interface Latency {
  runs: number;
  wait: Percentiles;
  run: Percentiles;
}

export interface LatencyStep {
  at: string;
  latency: Latency;
  waits: number[];
  durations: number[];
}

export interface Lease {
  owner: string;
  epoch: number;
  since: string | null;
}

export interface Limit {
  name: string;
  rate: Rate | null;
  concurrency: number | null;
  daily: number | null;
  changed: string[];
  running: number;
  used: number;
  spent: number;
  waiting: number;
  since: string | null;
  queues: Record<string, number>;
  keys: LimitKey[];
  granted: number;
  returned: number;
}

export interface LimitKey {
  key: string;
  running: number;
  used: number;
  spent: number;
  waiting: number;
}

export interface Limits {
  success?: boolean;
  timestamp: string;
  limits: Limit[];
}

export interface LogLine {
  at: string;
  attempt: number;
  text: string;
  level?: "debug" | "error" | "info" | "warning";
}

export interface LoggedOut {
  success?: boolean;
  message: string;
  timestamp: string;
  provider: string | null;
}

export interface Login {
  password?: string | null;
  token?: string | null;
  code?: string | null;
}

export interface Logs {
  success?: boolean;
  timestamp: string;
  queue: string;
  jobId: string;
  logs: LogLine[];
}

export interface LongLane {
  partition: number;
  key: string | null;
  waiting: number;
  oldestWaitingAt: string | null;
}

export interface LongRun {
  queue: string;
  id: string;
  task: string;
  attempt: number;
  worker: string | null;
  startedAt: string | null;
  runningMs: number;
}

export interface LostWorker {
  id: string;
  host: string;
  pid: number;
  version: string;
  startedAt: string | null;
  lostAt: string;
  queues: string[];
}

export interface Mark {
  at: string;
  action: string;
  target: string;
  count: number;
}

export interface Marks {
  success?: boolean;
  timestamp: string;
  marks: Mark[];
}

export interface Matching {
  success?: boolean;
  timestamp: string;
  queue: string;
  state: "active" | "cancelled" | "completed" | "delayed" | "failed" | "waiting";
  count: number;
  exact: boolean;
  lookedAt: number;
}

export interface Me {
  success?: boolean;
  timestamp: string;
  name: string;
  role: "admin" | "operator" | "viewer";
  queues: string[];
  how: "basic" | "session" | "token";
  seesPayloads: boolean;
  app: string;
  version: string;
  environment: string;
}

export interface Minute {
  at: string;
  enqueued: number;
  completed: number;
  failed: number;
  retried: number;
  cancelled: number;
}

export interface Minutes {
  success?: boolean;
  timestamp: string;
  queue: string;
  minutes: Minute[];
}

export interface NewJob {
  task: string;
  payload?: Record<string, unknown>;
  options?: JobOptions;
}

export interface NewLimit {
  rate?: Rate | null;
  concurrency?: number | null;
  daily?: number | null;
}

export interface NewOperation {
  task?: string | null;
  key?: string | null;
  errorContains?: string | null;
  fingerprint?: string | null;
  payload?: string | null;
  after?: string | null;
  before?: string | null;
  q?: string | null;
  action: "cancel" | "clean" | "promote" | "redrive" | "remove" | "reschedule" | "retry";
  state?: "active" | "cancelled" | "completed" | "delayed" | "failed" | "waiting" | null;
  olderThan?: number;
  limit?: number | null;
  rate?: number | null;
  delay?: number | null;
  at?: string | null;
  reason?: string | null;
  patch?: Record<string, unknown> | null;
}

export interface NewPartitions {
  partitions: number;
}

export interface NewSchedule {
  task: string;
  cron?: string | null;
  every?: number | null;
  tz?: string | null;
  args?: Record<string, unknown>;
  catchUp?: "all" | "one" | "skip";
  overlap?: "allow" | "skip" | null;
  catchUpLimit?: number;
  jitter?: number;
  start?: string | null;
  end?: string | null;
}

export interface NewSettings {
  concurrency?: number;
  maxActive?: number | null;
  rate?: Rate | null;
  retry?: Retry;
  timeout?: number | null;
  keep?: Keep;
}

export interface NewToken {
  name: string;
  role: "admin" | "operator" | "viewer";
  queues?: string[];
  expiresIn?: number | null;
}

export interface OneOperation {
  success?: boolean;
  timestamp: string;
  operation: Operation;
}

export interface OneSchedule {
  success?: boolean;
  timestamp: string;
  schedule: Schedule;
}

export interface Operation {
  id: string;
  action: string;
  queue: string;
  filter: Record<string, unknown>;
  by: string;
  state: "done" | "failed" | "running" | "stopped";
  done: number;
  lookedAt: number;
  total: number | null;
  startedAt: string;
  updatedAt: string;
  error: string | null;
  refused: number;
  refusal: string | null;
}

export interface Operations {
  success?: boolean;
  timestamp: string;
  operations: Operation[];
}

export interface Overview {
  success?: boolean;
  timestamp: string;
  verdict: Verdict;
  minutes: Minute[];
  wait: Waiting;
  cascades: number;
  failing: Failing[];
}

export interface Partition {
  partition: number;
  draining: boolean;
  readers: Reader[];
  lease: Lease | null;
  waiting: number;
  inLanes: number;
  active: number;
  delayed: number;
  failed: number;
  oldestWaitingAt: string | null;
}

export interface Partitions {
  queue: string;
  partitions: Partition[];
  longLanes: LongLane[];
  haltedLanes: HaltedLane[];
  warnings: ConfigWarning[];
  success?: boolean;
  timestamp: string;
  repartitioning: Repartitioning | null;
}

export interface PastRun {
  jobId: string | null;
  firedAt: string;
  outcome: "active" | "cancelled" | "completed" | "delayed" | "failed" | "missed" | "skipped" | "waiting" | null;
  durationMs: number | null;
}

export interface PastRuns {
  success?: boolean;
  timestamp: string;
  name: string;
  runs: PastRun[];
}

export interface PatchPreview {
  success?: boolean;
  timestamp: string;
  queue: string;
  jobs: PatchedJob[];
}

export interface PatchedJob {
  id: string;
  task: string;
  before: unknown;
  after: unknown;
  refusal: string | null;
}

export interface Percentiles {
  p50: number | null;
  p95: number | null;
  p99: number | null;
}

export interface Preview {
  success?: boolean;
  timestamp: string;
  name: string;
  tz: string;
  next: string[];
  local: string[];
}

export interface PreviewedPatch {
  task?: string | null;
  key?: string | null;
  errorContains?: string | null;
  fingerprint?: string | null;
  payload?: string | null;
  after?: string | null;
  before?: string | null;
  q?: string | null;
  patch: Record<string, unknown>;
  state?: "cancelled" | "failed";
}

export interface ProblemBody {
  type: string;
  title: string;
  status: number;
  detail: string;
  success?: boolean;
  errors?: InvalidField[];
}

export interface Published {
  success?: boolean;
  timestamp: string;
  queue: string;
  jobId: string;
  published: Record<string, unknown>;
}

export interface QueryField {
  name: string;
  help: string;
}

export interface QueryFields {
  success?: boolean;
  timestamp: string;
  fields: QueryField[];
}

export interface Queue {
  success?: boolean;
  timestamp: string;
  name: string;
  stats: Stats;
  partitions: number;
  order: "key" | "partition" | null;
  onFailed: "continue" | "halt";
  lane: Record<string, unknown> | null;
  timeout: number | null;
  keep: Record<string, unknown>;
  workers: number;
  slots: number;
  tasks: Task[];
  declaredHere: boolean;
}

export interface QueueLatency {
  success?: boolean;
  timestamp: string;
  queue: string;
  span: "1h" | "24h" | "30d" | "7d";
  stepSeconds: number;
  total: Latency;
  steps: LatencyStep[];
  tasks: TaskLatency[];
}

export interface QueueStats {
  name: string;
  waiting: number;
  active: number;
  completed: number;
  failed: number;
  delayed: number;
  paused: number;
  total: number;
  cancelled: number;
  isPaused: boolean;
  oldestWaitingAt: string | null;
  success?: boolean;
  timestamp: string;
}

export interface QueueTotal {
  queue: string;
  latency: Latency;
}

export interface Rate {
  count: number;
  per?: number;
}

export interface Reader {
  worker: string;
  host: string;
  sharing: string;
  since: string | null;
}

export interface Reason {
  code: "behind" | "blocked" | "busy" | "called" | "due" | "finished" | "flow" | "halted" | "held" | "limit" | "line" | "next" | "no-label" | "no-task" | "no-worker" | "parked" | "paused" | "put-off" | "rate" | "resource" | "retry" | "running" | "shared-limit" | "signal" | "sleeping" | "stopping" | "unread";
  text: string;
  jobId: string | null;
  worker: string | null;
  since: string | null;
  until: string | null;
  at: string | null;
  values: Record<string, string | number>;
}

export interface Redrive {
  task?: string | null;
  key?: string | null;
  errorContains?: string | null;
  fingerprint?: string | null;
  payload?: string | null;
  after?: string | null;
  before?: string | null;
  q?: string | null;
  limit?: number | null;
  rate?: number | null;
  patch?: Record<string, unknown> | null;
}

export interface Repartitioning {
  partitions: number;
  before: number[];
  jobs: number;
  keys: number;
  halted: number;
}

export interface Reschedule {
  delay?: number | null;
  at?: string | null;
}

export interface Retry {
  delays?: number[] | null;
  attempts?: number | null;
  backoff?: "exponential" | "fixed" | null;
  delay?: number | null;
  maxDelay?: number | null;
  jitter?: number | null;
}

export interface RetryJob {
  payload?: Record<string, unknown> | null;
}

export interface Rotate {
  overlap?: number;
  expiresIn?: number | null;
}

export interface Running {
  success?: boolean;
  timestamp: string;
  jobs: RunningJob[];
  more: boolean;
  total: number;
}

export interface RunningJob {
  queue: string;
  id: string;
  task: string;
  key: string | null;
  partition: number;
  worker: string;
  attempt: number;
  progress: number | null;
  startedAt: string | null;
}

export interface Schedule {
  name: string;
  queue: string;
  task: string;
  cron: string | null;
  every: number | null;
  tz: string;
  args: unknown;
  key: string | null;
  catchUp: "all" | "one" | "skip";
  catchUpLimit: number;
  overlap: "allow" | "skip";
  jitter: number;
  start: string | null;
  end: string | null;
  source: "code" | "run time";
  paused: boolean;
  next: string[];
  lastRun: LastRun | null;
  fired: number;
  skipped: number;
  missed: number;
  problem: string | null;
}

export interface ScheduleDay {
  name: string;
  queue: string;
  task: string;
  paused: boolean;
  runs: PastRun[];
  next: string[];
  more: boolean;
}

export interface ScheduleDays {
  success?: boolean;
  timestamp: string;
  schedules: ScheduleDay[];
}

export interface ScheduleRun {
  success?: boolean;
  message: string;
  jobId: string;
  timestamp: string;
}

export interface Schedules {
  success?: boolean;
  timestamp: string;
  schedules: Schedule[];
}

export interface Server {
  address: string;
  product: string;
  version: string;
  uptimeSeconds: number;
  usedMemory: number;
  maxMemory: number;
  eviction: string;
  appendOnly: boolean;
  fsync: string | null;
  replicas: number;
  connectedClients: number;
  commandsPerSecond: number;
  lastSaveOk: boolean;
}

export interface Serving {
  concurrency: number;
  busy: number;
  partitions: number[];
  sharing: string;
  leaving: boolean;
}

export interface SettingChange {
  at: string;
  by: string;
  setting: string;
  before: unknown;
  after: unknown;
}

export interface Settings {
  queue: string;
  paused: boolean;
  settings: Record<string, unknown>;
  changed: Record<string, ChangedSetting>;
  history: SettingChange[];
  success?: boolean;
  timestamp: string;
}

export interface ShownFlow {
  flow: string;
  queue: string;
  id: string;
  task: string;
  state: "cancelled" | "completed" | "failed" | "rescued" | "running";
  steps: FlowStep[];
  more: boolean;
  createdAt: string;
  finishedAt: string | null;
  first: string;
  about: string | null;
  counts: Record<string, number>;
}

export interface Signal {
  name: string;
  value?: unknown;
  id?: string | null;
}

export interface Slow {
  success?: boolean;
  timestamp: string;
  tasks: TaskDurations[];
  running: LongRun[];
}

export interface Stack {
  worker: string;
  kind: "coroutine" | "process" | "thread";
  stack: string;
  success?: boolean;
  timestamp: string;
  queue: string;
  jobId: string;
}

export interface Started {
  success?: boolean;
  timestamp: string;
  operationId: string;
  state: "done" | "failed" | "running" | "stopped";
  message: string;
  count: number;
}

export interface Stats {
  name: string;
  waiting: number;
  active: number;
  completed: number;
  failed: number;
  delayed: number;
  paused: number;
  total: number;
  cancelled: number;
  isPaused: boolean;
  oldestWaitingAt: string | null;
}

export interface Step {
  number: number;
  name: string;
  state: "calling" | "checkpoint" | "completed" | "failed" | "retrying" | "sleeping" | "waiting";
  result: unknown;
  error: string | null;
  startedAt: string;
  durationMs: number;
  attempts: number;
  until: string | null;
  called: CalledJob | null;
  schema: Record<string, unknown> | null;
  omitted: boolean;
}

export interface Steps {
  success?: boolean;
  timestamp: string;
  queue: string;
  jobId: string;
  steps: Step[];
}

export interface System {
  success?: boolean;
  timestamp: string;
  app: string;
  version: string;
  python: string;
  topology: string;
  durability: string | null;
  servers: Server[];
  clockSkewMs: number;
}

export interface Task {
  name: string;
  arguments: Record<string, unknown> | null;
}

export interface TaskDurations {
  queue: string;
  task: string;
  runs: number;
  meanMs: number;
  p50Ms: number;
  p95Ms: number;
}

export interface TaskLatency {
  task: string;
  latency: Latency;
}

export interface Token {
  id: string;
  name: string;
  role: "admin" | "operator" | "viewer";
  queues: string[];
  createdAt: string;
  createdBy: string;
  rotatedAt: string | null;
  expiresAt: string | null;
  lastUsedAt: string | null;
}

export interface Tokens {
  success?: boolean;
  timestamp: string;
  tokens: Token[];
}

export interface Tried {
  to: AlertDestination;
  error: string | null;
}

export interface TriedAlerts {
  success?: boolean;
  timestamp: string;
  tried: Tried[];
}

export interface Unique {
  window?: number | null;
  by?: string[] | null;
  mode?: "after" | "debounce" | "first" | "last" | "reschedule";
}

export interface Update {
  payload: Record<string, unknown>;
}

export interface Verdict {
  status: "degraded" | "healthy" | "unhealthy";
  message: string;
  problems: HealthProblem[];
}

export interface Waiting {
  p50Ms: number | null;
  p95Ms: number | null;
  slowestQueue: string | null;
  slowestP95Ms: number | null;
}

export interface Why {
  queue: string;
  jobId: string;
  state: "active" | "cancelled" | "completed" | "delayed" | "failed" | "waiting";
  text: string;
  reasons: Reason[];
  success?: boolean;
  timestamp: string;
}

export interface Worker {
  id: string;
  host: string;
  pid: number;
  pod: string;
  version: string;
  startedAt: string | null;
  queues: Record<string, Serving>;
  blocked: BlockedLoop | null;
  labels: Record<string, string>;
  resources: Record<string, number>;
  memoryBytes: number | null;
  cpuPercent: number | null;
}

export interface Workers {
  success?: boolean;
  timestamp: string;
  workers: Worker[];
  lost: LostWorker[];
}
