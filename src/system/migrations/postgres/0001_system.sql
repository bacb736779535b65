-- Texts compare byte for byte, whatever the collation of the database.

-- Processes that run jobs and calls with an Idempotency-Key. A row is a lease: times are those of this server's clock. A lease that
-- has ended is never renewed; its process takes a new one under a new id, so that its earlier writes are refused.
CREATE TABLE system_replicas (
    id         TEXT COLLATE "C" PRIMARY KEY,
    started_at TIMESTAMPTZ NOT NULL DEFAULT clock_timestamp(),
    expires_at TIMESTAMPTZ NOT NULL
);
CREATE INDEX system_replicas_by_end ON system_replicas (expires_at);

-- Counters in the clear: how often, how many, how much. Never what.
CREATE TABLE system_counters (
    pack  TEXT COLLATE "C" NOT NULL,
    name  TEXT COLLATE "C" NOT NULL,
    value BIGINT NOT NULL,
    PRIMARY KEY (pack, name)
);

-- Statistics of calls in the clear, by slot of time and pack. Bounded: old slots are deleted.
CREATE TABLE system_statistics (
    -- Length of the slot.
    seconds BIGINT NOT NULL,
    -- Number of the slot since 1970.
    slot    BIGINT NOT NULL,
    pack    TEXT COLLATE "C" NOT NULL,
    name    TEXT COLLATE "C" NOT NULL,
    value   BIGINT NOT NULL,
    PRIMARY KEY (seconds, slot, pack, name)
);

-- Writes that a caller may send twice. The answer is sealed by whoever stores it, or absent.
CREATE TABLE system_keys (
    scope      TEXT COLLATE "C" NOT NULL,
    key        TEXT COLLATE "C" NOT NULL,
    digest     BYTEA NOT NULL,
    -- The replica that runs the call, and the run that may finish it.
    owner      TEXT COLLATE "C" NOT NULL,
    fence      BYTEA NOT NULL,
    done       BOOLEAN NOT NULL,
    answer     BYTEA,
    expires_at BIGINT NOT NULL,
    PRIMARY KEY (scope, key)
);
CREATE INDEX system_keys_by_end ON system_keys (expires_at);

-- API tokens. Only a digest of the secret part is kept: nobody can make a token out of a row.
CREATE TABLE system_tokens (
    id         TEXT COLLATE "C" PRIMARY KEY,
    digest     BYTEA NOT NULL UNIQUE,
    name       TEXT NOT NULL,
    tenant     TEXT COLLATE "C" NOT NULL,
    subject    TEXT COLLATE "C" NOT NULL,
    scope      TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    expires_at BIGINT,
    revoked_at BIGINT,
    used_at    BIGINT
);
CREATE INDEX system_tokens_by_age ON system_tokens (created_at, id);

-- Credentials. Everything but the name, the version and the times is sealed with the vault key.
CREATE TABLE system_vault (
    name       TEXT COLLATE "C" PRIMARY KEY,
    version    BIGINT NOT NULL,
    key_id     TEXT NOT NULL,
    sealed     BYTEA NOT NULL,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL
);

-- Bumped by every change, so that a running process sees what another one did.
CREATE TABLE system_vault_state (
    one        INTEGER PRIMARY KEY CHECK (one = 1),
    generation BIGINT NOT NULL,
    -- Proves that a key is the one that the rows were sealed with, before there is a row.
    key_id     TEXT
);
INSERT INTO system_vault_state (one, generation, key_id) VALUES (1, 0, NULL);

-- Who used a credential for which pack, how often, and when last. Never the secret.
CREATE TABLE system_vault_uses (
    name    TEXT COLLATE "C" NOT NULL,
    tenant  TEXT COLLATE "C" NOT NULL,
    subject TEXT COLLATE "C" NOT NULL,
    pack    TEXT COLLATE "C" NOT NULL,
    day     BIGINT NOT NULL,
    granted BIGINT NOT NULL,
    refused BIGINT NOT NULL,
    last_at BIGINT NOT NULL,
    PRIMARY KEY (name, tenant, subject, pack, day)
);
CREATE INDEX system_vault_uses_by_age ON system_vault_uses (last_at);

-- Jobs. A row has states, times, texts that are meant to be read, and references. The result is sealed or absent.
CREATE TABLE system_jobs (
    id          TEXT COLLATE "C" PRIMARY KEY,
    tenant      TEXT COLLATE "C" NOT NULL,
    subject     TEXT COLLATE "C" NOT NULL,
    pack        TEXT NOT NULL,
    version     BIGINT NOT NULL,
    state       TEXT COLLATE "C" NOT NULL,
    -- The replica that runs it.
    owner       TEXT COLLATE "C" NOT NULL,
    -- Set by whoever wants it to stop; the owner looks.
    cancel      BOOLEAN NOT NULL DEFAULT FALSE,
    -- Grows with every change, so that an old write never wins over a newer one.
    revision    BIGINT NOT NULL,
    percent     DOUBLE PRECISION,
    message     TEXT,
    progress_at BIGINT,
    created_at  BIGINT NOT NULL,
    started_at  BIGINT,
    ended_at    BIGINT,
    expires_at  BIGINT NOT NULL,
    error       TEXT,
    artifacts   TEXT,
    -- Where the result is: none, sealed (in system_job_results), memory (of the owner), large (nowhere).
    kept        TEXT NOT NULL DEFAULT 'none'
);
CREATE INDEX system_jobs_by_caller ON system_jobs (tenant, subject, id);
CREATE INDEX system_jobs_by_end ON system_jobs (expires_at) WHERE ended_at IS NOT NULL;
CREATE INDEX system_jobs_live ON system_jobs (owner) WHERE ended_at IS NULL;

-- Results apart from the rows that change often.
CREATE TABLE system_job_results (
    id     TEXT COLLATE "C" PRIMARY KEY REFERENCES system_jobs (id) ON DELETE CASCADE,
    sealed BYTEA NOT NULL
);
