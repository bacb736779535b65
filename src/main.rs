//! The program `helmdeck`: hands everything to the CLI crate, which alone reads arguments and
//! environment.

use std::process::ExitCode;

fn main() -> ExitCode {
    helmdeck_cli::main()
}
