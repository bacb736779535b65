//! A push that is killed at any step is finished by the next one.

use std::process::{Child, Command, Stdio};

use helmdeck_testkit::linear::Fault;

use super::*;

const WORKER: &str = "sync::tests::killed::worker";

/// Runs a push in a process that the test kills.
#[test]
#[ignore = "it is run by the test below, in a process of its own"]
#[allow(clippy::disallowed_methods, reason = "the other process is told what to do by its environment")]
fn worker() {
    let Some(root) = std::env::var_os("SYNC_ROOT") else { return };
    let text = |name: &str| std::env::var(name).unwrap();
    let clone = Clone::at(Path::new(&root), &text("SYNC_URL"), &text("SYNC_KEY"));
    clone.clock.advance(Duration::from_secs(86_400));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let pushed = runtime.block_on(clone.push());
    assert_eq!((pushed.failed, pushed.waiting), (Vec::new(), 0));
}

fn start(root: &Path, mock: &Mock) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "--nocapture", WORKER])
        .env("SYNC_ROOT", root)
        .env("SYNC_URL", mock.url())
        .env("SYNC_KEY", mock.key())
        .stdout(Stdio::null())
        .stderr(Stdio::inherit())
        .spawn()
        .unwrap()
}

#[test]
fn a_push_killed_at_each_request_is_finished_later() {
    for carried_out in [false, true] {
        let mock = Mock::start();
        let folder = tempfile::tempdir().unwrap();
        let clone = Clone::at(folder.path(), &mock.url(), mock.key());
        let one = clone.add("One");
        let two = clone.add("Two");
        clone.set(&two, &Edit { blocked_by: Some(vec![one]), labels: Some(vec!["ui".into()]), ..Edit::default() });
        // The first requests read the directory; each killed run gets one request further.
        for step in 0.. {
            assert!(step < 40, "it does not end");
            let reached = mock.hang("", step, carried_out);
            let mut child = start(folder.path(), &mock);
            let ended = loop {
                if let Some(status) = child.try_wait().unwrap() {
                    break Some(status);
                }
                if reached.recv_timeout(Duration::from_millis(20)).is_ok() {
                    child.kill().unwrap();
                    child.wait().unwrap();
                    break None;
                }
            };
            mock.forget_faults();
            if let Some(status) = ended {
                assert!(status.success());
                break;
            }
        }
        assert_eq!(mock.with(|store| store.issues.len()), 2, "carried out: {carried_out}");
        assert_eq!(mock.with(|store| store.relations.len()), 1);
        assert_eq!(mock.issue("SX9-2").labels.len(), 2, "the type and one more");
        let keys: Vec<String> =
            clone.project.issues().read().unwrap().issues.into_iter().map(|issue| issue.linear_id).collect();
        assert_eq!(keys, ["SX9-1", "SX9-2"]);
        assert_eq!(clone.issue("SX9-2").blocked_by, ["SX9-1"]);
        assert_eq!(clone.status().waiting, 0);
        conforms(&mock);
    }
}

#[tokio::test]
async fn a_push_dropped_in_the_middle_is_finished_later() {
    let mock = Mock::start();
    let clone = Clone::new(&mock);
    for number in 0..4 {
        clone.add(&format!("issue {number}"));
    }
    for step in 0..12 {
        mock.fail("", step, Fault::Slow(Duration::from_millis(300)));
        let _ = tokio::time::timeout(Duration::from_millis(100), clone.sync().push(&Push::default())).await;
        mock.forget_faults();
    }
    clone.push().await;
    assert_eq!(mock.with(|store| store.issues.len()), 4);
    assert_eq!((clone.status().waiting, clone.status().local.len()), (0, 0));
    conforms(&mock);
}
