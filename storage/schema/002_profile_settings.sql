-- What a work profile was measured with: enough to measure it again. `seed` is unsigned in a signed column; 0 and
-- NULL stand where a row is older than these columns.
ALTER TABLE profile ADD COLUMN linear_tokens INTEGER NOT NULL DEFAULT 0;
ALTER TABLE profile ADD COLUMN rho REAL;
ALTER TABLE profile ADD COLUMN seed INTEGER NOT NULL DEFAULT 0;
ALTER TABLE profile ADD COLUMN dropped INTEGER NOT NULL DEFAULT 0;
