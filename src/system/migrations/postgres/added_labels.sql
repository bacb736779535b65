-- A replica finds the waiting jobs that it is able to run without looking at the others: those may be many while versions
-- change.
CREATE INDEX system_jobs_queued_by_label ON system_jobs (label, tenant, subject, id)
    WHERE owner = 'queue' AND ended_at IS NULL;

-- As before, but with that index.
CREATE OR REPLACE FUNCTION system_claim_jobs
    (claimer TEXT, claim_number BIGINT, able TEXT[], places BIGINT, caller_limit BIGINT, at_time BIGINT)
RETURNS SETOF system_jobs LANGUAGE plpgsql AS $claim$
#variable_conflict use_column
DECLARE
    waiting TEXT[];
BEGIN
    IF NOT EXISTS (SELECT 1 FROM system_jobs WHERE owner = 'queue' AND ended_at IS NULL) THEN
        RETURN;
    END IF;
    SELECT array_agg(l.label) INTO waiting FROM (SELECT DISTINCT unnest(able) AS label) l
     WHERE EXISTS (SELECT 1 FROM system_jobs j WHERE j.owner = 'queue' AND j.ended_at IS NULL AND j.label = l.label);
    IF waiting IS NULL THEN
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
               (SELECT j.id FROM unnest(waiting) AS l (label) CROSS JOIN LATERAL
                       (SELECT j.id FROM system_jobs j
                         WHERE j.owner = 'queue' AND j.ended_at IS NULL AND j.label = l.label
                           AND j.tenant = b.tenant AND j.subject = b.subject
                         ORDER BY j.id LIMIT greatest(least(caller_limit - b.running, places), 0)) j
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
