//! The places of the pages, and the states that each is looked at in.
//!
//! A new place is one line in [`PLACES`].

/// State of a server, and of the person who looks at its pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    /// Memory is on, and nothing was ever called.
    Empty,
    /// Calls, jobs in each state, facts, a conversation, files, a refused manifest.
    Busy,
    /// Without a memory key.
    Shut,
    /// The file of the store is garbage.
    Down,
    /// Signed in with a token that may run packs and nothing else.
    Forbidden,
    /// As busy, and each text of others attacks the page.
    Hostile,
}

use State::{Busy, Down, Empty, Forbidden, Hostile, Shut};

const ALL: &[State] = &[Empty, Busy, Shut, Down, Forbidden, Hostile];
/// States with data of each kind.
const FULL: &[State] = &[Busy, Hostile];

/// A page.
pub(super) struct Place {
    /// Name of its snapshots and pictures.
    pub(super) name: &'static str,
    /// Its path; what is in braces is a value of the state ([`super::scene::Scene::path`]).
    pub(super) path: &'static str,
    pub(super) states: &'static [State],
}

const fn place(name: &'static str, path: &'static str, states: &'static [State]) -> Place {
    Place { name, path, states }
}

/// Every page, also those about one thing.
pub(super) const PLACES: &[Place] = &[
    place("overview", "/ui", ALL),
    place("packs", "/ui/packs", ALL),
    place(
        "packs-all",
        "/ui/packs?all=true&filter=forge.issue",
        &[Busy],
    ),
    place("packs-none", "/ui/packs?filter=zzz", &[Busy]),
    place(
        "pack",
        "/ui/packs/test.echo",
        &[Empty, Shut, Forbidden, Hostile],
    ),
    place("pack-example", "/ui/packs/memory.recall?example=0", &[Busy]),
    place("pack-of-server", "/ui/packs/mcp.bottles.count", FULL),
    place("pack-missing", "/ui/packs/none.here", &[Busy]),
    place("calls", "/ui/calls", ALL),
    place("calls-filter", "/ui/calls?pack=test.broken", &[Busy]),
    place("jobs", "/ui/jobs", ALL),
    place("jobs-cancelled", "/ui/jobs?state=cancelled", &[Busy]),
    place("job-succeeded", "/ui/jobs/{succeeded}", FULL),
    place("job-failed", "/ui/jobs/{failed}", FULL),
    place("job-running", "/ui/jobs/{running}", FULL),
    place("cache", "/ui/cache", ALL),
    place("cache-pack", "/ui/cache?pack=test.echo", &[Busy]),
    place("memory", "/ui/memory", ALL),
    place("memory-done", "/ui/memory{done}", &[Busy]),
    place("conversations", "/ui/conversations", ALL),
    place("conversation", "/ui/conversations/{conversation}", FULL),
    place(
        "pack-hostile",
        "/ui/packs/test.schema?example=0",
        &[Hostile],
    ),
    place("files", "/ui/files", ALL),
    place("purge", "/ui/cache/purge?pack=test.echo", FULL),
    place("memory-edit", "/ui/memory?edit=answer.language", FULL),
    place("tokens", "/ui/tokens", ALL),
    place("vault", "/ui/vault", ALL),
    place("credential", "/ui/vault/{credential}", FULL),
    place("servers", "/ui/servers", ALL),
    place("operate", "/ui/operate?filter=memory.url", ALL),
    place("project", "/ui/project", ALL),
    place("project-issues", "/ui/project/issues", FULL),
    place("project-issue", "/ui/project/issues/LOCAL-1", FULL),
    place("project-features", "/ui/project/features", FULL),
    place("project-knowledge", "/ui/project/knowledge", FULL),
    place("project-timeline", "/ui/project/timeline", FULL),
    place("project-checkpoints", "/ui/project/checkpoints", FULL),
    place("project-skills", "/ui/project/skills", FULL),
    place("project-artifacts", "/ui/project/artifacts", FULL),
    place("project-files", "/ui/project/files", FULL),
    place("project-tracker", "/ui/project/tracker", FULL),
    place("project-events", "/ui/project/events", FULL),
    place("missing", "/ui/no/such/page", &[Busy, Forbidden]),
    place("docs", "/docs", &[Busy, Hostile]),
    place("sign-in", "/ui/sign-in", &[Forbidden]),
];
