//! A real, small language model on this machine.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// An endpoint: that of `swe/small_model.sh`, or the one that `HELMDECK_TEST_LLM_URL` names. Its
/// model is called `small`.
pub(crate) struct SmallModel {
    /// The base URL.
    pub(crate) url: String,
    process: Option<Child>,
}

impl SmallModel {
    /// Starts it; takes half a minute the first time.
    #[expect(clippy::disallowed_methods, reason = "a test has no `Env`")]
    pub(crate) fn start() -> Self {
        if let Ok(url) = std::env::var("HELMDECK_TEST_LLM_URL") {
            return Self { url, process: None };
        }
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/support/swe/small_model.sh");
        let mut process = Command::new(script)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(process.stdout.take().unwrap())
            .read_line(&mut line)
            .unwrap();
        let url = line
            .trim()
            .strip_prefix("ready ")
            .unwrap_or_else(|| panic!("the model did not start: {line:?}"));
        Self {
            url: url.to_owned(),
            process: Some(process),
        }
    }
}

impl Drop for SmallModel {
    fn drop(&mut self) {
        if let Some(process) = &mut self.process {
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}
