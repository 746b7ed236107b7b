-- Tailor's store, first schema. Conventions: times are Unix milliseconds (0 = not yet), ids are the numbers
-- behind s3, t41, w2 (0 = none), seeds are unsigned 64-bit numbers kept in signed columns, REAL is NULL where
-- the value is NaN. Foreign keys are checked at commit, so rows of a batch may come in any order.
-- Once released this file is never edited: changes come as 002_*.sql and so on.

CREATE TABLE counters (
  id INTEGER PRIMARY KEY CHECK (id = 1),
  next_sweep INTEGER NOT NULL,
  next_trial INTEGER NOT NULL,
  next_worker INTEGER NOT NULL,
  next_token INTEGER NOT NULL
) STRICT;

CREATE TABLE sweep (
  id INTEGER PRIMARY KEY,
  name TEXT NOT NULL UNIQUE,
  spec_hash TEXT NOT NULL,
  base_dir TEXT NOT NULL,
  state TEXT NOT NULL,            -- running, paused, completed, cancelled
  priority INTEGER NOT NULL,
  search_state BLOB NOT NULL,     -- what the search algorithm saved
  infeasible INTEGER NOT NULL,
  created_ms INTEGER NOT NULL,
  ended_ms INTEGER NOT NULL
) STRICT;

-- The submitted file, apart from the row that changes with every trial.
CREATE TABLE sweep_file (
  sweep INTEGER PRIMARY KEY REFERENCES sweep (id) DEFERRABLE INITIALLY DEFERRED,
  toml TEXT NOT NULL
) STRICT;

CREATE TABLE candidate (
  sweep INTEGER NOT NULL REFERENCES sweep (id) DEFERRABLE INITIALLY DEFERRED,
  number INTEGER NOT NULL,        -- within the sweep, from 0
  name TEXT NOT NULL,
  point_json TEXT NOT NULL,       -- {"ffn.k":4}
  architecture_json TEXT NOT NULL,
  hash TEXT NOT NULL,
  parameters_body INTEGER NOT NULL,
  parameters_total INTEGER NOT NULL,
  PRIMARY KEY (sweep, number)
) STRICT, WITHOUT ROWID;

CREATE TABLE trial (
  id INTEGER PRIMARY KEY,
  sweep INTEGER NOT NULL,
  candidate INTEGER NOT NULL,
  seed INTEGER NOT NULL,
  state TEXT NOT NULL,            -- queued, running, completed, stopped, failed, cancelled
  attempts INTEGER NOT NULL,
  failures_json TEXT NOT NULL,    -- {"oom":1}
  end_class TEXT NOT NULL,
  message TEXT NOT NULL,
  objective REAL,                 -- NULL: none, or NaN (then objective_nan is 1)
  objective_nan INTEGER NOT NULL,
  final_values_json TEXT NOT NULL,  -- {"validation_loss":3.2}; "nan", "inf", "-inf" as text
  created_ms INTEGER NOT NULL,
  started_ms INTEGER NOT NULL,
  ended_ms INTEGER NOT NULL,
  UNIQUE (sweep, candidate, seed),
  FOREIGN KEY (sweep, candidate) REFERENCES candidate (sweep, number) DEFERRABLE INITIALLY DEFERRED
) STRICT;

CREATE TABLE worker (
  id INTEGER PRIMARY KEY,
  name TEXT NOT NULL UNIQUE,
  instance TEXT NOT NULL,
  host TEXT NOT NULL,
  version TEXT NOT NULL,
  slots_json TEXT NOT NULL,
  draining INTEGER NOT NULL,
  first_seen_ms INTEGER NOT NULL,
  last_seen_ms INTEGER NOT NULL
) STRICT;

CREATE TABLE attempt (
  trial INTEGER NOT NULL REFERENCES trial (id) DEFERRABLE INITIALLY DEFERRED,
  number INTEGER NOT NULL,        -- within the trial, from 1
  token INTEGER NOT NULL,
  worker INTEGER NOT NULL REFERENCES worker (id) DEFERRABLE INITIALLY DEFERRED,
  slots_json TEXT NOT NULL,       -- [0,1]
  state TEXT NOT NULL,            -- assigned, running, ended
  acked_sequence INTEGER NOT NULL,
  log_bytes INTEGER NOT NULL,
  end_class TEXT NOT NULL,
  message TEXT NOT NULL,
  started_json TEXT NOT NULL,
  assigned_ms INTEGER NOT NULL,
  ended_ms INTEGER NOT NULL,
  PRIMARY KEY (trial, number)
) STRICT, WITHOUT ROWID;

-- One metric of one attempt. Its points are in metric_chunk (older) and in metric_tail (from tail_from on).
CREATE TABLE series (
  id INTEGER PRIMARY KEY,
  trial INTEGER NOT NULL,
  attempt INTEGER NOT NULL,
  name TEXT NOT NULL,
  tail_from INTEGER NOT NULL,     -- rows of metric_tail before this id are in chunks already
  sealed INTEGER NOT NULL,        -- points in chunks
  last_step INTEGER NOT NULL,     -- of the last sealed point
  last_tokens INTEGER NOT NULL,
  last_wall_ms INTEGER NOT NULL,
  last_value REAL,
  UNIQUE (trial, attempt, name),
  FOREIGN KEY (trial, attempt) REFERENCES attempt (trial, number) DEFERRABLE INITIALLY DEFERRED
) STRICT;

