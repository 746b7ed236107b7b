-- Why points of a sweep's space fell away: {"reason":count}; '' where a row is older than this column.
-- `sweep.state` may now also be failed: no point was feasible and nothing was trained.
ALTER TABLE sweep ADD COLUMN infeasible_json TEXT NOT NULL DEFAULT '';

-- Trials with a finite objective, best (least) first within each sweep. Failed and unfinished ones have none, and
-- ORDER BY puts a missing value first: with trial_view say ORDER BY objective NULLS LAST.
CREATE VIEW best_view AS
SELECT row_number() OVER (PARTITION BY sweep ORDER BY objective, trial) AS place, *
FROM trial_view
WHERE objective > -9e999 AND objective < 9e999;
