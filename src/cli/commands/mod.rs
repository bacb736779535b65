//! The commands, one file each. This file dispatches: it picks the command, its setup and its
//! runtime.

mod archive;
mod artifact;
mod audit;
mod cache;
mod check;
mod client_file;
mod clients;
mod completions;
mod config;
pub(crate) mod connect;
mod conversation;
mod conversation_check;
mod doctor;
mod drain;
mod first_request;
pub(crate) mod forge;
mod forget;
mod health;
mod import;
mod init;
mod job;
mod key;
mod man;
#[cfg(feature = "serve")]
mod mcp;
mod mcp_servers;
mod memory;
mod memory_get;
#[cfg(any(test, not(feature = "serve")))]
mod no_server;
mod pack;
mod pack_check;
mod pack_new;
mod purge;
#[cfg(feature = "serve")]
mod reload;
mod report;
mod reset;
mod rotate;
mod run;
pub(crate) mod seam;
mod seam_save;
#[cfg(feature = "serve")]
mod serve;
mod session;
mod status;
mod system;
mod token;
mod ui;
mod vault;

use crate::args::{CacheCommand, Cli, Command, McpCommand, MemoryCommand, PackCommand};
use crate::env::ProcessEnvironment;
use crate::exit::{Failure, Result};
use crate::logging::WARN;
use crate::output::Output;
use crate::runtime::block_on;
use crate::wire::Setup;

/// Runs a command.
///
/// # Errors
/// Why it ended early, with the exit code.
pub(crate) fn run(cli: Cli, env: ProcessEnvironment, output: Output) -> Result<()> {
    let global = cli.global;
    // Commands that report refused manifests and stores themselves need no warnings as well. With
    // `--json`, problems are read from stderr, so the log stays off unless it is requested.
    let setup = |env, level| {
        let level = if output.json { "off" } else { level };
        Setup::load(&global, Vec::new(), env, output, level)
    };
    match cli.command {
        Command::Version => output.text(&version()),
        Command::ExitCodes => output.text(crate::exit::TABLE),
        Command::Completions { shell } => completions::run(shell, &output),
        Command::Job(command) => block_on(job::job(&setup(env, WARN)?, &command)),
        Command::Token(command) => block_on(token::run(&setup(env, WARN)?, &command)),
        Command::System(command) => block_on(system::run(&setup(env, WARN)?, &command)),
        Command::Ui(arguments) => block_on(ui::run(&setup(env, WARN)?, &arguments)),
        Command::Artifact(command) => block_on(artifact::run(&setup(env, WARN)?, &command)),
        Command::Key(command) => key::run(&command, &global, &env, &output),
        Command::Init(arguments) => init::run(&arguments, &global, env, output),
        Command::Status => block_on(status::run(&global, env, output)),
        Command::Config(command) => config::run(&command, &global, &env, &output),
        Command::Man { folder } => man::run(&folder, &env, &output),
        Command::Health(arguments) => health::run(&arguments, &global, &env, &output),
        Command::Drain(arguments) => block_on(drain::run(&setup(env, WARN)?, &arguments)),
        Command::Check => block_on(check::run(&global, env, output)),
        #[cfg(feature = "serve")]
        Command::Serve(arguments) => serve::run(&arguments, &global, env, output),
        #[cfg(not(feature = "serve"))]
        Command::Serve(_) => Err(no_server::failure()),
        Command::Mcp(arguments) => match arguments.command {
            Some(McpCommand::Add(arguments)) => {
                mcp_servers::add(&arguments, &global, &env, &output)
            }
            Some(McpCommand::Remove { name }) => mcp_servers::remove(&name, &global, &env, &output),
            Some(McpCommand::List) => block_on(mcp_servers::list(&setup(env, "error")?)),
            #[cfg(feature = "serve")]
            None => mcp::run(&global, env, output),
            #[cfg(not(feature = "serve"))]
            None => Err(no_server::mcp(output)),
        },
        Command::Run(arguments) => block_on(run::run(&setup(env, WARN)?, &arguments)),
        Command::Pack(command) => {
            let setup = setup(env, "error")?;
            match command {
                PackCommand::List(arguments) => block_on(pack::list(&setup, &arguments)),
                PackCommand::Show { pack } => block_on(pack::show(&setup, &pack)),
                PackCommand::Check { path, run } => {
                    block_on(pack_check::run(&setup, path.as_deref(), run))
                }
                PackCommand::New { name, kind, dir } => {
                    pack_new::run(&setup, &name, kind, dir.as_deref())
                }
            }
        }
        Command::Memory(command) => {
            let setup = match command {
                // A lost key is what it is for.
                MemoryCommand::Reset(_) => {
                    Setup::without_keys(&global, Vec::new(), env, output, WARN)?
                }
                _ => setup(env, WARN)?,
            };
            match command {
                MemoryCommand::Status => block_on(memory::status(&setup)),
                MemoryCommand::List(arguments) => block_on(memory::list(&setup, &arguments)),
                MemoryCommand::Get(arguments) => block_on(memory_get::run(&setup, &arguments)),
                MemoryCommand::Purge(arguments) => block_on(purge::memory(&setup, &arguments)),
                MemoryCommand::Reset(arguments) => block_on(reset::run(&setup, &arguments)),
                MemoryCommand::Doctor => block_on(doctor::run(&setup)),
                MemoryCommand::Rotate => block_on(rotate::run(&setup)),
                MemoryCommand::Export(arguments) => block_on(archive::run(&setup, &arguments)),
                MemoryCommand::Import(arguments) => block_on(import::run(&setup, &arguments)),
                MemoryCommand::Forget(arguments) => block_on(forget::run(&setup, &arguments)),
            }
        }
        Command::Session(command) => block_on(session::run(&setup(env, WARN)?, &command)),
        Command::Conversation(command) => block_on(conversation::run(&setup(env, WARN)?, &command)),
        Command::Forge(arguments) => forge::run(&arguments, global.config.as_deref(), &env, output),
        // Separated from the others before they are read; this is for a command line that hid it.
        Command::Seam(command) => match seam::run(&command, global.config.as_deref(), &env, output)
        {
            0 => Ok(()),
            code => Err(Failure::of_child(code)),
        },
        Command::Audit(command) => block_on(audit::run(&setup(env, WARN)?, &command)),
        Command::Vault(command) => block_on(vault::run(&setup(env, WARN)?, &command)),
        Command::Cache(command) => {
            let setup = setup(env, WARN)?;
            match command {
                CacheCommand::Explain(arguments) => block_on(cache::explain(&setup, &arguments)),
                CacheCommand::Stats => block_on(cache::stats(&setup)),
                CacheCommand::Ls { pack, limit } => {
                    block_on(cache::ls(&setup, pack.as_ref(), limit))
                }
                CacheCommand::Purge(arguments) => block_on(purge::cache(&setup, &arguments)),
                CacheCommand::Savings => block_on(cache::savings(&setup)),
            }
        }
    }
}

fn version() -> String {
    format!(
        "helmdeck {} (packs: {})",
        env!("CARGO_PKG_VERSION"),
        helmdeck_packs::FAMILIES.join(", ")
    )
}
