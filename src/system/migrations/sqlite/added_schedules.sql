-- The previous version uses this file beside this one, so that it must not notice: columns have defaults.
-- The number of this run of the call, how often it may be run again, and when a schedule wanted it.
ALTER TABLE jobs ADD COLUMN attempt INTEGER NOT NULL DEFAULT 1;
ALTER TABLE jobs ADD COLUMN retries INTEGER NOT NULL DEFAULT 0;
ALTER TABLE jobs ADD COLUMN due_at INTEGER;

-- Due times of schedules, each once. Without a job it was skipped, or was there before the schedule.
CREATE TABLE schedule_runs (
    pack   TEXT NOT NULL,
    due_at INTEGER NOT NULL,
    job    TEXT,
    PRIMARY KEY (pack, due_at)
) STRICT, WITHOUT ROWID;
CREATE INDEX schedule_runs_with_job ON schedule_runs (pack, due_at) WHERE job IS NOT NULL;
