-- The tokens that a token descends from: their ids, each followed by a slash, the one that made it last. The descendants of a
-- token are a range of this column: what begins with its own ancestors and itself.
ALTER TABLE system_tokens ADD COLUMN ancestors TEXT COLLATE "C" NOT NULL DEFAULT '';
CREATE INDEX system_tokens_by_ancestors ON system_tokens (ancestors) WHERE ancestors <> '';