-- New points of all series in the order of their arrival. Only appended at the end and cut at the front:
-- an index or a key clustered on the series would dirty one page per series and commit.
CREATE TABLE metric_tail (
  id INTEGER PRIMARY KEY,
  series INTEGER NOT NULL,
  step INTEGER NOT NULL,
  tokens INTEGER NOT NULL,
  wall_ms INTEGER NOT NULL,
  value REAL
) STRICT;

-- Sealed points; the format of `data` is in storage/chunk_format.h.
CREATE TABLE metric_chunk (
  id INTEGER PRIMARY KEY,
  series INTEGER NOT NULL REFERENCES series (id) DEFERRABLE INITIALLY DEFERRED,
  points INTEGER NOT NULL,
  data BLOB NOT NULL
) STRICT;
CREATE INDEX metric_chunk_by_series ON metric_chunk (series);

CREATE TABLE checkpoint (
  trial INTEGER NOT NULL,
  attempt INTEGER NOT NULL,
  step INTEGER NOT NULL,
  path TEXT NOT NULL,
  sha256 TEXT NOT NULL,
  bytes INTEGER NOT NULL,
  wall_ms INTEGER NOT NULL,
  PRIMARY KEY (trial, attempt, step),
  FOREIGN KEY (trial, attempt) REFERENCES attempt (trial, number) DEFERRABLE INITIALLY DEFERRED
) STRICT, WITHOUT ROWID;

CREATE TABLE profile (
  trial INTEGER NOT NULL,
  attempt INTEGER NOT NULL,
  step INTEGER NOT NULL,
  layer INTEGER NOT NULL,
  sub_block INTEGER NOT NULL,
  geometry TEXT NOT NULL,
  statistic TEXT NOT NULL,
  value REAL,
  standard_error REAL,
  tokens INTEGER NOT NULL,
  subsamples INTEGER NOT NULL,
  PRIMARY KEY (trial, attempt, step, layer, sub_block, geometry, statistic),
  FOREIGN KEY (trial, attempt) REFERENCES attempt (trial, number) DEFERRABLE INITIALLY DEFERRED
) STRICT, WITHOUT ROWID;

CREATE TABLE event (
  id INTEGER PRIMARY KEY,
  wall_ms INTEGER NOT NULL,
  kind TEXT NOT NULL,
  sweep INTEGER NOT NULL,
  trial INTEGER NOT NULL,
  attempt INTEGER NOT NULL,
  worker INTEGER NOT NULL,
  message TEXT NOT NULL
) STRICT;
CREATE INDEX event_by_sweep ON event (sweep) WHERE sweep <> 0;
CREATE INDEX event_by_trial ON event (trial) WHERE trial <> 0;

CREATE TABLE log_chunk (
  id INTEGER PRIMARY KEY,
  trial INTEGER NOT NULL,
  attempt INTEGER NOT NULL,
  offset INTEGER NOT NULL,
  bytes BLOB NOT NULL,
  UNIQUE (trial, attempt, offset),
  FOREIGN KEY (trial, attempt) REFERENCES attempt (trial, number) DEFERRABLE INITIALLY DEFERRED
) STRICT;

-- For people: `tailor query "SELECT * FROM trial_view"`.
CREATE VIEW trial_view AS
SELECT s.name AS sweep, c.name AS candidate, t.id AS trial, t.seed AS seed, t.state AS state,
       t.objective AS objective, t.objective_nan AS objective_is_nan,
       c.parameters_body AS parameters_body, c.parameters_total AS parameters_total,
       c.point_json AS point, t.final_values_json AS final_values, t.attempts AS attempts,
       t.end_class AS end_class, t.message AS message,
       t.created_ms AS created_ms, t.started_ms AS started_ms, t.ended_ms AS ended_ms
FROM trial t
JOIN sweep s ON s.id = t.sweep
JOIN candidate c ON c.sweep = t.sweep AND c.number = t.candidate;

-- The latest value of every series. (metric_view, with every point, exists on query connections only: it
-- needs a function that decodes chunks.)
CREATE VIEW metric_latest_view AS
SELECT s.trial AS trial, s.attempt AS attempt, s.name AS metric,
       CASE WHEN t.id IS NULL THEN s.last_step ELSE t.step END AS step,
       CASE WHEN t.id IS NULL THEN s.last_tokens ELSE t.tokens END AS tokens,
       CASE WHEN t.id IS NULL THEN s.last_wall_ms ELSE t.wall_ms END AS wall_ms,
       CASE WHEN t.id IS NULL THEN s.last_value ELSE t.value END AS value
FROM series s
LEFT JOIN (SELECT series, max(id) AS id, step, tokens, wall_ms, value
           FROM metric_tail GROUP BY series) t
  ON t.series = s.id AND t.id >= s.tail_from;
