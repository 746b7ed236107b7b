-- What the errors of a work profile are worth. `positions` tokens could be used, of `sequences` sequences; where these were
-- not given each token was taken as one. 0 positions: measured by an earlier version, whose subsamples could overlap or share
-- sequences: such errors were too small, and are kept under another name. Lists are JSON. standard_error is NULL where it
-- cannot be known, and `no_error` says why.
ALTER TABLE profile ADD COLUMN subsamples_asked INTEGER NOT NULL DEFAULT 0;
ALTER TABLE profile ADD COLUMN positions INTEGER NOT NULL DEFAULT 0;
ALTER TABLE profile ADD COLUMN sequences INTEGER NOT NULL DEFAULT 0;
ALTER TABLE profile ADD COLUMN sequences_given INTEGER NOT NULL DEFAULT 0;
ALTER TABLE profile ADD COLUMN subsample_tokens_json TEXT NOT NULL DEFAULT '[]';
ALTER TABLE profile ADD COLUMN subsample_values_json TEXT NOT NULL DEFAULT '[]';
ALTER TABLE profile ADD COLUMN no_error TEXT NOT NULL DEFAULT '';
ALTER TABLE profile ADD COLUMN earlier_standard_error REAL;
UPDATE profile SET earlier_standard_error = standard_error, standard_error = NULL,
  no_error = 'measured by an earlier version, whose subsamples could overlap or share sequences';
