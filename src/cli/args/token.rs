//! Command line of `helmdeck token`.

use std::time::Duration;

use clap::{Args, Subcommand};
use helmdeck_core::Permissions;
use helmdeck_core::duration::parse_duration;

/// `helmdeck token`.
#[derive(Debug, Subcommand)]
pub(crate) enum TokenCommand {
    /// Create a token and print it once on stdout
    #[command(
        after_help = "Scopes: metrics:read, packs:run, packs:run:<glob>, memory:read, memory:write, tokens:write, admin.\n\n\
        Example:\n  \
        helmdeck token create --tenant acme --user ci --scope \"packs:run:github.* memory:read\" --name \"build server\""
    )]
    Create(TokenCreateArgs),
    /// List tokens, without their secrets
    List,
    /// Seal tokens that were made before there was a memory key, and are refused since
    Adopt {
        /// Token ids; all that are refused if there are none
        ids: Vec<String>,
        /// Do it without asking
        #[arg(long)]
        yes: bool,
    },
    /// Revoke a token and those that it made; every server rejects them within a second
    Revoke {
        /// Token id, as shown by `list`
        id: String,
    },
}

/// `helmdeck token create`.
#[derive(Debug, Args)]
pub(crate) struct TokenCreateArgs {
    /// Tenant of the token
    #[arg(long)]
    pub(crate) tenant: String,
    /// User of the token
    #[arg(long)]
    pub(crate) user: String,
    /// Scopes, separated by spaces
    #[arg(long, value_name = "SCOPES", value_parser = parse_scope)]
    pub(crate) scope: Permissions,
    /// Lifetime of the token: a duration, or never
    #[arg(long, value_name = "DURATION", default_value = "90d", value_parser = Life::parse)]
    pub(crate) expires: Life,
    /// Display name
    #[arg(long, default_value = "")]
    pub(crate) name: String,
}

/// Lifetime of a token; `None` never expires.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Life(pub(crate) Option<Duration>);

impl Life {
    fn parse(text: &str) -> Result<Self, String> {
        if text == "never" {
            return Ok(Self(None));
        }
        match parse_duration(text)? {
            Duration::ZERO => Err("the lifetime must be longer than zero".to_owned()),
            life => Ok(Self(Some(life))),
        }
    }
}

/// Reads scopes, separated by spaces.
pub(super) fn parse_scope(text: &str) -> Result<Permissions, String> {
    let permissions: Result<Permissions, String> =
        text.split_ascii_whitespace().map(str::parse).collect();
    let permissions = permissions?;
    if permissions.is_empty() {
        return Err("the scope is empty; name at least one, like packs:run".to_owned());
    }
    Ok(permissions)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::args::{Cli, Command};

    #[test]
    fn a_token_has_scopes_that_there_are_and_an_end_unless_told_otherwise() {
        let parse = |more: &[&str]| -> Result<(String, Option<Duration>), String> {
            let arguments = [
                &[
                    "helmdeck", "token", "create", "--tenant", "t", "--user", "u",
                ],
                more,
            ]
            .concat();
            match Cli::try_parse_from(arguments)
                .map_err(|error| error.to_string())?
                .command
            {
                Command::Token(TokenCommand::Create(create)) => {
                    Ok((create.scope.to_scope(), create.expires.0))
                }
                _ => unreachable!(),
            }
        };
        let day = Duration::from_secs(86_400);
        assert_eq!(
            parse(&["--scope", "admin"]),
            Ok(("admin".to_owned(), Some(90 * day)))
        );
        let both = parse(&["--scope", " packs:run:a.* memory:read", "--expires", "1d"]);
        assert_eq!(
            both,
            Ok(("packs:run:a.* memory:read".to_owned(), Some(day)))
        );
        assert_eq!(
            parse(&["--scope", "admin", "--expires", "never"]),
            Ok(("admin".to_owned(), None))
        );
        let message = parse(&["--scope", "packs:run packs:walk"]).unwrap_err();
        for word in [
            "packs:walk",
            "metrics:read",
            "packs:run:<glob>",
            "memory:write",
            "admin",
        ] {
            assert!(message.contains(word), "{message}");
        }
        assert!(parse(&["--scope", ""]).is_err() && parse(&[]).is_err());
        assert!(parse(&["--scope", "admin", "--expires", "0s"]).is_err());
    }
}
