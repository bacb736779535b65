use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::time::{Duration, Instant};

use helmdeck_core::clock::SystemClock;
use helmdeck_core::context::{ProgressSink, Stale};
use helmdeck_core::{Clock, Identity, Manifest, RunId};
use serde_json::{Value, json};

use super::*;

fn manifest() -> Manifest {
    Manifest::parse("packs/repo/map.toml", include_str!("../map.toml"), &|_| {
        Err("none".into())
    })
    .unwrap()
}

fn context() -> Context {
    let manifest = manifest();
    let run = RunId::next(SystemClock::default().now());
    Context::new(
        manifest.name,
        manifest.version,
        Arc::new(Identity::local()),
        run,
    )
}

/// Runs the pack as the engine does: input checked, defaults filled in, output checked.
async fn call(context: Context, input: Value) -> Result<Reply> {
    let manifest = manifest();
    manifest
        .input
        .validate(&input)
        .expect("the input fits the schema");
    let filled = manifest
        .input
        .fill(&input.to_string())
        .unwrap()
        .into_owned();
    let reply = RepoMap.run(context, Json::parse(filled).unwrap()).await?;
    if let Some(output) = &reply.output {
        manifest
            .output
            .validate(&output.to_value())
            .expect("the output fits the schema");
    }
    Ok(reply)
}

async fn map(input: Value) -> Value {
    call(context(), input)
        .await
        .unwrap()
        .output
        .unwrap()
        .to_value()
}

async fn refusal(path: impl AsRef<Path>, more: Value) -> Error {
    let mut input = json!({ "path": path.as_ref() });
    input
        .as_object_mut()
        .unwrap()
        .extend(more.as_object().unwrap().clone());
    call(context(), input).await.unwrap_err()
}

fn tree(files: &[(&str, &str)]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in files {
        let file = folder.path().join(name);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, text).unwrap();
    }
    folder
}

fn paths(map: &Value) -> Vec<&str> {
    map["files"]
        .as_array()
        .unwrap()
        .iter()
        .map(|file| file["path"].as_str().unwrap())
        .collect()
}

#[tokio::test]
async fn symbols_of_several_languages_are_ranked_by_use() {
    let folder = tree(&[
        (
            "lib/store.py",
            "class Store:\n    def get_value(self): pass\n\ndef unused_helper(): pass\n",
        ),
        (
            "app.py",
            "from lib.store import Store\n\ndef main():\n    Store().get_value()\n",
        ),
        (
            "more.py",
            "from lib.store import Store\n\ndef other():\n    Store().get_value()\n",
        ),
        ("web/x.ts", "export function render(): void {}\n"),
        ("main.go", "package main\nfunc main() {}\n"),
        ("README.md", "class Store"),
    ]);
    let map = map(json!({ "path": folder.path() })).await;
    assert_eq!(map["root"], json!(fs::canonicalize(folder.path()).unwrap()));
    assert_eq!(paths(&map)[0], "lib/store.py");
    assert_eq!(
        (map["files_seen"].as_u64(), map["truncated"].as_bool()),
        (Some(5), Some(false))
    );
    assert_eq!(map.get("commit"), None);
    assert_eq!(
        map["files"][0]["symbols"][0],
        json!({"name": "Store", "kind": "class", "line": 1, "signature": "class Store"})
    );
    assert_eq!(map["files"][0]["symbols"][1]["parent"], "Store");
    assert!(map["map"].as_str().unwrap().starts_with(
        "lib/store.py\n     1: class Store\n     2: def get_value(self)  [Store]\n     4: def unused_helper()\n"
    ));
}

#[tokio::test]
async fn the_budget_is_kept_and_what_matters_most_stays() {
    let mut files: Vec<(String, String)> = (0..40)
        .map(|n| {
            (
                format!("f{n:02}.py"),
                format!("import core\n\ndef lonely_function_{n:02}():\n    central_thing()\n"),
            )
        })
        .collect();
    files.push(("zz_core.py".into(), "def central_thing(): pass\n".into()));
    let files: Vec<(&str, &str)> = files
        .iter()
        .map(|(name, text)| (name.as_str(), text.as_str()))
        .collect();
    let folder = tree(&files);
    for budget in [64, 100, 300] {
        let map = map(json!({ "path": folder.path(), "token_budget": budget })).await;
        let text = map["map"].as_str().unwrap();
        assert_eq!(map["tokens"], text.chars().count().div_ceil(4));
        assert!(text.chars().count() <= budget * 4, "{budget}");
        assert_eq!(map["truncated"], true);
        assert_eq!(paths(&map)[0], "zz_core.py", "{budget}");
    }
    assert_eq!(
        map(json!({ "path": folder.path(), "token_budget": 2000 })).await["truncated"],
        false
    );
}

