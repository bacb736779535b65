use std::path::Path;

use serde::{Deserialize, Serialize};

use super::*;
use crate::json::Members;
use crate::layout::EXCEPTIONS;

/// A document as others have it.
#[derive(Debug, Clone, Serialize, Deserialize, schemars::JsonSchema, PartialEq)]
struct Notes {
    schema_version: String,
    count: u64,
    notes: Vec<String>,
    #[serde(flatten)]
    other: Members,
}

impl Document for Notes {
    const PATH: &'static str = ".forge/memory/notes.json";

    fn skeleton() -> Self {
        Self {
            schema_version: "1.0".into(),
            count: 0,
            notes: Vec::new(),
            other: Members::default(),
        }
    }

    fn check(&self) -> std::result::Result<(), String> {
        if self.notes.iter().any(String::is_empty) {
            Err("a note is empty".into())
        } else {
            Ok(())
        }
    }
}

struct Fixture {
    _folder: tempfile::TempDir,
    files: Files,
}

fn place() -> Fixture {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join(".forge")).unwrap();
    let files = at(folder.path());
    Fixture {
        _folder: folder,
        files,
    }
}

fn at(root: &Path) -> Files {
    Files::new(root, Writer::default(), MAX_FILE, None)
}

fn add(files: &Files, note: &str) -> Result<()> {
    files.edit::<Notes, _>(None, |notes| {
        notes.count += 1;
        notes.notes.push(note.to_owned());
        Ok(())
    })
}

fn raw(files: &Files, path: &str) -> Vec<u8> {
    std::fs::read(files.root().join(path)).unwrap()
}

fn overwrite(files: &Files, bytes: &[u8]) {
    let path = files.root().join(Notes::PATH);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, bytes).unwrap();
}

#[test]
fn an_absent_document_is_none_and_an_edit_creates_it() {
    let Fixture { files, .. } = &place();
    assert!(files.load::<Notes>().unwrap().is_none());
    assert!(
        !files.root().join(".forge/.local").exists(),
        "reading leaves nothing behind"
    );
    add(files, "one").unwrap();
    let loaded = files.load::<Notes>().unwrap().unwrap();
    assert_eq!((loaded.value.count, loaded.read_only), (1, false));
    assert_eq!(loaded.etag, etag(&raw(files, Notes::PATH)));
    assert_eq!(raw(files, &last_good(Notes::PATH)), raw(files, Notes::PATH));
}

#[test]
fn what_does_not_change_is_not_written() {
    let Fixture { files, .. } = &place();
    // A person wrote it, in another form than this program does.
    overwrite(
        files,
        b"{\"schema_version\":\"1.0\",\r\n\"count\":0,\"notes\":[],\"mine\":[1]}",
    );
    let before = raw(files, Notes::PATH);
    files.edit::<Notes, _>(None, |_| Ok(())).unwrap();
    assert_eq!(raw(files, Notes::PATH), before);
    let error = files.edit::<Notes, ()>(None, |notes| {
        notes.count = 9;
        Err(Error::usage("no"))
    });
    assert_eq!(error.unwrap_err().code, "E_USAGE");
    assert_eq!(raw(files, Notes::PATH), before);
    add(files, "one").unwrap();
    let text = String::from_utf8(raw(files, Notes::PATH)).unwrap();
    assert!(text.ends_with("  \"mine\": [1]\n}\n"), "{text}");
}

#[test]
fn a_number_that_we_do_not_know_keeps_every_digit() {
    let Fixture { files, .. } = &place();
    let theirs = "\"big\": 123456789012345678901234567890,\n  \"long\": 0.1000000000000000055511151231257827,\n  \"price\": 1.10";
    overwrite(
        files,
        format!("{{\"schema_version\":\"1.0\",\"count\":1,\"notes\":[],{theirs}}}").as_bytes(),
    );
    add(files, "one").unwrap();
    add(files, "two").unwrap();
    let text = String::from_utf8(raw(files, Notes::PATH)).unwrap();
    assert!(
        text.contains(theirs) && text.contains("\"count\": 3"),
        "{text}"
    );
}

