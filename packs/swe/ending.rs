//! Ending of a run.

use helmdeck_core::{Code, Error};

/// Ending of a run. Patch and trajectory are kept in any case.
#[derive(Debug, Clone)]
pub(super) enum Ending {
    /// The model submitted, with this text.
    Submitted(String),
    /// The maximum number of answers was reached.
    Steps(u32),
    /// The time limit in seconds was reached.
    Time(u64),
    /// It cost the first amount in USD; the second is the limit.
    Cost(f64, f64),
    /// The cost is unknown, so a limit can't be enforced.
    CostUnknown,
    /// The conversation is too long for the model.
    TooLong,
    /// That many consecutive answers had no command.
    NoCommands(u32),
    /// The endpoint failed.
    Model(Error),
    /// The session failed.
    Session(Error),
}

impl Ending {
    /// Returns the name on the wire.
    pub(super) const fn name(&self) -> &'static str {
        match self {
            Self::Submitted(_) => "submitted",
            Self::Steps(_) => "step_limit",
            Self::Time(_) => "time_limit",
            Self::Cost(..) => "cost_limit",
            Self::CostUnknown => "cost_unknown",
            Self::TooLong => "too_long",
            Self::NoCommands(_) => "no_commands",
            Self::Model(_) => "model_failed",
            Self::Session(_) => "session_failed",
        }
    }

    /// Returns the name that mini-swe-agent has for it: the name of an exception.
    pub(super) fn mini_name(&self) -> &'static str {
        match self {
            Self::Submitted(_) => "Submitted",
            Self::Steps(_) | Self::Cost(..) | Self::CostUnknown => "LimitsExceeded",
            Self::Time(_) => "TimeExceeded",
            Self::TooLong => "ContextWindowExceededError",
            Self::NoCommands(_) => "RepeatedFormatError",
            Self::Model(error) if error.code() == Code::RateLimited => "RateLimitError",
            Self::Model(_) => "APIError",
            Self::Session(_) => "EnvironmentError",
        }
    }

    /// Returns a sentence about the end of the work; the model's own words if it submitted.
    pub(super) fn summary(&self) -> String {
        match self {
            Self::Submitted(words) if words.is_empty() => "The model submitted its work without a word.".to_owned(),
            Self::Submitted(words) => words.clone(),
            Self::Steps(steps) => format!("Stopped at the limit of {steps} steps before the model submitted."),
            Self::Time(seconds) => format!("Stopped at the limit of {seconds} s before the model submitted."),
            Self::Cost(cost, limit) => {
                format!("Stopped at ${cost:.4} of at most ${limit:.4} before the model submitted.")
            }
            Self::CostUnknown => {
                "Stopped: max_cost cannot be kept, for neither the endpoint nor [llm.prices] tells what every answer costs.".to_owned()
            }
            Self::TooLong => "Stopped: the conversation got too long for the model.".to_owned(),
            Self::NoCommands(count) => format!("Stopped: {count} answers of the model in a row had no command."),
            Self::Model(error) => format!("Stopped: the model could not be asked any more ({error})."),
            Self::Session(error) => format!("Stopped: commands could not be run any more ({error})."),
        }
    }
}
