-- When it is to be drained, in ms since the epoch; 0 = no such time is set.
ALTER TABLE worker ADD COLUMN drain_at_ms INTEGER NOT NULL DEFAULT 0;

-- How long it had run when the row was last written, in ms.
ALTER TABLE attempt ADD COLUMN ran_ms INTEGER NOT NULL DEFAULT 0;

-- What put it into quarantine: troubles, log, request; '' = it is not. Older rows say it in the reason's first words.
ALTER TABLE worker ADD COLUMN quarantine_cause TEXT NOT NULL DEFAULT '';
UPDATE worker SET quarantine_cause = CASE
  WHEN quarantine = '' THEN ''
  WHEN quarantine LIKE 'by request: %' THEN 'request'
  WHEN quarantine LIKE 'a log says: %' THEN 'log'
  ELSE 'troubles' END;

-- 1: its trainer said that it resumed, and has reported no step since.
ALTER TABLE attempt ADD COLUMN awaits_step INTEGER NOT NULL DEFAULT 0;

-- Which database this is, for ever, backups and copies included: the folder of checkpoints beside it bears the name.
CREATE TABLE identity (
  id INTEGER PRIMARY KEY CHECK (id = 1),
  name TEXT NOT NULL
) STRICT;
INSERT INTO identity (id, name) VALUES (1, lower(hex(randomblob(8))));

-- The same rows as before: SQLite makes a table for every IN of an index each time that a trial's row is written.
DROP INDEX trial_open;
DROP INDEX trial_unsuccessful;
CREATE INDEX trial_open ON trial (sweep) WHERE state = 'queued' OR state = 'running';
CREATE INDEX trial_unsuccessful ON trial (sweep, state)
WHERE state = 'stopped' OR state = 'failed' OR state = 'cancelled';