#[test]
fn a_stale_copy_is_refused_with_the_current_value() {
    let Fixture { files, .. } = &place();
    add(files, "one").unwrap();
    let etag = files.load::<Notes>().unwrap().unwrap().etag;
    add(files, "two").unwrap();
    let error = files.edit::<Notes, _>(Some(&etag), |_| Ok(())).unwrap_err();
    assert_eq!((error.code, error.category.exit_code()), ("E_STALE", 6));
    let current = error.current.unwrap();
    assert_eq!(current.text.as_bytes(), raw(files, Notes::PATH));
    files
        .edit::<Notes, _>(Some(&current.etag), |notes| {
            notes.count = 7;
            Ok(())
        })
        .unwrap();
    assert_eq!(files.load::<Notes>().unwrap().unwrap().value.count, 7);
    files.remove(Notes::PATH).unwrap();
    assert_eq!(
        files
            .edit::<Notes, _>(Some(&etag), |_| Ok(()))
            .unwrap_err()
            .code,
        "E_STALE"
    );
}

#[test]
fn an_invalid_change_and_a_secret_leave_the_file_as_it_is() {
    let Fixture { files, .. } = &place();
    add(files, "one").unwrap();
    let before = raw(files, Notes::PATH);
    assert_eq!(add(files, "").unwrap_err().code, "E_INVALID");
    let key = format!("line\n{}{}", concat!("gh", "p_"), "a1B2".repeat(9));
    let error = add(files, &key).unwrap_err();
    assert_eq!((error.code, error.category.exit_code()), ("E_SECRET", 7));
    for refused in [
        files.write("a.txt", key.as_bytes()),
        files.create("a.txt", key.as_bytes()).map(drop),
        files.append("a.txt", key.lines().last().unwrap()),
    ] {
        assert_eq!(refused.unwrap_err().code, "E_SECRET");
    }
    assert!(!files.root().join("a.txt").exists());
    assert_eq!(raw(files, Notes::PATH), before);
    let other = files.allowing("jwt");
    assert_eq!(add(&other, &key).unwrap_err().code, "E_SECRET");
    add(&files.allowing("github-token"), &key).unwrap();
    let log = String::from_utf8(raw(files, EXCEPTIONS)).unwrap();
    assert!(
        log.contains("\"rule\":\"github-token\"") && !log.contains("a1B2"),
        "{log}"
    );
}

#[test]
fn versions_decide_who_may_write() {
    let Fixture { files, .. } = &place();
    let with = |version: &str, count: &str| {
        format!("{{\"schema_version\":{version},\"count\":{count},\"notes\":[\"\"]}}")
    };
    overwrite(
        files,
        with("\"1.9\"", "1").replace("[\"\"]", "[]").as_bytes(),
    );
    assert!(!files.load::<Notes>().unwrap().unwrap().read_only);
    add(files, "one").unwrap();
    overwrite(files, with("\"2.0\"", "1").as_bytes());
    assert!(files.load::<Notes>().unwrap().unwrap().read_only);
    assert_eq!(add(files, "two").unwrap_err().code, "E_SCHEMA_NEWER");
    overwrite(files, with("\"2.0\"", "{}").as_bytes());
    assert_eq!(files.load::<Notes>().unwrap_err().code, "E_SCHEMA_NEWER");
    for odd in ["\"0.9\"", "1", "\"1\"", "\"one.two\"", "\"+1.0\"", "null"] {
        overwrite(files, with(odd, "1").as_bytes());
        assert_eq!(
            files.load::<Notes>().unwrap_err().code,
            "E_CORRUPT",
            "{odd}"
        );
    }
}

