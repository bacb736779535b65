//! `helmdeck vault`: manages credentials. Prints no secret, and accepts none as an argument.

use std::collections::HashMap;
use std::io::{IsTerminal, Read};
use std::path::Path;
use std::sync::Arc;

use helmdeck_core::secrets::credential_tag;
use helmdeck_core::{SystemClock, Timestamp};
use helmdeck_memory::{Delete, Kind as RowKind, Reach};
use helmdeck_vault::{About, Book, Change, Kind, Listed, Material, VaultError};
use serde_json::{Value, json};
use zeroize::Zeroizing;

use crate::args::{GrantArgs, SetArgs, VaultCommand};
use crate::exit::{Exit, Failure, Result};
use crate::gate;
use crate::prompt;
use crate::table::table;
use crate::wire::Setup;

/// Limit of a secret, in bytes; the vault has the same limit.
const MAX_BYTES: u64 = 64 << 10;

/// Runs a command.
///
/// # Errors
/// Exit 3 without a key where one is needed, or for a credential that is not found; 7 for a refused
/// secret; 78 for another key than the vault's; 8 if a row does not open.
pub(crate) async fn run(setup: &Setup, command: &VaultCommand) -> Result<()> {
    match command {
        VaultCommand::Set(arguments) => set(setup, arguments).await,
        VaultCommand::List => list(setup).await,
        VaultCommand::Rotate {
            name,
            passphrase_file,
        } => rotate(setup, name, passphrase_file.as_deref()).await,
        VaultCommand::Remove { name, yes } => remove(setup, name, *yes).await,
        VaultCommand::Grant(arguments) => regrant(setup, arguments, true).await,
        VaultCommand::Revoke(arguments) => regrant(setup, arguments, false).await,
        VaultCommand::Log { name, limit } => log(setup, name.clone(), *limit).await,
        VaultCommand::Rekey => rekey(setup).await,
    }
}

fn book(setup: &Setup) -> Result<Book> {
    let Some(ring) = &setup.vault_ring else {
        return Err(
            Failure::new(Exit::Absent, "no vault key is set, so there is no vault").with_hint(
                format!(
                    "`helmdeck key generate` makes a key; put it in {} or in a file named by {}",
                    gate::VAULT.key,
                    gate::VAULT.file
                ),
            ),
        );
    };
    Ok(Book::new(
        setup.system()?,
        ring.clone(),
        Arc::new(SystemClock::default()),
    ))
}

async fn set(setup: &Setup, arguments: &SetArgs) -> Result<()> {
    let book = book(setup)?;
    let name = &arguments.name;
    let kind = Kind::from(arguments.kind);
    let about = About {
        kind,
        hosts: arguments.host.clone(),
        subjects: arguments.allow.clone(),
        packs: arguments.pack.clone(),
        user: arguments.user.clone(),
    };
    helmdeck_vault::check_name(name)?;
    about.check()?;
    let material = secret(setup, kind, arguments.passphrase_file.as_deref()).await?;
    let saved = book.set(name, about, material).await?;
    if arguments.allow.is_empty() || arguments.pack.is_empty() {
        setup.output.note(&format!(
            "nobody may use it yet: run `helmdeck vault grant {name}` with --allow and --pack"
        ));
    }
    if setup.settings.credentials.contains_key(name) {
        setup.output.note(&format!(
            "warning: [credentials] names \"{name}\" too, and comes first"
        ));
    }
    let purged = if saved.replaced {
        purge(setup, name).await?
    } else {
        0
    };
    let value = json!({"name": name, "version": saved.version, "replaced": saved.replaced, "purged": purged});
    setup.output.either(&value, || {
        let done = if saved.replaced { "replaced" } else { "set" };
        format!("{done} credential {name}{}", purged_text(purged))
    })
}

async fn rotate(setup: &Setup, name: &str, passphrase_file: Option<&Path>) -> Result<()> {
    let book = book(setup)?;
    let kind = book.about(name).await?.kind;
    let saved = book
        .rotate(name, secret(setup, kind, passphrase_file).await?)
        .await?;
    let purged = purge(setup, name).await?;
    setup.output.either(
        &json!({"name": name, "version": saved.version, "purged": purged}),
        || format!("rotated credential {name}{}", purged_text(purged)),
    )
}

