-- Texts of callers are BYTEA (UTF-8): they may hold NUL, and compare byte for byte whatever the collation of the database.

-- One key space: a kind within a namespace. Its row is locked by whoever writes into the space, which makes its counters
-- exact for any number of replicas; they count rows that have ended and were not swept yet. A space without rows is removed.
CREATE TABLE memory_spaces (
    id      BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    tenant  BYTEA NOT NULL,
    subject BYTEA NOT NULL,
    session BYTEA,                      -- NULL = whatever the dialogue
    kind    TEXT NOT NULL,
    rows    BIGINT NOT NULL DEFAULT 0,
    bytes   BIGINT NOT NULL DEFAULT 0   -- the sum of memory_entries.cost
) WITH (fillfactor = 50);
-- An absent session and an empty one differ, and both can be looked up.
CREATE UNIQUE INDEX memory_spaces_by_name
    ON memory_spaces (tenant, subject, kind, (coalesce('\x01'::bytea || session, '\x'::bytea)));

-- Times are Unix microseconds.
CREATE TABLE memory_entries (
    id               BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    space_id         BIGINT NOT NULL,
    key              BYTEA NOT NULL,
    version          BIGINT NOT NULL,
    created_at       BIGINT NOT NULL,
    updated_at       BIGINT NOT NULL,
    expires_at       BIGINT,            -- NULL = never
    key_id           TEXT NOT NULL,     -- empty = not sealed
    fingerprint      TEXT NOT NULL,
    category         BYTEA NOT NULL,
    tags             BYTEA[] NOT NULL,
    attributes       TEXT NOT NULL,     -- JSON object
    cost             BIGINT NOT NULL,   -- what the row counts in its space
    value_nonce      BYTEA NOT NULL,
    value_ciphertext BYTEA NOT NULL
);
-- What is sealed cannot be compressed.
ALTER TABLE memory_entries ALTER COLUMN value_ciphertext SET STORAGE EXTERNAL;
CREATE UNIQUE INDEX memory_entries_by_key ON memory_entries (space_id, key);
-- The space is an expression here, so that a query gets this index if it asks for that expression, and never by mistake: a plan
-- made while the tables were small is used for long.
CREATE INDEX memory_entries_by_time ON memory_entries ((space_id + 0), updated_at DESC, key);
CREATE INDEX memory_entries_by_end ON memory_entries (expires_at) WHERE expires_at IS NOT NULL;

-- Finds entries by tag. What an entry's tags are is told by the entry.
CREATE TABLE memory_tags (
    space_id BIGINT NOT NULL,
    tag      BYTEA NOT NULL,
    entry_id BIGINT NOT NULL,
    PRIMARY KEY (space_id, tag, entry_id)
);

-- How many rows of a space each memory key sealed.
CREATE TABLE memory_keys (
    space_id BIGINT NOT NULL,
    key_id   TEXT NOT NULL,
    rows     BIGINT NOT NULL,
    PRIMARY KEY (space_id, key_id)
) WITH (fillfactor = 50);

-- One row: proves which key the store was written with.
CREATE TABLE memory_canary (
    id     INTEGER PRIMARY KEY CHECK (id = 1),
    key_id TEXT NOT NULL,
    sealed BYTEA NOT NULL
);

-- One row: grows with every delete, so that others notice who were not listening.
CREATE TABLE memory_generation (
    id    INTEGER PRIMARY KEY CHECK (id = 1),
    value BIGINT NOT NULL
) WITH (fillfactor = 10);
INSERT INTO memory_generation (id, value) VALUES (1, 0);

-- Locks that are held. They need not survive a crash of the server: it ends the sessions that hold them.
CREATE UNLOGGED TABLE memory_locks (
    name    BYTEA PRIMARY KEY,          -- SHA-256
    owner   TEXT NOT NULL,
    until   BIGINT NOT NULL,
    session BIGINT NOT NULL             -- the advisory lock that the holder's process holds while it lives
);
