//! Files and folders of a new project.

use crate::documents::kind_of;
use crate::environment::ProjectEnvironment;
use crate::layout::{
    ACTIVE, ARCHITECTURE, ARTIFACTS, BRANCHES, CHECKPOINTS, COMMENTS, COMMITS, CONFIG,
    FEATURES_ENTRIES, FOCUS, FORGE, HISTORY, INIT, ISSUES, KNOWLEDGE_ENTRIES, LOCAL, PROGRESS,
    SCRATCH, SESSIONS, SHORT_TERM, SKILLS, TEMPLATES,
};
use crate::progress;
use crate::skills;

/// Mode of executable files; all others are not executable.
const RUN: u32 = 0o755;
const MEMORY: &str = ".forge/memory";
const LONG_TERM: &str = ".forge/memory/long-term";

/// A file of a new project.
pub(super) struct Seed {
    pub(super) path: String,
    pub(super) bytes: Vec<u8>,
    pub(super) mode: Option<u32>,
}

/// Returns the folders, parents first.
pub(super) fn folders() -> Vec<String> {
    let kinds = ["code", "docs", "reports"].map(|kind| format!("{ARTIFACTS}/{kind}"));
    [
        FORGE,
        MEMORY,
        LONG_TERM,
        KNOWLEDGE_ENTRIES,
        FEATURES_ENTRIES,
        SHORT_TERM,
        SCRATCH,
        SESSIONS,
        ARTIFACTS,
    ]
    .into_iter()
    .map(str::to_owned)
    .chain(kinds)
    .chain(
        [
            ".forge/linear",
            ISSUES,
            COMMENTS,
            HISTORY,
            TEMPLATES,
            ".forge/git",
            CHECKPOINTS,
            SKILLS,
            LOCAL,
        ]
        .map(str::to_owned),
    )
    .collect()
}

/// Returns the files. Those that control what git commits come first.
pub(super) fn files(environment: &ProjectEnvironment, git: bool) -> Vec<Seed> {
    let seed = |path: &str, bytes: &[u8]| Seed {
        path: path.to_owned(),
        bytes: bytes.to_vec(),
        mode: None,
    };
    let config = if git {
        include_str!("config.toml").to_owned()
    } else {
        include_str!("config.toml").replace("# enabled = true", "enabled = false")
    };
    let mut all = vec![
        seed(".forge/.gitignore", include_bytes!("gitignore")),
        seed(".forge/.gitattributes", include_bytes!("gitattributes")),
        seed(CONFIG, config.as_bytes()),
        seed(ARCHITECTURE, helmdeck_forge_documents::ARCHITECTURE),
        seed(
            PROGRESS,
            progress::text::opening(environment.now(), &environment.zone, None).as_bytes(),
        ),
        seed(COMMITS, b""),
        seed(
            &format!("{TEMPLATES}/feature.yaml"),
            include_bytes!("forms/feature.yaml"),
        ),
        seed(
            &format!("{TEMPLATES}/bug.yaml"),
            include_bytes!("forms/bug.yaml"),
        ),
        Seed {
            mode: Some(RUN),
            ..seed(INIT, include_bytes!("init.sh"))
        },
    ];
    let now = environment.now().seconds();
    let branches = format!(
        "{{\n  \"generated_at\": \"{now}\",\n  \"head\": null,\n  \"base\": null,\n  \"branches\": []\n}}\n"
    );
    all.push(seed(BRANCHES, branches.as_bytes()));
    // git keeps no empty folder, and a missing one is a lost one.
    all.extend(
        [KNOWLEDGE_ENTRIES, FEATURES_ENTRIES]
            .map(|folder| seed(&format!("{folder}/.gitkeep"), b"")),
    );
    let documents = [FOCUS, ACTIVE];
    all.extend(
        documents
            .iter()
            .filter_map(|path| Some(seed(path, &kind_of(path)?.skeleton()))),
    );
    all.extend(
        skills::samples()
            .iter()
            .map(|(path, text)| seed(path, text.as_bytes())),
    );
    all
}

/// Says whether git ignores a path, so that a new clone does not have it.
pub(super) fn is_local(path: &str) -> bool {
    let below = |folder: &str| {
        path.strip_prefix(folder)
            .is_some_and(|rest| rest.starts_with('/'))
    };
    path == COMMITS || path == BRANCHES || below(LOCAL) || (below(SHORT_TERM) && !below(SESSIONS))
}

/// Says whether a folder with known contents may hold this path. Any path fits in other folders.
pub(super) fn is_expected(path: &str) -> bool {
    let Some((folder, name)) = path.rsplit_once('/') else {
        return true;
    };
    let known: &[&str] = match folder {
        FORGE => &[
            ".gitattributes",
            ".gitignore",
            ".local",
            "config.toml",
            "git",
            "init.sh",
            "linear",
            "memory",
            "skills",
        ],
        MEMORY => &["artifacts", "long-term", "short-term"],
        LONG_TERM => &[
            "architecture.md",
            "features",
            "features.json",
            "knowledge",
            "knowledge.json",
        ],
        SHORT_TERM => &["focus.json", "progress.txt", "scratch", "sessions"],
        ARTIFACTS => &["code", "docs", "reports"],
        ".forge/linear" => &[
            "active.json",
            "comments",
            "history",
            "issues",
            "outbox.jsonl",
            "templates",
        ],
        ".forge/git" => &["branches.json", "checkpoints", "commits.log"],
        _ => return true,
    };
    known.contains(&name)
}

/// Folders with known contents.
pub(super) const KNOWN: [&str; 7] = [
    FORGE,
    MEMORY,
    LONG_TERM,
    SHORT_TERM,
    ARTIFACTS,
    ".forge/linear",
    ".forge/git",
];
