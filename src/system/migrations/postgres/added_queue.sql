-- Jobs that any replica may run. The previous version runs beside this one on these tables, so that it must not notice:
-- columns have defaults, and nothing that was there means something else.
ALTER TABLE system_jobs
    -- The number of this run of the call, and how often it is run again if its replica is lost.
    ADD COLUMN attempt BIGINT NOT NULL DEFAULT 1,
    ADD COLUMN retries BIGINT NOT NULL DEFAULT 0,
    -- When a schedule wanted it.
    ADD COLUMN due_at  BIGINT,
    -- What a replica needs to run it: the pack in a version with its contract, and the key of the sealed call.
    ADD COLUMN label   TEXT COLLATE "C",
    -- The claim that gave it to its owner, numbered by the owner.
    ADD COLUMN claim   BIGINT;

-- The owner of jobs that wait for any replica. It never ends: the previous version ends jobs without a live owner.
INSERT INTO system_replicas (id, expires_at) VALUES ('queue', 'infinity');

-- What is needed to run a job, sealed. Deleted at its end.
CREATE TABLE system_job_calls (
    id     TEXT COLLATE "C" PRIMARY KEY REFERENCES system_jobs (id) ON DELETE CASCADE,
    sealed BYTEA NOT NULL
);

CREATE INDEX system_jobs_queued ON system_jobs (tenant, subject, id) WHERE owner = 'queue' AND ended_at IS NULL;
CREATE INDEX system_jobs_running ON system_jobs (tenant, subject) WHERE state = 'running' AND ended_at IS NULL;

-- Due times of schedules, each once. Without a job it was skipped, or was there before the schedule.
CREATE TABLE system_schedule_runs (
    pack   TEXT COLLATE "C" NOT NULL,
    due_at BIGINT NOT NULL,
    job    TEXT COLLATE "C",
    PRIMARY KEY (pack, due_at)
);
CREATE INDEX system_schedule_runs_with_job ON system_schedule_runs (pack, due_at) WHERE job IS NOT NULL;

-- Gives a live replica jobs that it is able to run. Callers with the fewest running jobs come first; no caller has more
-- than its limit, on all replicas together: one claim counts at a time. It is a function because a replica that is
-- frozen between two statements would keep the lock; and it returns no calls, because one that reads megabytes slowly
-- would keep it as well.
CREATE FUNCTION system_claim_jobs
    (claimer TEXT, claim_number BIGINT, able TEXT[], places BIGINT, caller_limit BIGINT, at_time BIGINT)
RETURNS SETOF system_jobs LANGUAGE plpgsql AS $claim$
#variable_conflict use_column
BEGIN
    IF NOT EXISTS (SELECT 1 FROM system_jobs WHERE owner = 'queue' AND ended_at IS NULL) THEN
        RETURN;
    END IF;
    -- "hd_claim"
    PERFORM pg_advisory_xact_lock(7522242158240295277);
    PERFORM 1 FROM system_replicas r WHERE r.id = claimer AND r.expires_at > clock_timestamp() FOR KEY SHARE;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    RETURN QUERY
    WITH RECURSIVE callers AS (
        -- Each caller once, however many jobs it has.
        (SELECT j.tenant, j.subject FROM system_jobs j WHERE j.owner = 'queue' AND j.ended_at IS NULL
          ORDER BY j.tenant, j.subject LIMIT 1)
        UNION ALL
        SELECT n.tenant, n.subject FROM callers c CROSS JOIN LATERAL
               (SELECT j.tenant, j.subject FROM system_jobs j
                 WHERE j.owner = 'queue' AND j.ended_at IS NULL AND (j.tenant, j.subject) > (c.tenant, c.subject)
                 ORDER BY j.tenant, j.subject LIMIT 1) n
    ), busy AS (
        SELECT c.tenant, c.subject,
               (SELECT count(*) FROM system_jobs r WHERE r.tenant = c.tenant AND r.subject = c.subject
                   AND r.state = 'running' AND r.ended_at IS NULL) AS running
          FROM callers c
    ), turns AS (
        SELECT w.id, b.running + row_number() OVER (PARTITION BY b.tenant, b.subject ORDER BY w.id) AS turn
          FROM busy b CROSS JOIN LATERAL
               (SELECT j.id FROM system_jobs j
                 WHERE j.owner = 'queue' AND j.ended_at IS NULL AND j.tenant = b.tenant AND j.subject = b.subject
                   AND j.label = ANY (able)
                 ORDER BY j.id LIMIT greatest(least(caller_limit - b.running, places), 0)) w
    ), chosen AS (
        SELECT j.id FROM system_jobs j JOIN turns t ON t.id = j.id
         WHERE j.owner = 'queue' AND j.ended_at IS NULL
         ORDER BY t.turn, j.id LIMIT places FOR UPDATE OF j SKIP LOCKED
    )
    UPDATE system_jobs j
       SET owner = r.id, state = 'running', started_at = at_time, revision = j.revision + 1, claim = claim_number
      FROM chosen, system_replicas r
     WHERE j.id = chosen.id AND r.id = claimer AND r.expires_at > clock_timestamp()
       AND EXISTS (SELECT 1 FROM system_job_calls c WHERE c.id = j.id)
    RETURNING j.*;
END
$claim$;
