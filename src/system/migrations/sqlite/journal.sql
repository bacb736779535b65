-- What a database still owes: see journal.rs.
CREATE TABLE journal (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    kind TEXT NOT NULL,
    entry BLOB NOT NULL
) STRICT;