/// Every way a file is damaged, with a piece of what is said.
fn corpus() -> Vec<(Vec<u8>, &'static str)> {
    let whole = json::print(&Notes {
        notes: vec!["é\n".into()],
        ..Notes::skeleton()
    })
    .unwrap();
    let text = String::from_utf8(whole.clone()).unwrap();
    let mut all: Vec<(Vec<u8>, &str)> = (0..whole.len() - 2)
        .map(|end| (whole[..end].to_vec(), "expected"))
        .collect();
    let mut nul = whole.clone();
    let middle = nul.len() / 2;
    nul[middle..].fill(0);
    let side = |mark: &str| format!("{mark}\n");
    let merge = format!(
        "{{\n{}  \"count\": 1,\n{}  \"count\": 2,\n{}}}\n",
        side("<<<<<<< ours"),
        side("======="),
        side(">>>>>>> theirs")
    );
    all.extend([
        (vec![0; 4096], "NUL"),
        (nul, "NUL"),
        (
            [b"\xef\xbb\xbf".as_slice(), &whole].concat(),
            "byte order mark",
        ),
        (merge.into_bytes(), "merge"),
        (
            text.replace("\"count\"", "\"count\": 1,\n  \"count\"")
                .into_bytes(),
            "duplicate",
        ),
        (
            text.replace("\"count\"", "\"new\": {\"a\": 1, \"a\": 2},\n  \"count\"")
                .into_bytes(),
            "duplicate",
        ),
        (Vec::new(), "empty"),
        (
            b"{\"schema_version\":\"1.0\",\"count\":1,\"notes\":[\"\xff\"]}".to_vec(),
            "UTF-8",
        ),
        (
            format!("{{\"a\":{}{}}}", "[".repeat(10_000), "]".repeat(10_000)).into_bytes(),
            "recursion",
        ),
        (text.replace('0', "-1").into_bytes(), "expected"),
        (
            text.replace("\"é\\n\"", "\"\"").into_bytes(),
            "a note is empty",
        ),
        (b"[]".to_vec(), "expected"),
        (format!("{text}{text}").into_bytes(), "trailing"),
    ]);
    all
}

#[test]
fn a_damaged_file_is_loud_copied_aside_and_never_written_over() {
    for (bytes, says) in corpus() {
        let Fixture { files, .. } = &place();
        overwrite(files, &bytes);
        let shown = String::from_utf8_lossy(&bytes[..bytes.len().min(80)]).into_owned();
        for error in [
            files.load::<Notes>().unwrap_err(),
            add(files, "x").unwrap_err(),
        ] {
            assert_eq!(
                (error.code, error.category.exit_code()),
                ("E_CORRUPT", 8),
                "{shown}"
            );
            assert!(error.message.contains(says), "{error} for {shown}");
            let place = error.message.strip_prefix(Notes::PATH).unwrap();
            let mut numbers = place.split(':').skip(1);
            for _ in 0..2 {
                assert!(
                    numbers.next().unwrap().parse::<usize>().unwrap() > 0,
                    "{error}"
                );
            }
        }
        assert_eq!(raw(files, Notes::PATH), bytes);
        let copies = files.list(crate::layout::QUARANTINE).unwrap();
        assert_eq!(copies.len(), 1, "once for each content");
        let sch = etag(&bytes);
        assert!(
            copies[0].name.starts_with("notes.json.2") && copies[0].name.ends_with(&sch[..8]),
            "{copies:?}"
        );
        assert_eq!(
            raw(
                files,
                &format!("{}/{}", crate::layout::QUARANTINE, copies[0].name)
            ),
            bytes
        );
    }
}

#[test]
fn line_ends_of_windows_are_no_damage() {
    let Fixture { files, .. } = &place();
    let text = String::from_utf8(json::print(&Notes::skeleton()).unwrap()).unwrap();
    overwrite(files, text.replace('\n', "\r\n").as_bytes());
    assert_eq!(
        files.load::<Notes>().unwrap().unwrap().value,
        Notes::skeleton()
    );
}

