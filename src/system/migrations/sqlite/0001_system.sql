-- Counters in the clear: how often, how many, how much. Never what.
CREATE TABLE cache_counters (
    pack  TEXT NOT NULL,
    name  TEXT NOT NULL,
    value INTEGER NOT NULL,
    PRIMARY KEY (pack, name)
) STRICT, WITHOUT ROWID;

-- Writes that a caller may send twice. The answer is sealed by whoever stores it, or absent.
CREATE TABLE idempotency_keys (
    scope      TEXT NOT NULL,
    key        TEXT NOT NULL,
    digest     BLOB NOT NULL,
    done       INTEGER NOT NULL,
    answer     BLOB,
    expires_at INTEGER NOT NULL,
    PRIMARY KEY (scope, key)
) STRICT;
CREATE INDEX idempotency_keys_by_end ON idempotency_keys (expires_at);
