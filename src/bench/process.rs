//! Memory and start of an idle `serve`: the release binary, with a memory key.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::calls::KEY;
use crate::measure::{Table, median, resident_mib};

pub(crate) fn idle(table: &mut Table) {
    let binary = crate::measure::program();
    if !binary.exists() {
        table.add(
            "idle serve",
            "not measured: build the release binary first".to_owned(),
            "measured",
            false,
        );
        return;
    }
    let (mut starts, mut sizes) = (Vec::new(), Vec::new());
    for _ in 0..7 {
        let folder = tempfile::tempdir().unwrap();
        let started = Instant::now();
        let mut child = Command::new(&binary)
            .args(["serve", "--listen", "127.0.0.1:0"])
            .env_clear()
            .env("HELMDECK_MEMORY_KEY", KEY)
            .env("HELMDECK_DATA_DIR", folder.path())
            .env("HOME", folder.path())
            .env("HELMDECK_LOG", "info")
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let address = BufReader::new(child.stderr.take().unwrap())
            .lines()
            .map_while(Result::ok)
            .find_map(|line| {
                line.split("http://")
                    .nth(1)
                    .map(|rest| rest.trim_end_matches(['"', '}', '/', ' ']).to_owned())
            })
            .expect("serve says where it listens");
        let address: String = address
            .chars()
            .take_while(|c| c.is_ascii_digit() || matches!(c, '.' | ':'))
            .collect();
        let mut connection = TcpStream::connect(&address).unwrap();
        write!(
            connection,
            "GET /readyz HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n"
        )
        .unwrap();
        let mut answer = String::new();
        connection.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        starts.push(started.elapsed().as_secs_f64() * 1e3);
        std::thread::sleep(Duration::from_millis(500));
        sizes.push(resident_mib(child.id()));
        child.kill().unwrap();
        child.wait().unwrap();
    }
    let (start, size) = (median(starts.into_iter()), median(sizes.into_iter()));
    table.add(
        "serve, from start to ready",
        format!("{start:.0} ms"),
        "< 15 ms",
        start < 15.0,
    );
    table.add(
        "serve, idle, resident",
        format!("{size:.1} MiB"),
        "< 20 MiB",
        size < 20.0,
    );
}
