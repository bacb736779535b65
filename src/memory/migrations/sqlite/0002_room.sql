-- What a row takes (see EntryMeta::cost) stands beside it, before the value: reading it never touches overflow pages.
CREATE TABLE memory_entries_new (
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
    cost             INTEGER NOT NULL DEFAULT 0,
    value_nonce      BLOB NOT NULL,
    value_ciphertext BLOB NOT NULL
) STRICT;
INSERT INTO memory_entries_new
SELECT id, space_id, key, version, created_at, updated_at, expires_at, key_id, fingerprint, category, tags, attributes,
       268 + length(value_ciphertext) + 2 * octet_length(key) + octet_length(category)
           + CASE WHEN json_valid(tags)
                  THEN (SELECT coalesce(sum(2 * octet_length(value) + 24), 0) FROM json_each(tags)) ELSE 0 END
           + CASE WHEN json_valid(attributes)
                  THEN (SELECT coalesce(sum(octet_length(j.key) + octet_length(value) + 6), 0) FROM json_each(attributes) j)
                  ELSE 0 END,
       value_nonce, value_ciphertext
  FROM memory_entries;
DROP TABLE memory_entries;
ALTER TABLE memory_entries_new RENAME TO memory_entries;
CREATE UNIQUE INDEX memory_entries_by_key ON memory_entries (space_id, key);
CREATE INDEX memory_entries_by_end ON memory_entries (expires_at) WHERE expires_at IS NOT NULL;
-- For lists, newest first, and for making room, oldest first.
CREATE INDEX memory_entries_by_age ON memory_entries (space_id, updated_at);

-- From now on what the rows take, not only the bytes of their values.
UPDATE memory_spaces SET bytes = coalesce((SELECT sum(cost) FROM memory_entries WHERE space_id = memory_spaces.id), 0);

-- Locks that all processes on this file see. One whose time has passed is free.
CREATE TABLE memory_locks (
    name       TEXT PRIMARY KEY,
    owner      TEXT NOT NULL,
    held_until INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