async fn remove(setup: &Setup, name: &str, yes: bool) -> Result<()> {
    let system = setup.system()?;
    if helmdeck_vault::list_in_the_clear(&system)
        .await?
        .iter()
        .all(|listed| listed.name != name)
    {
        return Err(VaultError::Missing(name.to_owned()).into());
    }
    setup
        .output
        .confirm(&format!("remove credential {name}"), yes)?;
    let with_key = match setup.vault_ring {
        Some(_) => book(setup)?.remove(name).await,
        None => helmdeck_vault::remove(&system, name).await,
    };
    match with_key {
        // A lost key is no dead end.
        Err(VaultError::WrongKey { .. }) => helmdeck_vault::remove(&system, name).await?,
        other => other?,
    }
    let purged = purge(setup, name).await?;
    setup
        .output
        .either(&json!({"name": name, "purged": purged}), || {
            format!("removed credential {name}{}", purged_text(purged))
        })
}

/// Removes cached answers that were made with a credential.
///
/// Their keys hold the credential's version, so they are no longer served; this frees their bytes.
/// Without a memory key there is no memory, and nothing happens.
async fn purge(setup: &Setup, name: &str) -> Result<u64> {
    if setup.ring.is_none() {
        return Ok(0);
    }
    let failed = |failure: Failure| {
        let why = failure.message();
        Failure::new(
            failure.exit(),
            format!("the credential is changed, but answers made with the old one are still stored: {why}"),
        )
        .with_hint(format!(
            "they are not served; remove them with `helmdeck cache purge --tag {}`",
            credential_tag(name)
        ))
    };
    let Some(store) = setup.clear_store().await.map_err(failed)? else {
        return Ok(0);
    };
    let tagged = Delete::Tagged {
        whose: Reach::Everybody,
        kind: RowKind::Cache,
        tag: credential_tag(name),
    };
    let purged = store.delete(tagged).await;
    let closed = store.close().await;
    let purged = purged.map_err(|error| failed(error.into()))?;
    closed.map_err(|error| failed(error.into()))?;
    Ok(purged)
}

fn purged_text(purged: u64) -> String {
    if purged == 0 {
        String::new()
    } else {
        format!("; removed {purged} cached answers made with it")
    }
}

async fn regrant(setup: &Setup, arguments: &GrantArgs, allow: bool) -> Result<()> {
    let (subjects, packs) = (arguments.allow.clone(), arguments.pack.clone());
    let change = if allow {
        Change {
            allow: subjects,
            allow_packs: packs,
            ..Change::default()
        }
    } else {
        Change {
            revoke: subjects,
            revoke_packs: packs,
            ..Change::default()
        }
    };
    let about = book(setup)?.regrant(&arguments.name, change).await?;
    let shown = |value: &Value| value.as_array().map(Vec::len).unwrap_or_default();
    let mut value = of_about(&about);
    value["name"] = json!(arguments.name);
    setup.output.either(&value, || {
        let (subjects, packs) = (shown(&value["subjects"]), shown(&value["packs"]));
        let nobody = if subjects == 0 || packs == 0 {
            " (so nobody may use it)"
        } else {
            ""
        };
        format!(
            "credential {}: callers {}; packs {}{nobody}",
            arguments.name,
            texts(&about.subjects),
            texts(&about.packs)
        )
    })
}

