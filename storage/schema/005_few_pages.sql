-- Rows laid out so that a trial touches few pages: every page that a batch changes is written to the log whole.
-- Attempts have one number for a key, so that the rows of neighbours lie together and children need no second index.
-- References to them (points, logs, checkpoints, profiles) are checked by the store at the end of each batch.
DROP VIEW metric_latest_view;

CREATE TABLE attempt_by_id (
  id INTEGER PRIMARY KEY,         -- trial << 20 | number
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
  assigned_ms INTEGER NOT NULL,
  ended_ms INTEGER NOT NULL,
  stop_reason TEXT NOT NULL DEFAULT '',   -- as in 004
  members_json TEXT NOT NULL DEFAULT ''
) STRICT;
INSERT INTO attempt_by_id SELECT trial << 20 | number, trial, number, token, worker, slots_json, state, acked_sequence,
  log_bytes, end_class, message, assigned_ms, ended_ms, stop_reason, members_json
FROM attempt ORDER BY trial, number;

-- What an attempt said when it started; apart from the row that changes with every report, which would outgrow its page.
CREATE TABLE attempt_start (
  attempt INTEGER PRIMARY KEY,    -- attempt.id
  started_json TEXT NOT NULL
) STRICT;
INSERT INTO attempt_start SELECT trial << 20 | number, started_json FROM attempt WHERE started_json <> ''
ORDER BY trial, number;

-- Names of metrics, each once.
CREATE TABLE metric (
  id INTEGER PRIMARY KEY,
  name TEXT NOT NULL UNIQUE
) STRICT;
INSERT INTO metric (name) SELECT DISTINCT name FROM series ORDER BY name;

-- New points in the order of their arrival, a row a batch: only appended at the end and cut at the front. `id` is the
-- number of its first point, the others follow; the format of `data` is in storage/chunk_format.h. A point is in a chunk
-- already when a chunk of its series has a `tail_to` above its number.
CREATE TABLE tail_of_points (
  id INTEGER PRIMARY KEY,
  data BLOB NOT NULL
) STRICT;
-- What older schemas left in their tail: the next start moves it over. Empty from then on.
CREATE TABLE metric_tail_before_005 (
  id INTEGER PRIMARY KEY,
  attempt INTEGER NOT NULL,       -- attempt.id
  metric INTEGER NOT NULL,
  step INTEGER NOT NULL,
  tokens INTEGER NOT NULL,
  wall_ms INTEGER NOT NULL,
  value REAL
) STRICT;
INSERT INTO metric_tail_before_005
SELECT t.id, s.trial << 20 | s.attempt, m.id, t.step, t.tokens, t.wall_ms, t.value
FROM metric_tail t JOIN series s ON s.id = t.series JOIN metric m ON m.name = s.name
WHERE t.id >= s.tail_from ORDER BY t.id;

-- Sealed points; the format of `data` is in storage/chunk_format.h. Chunks of a series ascend by id.
CREATE TABLE chunk_of_points (
  id INTEGER PRIMARY KEY,
  attempt INTEGER NOT NULL,       -- attempt.id
  metric INTEGER NOT NULL,
  sealed INTEGER NOT NULL,        -- points of the series up to the end of this chunk
  tail_to INTEGER NOT NULL,       -- points of this series with numbers below are in chunks
  data BLOB NOT NULL
) STRICT;
INSERT INTO chunk_of_points SELECT c.id, s.trial << 20 | s.attempt, m.id,
  sum(c.points) OVER (PARTITION BY c.series ORDER BY c.id), s.tail_from, c.data
FROM metric_chunk c JOIN series s ON s.id = c.series JOIN metric m ON m.name = s.name ORDER BY c.id;

CREATE TABLE log_of_attempt (
  id INTEGER PRIMARY KEY,
  attempt INTEGER NOT NULL,       -- attempt.id
  offset INTEGER NOT NULL,
  bytes BLOB NOT NULL
) STRICT;
INSERT INTO log_of_attempt SELECT id, trial << 20 | attempt, offset, bytes FROM log_chunk ORDER BY id;

CREATE TABLE checkpoint_of_attempt (
  trial INTEGER NOT NULL,
  attempt INTEGER NOT NULL,       -- attempt.number
  step INTEGER NOT NULL,
  path TEXT NOT NULL,
  sha256 TEXT NOT NULL,
  bytes INTEGER NOT NULL,
  wall_ms INTEGER NOT NULL,
  PRIMARY KEY (trial, attempt, step)
) STRICT, WITHOUT ROWID;
INSERT INTO checkpoint_of_attempt SELECT trial, attempt, step, path, sha256, bytes, wall_ms FROM checkpoint;

