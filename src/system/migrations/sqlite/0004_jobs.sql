-- Jobs. A row has states, times, texts that are meant to be read, and references; never an input. The result is sealed or absent.
CREATE TABLE jobs (
    id          TEXT PRIMARY KEY,
    tenant      TEXT NOT NULL,
    subject     TEXT NOT NULL,
    pack        TEXT NOT NULL,
    version     INTEGER NOT NULL,
    state       TEXT NOT NULL,
    -- The process that runs it, as the name of the lock that it holds.
    owner       TEXT NOT NULL,
    -- Set by whoever wants it to stop; the owner looks.
    cancel      INTEGER NOT NULL DEFAULT 0,
    -- Grows with every change, so that an old write never wins over a newer one.
    revision    INTEGER NOT NULL,
    percent     REAL,
    message     TEXT,
    progress_at INTEGER,
    created_at  INTEGER NOT NULL,
    started_at  INTEGER,
    ended_at    INTEGER,
    expires_at  INTEGER NOT NULL,
    error       TEXT,
    artifacts   TEXT,
    -- Where the result is: none, sealed (in this row), memory (of the owner), large (nowhere).
    kept        TEXT NOT NULL DEFAULT 'none',
    result      BLOB
) STRICT;
CREATE INDEX jobs_by_caller ON jobs (tenant, subject, id);
CREATE INDEX jobs_by_end ON jobs (expires_at) WHERE ended_at IS NOT NULL;
CREATE INDEX jobs_live ON jobs (owner) WHERE ended_at IS NULL;
