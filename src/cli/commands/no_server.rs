//! `helmdeck serve` and `helmdeck mcp` in a build without the server.

#[cfg(not(feature = "serve"))]
use super::first_request::answer_first_request;
use crate::exit::Failure;
#[cfg(not(feature = "serve"))]
use crate::output::Output;

/// Returns the error of both commands.
pub(crate) fn failure() -> Failure {
    Failure::config("this helmdeck was built without the server (feature \"serve\")").with_hint(
        "in the folder of its source, `cargo install --path .` installs one with all features",
    )
}

/// Tells an MCP client why there is no server: few clients show what is on stderr.
#[cfg(not(feature = "serve"))]
pub(crate) fn mcp(output: Output) -> Failure {
    let failure = failure();
    answer_first_request(&failure, output);
    failure
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_server_is_a_configuration_error_with_a_remedy() {
        let failure = failure();
        assert_eq!(failure.exit() as u8, 78);
        assert!(
            failure.message().contains("feature \"serve\""),
            "{}",
            failure.message()
        );
        assert!(
            failure
                .hint()
                .is_some_and(|hint| hint.contains("cargo install --path ."))
        );
    }
}
