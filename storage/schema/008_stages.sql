-- Stages: what was measured, and which widths were cut from it.

-- One row a work profile: whose it is, and what it is a measurement of. Equal keys are one measurement.
CREATE TABLE measurement (
  trial INTEGER NOT NULL,
  attempt INTEGER NOT NULL,       -- attempt.number
  step INTEGER NOT NULL,
  key TEXT NOT NULL,              -- SHA-256 of architecture, recipe, data, seed and what is measured; '' = not known
  data_hash TEXT NOT NULL,        -- of the shards; '' = not known
  failure TEXT NOT NULL,          -- why there is no profile; '' = there is
  dimension_failure TEXT NOT NULL,
  wall_ms INTEGER NOT NULL,
  PRIMARY KEY (trial, attempt, step)
) STRICT, WITHOUT ROWID;
CREATE INDEX measurement_by_key ON measurement (key);

-- How the widths of a candidate came from a measurement.
CREATE TABLE schedule (
  sweep INTEGER NOT NULL,
  candidate INTEGER NOT NULL,     -- candidate.number
  state TEXT NOT NULL,            -- waiting, cut, same, failed
  reference INTEGER NOT NULL,     -- the trial of this sweep that is measured for it; 0 = none is
  key TEXT NOT NULL,              -- measurement.key; '' while the widths of the reference are not known
  measured_trial INTEGER NOT NULL,    -- whose profile it was cut from; 0 = not yet
  measured_attempt INTEGER NOT NULL,
  data_hash TEXT NOT NULL,        -- measurement.data_hash
  message TEXT NOT NULL,
  request_json TEXT NOT NULL,     -- the keys that asked for it
  problem_json TEXT NOT NULL,     -- as `tailor geometry allocate` reads it
  solution_json TEXT NOT NULL,    -- as it prints it
  raw_widths_json TEXT NOT NULL,  -- before rounding
  widths_json TEXT NOT NULL,      -- [[5312], ...]: the candidate's
  wall_ms INTEGER NOT NULL,
  PRIMARY KEY (sweep, candidate),
  FOREIGN KEY (sweep, candidate) REFERENCES candidate (sweep, number) DEFERRABLE INITIALLY DEFERRED
) STRICT, WITHOUT ROWID;
