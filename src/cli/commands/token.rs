//! `helmdeck token`: creates, lists and revokes API tokens. The text of a token is printed only
//! once.

use helmdeck_core::duration::format_duration;
use helmdeck_core::{Clock, Identity, Secret, SystemClock, Timestamp};
use helmdeck_system::tokens::{ApiToken, NewToken, PresentedToken, TokenReach};
use serde_json::{Value, json};

use crate::args::{TokenCommand, TokenCreateArgs};
use crate::exit::{Exit, Failure, Result};
use crate::table::table;
use crate::wire::Setup;

/// The longest name, in bytes.
const MAX_NAME_BYTES: usize = 100;

/// Runs `helmdeck token`.
///
/// # Errors
/// A usage failure for an invalid caller; exit 3 for a token that is not found; a failure if the
/// system database cannot be reached.
pub(crate) async fn run(setup: &Setup, command: &TokenCommand) -> Result<()> {
    match command {
        TokenCommand::Create(arguments) => create(setup, arguments).await,
        TokenCommand::List => list(setup).await,
        TokenCommand::Adopt { ids, yes } => adopt(setup, ids, *yes).await,
        TokenCommand::Revoke { id } => revoke(setup, id).await,
    }
}

async fn create(setup: &Setup, arguments: &TokenCreateArgs) -> Result<()> {
    let identity = Identity::new(&arguments.tenant, &arguments.user).map_err(Failure::usage)?;
    if arguments.name.len() > MAX_NAME_BYTES || arguments.name.chars().any(char::is_control) {
        let message =
            format!("the name must be at most {MAX_NAME_BYTES} bytes without control characters");
        return Err(Failure::usage(message));
    }
    let now = SystemClock::default().now();
    let token = NewToken {
        name: arguments.name.clone(),
        tenant: identity.tenant().to_owned(),
        subject: identity.user().to_owned(),
        scope: arguments.scope.to_scope(),
        created_at: now,
        expires_at: arguments.expires.0.map(|life| now.saturating_add(life)),
        ancestors: Vec::new(),
    };
    let system = setup.system()?;
    let (made, text) = system.create_token(token).await?;
    let Err(failure) = print(setup, &made, &text, now) else {
        return Ok(());
    };
    // The token is printed only this once, and the output may not have reached a reader.
    let (revoked, why) = (
        system.revoke_token(&made.id, &TokenReach::all(), now).await,
        failure.message(),
    );
    let why = if why.is_empty() {
        "the reader of the output went away"
    } else {
        why
    };
    let ended = match revoked {
        Ok(_) => "it is revoked".to_owned(),
        Err(error) => format!("it could not be revoked: {error}"),
    };
    Err(Failure::new(
        Exit::Failed,
        format!(
            "the token {} could not be printed ({why}); {ended}",
            made.id
        ),
    ))
}

fn print(setup: &Setup, made: &ApiToken, text: &Secret, now: Timestamp) -> Result<()> {
    let output = &setup.output;
    if !setup.settings.auth.api_tokens {
        output.note(
            "note: api_tokens = true under [auth] (or HELMDECK_AUTH__API_TOKENS=true) must be set for `helmdeck serve`",
        );
    }
    if output.json {
        let mut value = shown(made, now);
        value["token"] = text.expose().into();
        return output.value(&value);
    }
    let ends = made
        .expires_at
        .map_or("never".to_owned(), Timestamp::to_rfc3339);
    output.note(&format!(
        "token {} for user {:?} of tenant {:?}, scope {:?}, ends: {ends}; it is printed this once",
        made.id, made.subject, made.tenant, made.scope
    ));
    output.text(text.expose())
}