/// A crate of 80 modules that all use the types of one file.
fn crate_fixture() -> tempfile::TempDir {
    let mut files = vec![(
        "src/core.rs".to_owned(),
        "pub struct Error;\npub struct Context;\npub trait Handler {\n    fn run(&self, context: Context) -> Result<(), Error>;\n}\n".to_owned(),
    )];
    files.extend((0..80).map(|n| {
        let text = format!(
            "use crate::core::{{Context, Error, Handler}};\n\npub struct Module{n};\n\nimpl Handler for Module{n} {{\n    \
             fn run(&self, context: Context) -> Result<(), Error> {{\n        helper_number_{n}(context)\n    }}\n}}\n\n\
             fn helper_number_{n}(context: Context) -> Result<(), Error> {{\n    Ok(drop(context))\n}}\n"
        );
        (format!("src/module_{n:02}.rs"), text)
    }));
    let files: Vec<(&str, &str)> = files
        .iter()
        .map(|(name, text)| (name.as_str(), text.as_str()))
        .collect();
    tree(&files)
}

#[tokio::test]
async fn same_tree_gives_same_bytes() {
    let folder = crate_fixture();
    let input = json!({ "path": folder.path() });
    let first = call(context(), input.clone()).await.unwrap();
    let second = call(context(), input).await.unwrap();
    assert_eq!(first.output.unwrap(), second.output.unwrap());
    assert_eq!(first.validator, second.validator);
}

#[tokio::test]
async fn shared_types_rank_first_and_the_budget_is_used() {
    let folder = crate_fixture();
    let map =
        map(json!({ "path": folder.path(), "paths": ["src/**"], "token_budget": 2000 })).await;
    assert_eq!(paths(&map)[0], "src/core.rs");
    let first = map["files"][0]["symbols"].as_array().unwrap();
    let names: Vec<&str> = first
        .iter()
        .map(|symbol| symbol["name"].as_str().unwrap())
        .collect();
    for expected in ["Error", "Context", "Handler"] {
        assert!(names.contains(&expected), "{expected} in {names:?}");
    }
    assert!(map["tokens"].as_u64().unwrap() > 1800, "{}", map["tokens"]);
    assert_eq!(map["truncated"], true);
}

#[tokio::test]
async fn paths_languages_and_focus_narrow_and_lean_the_map() {
    let folder = tree(&[
        ("a/one.rs", "pub fn one_thing() {}\n"),
        ("a/two.py", "def two_thing(): pass\n"),
        ("b/three.rs", "pub fn three_thing() { one_thing() }\n"),
        ("b/four_test.rs", "pub fn four_thing() { one_thing() }\n"),
    ]);
    let at = folder.path();
    assert_eq!(
        paths(&map(json!({ "path": at, "languages": ["python"] })).await),
        ["a/two.py"]
    );
    assert_eq!(
        paths(&map(json!({ "path": at, "paths": ["b", "!*_test.rs"] })).await),
        ["b/three.rs"]
    );
    assert_eq!(
        paths(&map(json!({ "path": at, "paths": ["/*.rs"] })).await),
        [""; 0]
    );
    assert_eq!(paths(&map(json!({ "path": at })).await)[0], "a/one.rs");
    assert_eq!(
        paths(&map(json!({ "path": at, "focus": ["two.py"] })).await)[0],
        "a/two.py"
    );
}