async fn list(setup: &Setup) -> Result<()> {
    let system = setup.system()?;
    let listed = match &setup.vault_ring {
        Some(_) => book(setup)?.list().await?,
        None => helmdeck_vault::list_in_the_clear(&system).await?,
    };
    let mut used: HashMap<String, Timestamp> = HashMap::new();
    for entry in system
        .vault_uses(None, usize::MAX)
        .await?
        .iter()
        .filter(|entry| entry.granted > 0)
    {
        let last = used.entry(entry.name.clone()).or_insert(entry.last_at);
        *last = entry.last_at.max(*last);
    }
    let value: Vec<Value> = listed
        .iter()
        .map(|entry| shown(entry, used.get(&entry.name)))
        .collect();
    setup.output.either(&json!(value), || {
        if listed.is_empty() {
            return "there are no credentials".to_owned();
        }
        let headings = [
            "NAME",
            "TYPE",
            "HOSTS",
            "CALLERS",
            "PACKS",
            "CHANGED",
            "LAST USED",
        ];
        table(
            headings,
            listed.iter().map(|entry| row(entry, used.get(&entry.name))),
        )
    })?;
    let broken = listed
        .iter()
        .filter(|entry| matches!(entry.about, Some(Err(_))))
        .count();
    if broken > 0 {
        Err(Failure::new(
            Exit::Corrupt,
            format!("{broken} credentials do not open"),
        ))
    } else {
        Ok(())
    }
}

fn row(entry: &Listed, used: Option<&Timestamp>) -> [String; 7] {
    let none = || "-".to_owned();
    let (kind, hosts, subjects, packs) = match &entry.about {
        Some(Ok(about)) => (
            about.kind.as_str().to_owned(),
            texts(&about.hosts),
            texts(&about.subjects),
            texts(&about.packs),
        ),
        Some(Err(_)) => ("does not open".to_owned(), none(), none(), none()),
        None => ("sealed".to_owned(), none(), none(), none()),
    };
    let used = used.map_or_else(|| "never".to_owned(), |at| at.to_rfc3339());
    [
        entry.name.clone(),
        kind,
        hosts,
        subjects,
        packs,
        entry.updated_at.to_rfc3339(),
        used,
    ]
}

fn shown(entry: &Listed, used: Option<&Timestamp>) -> Value {
    let mut value = match &entry.about {
        Some(Ok(about)) => of_about(about),
        Some(Err(error)) => json!({"error": error.to_string()}),
        None => json!({}),
    };
    value["name"] = json!(entry.name);
    value["version"] = json!(entry.version);
    value["key_id"] = json!(entry.key_id);
    value["created_at"] = json!(entry.created_at.to_rfc3339());
    value["updated_at"] = json!(entry.updated_at.to_rfc3339());
    value["last_used_at"] = json!(used.map(|at| at.to_rfc3339()));
    value
}

fn of_about(about: &About) -> Value {
    fn list<T: ToString>(items: &[T]) -> Vec<String> {
        items.iter().map(T::to_string).collect()
    }
    let mut value = json!({
        "type": about.kind, "hosts": list(&about.hosts), "subjects": list(&about.subjects), "packs": list(&about.packs),
    });
    if let Some(user) = &about.user {
        value["user"] = json!(user);
    }
    value
}

fn texts<T: ToString>(items: &[T]) -> String {
    if items.is_empty() {
        return "none".to_owned();
    }
    items.iter().map(T::to_string).collect::<Vec<_>>().join(",")
}

async fn log(setup: &Setup, name: Option<String>, limit: usize) -> Result<()> {
    let uses = setup.system()?.vault_uses(name, limit).await?;
    let value: Vec<Value> = uses
        .iter()
        .map(|entry| {
            json!({
                "name": entry.name, "tenant": entry.tenant, "user": entry.subject, "pack": entry.pack,
                "day": day(entry.day), "granted": entry.granted, "refused": entry.refused,
                "last_at": entry.last_at.to_rfc3339(),
            })
        })
        .collect();
    setup.output.either(&json!(value), || {
        if uses.is_empty() {
            return "no credential was used yet".to_owned();
        }
        let rows = uses.iter().map(|entry| {
            [
                entry.name.clone(),
                format!("{}/{}", entry.tenant, entry.subject),
                entry.pack.clone(),
                day(entry.day),
                entry.granted.to_string(),
                entry.refused.to_string(),
                entry.last_at.to_rfc3339(),
            ]
        });
        table(
            [
                "CREDENTIAL",
                "CALLER",
                "PACK",
                "DAY",
                "USED",
                "REFUSED",
                "LAST",
            ],
            rows,
        )
    })
}

/// Returns a day as a date: `2026-11-22`.
fn day(days: i64) -> String {
    let text = Timestamp(days.saturating_mul(24 * 60 * 60 * 1_000_000)).to_rfc3339();
    text.split('T').next().unwrap_or_default().to_owned()
}

