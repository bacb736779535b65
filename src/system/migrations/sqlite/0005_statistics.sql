-- Statistics of calls in the clear: how many and how long, by slot of time and pack. Bounded: old slots are deleted.
CREATE TABLE statistics (
    -- Length of the slot.
    seconds INTEGER NOT NULL,
    -- Number of the slot since 1970.
    slot    INTEGER NOT NULL,
    pack    TEXT NOT NULL,
    name    TEXT NOT NULL,
    value   INTEGER NOT NULL,
    PRIMARY KEY (seconds, slot, pack, name)
) STRICT, WITHOUT ROWID;
