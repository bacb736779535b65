-- Where the hand of an eviction stands in a key space (see sieve.rs). A space from which nothing was evicted has none.
CREATE TABLE memory_hands (
    space_id   INTEGER PRIMARY KEY,
    updated_at INTEGER NOT NULL,        -- of the last row that it visited
    entry_id   INTEGER NOT NULL,
    round      INTEGER NOT NULL
) STRICT;
-- Rows that the hand spares. Beside the entries: an update there would write the value again.
CREATE TABLE memory_spared (
    entry_id INTEGER PRIMARY KEY,
    until    INTEGER NOT NULL           -- a round; the largest number = read since the hand's last visit
) STRICT;
-- Triggers, so that programs that do not know these tables keep them right.
CREATE TRIGGER memory_spaces_deleted AFTER DELETE ON memory_spaces
BEGIN DELETE FROM memory_hands WHERE space_id = old.id; END;
CREATE TRIGGER memory_entries_deleted AFTER DELETE ON memory_entries
BEGIN DELETE FROM memory_spared WHERE entry_id = old.id; END;