#[tokio::test]
async fn what_git_ignores_is_left_out_with_and_without_a_repository() {
    let files = [
        (".gitignore", "target/\n*.gen.py\n"),
        ("target/out.py", "def built(): pass\n"),
        ("x.gen.py", "def generated(): pass\n"),
        (".hidden/h.py", "def hidden(): pass\n"),
        ("src/keep.py", "def keep(): pass\n"),
    ];
    let plain = tree(&files);
    assert_eq!(
        paths(&map(json!({ "path": plain.path() })).await),
        ["src/keep.py"]
    );

    let commit = "0123456789abcdef0123456789abcdef01234567";
    let git = tree(&files);
    fs::create_dir_all(git.path().join(".git")).unwrap();
    fs::write(git.path().join(".git/HEAD"), commit).unwrap();
    let whole = map(json!({ "path": git.path() })).await;
    assert_eq!(
        (paths(&whole), whole["commit"].as_str()),
        (vec!["src/keep.py"], Some(commit))
    );
    // A folder inside the repository obeys the rules of the repository.
    fs::write(git.path().join("src/y.gen.py"), "def generated(): pass\n").unwrap();
    let part = map(json!({ "path": git.path().join("src") })).await;
    assert_eq!(
        (paths(&part), part["commit"].as_str()),
        (vec!["keep.py"], Some(commit))
    );
}

#[tokio::test]
async fn links_never_lead_out_of_the_folder_or_in_circles() {
    let outside = tree(&[("secret.py", "def secret(): pass\n")]);
    let folder = tree(&[("sub/in.py", "def inside(): pass\n")]);
    symlink(outside.path(), folder.path().join("away")).unwrap();
    symlink(
        outside.path().join("secret.py"),
        folder.path().join("file.py"),
    )
    .unwrap();
    symlink(folder.path(), folder.path().join("sub/loop")).unwrap();
    assert_eq!(
        paths(&map(json!({ "path": folder.path() })).await),
        ["sub/in.py"]
    );
    // The folder itself may be reached by a link: the caller named it.
    let link = outside.path().join("link");
    symlink(folder.path(), &link).unwrap();
    let linked = map(json!({ "path": link })).await;
    assert_eq!(
        linked["root"],
        json!(fs::canonicalize(folder.path()).unwrap())
    );
}

#[tokio::test]
async fn weird_files_are_counted_and_do_no_harm() {
    let folder = tree(&[
        ("good.rs", "fn good() {}\n"),
        ("empty.rs", ""),
        ("evil\nIgnore all.py", "def evil(): pass\n"),
    ]);
    fs::write(folder.path().join("huge.rs"), vec![b'\n'; 600 << 10]).unwrap();
    fs::write(folder.path().join("binary.rs"), b"fn a() {}\0\0").unwrap();
    fs::write(
        folder.path().join("latin.rs"),
        b"// \xe9\xff\nfn latin() {}\n",
    )
    .unwrap();
    fs::create_dir(folder.path().join("folder.rs")).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(folder.path().join("socket.rs")).unwrap();
    let map = map(json!({ "path": folder.path() })).await;
    assert_eq!(
        map["skipped"],
        json!({"too_large": 1, "not_text": 1, "unreadable": 0})
    );
    assert_eq!(map["files_seen"], 6);
    let text = map["map"].as_str().unwrap();
    assert!(
        text.contains("evil?Ignore all.py\n") && text.contains("fn latin()"),
        "{text}"
    );
}

#[tokio::test]
async fn an_empty_folder_has_an_empty_map() {
    let folder = tree(&[]);
    let map = map(json!({ "path": folder.path() })).await;
    assert_eq!(
        (&map["map"], &map["files"], &map["truncated"]),
        (&json!(""), &json!([]), &json!(false))
    );
}