#[test]
fn a_huge_file_is_not_read_at_all() {
    let Fixture { files, .. } = &place();
    overwrite(files, b"{");
    let file = std::fs::OpenOptions::new()
        .write(true)
        .open(files.root().join(Notes::PATH))
        .unwrap();
    file.set_len(64 << 20).unwrap();
    for error in [
        files.load::<Notes>().unwrap_err(),
        add(files, "x").unwrap_err(),
    ] {
        assert_eq!((error.code, error.category.exit_code()), ("E_TOO_LARGE", 8));
    }
    assert_eq!(file.metadata().unwrap().len(), 64 << 20);
}

#[test]
fn at_most_ten_damaged_copies_of_a_name_are_kept() {
    let Fixture { files, .. } = &place();
    for n in 0..14 {
        overwrite(files, format!("{{{n}").as_bytes());
        assert_eq!(files.load::<Notes>().unwrap_err().code, "E_CORRUPT");
    }
    assert_eq!(files.list(crate::layout::QUARANTINE).unwrap().len(), 10);
}

#[test]
fn who_only_reads_writes_nothing() {
    let Fixture { files, .. } = &place();
    overwrite(files, b"{");
    let reading = files.reading();
    assert_eq!(reading.load::<Notes>().unwrap_err().code, "E_CORRUPT");
    assert!(!files.root().join(".forge/.local").exists());
    assert_eq!(reading.write("a", b"a").unwrap_err().code, "E_READ_ONLY");
}

#[test]
fn create_never_overwrites_and_write_keeps_permissions() {
    use std::os::unix::fs::PermissionsExt;

    let Fixture { files, .. } = &place();
    assert!(files.create_with("run.sh", b"one", Some(0o755)).unwrap());
    assert!(!files.create("run.sh", b"two").unwrap());
    assert_eq!(raw(files, "run.sh"), b"one");
    files.write("run.sh", b"three").unwrap();
    let mode = std::fs::metadata(files.root().join("run.sh"))
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o755);
}

#[test]
fn lines_are_added_whole_even_after_a_torn_one() {
    let Fixture { files, .. } = &place();
    files.append("log.jsonl", "{\"a\":1}").unwrap();
    std::fs::write(files.root().join("log.jsonl"), "{\"a\":1}\n{\"a\":").unwrap();
    files.append("log.jsonl", "{\"a\":3}").unwrap();
    assert_eq!(raw(files, "log.jsonl"), b"{\"a\":1}\n{\"a\":\n{\"a\":3}\n");
    assert_eq!(
        files.append("log.jsonl", "a\nb").unwrap_err().code,
        "E_USAGE"
    );
}

#[test]
fn files_are_renamed_removed_and_listed() {
    let Fixture { files, .. } = &place();
    files.write("a/b.txt", b"1").unwrap();
    files.rename("a/b.txt", "c/d.txt").unwrap();
    assert_eq!(
        files.rename("a/b.txt", "c/e.txt").unwrap_err().code,
        "E_NOT_FOUND"
    );
    assert_eq!(
        files.rename("x/b.txt", "c/e.txt").unwrap_err().code,
        "E_NOT_FOUND"
    );
    assert_eq!(files.read("c/d.txt").unwrap().unwrap(), b"1");
    assert!(files.create_folder("c/sub").unwrap() && !files.create_folder("c/sub").unwrap());
    let seen: Vec<_> = files
        .list("c")
        .unwrap()
        .into_iter()
        .map(|entry| (entry.name, entry.folder))
        .collect();
    assert_eq!(
        seen,
        [("d.txt".to_owned(), false), ("sub".to_owned(), true)]
    );
    assert!(files.list("none").unwrap().is_empty());
    assert!(
        files.remove("c/d.txt").unwrap()
            && !files.remove("c/d.txt").unwrap()
            && !files.remove("none/d").unwrap()
    );
    for out in ["../a", "/a", "a/../../b"] {
        assert_eq!(files.write(out, b"1").unwrap_err().code, "E_PATH");
        assert_eq!(files.read(out).unwrap_err().code, "E_PATH");
    }
}
