-- The seal of a token: nobody without the memory key makes or changes one. NULL = it was made without a memory key.
ALTER TABLE api_tokens ADD COLUMN seal BLOB;
-- The sealed head: which tokens have ended, so that none of them comes back.
CREATE TABLE token_state (
    one        INTEGER PRIMARY KEY CHECK (one = 1),
    generation INTEGER NOT NULL,
    head       BLOB
) STRICT;
INSERT INTO token_state (one, generation, head) VALUES (1, 0, NULL);
