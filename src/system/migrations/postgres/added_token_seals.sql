-- The seal of a token: nobody without the memory key makes or changes one. NULL = it was made without a memory key.
ALTER TABLE system_tokens ADD COLUMN seal BYTEA;
-- The sealed head: which tokens have ended, so that none of them comes back.
CREATE TABLE system_token_state (
    one        INTEGER PRIMARY KEY CHECK (one = 1),
    generation BIGINT NOT NULL,
    head       BYTEA
);
INSERT INTO system_token_state (one, generation, head) VALUES (1, 0, NULL);
