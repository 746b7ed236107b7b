-- A database that was restored from a backup goes on under another generation, so that tokens and folders never meet
-- those of what lived after the backup: tokens begin at generation << 40. `file_id` names the file that the generation
-- belongs to ('' = not known yet); a backup carries another one.
ALTER TABLE counters ADD COLUMN generation INTEGER NOT NULL DEFAULT 0;
ALTER TABLE counters ADD COLUMN file_id TEXT NOT NULL DEFAULT '';

-- Who submitted it, as the client said; '' where a row is older than this column.
ALTER TABLE sweep ADD COLUMN user TEXT NOT NULL DEFAULT '';

-- Added to the sweep's priority.
ALTER TABLE trial ADD COLUMN priority INTEGER NOT NULL DEFAULT 0;
-- Time that ended attempts ran, for limits of whole trials.
ALTER TABLE trial ADD COLUMN run_ms INTEGER NOT NULL DEFAULT 0;

-- Why it was told to stop: a name of protocol::StopReason, '' = it was not. Older rows say it in `message`.
ALTER TABLE attempt ADD COLUMN stop_reason TEXT NOT NULL DEFAULT '';
-- The members of a gang, [{"worker":2,"slots":[0,1],"first_rank":0,"ranks":2}, ...]; '' = one member: the columns
-- `worker` and `slots_json` of this row.
ALTER TABLE attempt ADD COLUMN members_json TEXT NOT NULL DEFAULT '';

ALTER TABLE worker ADD COLUMN folder TEXT NOT NULL DEFAULT '';       -- identity of its trials folder
ALTER TABLE worker ADD COLUMN labels_json TEXT NOT NULL DEFAULT '';  -- ["big","rack=3"]
ALTER TABLE worker ADD COLUMN memory_bytes INTEGER NOT NULL DEFAULT 0;
-- Why it is given no work until someone takes that back; '' = it is given work.
ALTER TABLE worker ADD COLUMN quarantine TEXT NOT NULL DEFAULT '';
ALTER TABLE worker ADD COLUMN quarantined_ms INTEGER NOT NULL DEFAULT 0;