async fn rekey(setup: &Setup) -> Result<()> {
    let Some(done) = book(setup)?.rekey().await? else {
        return Err(Failure::new(
            Exit::Absent,
            "there is no vault yet; the first `helmdeck vault set` creates it",
        ));
    };
    let value = json!({
        "key_id": done.key_id, "resealed": done.resealed, "already": done.already, "unreadable": done.unreadable,
    });
    setup.output.either(&value, || {
        let total = done.resealed + done.already;
        format!(
            "sealed {} of {total} credentials anew; key {} opens all that open",
            done.resealed, done.key_id
        )
    })?;
    if done.unreadable.is_empty() {
        return Ok(());
    }
    let names = done.unreadable.join(", ");
    Err(Failure::new(
        Exit::Corrupt,
        format!("these credentials do not open with the keys given: {names}"),
    )
    .with_hint(format!(
        "name their key in {}, or set or remove them",
        gate::VAULT.previous
    )))
}

/// Reads a secret from stdin, or prompts for it without echo.
async fn secret(setup: &Setup, kind: Kind, passphrase_file: Option<&Path>) -> Result<Material> {
    let stdin = std::io::stdin();
    let text = if !stdin.is_terminal() {
        read(stdin.lock(), "stdin")?
    } else if kind == Kind::Ssh {
        return Err(Failure::usage("an ssh key comes from stdin")
            .with_hint("redirect the file: helmdeck vault set <name> ... < ~/.ssh/id_ed25519"));
    } else {
        let what = if kind == Kind::Login {
            "Password: "
        } else {
            "Secret: "
        };
        prompt::secret(what).await?
    };
    let passphrase = match passphrase_file {
        Some(path) => {
            let path = setup.env.absolute(path)?;
            let file = std::fs::File::open(&path).map_err(|error| {
                Failure::of_file(format_args!("--passphrase-file {}", path.display()), &error)
            })?;
            Some(line(read(file, "the passphrase file")?))
        }
        None => None,
    };
    let text = if kind == Kind::Ssh { text } else { line(text) };
    Ok(Material::new(kind, text, passphrase)?)
}

/// Removes the final newline, which `echo` and editors add.
fn line(mut text: Zeroizing<String>) -> Zeroizing<String> {
    let end = text
        .strip_suffix('\n')
        .map(|text| text.strip_suffix('\r').unwrap_or(text))
        .unwrap_or(&text)
        .len();
    text.truncate(end);
    text
}

fn read(from: impl Read, name: &str) -> Result<Zeroizing<String>> {
    // Allocate the limit at once: a growing buffer leaves copies behind.
    let mut bytes = Zeroizing::new(Vec::with_capacity(
        usize::try_from(MAX_BYTES).unwrap_or_default() + 2,
    ));
    from.take(MAX_BYTES + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| Failure::usage(format!("{name} cannot be read: {error}")))?;
    match std::str::from_utf8(&bytes) {
        Ok(text) => Ok(Zeroizing::new(text.to_owned())),
        Err(_) => Err(VaultError::Refused("it is not UTF-8 text").into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_newline_at_the_end_is_not_part_of_a_secret() {
        for (given, taken) in [
            ("a\n", "a"),
            ("a\r\n", "a"),
            ("a", "a"),
            ("a\n\n", "a\n"),
            (" a ", " a "),
            ("", ""),
        ] {
            assert_eq!(line(Zeroizing::new(given.to_owned())).as_str(), taken);
        }
    }

    #[test]
    fn days_are_dates() {
        assert_eq!(
            (day(0).as_str(), day(20_779).as_str()),
            ("1970-01-01", "2026-11-22")
        );
    }

    #[test]
    fn what_is_too_long_or_no_text_is_refused() {
        assert_eq!(read(&[0xff_u8][..], "x").unwrap_err().exit() as u8, 7);
        let text = read(std::io::repeat(b'x'), "x").unwrap();
        assert!(matches!(
            Material::new(Kind::ApiKey, text, None),
            Err(VaultError::Refused(_))
        ));
    }
}
