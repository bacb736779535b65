-- One key space: a kind within a namespace. Its counters make quotas and statistics cheap; they count rows that have ended
-- and were not swept yet. A space without rows is removed.
CREATE TABLE memory_spaces (
    id      INTEGER PRIMARY KEY,
    tenant  TEXT NOT NULL,
    subject TEXT NOT NULL,
    session TEXT,                       -- NULL = whatever the dialogue
    kind    TEXT NOT NULL,
    rows    INTEGER NOT NULL DEFAULT 0,
    bytes   INTEGER NOT NULL DEFAULT 0
) STRICT;
CREATE UNIQUE INDEX memory_spaces_by_name ON memory_spaces (tenant, subject, session, kind);
-- NULLs are all different to the index above.
CREATE UNIQUE INDEX memory_spaces_without_session ON memory_spaces (tenant, subject, kind) WHERE session IS NULL;

-- Times are Unix microseconds. A rowid table with an index beside it: much faster than WITHOUT ROWID for values above 200
-- bytes. The value comes last, so that reading the rest never touches its overflow pages.
CREATE TABLE memory_entries (
    id               INTEGER PRIMARY KEY,
    space_id         INTEGER NOT NULL,
    key              TEXT NOT NULL,
    version          INTEGER NOT NULL,
    created_at       INTEGER NOT NULL,
    updated_at       INTEGER NOT NULL,
    expires_at       INTEGER,           -- NULL = never
    key_id           TEXT NOT NULL,     -- empty = not sealed
    fingerprint      TEXT NOT NULL,
    category         TEXT NOT NULL,
    tags             TEXT NOT NULL,     -- JSON array
    attributes       TEXT NOT NULL,     -- JSON object
    value_nonce      BLOB NOT NULL,
    value_ciphertext BLOB NOT NULL
) STRICT;
CREATE UNIQUE INDEX memory_entries_by_key ON memory_entries (space_id, key);
CREATE INDEX memory_entries_by_end ON memory_entries (expires_at) WHERE expires_at IS NOT NULL;

-- Finds entries by tag. What an entry's tags are is told by the entry.
CREATE TABLE memory_tags (
    space_id INTEGER NOT NULL,
    tag      TEXT NOT NULL,
    entry_id INTEGER NOT NULL,
    PRIMARY KEY (space_id, tag, entry_id)
) STRICT, WITHOUT ROWID;

-- How many rows each memory key sealed.
CREATE TABLE memory_keys (
    key_id TEXT PRIMARY KEY,
    rows   INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- One row: proves which key the store was written with.
CREATE TABLE memory_canary (
    id     INTEGER PRIMARY KEY CHECK (id = 1),
    key_id TEXT NOT NULL,
    sealed BLOB NOT NULL
) STRICT;

-- One row: grows with every delete, so that other processes notice.
CREATE TABLE memory_generation (
    id    INTEGER PRIMARY KEY CHECK (id = 1),
    value INTEGER NOT NULL
) STRICT;
INSERT INTO memory_generation (id, value) VALUES (1, 0);