async fn list(setup: &Setup) -> Result<()> {
    let tokens = setup.system()?.tokens().await?;
    let now = SystemClock::default().now();
    let value = json!({"tokens": tokens.iter().map(|token| shown(token, now)).collect::<Vec<_>>()});
    setup.output.either(&value, || {
        if tokens.is_empty() {
            return "there are no API tokens; `helmdeck token create` makes one".to_owned();
        }
        let rows = tokens.iter().map(|token| {
            [
                token.id.clone(),
                token.name.clone(),
                token.tenant.clone(),
                token.subject.clone(),
                token.scope.clone(),
                match token.expires_at {
                    Some(end) if token.is_live(now) => {
                        format!(
                            "ends in {}",
                            format_duration(std::time::Duration::from_secs(
                                end.since(now).as_secs()
                            ))
                        )
                    }
                    _ => state(token, now).to_owned(),
                },
                token
                    .used_at
                    .map_or("never".to_owned(), Timestamp::to_rfc3339),
            ]
        });
        table(
            ["ID", "NAME", "TENANT", "USER", "SCOPE", "STATE", "USED"],
            rows,
        )
    })
}

async fn adopt(setup: &Setup, ids: &[String], yes: bool) -> Result<()> {
    let (system, now) = (setup.system()?, SystemClock::default().now());
    if setup.ring.is_none() {
        return Err(Failure::config(
            "no memory key is set, so tokens are not sealed, and none is refused for that",
        ));
    }
    let mut refused = system.unsealed_tokens(now).await?;
    if let Some(unknown) = ids
        .iter()
        .find(|id| refused.iter().all(|token| token.id != **id))
    {
        return Err(Failure::new(
            Exit::Absent,
            format!("{unknown:?} is the id of no valid token that is refused"),
        )
        .with_hint("`helmdeck token adopt` shows those that are"));
    }
    refused.retain(|token| ids.is_empty() || ids.contains(&token.id));
    if refused.is_empty() {
        return setup.output.either(&json!({"adopted": []}), || {
            "no token is refused for the lack of a seal".to_owned()
        });
    }
    // A token that somebody else wrote into the database is among them: the operator has to look.
    for token in &refused {
        setup.output.note(&format!(
            "{} {:?} of {}/{}, scope {:?}, made at {}",
            token.id,
            token.name,
            token.tenant,
            token.subject,
            token.scope,
            token.created_at.to_rfc3339()
        ));
    }
    setup.output.confirm(
        &format!("accept these {} tokens from now on", refused.len()),
        yes,
    )?;
    let ids: Vec<String> = refused.into_iter().map(|token| token.id).collect();
    system.adopt_tokens(ids.clone(), now).await?;
    setup.output.either(&json!({"adopted": ids}), || {
        format!("{} tokens are sealed and accepted", ids.len())
    })
}

async fn revoke(setup: &Setup, id: &str) -> Result<()> {
    let (system, now) = (setup.system()?, SystemClock::default().now());
    // The token itself works too, for users that have only that. It is not printed.
    let proven = match PresentedToken::parse(id) {
        Some(presented) => system.prove_token(&presented).await?,
        None => None,
    };
    let id = proven.as_ref().map_or(id, |token| token.id.as_str());
    if !system.revoke_token(id, &TokenReach::all(), now).await? {
        return Err(
            Failure::new(Exit::Absent, "there is no API token with this id")
                .with_hint("`helmdeck token list` shows the ids"),
        );
    }
    setup.output.either(&json!({"revoked": id}), || {
        format!(
            "revoked {id} and the tokens that it made; every server refuses them within a second"
        )
    })
}

fn state(token: &ApiToken, now: Timestamp) -> &'static str {
    match token.revoked_at {
        Some(_) => "revoked",
        None if token.is_live(now) => "live",
        None => "expired",
    }
}

fn shown(token: &ApiToken, now: Timestamp) -> Value {
    json!({
        "id": token.id,
        "name": token.name,
        "tenant": token.tenant,
        "user": token.subject,
        "scope": token.scope,
        "state": state(token, now),
        "created_at": token.created_at.to_rfc3339(),
        "expires_at": token.expires_at.map(Timestamp::to_rfc3339),
        "revoked_at": token.revoked_at.map(Timestamp::to_rfc3339),
        "used_at": token.used_at.map(Timestamp::to_rfc3339),
        "parent": token.ancestors.last(),
    })
}