#[tokio::test]
async fn a_stale_answer_is_confirmed_until_something_moves() {
    type Change = fn(&Path);
    let folder = tree(&[("a.py", "def one(): pass\n"), ("notes.txt", "x")]);
    let input = json!({ "path": folder.path() });
    let first = call(context(), input.clone()).await.unwrap();
    let validator = first.validator.unwrap();
    let stale = || Context {
        stale: Some(Stale {
            output: Json::parse("{}").unwrap(),
            validator: Arc::clone(&validator),
        }),
        ..context()
    };
    assert!(call(stale(), input.clone()).await.unwrap().output.is_none());
    fs::write(
        folder.path().join("notes.txt"),
        "what is no source does not count",
    )
    .unwrap();
    assert!(call(stale(), input.clone()).await.unwrap().output.is_none());

    let changes: [(&str, Change); 4] = [
        ("another size", |root| {
            fs::write(root.join("a.py"), "def one_more(): pass\n").unwrap()
        }),
        ("a new file", |root| {
            fs::write(root.join("b.py"), "").unwrap()
        }),
        ("a commit", |root| {
            fs::create_dir(root.join(".git")).unwrap();
            fs::write(
                root.join(".git/HEAD"),
                "0123456789abcdef0123456789abcdef01234567",
            )
            .unwrap();
        }),
        ("an ignore rule", |root| {
            fs::write(root.join(".gitignore"), "a.py\n").unwrap()
        }),
    ];
    for (what, change) in changes {
        let before = call(context(), input.clone())
            .await
            .unwrap()
            .validator
            .unwrap();
        change(folder.path());
        let stale = Stale {
            output: Json::parse("{}").unwrap(),
            validator: before,
        };
        let reply = call(
            Context {
                stale: Some(stale),
                ..context()
            },
            input.clone(),
        )
        .await
        .unwrap();
        assert!(reply.output.is_some(), "{what}");
    }
}

#[tokio::test]
async fn bad_input_is_refused_with_a_clear_message() {
    let folder = tree(&[("a.rs", "")]);
    let cases = [
        (
            refusal("src", json!({})).await,
            Code::InvalidInput,
            "path \"src\" is relative; give an absolute path",
        ),
        (
            refusal("/no/such/folder", json!({})).await,
            Code::NotFound,
            "path \"/no/such/folder\" does not exist",
        ),
        (
            refusal(folder.path().join("a.rs"), json!({})).await,
            Code::InvalidInput,
            "is a file; give the folder",
        ),
        (
            refusal(folder.path().join("a.rs/x"), json!({})).await,
            Code::NotFound,
            "does not exist",
        ),
        (
            refusal(folder.path(), json!({"paths": ["a{b"]})).await,
            Code::InvalidInput,
            "paths: \"a{b\" is not a glob",
        ),
        (
            refusal(folder.path(), json!({"focus": ["{x"]})).await,
            Code::InvalidInput,
            "focus: \"{x\" is not a glob",
        ),
    ];
    for (error, code, message) in cases {
        assert_eq!(error.code(), code, "{error}");
        assert!(error.message().contains(message), "{error}");
    }
}

#[tokio::test]
async fn a_cancelled_call_and_a_passed_deadline_end_the_work() {
    let folder = tree(&[("a.rs", "fn a() {}\n")]);
    let input = json!({ "path": folder.path() });
    let late = Context {
        deadline: Some(Instant::now() - Duration::from_secs(1)),
        ..context()
    };
    assert_eq!(
        call(late, input.clone()).await.unwrap_err().code(),
        Code::Timeout
    );

    let dropped = Arc::new(AtomicBool::new(false));
    drop(SetOnDrop(Arc::clone(&dropped)));
    let work = Work {
        context: context(),
        dropped,
    };
    let input = Json::from(json!({ "path": folder.path(), "token_budget": 100 }))
        .read()
        .unwrap();
    assert_eq!(work.run(&input).unwrap_err().code(), Code::Cancelled);
}

#[tokio::test]
async fn progress_is_reported_from_start_to_end() {
    #[derive(Default)]
    struct Seen(Mutex<Vec<f32>>);
    impl ProgressSink for Seen {
        fn report(&self, percent: Option<f32>, _: &str) {
            self.0.lock().push(percent.unwrap());
        }
    }
    let files: Vec<(String, String)> = (0..250)
        .map(|n| (format!("f{n}.py"), format!("def f{n}(): pass\n")))
        .collect();
    let files: Vec<(&str, &str)> = files
        .iter()
        .map(|(name, text)| (name.as_str(), text.as_str()))
        .collect();
    let folder = tree(&files);
    let seen = Arc::new(Seen::default());
    call(
        Context {
            progress: Some(seen.clone()),
            ..context()
        },
        json!({ "path": folder.path() }),
    )
    .await
    .unwrap();
    let mut reports = seen.0.lock().clone();
    assert_eq!(
        (reports.first(), reports.last()),
        (Some(&0.0), Some(&100.0))
    );
    reports.sort_by(f32::total_cmp);
    assert_eq!(reports, [0.0, 40.0, 80.0, 100.0]);
}

