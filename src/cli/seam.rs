//! The configuration of `helmdeck_seam`, from the settings and the environment.

use std::collections::BTreeMap;
use std::path::Path;

use helmdeck_seam::{Given, Phase, SeamConfig, Warning, one_line};

use crate::config::{SeamSettings, placed};
use crate::env::ProcessEnvironment;

/// The variables with the folder of a note vault. The first that is set counts.
const VAULTS: [&str; 3] = ["HELMDECK_MEMORY", "MEMORY_ROOT", "MEMORY_VAULT_PATH"];
/// The setting with the folder of a note vault.
pub(crate) const SET: &str = "seam.vault";

/// Returns the settings of the seam: those of the environment, then those of the configuration.
///
/// Relative paths begin in the working folder, for any project.
pub(crate) fn config(settings: &SeamSettings, env: &ProcessEnvironment) -> SeamConfig {
    let here = env.working_dir().unwrap_or(Path::new(""));
    let mut config = SeamConfig::new(here);
    config.home = env.path("HOME").filter(|home| home.is_absolute());
    let given = |by: &str, path: &Path| Given {
        by: by.to_owned(),
        path: placed(path, here).into_os_string(),
    };
    config.vaults = VAULTS
        .into_iter()
        .filter_map(|name| Some(given(name, &env.path(name)?)))
        .collect();
    config.vaults.push(given(SET, &settings.vault));
    config.vaults.retain(|given| !given.path.is_empty());
    let prefix = env
        .path("AGENTM_INSTALL_PREFIX")
        .map(|prefix| placed(&prefix, here));
    config.prefix = prefix.filter(|prefix| !prefix.as_os_str().is_empty());
    config.query = settings.query;
    config.budgets = budgets(env).0;
    config
}

/// Returns the budgets that the environment sets, and a warning for values that are not numbers.
///
/// Zero or less means the budget of the phase, as for `--limit`.
pub(crate) fn budgets(env: &ProcessEnvironment) -> (BTreeMap<Phase, usize>, Option<Warning>) {
    let (mut budgets, mut wrong) = (BTreeMap::new(), Vec::new());
    for phase in Phase::ALL {
        let name = format!(
            "HARNESS_RECALL_BUDGET_{}",
            phase.to_string().to_ascii_uppercase()
        );
        match env
            .text(&name)
            .map(|text| text.map(str::trim).filter(|text| !text.is_empty()))
        {
            Ok(None) => {}
            Ok(Some(text)) => match text.parse::<i64>() {
                Ok(tokens) => {
                    budgets.extend(usize::try_from(tokens).ok().map(|tokens| (phase, tokens)))
                }
                Err(_) => wrong.push(format!(
                    "{name}: {text:?} is no number of tokens, and that of the phase counts"
                )),
            },
            Err(failure) => wrong.push(failure.message().to_owned()),
        }
    }
    let warning = (!wrong.is_empty()).then(|| Warning {
        code: "budget-unknown",
        message: one_line(&wrong.join(", ")),
    });
    (budgets, warning)
}