CREATE TABLE profile_of_attempt (
  trial INTEGER NOT NULL,
  attempt INTEGER NOT NULL,       -- attempt.number
  step INTEGER NOT NULL,
  layer INTEGER NOT NULL,
  sub_block INTEGER NOT NULL,
  geometry TEXT NOT NULL,
  statistic TEXT NOT NULL,
  value REAL,
  standard_error REAL,
  tokens INTEGER NOT NULL,
  subsamples INTEGER NOT NULL,
  linear_tokens INTEGER NOT NULL DEFAULT 0,   -- as in 002
  rho REAL,
  seed INTEGER NOT NULL DEFAULT 0,
  dropped INTEGER NOT NULL DEFAULT 0,
  PRIMARY KEY (trial, attempt, step, layer, sub_block, geometry, statistic)
) STRICT, WITHOUT ROWID;
INSERT INTO profile_of_attempt SELECT trial, attempt, step, layer, sub_block, geometry, statistic, value, standard_error,
  tokens, subsamples, linear_tokens, rho, seed, dropped FROM profile;

-- One row: how far the store's own upkeep has come.
CREATE TABLE upkeep (
  id INTEGER PRIMARY KEY CHECK (id = 1),
  tail_next INTEGER NOT NULL,       -- numbers of points in metric_tail below this one were given out
  events_indexed INTEGER NOT NULL   -- events up to this id are in event_of_sweep and event_of_trial
) STRICT;
INSERT INTO upkeep SELECT 1,
  1 + max((SELECT coalesce(max(id), 0) FROM metric_tail), (SELECT coalesce(max(tail_from), 0) FROM series)),
  (SELECT coalesce(max(id), 0) FROM event);

-- Which events are about a sweep or a trial. Filled in pieces, after the events: an index would be a page or two more in
-- every batch. Reads look through the events after upkeep.events_indexed as well.
CREATE TABLE event_of_sweep (
  sweep INTEGER NOT NULL,
  event INTEGER NOT NULL,
  PRIMARY KEY (sweep, event)
) STRICT, WITHOUT ROWID;
INSERT INTO event_of_sweep SELECT sweep, id FROM event WHERE sweep <> 0 ORDER BY sweep, id;
CREATE TABLE event_of_trial (
  trial INTEGER NOT NULL,
  event INTEGER NOT NULL,
  PRIMARY KEY (trial, event)
) STRICT, WITHOUT ROWID;
INSERT INTO event_of_trial SELECT trial, id FROM event WHERE trial <> 0 ORDER BY trial, id;

DROP INDEX event_by_sweep;
DROP INDEX event_by_trial;
DROP TABLE profile;
DROP TABLE checkpoint;
DROP TABLE log_chunk;
DROP TABLE metric_chunk;
DROP TABLE metric_tail;
DROP TABLE series;
DROP TABLE attempt;
ALTER TABLE attempt_by_id RENAME TO attempt;
ALTER TABLE tail_of_points RENAME TO metric_tail;
ALTER TABLE chunk_of_points RENAME TO metric_chunk;
ALTER TABLE log_of_attempt RENAME TO log_chunk;
ALTER TABLE checkpoint_of_attempt RENAME TO checkpoint;
ALTER TABLE profile_of_attempt RENAME TO profile;
CREATE INDEX metric_chunk_by_series ON metric_chunk (attempt, metric);
CREATE UNIQUE INDEX log_chunk_by_offset ON log_chunk (attempt, offset);

-- Pages of trials. The first is written when a trial is made, the others when it ends; the partial ones hold few rows.
CREATE INDEX trial_by_sweep ON trial (sweep);
CREATE INDEX trial_open ON trial (sweep) WHERE state IN ('queued', 'running');
CREATE INDEX trial_by_objective ON trial (sweep, objective, state) WHERE objective IS NOT NULL;
CREATE INDEX trial_objective_nan ON trial (sweep) WHERE objective_nan = 1;
CREATE INDEX trial_unsuccessful ON trial (sweep, state) WHERE state IN ('stopped', 'failed', 'cancelled');

-- How many trials of a sweep are in which state, kept with every change; a sweep without a row has none.
CREATE TABLE trial_count (
  sweep INTEGER PRIMARY KEY,
  queued INTEGER NOT NULL,
  running INTEGER NOT NULL,
  completed INTEGER NOT NULL,
  stopped INTEGER NOT NULL,
  failed INTEGER NOT NULL,
  cancelled INTEGER NOT NULL
) STRICT;
INSERT INTO trial_count SELECT sweep, sum(state = 'queued'), sum(state = 'running'), sum(state = 'completed'),
  sum(state = 'stopped'), sum(state = 'failed'), sum(state = 'cancelled') FROM trial GROUP BY sweep;

-- Of which trials something was pruned, and when; 0 = it is kept.
CREATE TABLE pruned (
  trial INTEGER PRIMARY KEY,
  logs_ms INTEGER NOT NULL,
  points_ms INTEGER NOT NULL
) STRICT;
