-- A key in use names the process that runs its call, as the name of the lock that it holds, and the run that may finish it.
ALTER TABLE idempotency_keys ADD COLUMN owner TEXT;
ALTER TABLE idempotency_keys ADD COLUMN fence BLOB;

-- Pages of tokens are read newest first.
CREATE INDEX api_tokens_by_age ON api_tokens (created_at, id);
