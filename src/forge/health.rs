//! Health of the project memory: five components, each with a colour, the reasons, and the inputs.
//!
//! [`judge`] is pure. Measuring only reads: no file, no index and no time of a file changes.

mod colours;
mod inputs;
mod measure;
mod reason;
mod record;
mod rules;
#[cfg(test)]
mod tests;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use strum::IntoStaticStr;

use crate::time::Time;

pub use colours::{MEMORY_COLOURS, colours_css, colours_json, colours_ts};
pub use inputs::{Features, File, Git, Inputs, Last, Linear, LongTerm, ShortTerm, Source};
pub use measure::measure;
pub(crate) use measure::measure_with;
pub use reason::{Code, Reason, Severity};
pub use record::{Change, Colours, HealthSample, history, record};
pub use rules::judge;

/// Colour of a component.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    JsonSchema,
    IntoStaticStr,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum Colour {
    /// Nothing to judge.
    Grey,
    /// Healthy.
    Green,
    /// Needs attention.
    Yellow,
    /// Broken.
    Red,
}

impl Colour {
    /// Every colour, the worst last.
    pub const ALL: [Self; 4] = [Self::Grey, Self::Green, Self::Yellow, Self::Red];

    /// Returns the colour's name in JSON.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        self.into()
    }

    /// Returns the worst colour that is not grey; grey if all are.
    #[must_use]
    pub fn worst(colours: impl IntoIterator<Item = Self>) -> Self {
        colours.into_iter().max().unwrap_or(Self::Grey)
    }

    /// Returns the exit code for the colour.
    #[must_use]
    pub const fn exit_code(self) -> u8 {
        match self {
            Self::Grey | Self::Green => 0,
            Self::Yellow => 11,
            Self::Red => 12,
        }
    }
}

/// Health of one component.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Component<I> {
    /// Its colour: that of the worst reason.
    pub colour: Colour,
    /// The reasons, the worst first. A green component may have reasons too, for information.
    pub reasons: Vec<Reason>,
    /// When it was measured.
    pub measured_at: Time,
    /// The inputs of the judgement.
    pub inputs: I,
}

/// Health of the memory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Health {
    /// The worst colour that is not grey.
    pub overall: Colour,
    /// When it was measured.
    pub measured_at: Time,
    /// The long-term memory: what was learned.
    pub long_term: Component<LongTerm>,
    /// The short-term memory: work in progress.
    pub short_term: Component<ShortTerm>,
    /// The features.
    pub features: Component<Features>,
    /// The repository.
    pub git: Component<Git>,
    /// The issues.
    pub linear: Component<Linear>,
}

impl Health {
    /// Returns the name, the colour and the reasons of each component.
    #[must_use]
    pub fn components(&self) -> [(&'static str, Colour, &[Reason]); 5] {
        [
            ("long_term", self.long_term.colour, &self.long_term.reasons),
            (
                "short_term",
                self.short_term.colour,
                &self.short_term.reasons,
            ),
            ("features", self.features.colour, &self.features.reasons),
            ("git", self.git.colour, &self.git.reasons),
            ("linear", self.linear.colour, &self.linear.reasons),
        ]
    }

    /// Returns the colours alone.
    #[must_use]
    pub const fn colours(&self) -> Colours {
        Colours {
            overall: self.overall,
            long_term: self.long_term.colour,
            short_term: self.short_term.colour,
            features: self.features.colour,
            git: self.git.colour,
            linear: self.linear.colour,
        }
    }
}
