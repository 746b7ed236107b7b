-- What a Gromov-Wasserstein match costs beside its value, in squared distances: a JSON list of E, E of the identity, the norm,
-- second and third lower bound (means over the subsamples), and of how many subsamples E is proved to be the least. NULL for
-- other statistics and in profiles of earlier versions.
ALTER TABLE profile ADD COLUMN energies_json TEXT;
