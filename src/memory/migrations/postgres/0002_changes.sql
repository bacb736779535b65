-- Deletes, for other replicas: each is written in its own transaction, and kept for ten minutes. A reader's position is a snapshot:
-- what that did not see is new, in whatever order transactions commit. It need not survive a crash of the server, after which
-- every replica assumes that anything changed.
CREATE UNLOGGED TABLE memory_changes (
    xact    BIGINT NOT NULL DEFAULT (pg_current_xact_id()::text::bigint),
    origin  BIGINT NOT NULL,            -- the process that deleted
    at      TIMESTAMPTZ NOT NULL DEFAULT clock_timestamp(),
    payload TEXT NOT NULL               -- JSON list; anything else means that anything changed
);
CREATE INDEX memory_changes_by_xact ON memory_changes (xact);

-- Servers of the version before count deletes here, as long as they run beside newer ones.
CREATE RULE memory_generation_raised AS ON UPDATE TO memory_generation
    DO ALSO INSERT INTO memory_changes (origin, payload) VALUES (0, '');
