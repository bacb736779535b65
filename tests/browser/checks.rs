//! What is looked at on each page: its text, its accessibility, its layout, the keyboard, and what
//! the browser says.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use serde_json::Value;

use super::chromium::Tab;

const OUTLINE: &str = include_str!("outline.js");
const LAYOUT: &str = include_str!("layout.js");
const FOCUS: &str = include_str!("focus.js");
const FOREIGN: &str = include_str!("foreign.js");

/// Number of presses of Tab after which a page counts as a trap.
const MOST_STOPS: usize = 400;

/// Returns the script of axe-core, which `tests/support/axe/install.sh` installs.
#[expect(clippy::disallowed_methods, reason = "a test has no `Env`")]
fn axe_script() -> &'static str {
    static SCRIPT: OnceLock<String> = OnceLock::new();
    SCRIPT.get_or_init(|| {
        let file = std::env::var_os("HELMDECK_TEST_AXE").map_or_else(install_axe, PathBuf::from);
        // Its value would be its whole interface.
        std::fs::read_to_string(file).unwrap() + ";0"
    })
}

fn install_axe() -> PathBuf {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/support/axe/install.sh");
    let output = Command::new(script)
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "tests/support/axe/install.sh failed"
    );
    let printed = String::from_utf8(output.stdout).unwrap();
    PathBuf::from(printed.trim().strip_prefix("HELMDECK_TEST_AXE=").unwrap())
}

/// Returns the text of the page, without what differs between two runs.
pub(super) fn outline(tab: &Tab<'_>) -> String {
    tab.text(OUTLINE)
}

/// Returns what axe finds, with all its rules.
pub(super) fn axe(tab: &Tab<'_>) -> Vec<String> {
    run_axe(tab, "{rules: {'target-size': {enabled: true}}}")
}

/// Returns what axe finds about the colours.
pub(super) fn axe_colours(tab: &Tab<'_>) -> Vec<String> {
    run_axe(tab, "{runOnly: ['color-contrast']}")
}

fn run_axe(tab: &Tab<'_>, options: &str) -> Vec<String> {
    if tab.eval("typeof axe") != "object" {
        tab.eval(axe_script());
    }
    list(&tab.eval(&format!(
        "axe.run(document, {options}).then(found => found.violations.map(one => `axe ${{one.id}}: ` + \
         one.nodes.slice(0, 3).map(node => node.html.slice(0, 160)).join(' ; ')))"
    )))
}

/// Returns what is wrong with the layout in the present window.
pub(super) fn layout(tab: &Tab<'_>) -> Vec<String> {
    list(&tab.eval(LAYOUT))
}

/// Returns elements and attributes that come from texts of others.
pub(super) fn foreign(tab: &Tab<'_>) -> Vec<String> {
    list(&tab.eval(FOREIGN))
}

fn list(value: &Value) -> Vec<String> {
    value
        .as_array()
        .unwrap()
        .iter()
        .map(|text| text.as_str().unwrap().to_owned())
        .collect()
}

/// What has the focus.
pub(super) struct Stop {
    index: u64,
    pub(super) name: String,
    tag: String,
    seen: bool,
}

/// Moves the focus on by the key Tab, and returns where it is now; `None` at the end of the page.
pub(super) fn next_stop(tab: &Tab<'_>) -> Option<Stop> {
    tab.press("Tab");
    let at = tab.eval(FOCUS);
    let text = |name: &str| at[name].as_str().unwrap_or_default().to_owned();
    Some(Stop {
        index: at["index"].as_u64()?,
        name: text("name"),
        tag: text("tag"),
        seen: at["seen"] == true,
    })
}

/// Walks through the page with the key Tab. Returns what is wrong: what is not reached, or reached
/// unseen.
pub(super) fn keyboard(tab: &Tab<'_>) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut reached = Vec::new();
    while let Some(stop) = next_stop(tab) {
        // It left the page, and came in again before anybody looked.
        if reached.first() == Some(&stop.index) {
            break;
        }
        if !stop.seen {
            wrong.push(format!(
                "the focus on {} {:?} is not seen",
                stop.tag, stop.name
            ));
        }
        if reached.is_empty()
            && tab.eval("!!document.querySelector('.skip')") == true
            && stop.tag != "A"
        {
            wrong.push(format!(
                "the first stop is {} {:?}, not the link past the navigation",
                stop.tag, stop.name
            ));
        }
        reached.push(stop.index);
        if reached.len() > MOST_STOPS {
            wrong.push("the keyboard does not get out of the page".to_owned());
            break;
        }
    }
    let all = tab.eval(
        "[...document.querySelectorAll('*')].map((element, index) => [element, index]).filter(([element]) => \
         element.matches('a[href], button, input:not([type=hidden]), select, textarea, summary') && \
         element.checkVisibility() && !element.disabled).map(([element, index]) => \
         [index, element.outerHTML.slice(0, 120)])",
    );
    let missed = all
        .as_array()
        .unwrap()
        .iter()
        .filter(|one| !reached.contains(&one[0].as_u64().unwrap()));
    wrong.extend(missed.map(|one| format!("the keyboard does not reach {}", one[1])));
    wrong
}

/// Moves the focus to what has a name, by the key Tab alone.
#[track_caller]
pub(super) fn go_to(tab: &Tab<'_>, name: &str) {
    for _ in 0..MOST_STOPS {
        match next_stop(tab) {
            Some(stop) if stop.name == name => {
                assert!(stop.seen, "the focus on {name:?} is not seen");
                return;
            }
            _ => {}
        }
    }
    panic!("the keyboard does not reach {name:?}:\n{}", outline(tab));
}

/// Compares the text of a page with its snapshot, or writes that into the folder
/// `HELMDECK_TEST_SNAPSHOTS`.
///
/// Returns how they differ.
#[expect(clippy::disallowed_methods, reason = "a test has no `Env`")]
pub(super) fn compare(state: &str, name: &str, text: &str) -> Option<String> {
    if let Some(folder) = std::env::var_os("HELMDECK_TEST_SNAPSHOTS") {
        let folder = PathBuf::from(folder).join(state);
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join(format!("{name}.txt")), text).unwrap();
        return None;
    }
    let file = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join(format!("tests/browser/seen/{state}/{name}.txt"));
    let known = std::fs::read_to_string(&file).unwrap_or_default();
    if known == text {
        return None;
    }
    let (mut old, mut new) = (known.lines(), text.lines());
    let line = 1 + known
        .lines()
        .zip(text.lines())
        .take_while(|(old, new)| old == new)
        .count();
    let (old, new) = (
        old.nth(line - 1).unwrap_or("(end)"),
        new.nth(line - 1).unwrap_or("(end)"),
    );
    Some(format!(
        "tests/browser/seen/{state}/{name}.txt:{line} says\n  {old}\nand the page\n  {new}"
    ))
}

/// Returns the file of a picture, in the folder for temporary files of the build.
pub(super) fn picture(folder: &str, name: &str) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("pages/{folder}/{name}.webp"))
}
