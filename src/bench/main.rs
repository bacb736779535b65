#![doc = include_str!("README.md")]
#![allow(
    missing_docs,
    clippy::print_stdout,
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a benchmark prints its table and stops at the first thing that goes wrong"
)]

mod calls;
mod conversation;
mod floors;
mod forge;
mod growth;
mod mcp;
mod measure;
mod paths;
mod process;
mod puts;
mod rest;
mod scale;
mod seam;

use measure::Table;

fn main() {
    let wanted: Vec<String> = std::env::args().skip(1).collect();
    match wanted.first().map(String::as_str) {
        Some("load") => return rest::load(&wanted[1..]),
        Some("answer-anything") => return rest::answer_anything(wanted[1].parse().unwrap()),
        Some("path") => return paths::run(&wanted[1..]),
        Some("callgrind") => return calls::callgrind(wanted.get(1).map_or("", String::as_str)),
        _ => {}
    }
    let all = wanted.is_empty();
    let does = |name: &str| all || wanted.iter().any(|wanted| wanted == name);
    let mut table = Table::default();
    if does("floors") {
        floors::floors(&mut table);
    }
    if does("shut") {
        calls::shut(&mut table);
    }
    if does("hit") {
        calls::hot(&mut table);
    }
    if does("cold") {
        calls::cold(&mut table);
    }
    if does("sqlite") {
        puts::puts(&mut table);
    }
    if does("rest") {
        rest::requests(&mut table);
    }
    if does("mcp") {
        mcp::requests(&mut table);
        mcp::stdio(&mut table);
    }
    if does("conversation") {
        conversation::conversations(&mut table);
    }
    if does("process") {
        process::idle(&mut table);
    }
    if does("seam") {
        seam::doors(&mut table);
    }
    if does("forge") {
        forge::large_project(&mut table);
    }
    // Minutes: only for those who ask for it.
    let wants = |part: &str| {
        wanted.iter().any(|wanted| {
            wanted.starts_with("scale") && format!("scale-{part}").starts_with(wanted)
        })
    };
    if wants("conversation") {
        conversation::scale(&mut table);
    }
    scale::scale(&mut table, wants);
    growth::growth(&mut table, |part| {
        wanted.iter().any(|wanted| {
            wanted.starts_with("growth") && format!("growth-{part}").starts_with(wanted)
        })
    });
    table.print();
    // A run with named benchmarks fails if a target is missed.
    if !all && table.has_missed() {
        std::process::exit(1);
    }
}
