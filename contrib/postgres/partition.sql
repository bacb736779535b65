-- Splits memory_entries into 64 hash partitions by space, for stores of more than about 100 million rows: each index stays
-- small, and a vacuum works on one partition at a time. Servers need no setting and may run; their writes wait while the rows
-- are copied, so stop them before for a large store. It changes everything or nothing. Run it as the user of the servers:
--   psql --single-transaction -v ON_ERROR_STOP=1 -d DATABASE -f partition.sql
LOCK TABLE memory_spaces, memory_entries IN ACCESS EXCLUSIVE MODE;
ALTER TABLE memory_entries RENAME TO memory_entries_whole;
CREATE TABLE memory_entries (
    LIKE memory_entries_whole INCLUDING DEFAULTS INCLUDING STORAGE INCLUDING IDENTITY
) PARTITION BY HASH (space_id);
DO $$
BEGIN
    FOR part IN 0..63 LOOP
        EXECUTE format('CREATE TABLE memory_entries_%s PARTITION OF memory_entries
                            FOR VALUES WITH (MODULUS 64, REMAINDER %s)', lpad(part::text, 2, '0'), part);
    END LOOP;
END $$;
INSERT INTO memory_entries OVERRIDING SYSTEM VALUE SELECT * FROM memory_entries_whole;
SELECT setval(pg_get_serial_sequence('memory_entries', 'id'),
              (SELECT coalesce(max(id), 0) + 1 FROM memory_entries_whole), false);
DROP TABLE memory_entries_whole;
ALTER TABLE memory_entries ADD PRIMARY KEY (space_id, id);
CREATE UNIQUE INDEX memory_entries_by_key ON memory_entries (space_id, key);
CREATE INDEX memory_entries_by_time ON memory_entries ((space_id + 0), updated_at DESC, key);
CREATE INDEX memory_entries_by_end ON memory_entries (expires_at) WHERE expires_at IS NOT NULL;
ANALYZE memory_entries;