#[test]
fn the_input_names_its_path_for_the_command_line() {
    assert_eq!(
        manifest().input.source()["properties"]["path"]["x-helmdeck-path"],
        true
    );
}

#[tokio::test]
async fn a_relative_path_with_a_session_is_below_its_folder_and_no_link_leads_out() {
    let session = Arc::new(helmdeck_testkit::FolderSession::new());
    let folder = helmdeck_core::session::Session::folder(&*session).to_owned();
    let outside = tree(&[("secret.py", "def secret_function(): pass\n")]);
    fs::create_dir_all(folder.join("repo/src")).unwrap();
    fs::write(folder.join("repo/src/a.py"), "def open_function(): pass\n").unwrap();
    fs::create_dir(folder.join("repo/.git")).unwrap();
    fs::write(
        folder.join("repo/.git/HEAD"),
        "1111111111111111111111111111111111111111",
    )
    .unwrap();
    symlink(outside.path(), folder.join("out")).unwrap();
    symlink(outside.path(), folder.join("repo/out")).unwrap();
    symlink(
        outside.path().join("secret.py"),
        folder.join("repo/secret.py"),
    )
    .unwrap();
    let in_session = |path: &str| {
        let mut context = context();
        context.session = Some(Arc::clone(&session) as Arc<dyn helmdeck_core::session::Session>);
        call(context, json!({ "path": path }))
    };
    for path in ["repo", "./repo/"] {
        let reply = in_session(path).await.unwrap();
        assert!(reply.no_store && reply.validator.is_none());
        let map = reply.output.unwrap().to_value();
        assert_eq!(paths(&map), ["src/a.py"]);
        assert_eq!(map.get("commit"), None);
    }
    for (path, code) in [
        ("..", Code::InvalidInput),
        ("repo/../..", Code::InvalidInput),
        ("out", Code::NotFound),
        ("repo/out", Code::NotFound),
        ("none", Code::NotFound),
        ("repo/src/a.py", Code::NotFound),
    ] {
        assert_eq!(in_session(path).await.unwrap_err().code(), code, "{path}");
    }
    assert_eq!(
        refusal("repo", json!({})).await.code(),
        Code::InvalidInput,
        "without a session"
    );
}

#[test]
fn what_a_file_became_since_the_walk_is_not_read() {
    let session = helmdeck_testkit::FolderSession::new();
    let folder = helmdeck_core::session::Session::folder(&session).join("repo");
    fs::create_dir_all(folder.join("a")).unwrap();
    let outside = tree(&[("x.py", "def secret_function(): pass\n")]);
    let place = MapRoot::find("repo", Some(&session)).unwrap();
    fs::write(folder.join("a/x.py"), "pass\n").unwrap();
    assert!(place.open(Path::new("a/x.py")).is_ok());
    fs::remove_dir_all(folder.join("a")).unwrap();
    symlink(outside.path(), folder.join("a")).unwrap();
    symlink(outside.path().join("x.py"), folder.join("x.py")).unwrap();
    rustix::fs::mknodat(
        rustix::fs::CWD,
        folder.join("pipe.py"),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RUSR,
        0,
    )
    .unwrap();
    for name in ["a/x.py", "x.py", "pipe.py", "none.py"] {
        assert!(place.open(Path::new(name)).is_err(), "{name}");
    }
}

/// Puts what is no file of rules, or far too large a one, where rules are looked for.
fn plant_rules(folder: &Path) {
    let pipe = |name: &str| {
        let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
        rustix::fs::mknodat(
            rustix::fs::CWD,
            folder.join(name),
            rustix::fs::FileType::Fifo,
            mode,
            0,
        )
        .unwrap();
    };
    for name in ["", "a", "b", "c", "d", "e", ".git/info", ".hidden"] {
        fs::create_dir_all(folder.join(name)).unwrap();
    }
    for name in [
        "x.py",
        "a/a.py",
        "b/b.py",
        "c/c.py",
        "c/c.gen.py",
        "d/d.py",
        "e/e.py",
        ".hidden/h.py",
    ] {
        fs::write(folder.join(name), "def named(): pass\n").unwrap();
    }
    symlink("/dev/zero", folder.join(".gitignore")).unwrap();
    pipe(".ignore");
    pipe(".git/info/exclude");
    pipe("a/.gitignore");
    // In a folder that is not looked into.
    pipe(".hidden/.gitignore");
    fs::write(folder.join("b/.gitignore"), "*\n".repeat(1 << 20)).unwrap();
    fs::write(folder.join("c/.gitignore"), "*.gen.py\n").unwrap();
    fs::create_dir(folder.join("d/.gitignore")).unwrap();
    // As many hard rules as fit into what is read.
    let hard: String = (0..8_000)
        .map(|n| format!("**/a*b?c[x-z]{n}/**/*e*\n"))
        .collect();
    fs::write(
        folder.join("e/.gitignore"),
        &hard[..hard.len().min(250 << 10)],
    )
    .unwrap();
}

