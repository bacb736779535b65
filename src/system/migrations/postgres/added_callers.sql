-- What belongs to a caller is found without looking at that of others.
CREATE INDEX system_tokens_by_caller ON system_tokens (tenant, subject, created_at, id);
CREATE INDEX system_vault_uses_by_caller ON system_vault_uses (tenant, subject);
