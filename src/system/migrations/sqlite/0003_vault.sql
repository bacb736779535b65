-- Credentials. Everything but the name, the version and the times is sealed with the vault key.
CREATE TABLE vault_credentials (
    name       TEXT PRIMARY KEY,
    version    INTEGER NOT NULL,
    key_id     TEXT NOT NULL,
    sealed     BLOB NOT NULL,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- Bumped by every change, so that a running process sees what another one did.
CREATE TABLE vault_state (
    one        INTEGER PRIMARY KEY CHECK (one = 1),
    generation INTEGER NOT NULL,
    -- Proves that a key is the one that the rows were sealed with, before there is a row.
    key_id     TEXT
) STRICT;
INSERT INTO vault_state (one, generation, key_id) VALUES (1, 0, NULL);

-- Who used a credential for which pack, how often, and when last. Never the secret.
CREATE TABLE vault_uses (
    name       TEXT NOT NULL,
    tenant     TEXT NOT NULL,
    subject    TEXT NOT NULL,
    pack       TEXT NOT NULL,
    day        INTEGER NOT NULL,
    granted    INTEGER NOT NULL,
    refused    INTEGER NOT NULL,
    last_at    INTEGER NOT NULL,
    PRIMARY KEY (name, tenant, subject, pack, day)
) STRICT, WITHOUT ROWID;
