-- Where the hand of an eviction stands in a key space (see sieve.rs). A space from which nothing was evicted has none.
CREATE TABLE memory_hands (
    space_id   BIGINT PRIMARY KEY,
    updated_at BIGINT NOT NULL,         -- of the last row that it visited
    key        BYTEA NOT NULL,
    round      BIGINT NOT NULL
) WITH (fillfactor = 50);
-- Round until which the hand spares a row; the largest number = read since its last visit, NULL = never visited, never read.
ALTER TABLE memory_entries ADD COLUMN spared_until BIGINT;
