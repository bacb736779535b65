//! What an agent plants in its repository and its home never runs outside the sandbox, and changes
//! nothing of what is pushed.

use serde_json::json;

use super::Fixture;
use super::limits::open_to_all;
use crate::support::git::git;
use crate::support::model::{bash, submit as done};

/// Plants a program at every place that git runs one from: each makes a file in the folder `@`, if
/// there is such a folder. In the sandbox there is none.
const PLANT: &str = r#"
out=@
trap_at() { printf '#!/bin/sh\ntouch %s/%s\ncat 2>/dev/null\nexit 0\n' "$out" "$2" >"$1"; chmod +x "$1"; }
mkdir -p .git/hooks evil
for hook in pre-push pre-commit prepare-commit-msg commit-msg post-commit post-checkout post-merge post-rewrite pre-applypatch \
    applypatch-msg post-applypatch post-index-change reference-transaction pre-auto-gc push-to-checkout pre-receive update \
    post-receive post-update proc-receive sendemail-validate fsmonitor-watchman; do
    trap_at .git/hooks/$hook hook-$hook
done
cp -r .git/hooks evil/hooks
for name in fsmonitor filter textconv external helper ssh pager editor gpg alias askpass proxy merge included sequence upload receive; do
    trap_at "$PWD/evil/$name" "$name"
done
git config core.hooksPath "$PWD/evil/hooks"
git config core.sshCommand "$PWD/evil/ssh"
git config core.gitProxy "$PWD/evil/proxy"
git config core.pager "$PWD/evil/pager"
git config core.editor "$PWD/evil/editor"
git config core.askPass "$PWD/evil/askpass"
git config core.attributesFile "$PWD/evil/attributes"
git config sequence.editor "$PWD/evil/sequence"
git config credential.helper "!$PWD/evil/helper"
git config filter.evil.clean "$PWD/evil/filter"
git config filter.evil.smudge "$PWD/evil/filter"
git config filter.evil.process "$PWD/evil/filter"
git config filter.evil.required true
git config diff.external "$PWD/evil/external"
git config diff.evil.textconv "$PWD/evil/textconv"
git config diff.evil.command "$PWD/evil/external"
git config merge.evil.driver "$PWD/evil/merge"
git config gpg.program "$PWD/evil/gpg"
git config commit.gpgSign true
git config push.gpgSign if-asked
git config alias.push "!$PWD/evil/alias"
git config alias.diff "!$PWD/evil/alias"
git config alias.status "!$PWD/evil/alias"
git config remote.origin.uploadpack "$PWD/evil/upload"
git config remote.origin.receivepack "$PWD/evil/receive"
git config remote.origin.pushurl "ext::$PWD/evil/receive"
git config remote.pushDefault evil
git config remote.evil.url "ext::$PWD/evil/receive"
git config protocol.ext.allow always
git config url."http://127.0.0.1:9/evil/".insteadOf http://
git config http.proxy http://127.0.0.1:9
git config http.extraHeader "X-Evil: 1"
git config submodule.recurse true
git config submodule.evil.update "!$PWD/evil/alias"
git config submodule.evil.url "ext::$PWD/evil/upload"
printf '* filter=evil diff=evil merge=evil\n' | tee .git/info/attributes evil/attributes >.gitattributes
printf '[submodule "evil"]\n\tpath = sub\n\turl = ext::%s/evil/upload\n\tupdate = !%s/evil/alias\n' "$PWD" "$PWD" >.gitmodules
printf '[core]\n\tfsmonitor = %s/evil/included\n' "$PWD" >evil/config
git config include.path "$PWD/evil/config"
cp .git/config ~/.gitconfig
mkdir -p ~/.config/git && cp .git/config ~/.config/git/config
git config core.fsmonitor "$PWD/evil/fsmonitor"
printf '*.pyc\n' >.git/info/exclude
cp -r evil .git/evil && rm -rf evil
sed -i "s#$PWD/evil/#$PWD/.git/evil/#g" .git/config ~/.gitconfig ~/.config/git/config .git/evil/config
echo planted
"#;

#[test]
fn planted_files_never_run_outside_the_sandbox() {
    let fixture = Fixture::new("parse", []);
    let outside = tempfile::tempdir().unwrap();
    open_to_all(outside.path());
    let plant = PLANT.replace('@', outside.path().to_str().unwrap());
    fixture
        .model
        .then([bash(fixture.task.mend()), bash(plant), done()]);
    let server = fixture.server();
    let outcome = fixture.solve(
        &server,
        json!({"mode": "branch", "test_command": "git status --short; git diff --stat; true"}),
    );
    let output = &outcome["output"];
    assert!(
        fixture.model.asked()[2].last().contains("planted"),
        "{}",
        fixture.model.asked()[2].last()
    );
    assert_eq!(output["success"], true, "{output}");
    let ran: Vec<_> = std::fs::read_dir(outside.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    assert!(ran.is_empty(), "these ran outside: {ran:?}");

    // What was pushed is the change, at the server that was named, and the change holds nothing of
    // the rest.
    let branch = output["branch"].as_str().unwrap();
    let bare = fixture.git.bare(&fixture.repository());
    let names = git(&bare, &["diff", "--name-only", &format!("main..{branch}")]);
    assert_eq!(
        names.lines().collect::<Vec<_>>(),
        [".gitattributes", ".gitmodules", "parse.py"]
    );
    let pushed = git(&bare, &["show", &format!("{branch}:parse.py")]);
    assert!(
        pushed.contains("\"%f\": \"[0-9]{1,6}\""),
        "no filter changed it"
    );
    fixture
        .task
        .assert_mended_by(output["patch"].as_str().unwrap());
    assert!(
        fixture
            .git
            .log()
            .iter()
            .all(|line| line["user"].is_null() || line["user"] == "x-access-token")
    );
    // The traps are real: outside of a sandbox, git itself walks into one. (It then waits for a
    // filter that says nothing.)
    let proof = tempfile::tempdir().unwrap();
    let planted = PLANT.replace('@', outside.path().to_str().unwrap());
    let mut walk = std::process::Command::new("bash");
    walk.args([
        "-c",
        &format!("{planted}\ntimeout -k 1 3 git add -A </dev/null"),
    ])
    .current_dir(fixture.task.clone_into(proof.path()));
    walk.env_clear()
        .env("PATH", "/usr/local/bin:/usr/bin:/bin")
        .env("HOME", proof.path());
    walk.stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null())
        .status()
        .unwrap();
    assert!(
        outside.path().join("filter").exists(),
        "outside of a sandbox the same commands leave traces"
    );
}