#[tokio::test]
async fn planted_rules_are_not_waited_for_and_not_read_without_end() {
    let session = Arc::new(helmdeck_testkit::FolderSession::new());
    let folder = helmdeck_core::session::Session::folder(&*session).join("repo");
    plant_rules(&folder);
    let expected = ["a/a.py", "b/b.py", "c/c.py", "d/d.py", "e/e.py", "x.py"];
    let of_session = Context {
        session: Some(session.clone()),
        ..context()
    };
    let reply = call(of_session, json!({ "path": "repo" })).await.unwrap();
    assert_eq!(paths(&reply.output.unwrap().to_value()), expected);
    assert_eq!(paths(&map(json!({ "path": folder })).await), expected);
    // The rules above the requested folder apply, too.
    assert_eq!(
        paths(&map(json!({ "path": folder.join("c") })).await),
        ["c.py"]
    );
}

#[tokio::test]
async fn a_folder_of_a_session_that_is_swapped_for_a_link_is_not_walked_through() {
    let session = helmdeck_testkit::FolderSession::new();
    let folder = helmdeck_core::session::Session::folder(&session).join("repo");
    fs::create_dir(&folder).unwrap();
    fs::write(folder.join("in.py"), "").unwrap();
    let outside = tree(&[("secret.py", "")]);
    let place = Arc::new(MapRoot::find("repo", Some(&session)).unwrap());
    fs::rename(&folder, folder.with_extension("moved")).unwrap();
    symlink(outside.path(), &folder).unwrap();
    let none = Globs::new("paths", &[]).unwrap();
    let found = walk::walk(
        &place,
        None,
        None,
        &FileFilter {
            paths: &none,
            languages: &[],
        },
        &|| false,
    )
    .unwrap();
    let names: Vec<&str> = found.files.iter().map(|file| file.path.as_str()).collect();
    assert_eq!(names, ["in.py"]);
}

#[tokio::test]
async fn a_nearer_rule_stands_above_a_farther_one_and_ends_at_another_repository() {
    let folder = tree(&[
        (".git/HEAD", ""),
        (".git/info/exclude", "*.excluded.py\n"),
        (".gitignore", "*.gen.py\n/only-here\nlogs/\n"),
        (".ignore", "!kept.gen.py\n"),
        ("kept.gen.py", "def named(): pass\n"),
        ("lost.gen.py", "def named(): pass\n"),
        ("x.excluded.py", "def named(): pass\n"),
        ("only-here/x.py", "def named(): pass\n"),
        ("sub/only-here/x.py", "def named(): pass\n"),
        ("sub/logs/x.py", "def named(): pass\n"),
        ("sub/.gitignore", "!*.gen.py\n"),
        ("sub/y.gen.py", "def named(): pass\n"),
        (".github/z.py", "def named(): pass\n"),
        ("ci/.gitignore", "!.shown\n"),
        ("ci/.shown/w.py", "def named(): pass\n"),
        ("vendored/.git/HEAD", ""),
        ("vendored/v.gen.py", "def named(): pass\n"),
    ]);
    let map = map(json!({ "path": folder.path() })).await;
    let mut found = paths(&map);
    found.sort_unstable();
    assert_eq!(
        found,
        [
            "ci/.shown/w.py",
            "kept.gen.py",
            "sub/only-here/x.py",
            "sub/y.gen.py",
            "vendored/v.gen.py"
        ]
    );
}
