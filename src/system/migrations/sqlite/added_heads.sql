-- The head of the vault, sealed: which rows it has. A row that is older than the head is refused.
ALTER TABLE vault_state ADD COLUMN head BLOB;
