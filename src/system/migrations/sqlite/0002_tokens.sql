-- API tokens. Only a digest of the secret part is kept: nobody can make a token out of a row.
CREATE TABLE api_tokens (
    id         TEXT PRIMARY KEY,
    digest     BLOB NOT NULL UNIQUE,
    name       TEXT NOT NULL,
    tenant     TEXT NOT NULL,
    subject    TEXT NOT NULL,
    scope      TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    expires_at INTEGER,
    revoked_at INTEGER,
    used_at    INTEGER
) STRICT, WITHOUT ROWID;
