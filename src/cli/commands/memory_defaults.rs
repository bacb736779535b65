//! `helmdeck memory defaults`: prints facts about a caller from the audit. Needs the key; read-only.

use helmdeck_core::Identity;
use helmdeck_engine::Defaults;
use helmdeck_memory::Namespace;

use crate::args::DefaultsArgs;
use crate::exit::Result;
use crate::table::table;
use crate::wire::Setup;

/// Prints the habits of a caller; of the local one unless named.
///
/// # Errors
/// A failure if there is no key or no store, or the store cannot be read.
pub(crate) async fn run(setup: &Setup, arguments: &DefaultsArgs) -> Result<()> {
    let caller = arguments.namespace.clone().unwrap_or_else(|| Namespace::of_caller(&Identity::local()));
    let store = setup.opened_store().await?;
    let defaults = helmdeck_engine::defaults(&*store, &caller).await;
    store.close().await?;
    let defaults = defaults?;
    let value = serde_json::to_value(&defaults).unwrap_or_default();
    setup.output.either(&value, || text(&defaults))
}

fn text(defaults: &Defaults) -> String {
    let mut text = String::new();
    if let Some(note) = defaults.note {
        text.push_str(note);
        text.push('\n');
    }
    if !defaults.packs.is_empty() {
        let rows = defaults.packs.iter().map(|of| {
            let inputs: Vec<String> = of.common_inputs.iter().map(|(name, value)| format!("{name}={value}")).collect();
            [of.pack.to_string(), of.calls.to_string(), of.last_used.to_rfc3339(), inputs.join(" ")]
        });
        text.push_str(&table(["PACK", "CALLS", "LAST USED", "USUAL INPUTS"], rows));
    }
    if !defaults.common_findings.is_empty() {
        let rows = defaults
            .common_findings
            .iter()
            .map(|of| [of.code.clone(), of.occurrence_count.to_string(), of.severity.clone(), of.pack.to_string()]);
        text.push('\n');
        text.push_str(&table(["FINDING", "TIMES", "SEVERITY", "LAST FOUND BY"], rows));
    }
    for (count, what) in [(defaults.unreadable, "entries do not open"), (defaults.malformed, "rows make no sense")] {
        if count > 0 {
            text.push_str(&format!("{count} {what} and were left out\n"));
        }
    }
    if defaults.truncated {
        text.push_str("older calls were not looked at\n");
    }
    text
}
