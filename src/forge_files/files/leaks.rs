//! The leak scan of everything that is written.

use super::{Files, LONG_LIST};
use crate::error::Result;
use crate::layout::EXCEPTIONS;
use crate::secrets;

impl Files {
    /// Refuses bytes that look like a credential, unless the rule is disabled.
    ///
    /// # Errors
    /// `Secret` with the place and the rule, never with the value.
    pub fn check_secrets(&self, path: &str, bytes: &[u8]) -> Result<()> {
        self.check_found(path, secrets::scan(&String::from_utf8_lossy(bytes)))
    }

    /// Refuses the findings in a file, unless their rule is disabled.
    ///
    /// # Errors
    /// As [`Self::check_secrets`].
    pub fn check_found(&self, path: &str, found: Vec<secrets::Finding>) -> Result<()> {
        for finding in self.refuse_found(path, found)? {
            let line = serde_json::json!({
                "agent": self.shared.writer.agent, "at": self.now().seconds(), "line": finding.line, "path": path, "rule": finding.rule,
            });
            self.append_to_parts(EXCEPTIONS, &line.to_string(), LONG_LIST)?;
            tracing::warn!(
                path,
                rule = finding.rule,
                line = finding.line,
                "a secret was let through as asked"
            );
        }
        Ok(())
    }

    /// Refuses what [`Self::check_secrets`] refuses, and returns the findings of disabled rules.
    ///
    /// Nothing is logged: the later write logs it.
    ///
    /// # Errors
    /// As [`Self::check_secrets`].
    pub fn refuse_secrets(&self, path: &str, bytes: &[u8]) -> Result<Vec<secrets::Finding>> {
        self.refuse_found(path, secrets::scan(&String::from_utf8_lossy(bytes)))
    }

    fn refuse_found(
        &self,
        path: &str,
        findings: Vec<secrets::Finding>,
    ) -> Result<Vec<secrets::Finding>> {
        let (allowed, refused): (Vec<_>, Vec<_>) = findings
            .into_iter()
            .partition(|finding| self.allowed.iter().any(|rule| rule == finding.rule));
        match refused.first() {
            Some(first) => Err(secrets::refuse(path, first, refused.len())),
            None => Ok(allowed),
        }
    }
}
